"""Workloads whose reads and grids decide: tiny reads, shared coordinates, windows, stencils, takes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.workloads.registry import workload
from benchmarks.workloads.sources import hdf5


@workload(20, 2000, 2000, heavy=True, exact=False, on=("2", "2x1"))
def tiny_reads(da: ModuleType, n: int) -> Any:
    """((x + 1) ** 2).sum() over n reads of 6 kB from HDF5."""
    x = da.from_array(hdf5((50 * n, 16), (50, 16)), chunks=(50, 16))
    return ((x + 1) ** 2).sum()


@workload(2, 10, 21, heavy=True, portable=True, on=("2",))
def blocks_across_chunks(da: ModuleType, n: int) -> Any:
    """The sum of an HDF5 dataset of n x n chunks of 100 x 100, in blocks of 150 x 150."""
    return da.from_array(hdf5((100 * n, 100 * n), (100, 100)), chunks=(150, 150)).sum()


@workload(5, 10, 20, heavy=True, portable=True, on=("2",))
def rechunked_read(da: ModuleType, n: int) -> Any:
    """The largest of each column of an HDF5 dataset of n x n chunks, put together 5 x 5."""
    x = da.from_array(hdf5((100 * n, 100 * n), (100, 100)), chunks=(100, 100))
    return x.rechunk((500, 500)).max(axis=0)


@workload(4, 8, 16, heavy=True, exact=False, portable=True, on=("2",))
def shared_coordinates(da: ModuleType, n: int) -> Any:
    """(sin(lon) * cos(lat)).sum() over a meshgrid of n x n blocks."""
    axis = da.arange(256 * n, chunks=256)
    lon, lat = da.meshgrid(axis, axis)
    return (np.sin(lon) * np.cos(lat)).sum()


@workload(4, 20, 20, heavy=True, portable=True, exact=False, on=("2",))
def window_totals(da: ModuleType, n: int) -> Any:
    """A running mean over 31 rows of an array of n x n blocks, and the largest of each column."""
    x = da.from_array(np.arange(100.0 * n * 5 * n).reshape(100 * n, 5 * n) % 23, chunks=(100, 5))
    return np.lib.stride_tricks.sliding_window_view(x, 31, axis=0).mean(axis=-1).max(axis=0)


@workload(2, 6, 10, heavy=True, portable=True, on=("2",))
def pad_stencil(da: ModuleType, n: int) -> Any:
    """n steps of a stencil by pad, slices and sums on 4 x 4 blocks of 100 x 100."""
    x = da.from_array(np.arange(400.0 * 400).reshape(400, 400) % 11, chunks=100)
    for _ in range(n):
        p = da.pad(x, 1)
        x = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4
    return x


@workload(3, 5, 20, heavy=True, portable=True, on=("2",))
def coarse_wave(da: ModuleType, n: int) -> Any:
    """A wave equation: n steps with da.roll on 2 x 2 blocks of 100 x 100."""
    now = da.from_array(np.arange(200.0 * 200).reshape(200, 200) % 5, chunks=100)
    before = now
    for _ in range(n):
        around = da.roll(now, 1, 0) + da.roll(now, -1, 0) + da.roll(now, 1, 1) + da.roll(now, -1, 1)
        now, before = 2 * now - before + 0.1 * (around - 4 * now), now
    return now


@workload(1, 2, 5, heavy=True, exact=False, on=("2",))
def day_anomalies(da: ModuleType, n: int) -> Any:
    """n years less their climatology, taken day by day, and the spread of what is left."""
    x = da.random.default_rng(0).random((365 * n, 40, 40), chunks=(73, 20, 20))
    climate = da.stack([x[day::365].mean(axis=0) for day in range(365)])
    return (x - climate[np.arange(365 * n) % 365]).std(axis=0)


@workload(2, 8, 8, heavy=True, exact=False, on=("2",))
def anomaly_of_a_point(da: ModuleType, n: int) -> Any:
    """One point of ((x - 3) * x.mean(axis=0) / 2) over n stored slabs of 256 x 256 chunks."""
    side = 2048 if n > 2 else 512
    x = da.from_array(hdf5((n, side, side), (1, 256, 256)), chunks=(n // 2, side, side))
    return ((x - 3) * x.mean(axis=0) / 2)[:, side // 2, side // 2]


@workload(2, 6, 25, heavy=True, on=("2",))
def rolling_mean(da: ModuleType, n: int) -> Any:
    """A rolling mean of xarray over 31 rows of an array of 5 n x n blocks, as wide as three of them."""
    import xarray as xr

    x = da.from_array(np.arange(500.0 * n * n).reshape(50 * n, 10 * n) % 23, chunks=10)
    return xr.DataArray(x, dims=("time", "place")).rolling(time=31).mean()


@workload(1, 2, 5, heavy=True, exact=False, on=("2",))
def xarray_day_anomalies(da: ModuleType, n: int) -> Any:
    """n years less the means of their days, by xarray's groupby, and the spread of what is left."""
    import pandas as pd
    import xarray as xr

    x = da.random.default_rng(0).random((365 * n, 40, 40), chunks=(73, 20, 20))
    time = pd.date_range("2001-01-01", periods=365 * n)
    days = xr.DataArray(x, dims=("time", "y", "x"), coords={"time": time}).groupby("time.dayofyear")
    return (days - days.mean()).std("time")


@workload(2, 10, 10, heavy=True, exact=False, portable=True, on=("2",))
def column_spectra(da: ModuleType, n: int) -> Any:
    """The power of all columns of an array made in n bands of rows: a rechunk from rows to columns."""
    x = da.random.default_rng(0).random((270 * n, 270 * n), chunks=(270, 270 * n))
    return (abs(da.fft.rfft(x.rechunk((270 * n, 270)), axis=0)) ** 2).mean(axis=1)


@workload(2, 10, 10, heavy=True, exact=False, portable=True, on=("2",))
def detrended_columns(da: ModuleType, n: int) -> Any:
    """The spread of all columns of an array in n bands of rows less their straight line."""
    x = da.random.default_rng(0).random((270 * n, 2700), chunks=(270, 2700))
    steps = np.arange(270.0 * n) - (270 * n - 1) / 2
    slope = (x * steps[:, None]).sum(axis=0) / (steps**2).sum()
    return (x.rechunk((270 * n, 270)) - x.mean(axis=0) - slope * steps[:, None]).std(axis=0)
