"""Bytes read and decoded: as forecast, and as the file counts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from zarr.storage import LoggingStore, MemoryStore

import dask_rewrite
from dask_rewrite.analysis.knowledge.stored import decoded, stored_chunks
from helpers import stock, switched_on

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda v: v.sum(),
    "sum along an axis": lambda v: (v + 1).sum(axis=0),
    "corner": lambda v: v[:5, :3],
    "anomaly of a corner": lambda v: (v - v.mean(axis=0))[:5, :5],
    "coarser": lambda v: v.rechunk(60),
    "rows": lambda v: v[[1, 5, 99]],
    "steps": lambda v: (v + 1)[::7, ::31],
    "template": lambda v: ((v * 2 + 1) ** 2).max(),
    "function of a user": lambda v: v.map_blocks(lambda block: block.cumsum(axis=1), dtype="f8").sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_chunk_counts_as_often_as_it_is_decoded(name: str) -> None:
    store = LoggingStore(MemoryStore(), log_level="ERROR")
    array = zarr.create_array(store=store, shape=(300, 300), chunks=(30, 30), dtype="f8")
    array[...] = 1
    made = PROGRAMS[name](da.from_array(array, chunks=45))
    found = dask_rewrite.forecast(made)
    for run, way in ((found.before, stock), (found.after, switched_on)):
        store.counter.clear()
        with way():
            made.compute(scheduler="sync")
        assert run.decoded == store.counter["get"] * 30 * 30 * 8
        assert 0 < run.read <= run.decoded
    assert found.after.decoded <= found.before.decoded
    assert "decoded" in repr(found)
    assert "decoded" in repr(dask_rewrite.explain(made, forecast=True))
    assert found.to_dict()["after"]["decoded"] == found.after.decoded


@pytest.mark.parametrize(
    ("index", "chunks"),
    [
        ((slice(None), slice(None)), 4 * 4),
        ((slice(3, 4),), 4),
        ((..., slice(2, 3)), 4),
        ((None, slice(1, 7), 0), 3),
        (slice(0, 10, 5), 2 * 4),
        (slice(None, None, -1), 16),
        (slice(9, None, -9), 2 * 4),
        ((slice(4, 4), slice(None)), 0),
        (([0, 1, -1], 0), 2),
        ((np.int64(5), np.array([0, 9])), 2),
    ],
)
def test_chunks_that_an_index_touches(index: Any, chunks: int) -> None:
    assert decoded(zarr.zeros((10, 10), chunks=(3, 3), dtype="i2"), index) == chunks * 3 * 3 * 2


def test_files_that_do_not_tell(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        whole = file.create_dataset("x", data=np.ones((40, 40)))
        chunked = file.create_dataset("y", data=np.ones((40, 40)), chunks=(20, 20))
        assert decoded(whole, slice(3)) is None
        assert decoded(chunked, slice(3)) == 2 * 20 * 20 * 8
        assert decoded(chunked, "a field") is None
        assert stored_chunks(whole) is None
        found = dask_rewrite.forecast(da.from_array(whole, chunks=10)[:5])
        assert found.after.decoded == found.after.read == 5 * 40 * 8
    assert decoded(np.ones(3), slice(2)) is None


def test_partial_results_of_topk_hold_what_they_were_sorted_in(tmp_path: Path) -> None:
    z = zarr.create_array(str(tmp_path / "x.zarr"), shape=(480, 8192), chunks=(10, 8192), dtype="f8")
    z[:] = np.random.default_rng(0).random(z.shape)
    found = da.topk(da.from_zarr(z), 5, axis=0)
    assert dask_rewrite.forecast(found, threads=2).before.peak > 7e6  # 4 of 20 rows, and two blocks


def test_of_what_is_selected_not_all_is_certain() -> None:
    chunks = ((10,) * 48, (8192,))
    x = da.map_blocks(lambda: np.ones((10, 8192)), chunks=chunks, dtype=float, meta=np.empty((0, 0)))
    y = x[x[:, 0] > 0.5]
    found = dask_rewrite.forecast((y - y.mean(axis=0)).std(axis=0), threads=2)
    for side in (found.before, found.after):
        assert side.unknown >= 48
        assert side.least < 4e6 < 28e6 < side.peak


@pytest.mark.parametrize("chunks", [None, (10, 20, 30)])
def test_numbers_that_are_stored_as_smaller_ones_count_as_stored(tmp_path: Path, chunks: Any) -> None:
    xr = pytest.importorskip("xarray")
    packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "chunksizes": chunks}
    values = xr.Dataset({"a": (("t", "y", "x"), np.ones((40, 20, 30)))})
    values.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"a": packed})
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf", chunks={"t": 10}) as opened:
        found = dask_rewrite.forecast(opened.a.mean("t").data, threads=2)
    for run in (found.before, found.after):
        assert run.read == run.decoded == 40 * 20 * 30 * 2
