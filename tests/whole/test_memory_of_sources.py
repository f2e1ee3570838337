"""Products of blocks of any source hold as little as products of random blocks."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.every_source import sources

import dask_rewrite

for module in ("xarray", "zarr", "h5py", "scipy"):
    pytest.importorskip(module)

SIDE = 96


@pytest.mark.once
@pytest.mark.parametrize("threads", [2, 8])
def test_products_hold_what_those_of_random_blocks_hold(threads: int, tmp_path: Any) -> None:
    peaks = {}
    for name, make in sources(tmp_path, SIDE, (4, 24)).items():
        x = make()
        found = dask_rewrite.forecast(x.dot(x.T), threads=threads)
        peaks[name] = found.before.peak, found.after.peak
    block = 8 * SIDE**2  # ties are broken by names
    most = 1.2 * peaks["random"][1] + block
    assert {name: after for name, (_, after) in peaks.items() if after > most} == {}
    assert all(after < before / 2 for name, (before, after) in peaks.items() if name != "NumPy"), peaks


def test_of_gated_loads_and_sums_the_size_is_known() -> None:
    def load(block_info: Any = None) -> np.ndarray:
        return np.ones(block_info[None]["chunk-shape"])

    x = da.map_blocks(load, chunks=((30,) * 4, (40,) * 2, (100,) * 8), dtype="f8", meta=np.empty((0, 0, 0)))
    with dask.config.set({"rewrite.options": {"contract": {"min-bytes": 1}}}):
        found = dask_rewrite.forecast(da.tensordot(x, x, ((1, 2), (1, 2))), threads=2)
    assert found.after.tasks != found.before.tasks
    assert not found.after.unknown
    loads, block = 2 * 4 * 8, 30 * 40 * 100 * 8
    assert found.after.peak < loads * block / 2
