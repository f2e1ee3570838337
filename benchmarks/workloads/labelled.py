"""Workloads of xarray users."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.workloads.registry import workload


def _field(da: ModuleType, times: int, side: int, chunk: int) -> Any:
    import xarray as xr

    base = da.arange(times, chunks=1)[:, None, None] + da.zeros((1, side, side), chunks=(1, chunk, chunk))
    coords = {"time": np.arange(times), "y": np.arange(side), "x": np.arange(side)}
    return xr.DataArray(base, dims=("time", "y", "x"), coords=coords, name="field")


@workload(40, 4800, 19200)
def xarray_window(da: ModuleType, n: int) -> Any:
    """The change from one hour to the next in a labelled array of n chunks, for one day and place."""
    field = _field(da, n // 4, 8, 4)
    change = field - field.shift(time=1)
    return (change * 2 + 1).isel(time=slice(3, 6), y=slice(0, 4), x=slice(0, 4))


@workload(2, 16, 40)
def xarray_week(da: ModuleType, n: int) -> Any:
    """Rechunk, smooth with a rolling mean, then look at one week."""
    field = _field(da, 10 * n, 8, 4).chunk({"time": 10, "y": 4, "x": 4})
    smooth = field.chunk({"time": -1}).rolling(time=5, center=True).mean()
    return smooth.isel(time=slice(7, 14))


def _double(part: Any) -> Any:
    return part * 2


@workload(2, 8, 20)
def xarray_fine(da: ModuleType, n: int) -> Any:
    """xarray.map_blocks over n x 16 small chunks."""
    import xarray as xr

    field = _field(da, n, 16, 4)
    return xr.map_blocks(_double, field, template=field)


@workload(2, 10, 100)
def xarray_many_calls(da: ModuleType, n: int) -> Any:
    """xarray.map_blocks called n times, one after another, on one object."""
    import xarray as xr

    field = _field(da, 4, 8, 8)
    for _ in range(n):
        field = xr.map_blocks(_double, field, template=field)
    return field


@workload(2, 100, 100, heavy=True)
def xarray_hundred_calls(da: ModuleType, n: int) -> Any:
    """xarray.map_blocks called n times on one object of 60 chunks with three coordinates."""
    import xarray as xr

    shape = {"time": 150, "y": 40, "x": 40}
    coords = {name: np.arange(float(size)) for name, size in shape.items()}
    data = da.ones(tuple(shape.values()), chunks=(10, 20, 20))
    field = xr.DataArray(data, dims=tuple(shape), coords=coords, name="field")
    for _ in range(n):
        field = xr.map_blocks(_double, field, template=field)
    return field


@workload(2, 12, 40)
def xarray_climate(da: ModuleType, n: int) -> Any:
    """Anomalies from the mean of each month, of a Dataset with two variables."""
    import xarray as xr

    warm = _field(da, 12 * n, 4, 4).chunk({"time": 12})
    months = xr.DataArray(np.arange(12 * n) % 12, dims="time", name="month")
    data = xr.Dataset({"warm": warm, "wet": warm * 0.5}).assign_coords(month=months)
    return data.groupby("month") - data.groupby("month").mean()
