"""A small window of a large labelled array.

xarray's last task carries the whole Dataset, with the graph of every chunk, to a worker. Here it
carries only what it needs to put the answer together.

    python examples/xarray_window.py
"""

import cloudpickle
import dask.array as da
import numpy as np
import xarray as xr
from dask._expr import FinalizeCompute
from dask.base import collections_to_expr

import dask_rewrite


def submitted(collection):
    """Bytes that a client sends to the scheduler for this collection."""
    return len(cloudpickle.dumps(FinalizeCompute(collections_to_expr([collection])).optimize()))


hours = da.arange(4800, chunks=1)[:, None, None] + da.zeros((1, 8, 8), chunks=(1, 4, 4))
field = xr.DataArray(hours, dims=("time", "y", "x"), coords={"time": np.arange(4800)}, name="warmth")
change = field - field.shift(time=1)
window = change.isel(time=slice(10, 13), y=slice(0, 4), x=slice(0, 4))

before = submitted(window)
with dask_rewrite.enable():
    after = submitted(window)
    answer = window.compute()

assert answer.shape == (3, 4, 4)
assert (answer == 1).all()
assert list(answer.time.values) == [10, 11, 12]
assert after < 20_000

print(f"{field.data.npartitions:,} chunks; {before:,} bytes sent by dask, {after:,} bytes rewritten")
