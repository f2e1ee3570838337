"""Look at one tile of a mosaic of 250 x 250 tiles.

dask sends the graph of the whole mosaic to the scheduler, which then cuts it down to one tile.
Here the graph is cut before it is sent.

    python examples/one_tile.py
"""

import cloudpickle
import dask.array as da
import numpy as np
from dask._expr import FinalizeCompute
from dask.base import collections_to_expr

import dask_rewrite


def submitted(collection):
    """Bytes that a client sends to the scheduler for this collection."""
    return len(cloudpickle.dumps(FinalizeCompute(collections_to_expr([collection])).optimize()))


x = da.ones((250 * 20, 250 * 20), chunks=20)
mosaic = x + x.T + x[::-1] + x[:, ::-1]
tile = mosaic[:20, :20]

before = submitted(tile)
with dask_rewrite.enable():
    after = submitted(tile)
    answer = tile.compute()

assert np.array_equal(answer, np.full((20, 20), 4.0))
assert after < 20_000

print(f"{len(tile.dask):,} tasks as built; {before:,} bytes sent by dask, {after:,} bytes rewritten")
