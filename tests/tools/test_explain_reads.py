"""What explain says of files: as much as the forecast, without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import dask_rewrite
from dask_rewrite.analysis.memory.reads import Reads
from dask_rewrite.tools import explain

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a slice in steps": lambda v: (v + 1)[::45, ::45].sum(),
    "blocks that cut chunks": lambda v: v.rechunk(15).sum(),
    "all": lambda v: (v - v.mean(axis=0)).std(),
    "a point": lambda v: v[7, 8] * 2,
}


def _stored(kind: str, folder: Path) -> Any:
    data = np.arange(10_000.0).reshape(100, 100)
    if kind == "hdf5":
        with h5py.File(folder / "x.h5", "w") as file:
            file.create_dataset("x", data=data, chunks=(10, 10))
        return da.from_array(h5py.File(folder / "x.h5")["x"], chunks=(20, 20))
    array = zarr.create_array(folder / "x.zarr", shape=(100, 100), chunks=(10, 10), dtype="f8")
    array[...] = data
    if kind == "zarr":
        return da.from_array(array, chunks=(20, 20))
    xr.Dataset({"a": (("y", "x"), data)}).to_netcdf(folder / "x.nc", engine="h5netcdf")
    return xr.open_dataset(folder / "x.nc", engine="h5netcdf", chunks={"y": 20, "x": 20}).a.data


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["zarr", "hdf5", "netcdf"])
def test_as_the_forecast_says(name: str, kind: str, tmp_path: Path) -> None:
    made = PROGRAMS[name](_stored(kind, tmp_path))
    forecast = dask_rewrite.forecast(made, threads=2)
    runs = forecast.before, forecast.after
    assert dask_rewrite.explain(made).reads == tuple(Reads(run.read, run.decoded) for run in runs)


def test_what_is_shown() -> None:
    array = zarr.create_array({}, shape=(100, 100), chunks=(10, 10), dtype="f8")
    v = da.from_array(array, chunks=(20, 20))
    report = dask_rewrite.explain((v + 1)[::45, ::45].sum())
    line = "files: 28.12 kiB -> 72 B read, 28.12 kiB -> 7.03 kiB decoded (dask -> as sent)"
    assert repr(report).splitlines()[1] == line
    assert f"<p>{line.replace('>', '&gt;')}</p>" in report._repr_html_()
    assert line.replace(">", "&gt;") in report.to_html()
    assert json.loads(report.to_json())["files"][1] == {"read": 72, "decoded": 7200}
    assert "files: 78.12 kiB read, 78.12 kiB decoded\n" in repr(dask_rewrite.explain(v.sum()))


def test_nothing_is_said_where_nothing_is_read() -> None:
    report = dask_rewrite.explain(da.ones((8, 8), chunks=4).sum(), da.from_array(np.arange(8), chunks=4))
    assert report.reads == (None, None)
    assert "files:" not in repr(report)


def test_of_arrays_that_delayed_calls_use() -> None:
    """Of their blocks dask makes tasks within tasks, and of their files as well."""
    array = zarr.create_array({}, shape=(100, 100), chunks=(10, 10), dtype="f8")
    made = dask.delayed(np.sum)(da.from_array(array, chunks=(15, 15)))
    before, after = dask_rewrite.explain(made).reads
    assert before is not None
    assert after is not None
    assert before.read == after.read == 80_000
    assert before.decoded > after.decoded


@pytest.mark.parametrize("limit", [50, 1_000])
def test_dasks_own_graph_of_many_tasks_is_not_made(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "_COMPARED", limit)
    array = zarr.create_array({}, shape=(100, 100), chunks=(10, 10), dtype="f8")
    before, after = dask_rewrite.explain((da.from_array(array, chunks=(10, 10)) + 1)[:45].sum()).reads
    assert after == Reads(36_000, 40_000)
    assert (before is None) == (limit == 50)
