"""Products of blocks of any source hold as little as products of random blocks."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.every_source import sources

import dask_rewrite

for module in ("xarray", "zarr", "h5py", "scipy"):
    pytest.importorskip(module)

SIDE = 96


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
