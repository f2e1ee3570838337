"""Programs as people write them over fields in time and space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from benchmarks.workloads.written_data import Data

#: Each gives what is computed together.
FIELDS: dict[str, Callable[[Data], Any]] = {}


def program(make: Callable[[Data], Any]) -> Callable[[Data], Any]:
    FIELDS[make.__name__] = make
    return make


@program
def climatology(d: Data) -> Any:
    return d.warm.groupby("time.month").mean()


@program
def daily_anomaly(d: Data) -> Any:
    days = d.warm.groupby("time.dayofyear")
    return (days - days.mean()).std("time")


@program
def monthly_anomaly(d: Data) -> Any:
    months = d.fields.groupby("time.month")
    return months - months.mean()


@program
def anomaly_of_the_mean(d: Data) -> Any:
    return abs(d.warm - d.warm.mean("time")).mean()


@program
def standardized(d: Data) -> Any:
    return ((d.warm - d.warm.mean("time")) / d.warm.std("time")).max("lon")


@program
def rolling_mean(d: Data) -> Any:
    return d.warm.rolling(time=7, center=True).mean()


@program
def wettest_week(d: Data) -> Any:
    return d.fields.rain.rolling(time=7).sum().max("time")


@program
def monthly_means(d: Data) -> Any:
    return d.fields.resample(time="MS").mean()


@program
def weekly_extremes(d: Data) -> Any:
    weeks = d.warm.resample(time="7D")
    return weeks.max() - weeks.min()


@program
def area_mean(d: Data) -> Any:
    return d.warm.weighted(np.cos(np.deg2rad(d.warm.lat))).mean(("lat", "lon"))


@program
def summary(d: Data) -> Any:
    return d.fields.mean("time"), d.fields.std("time"), d.fields.max("time")


@program
def zonal_flux(d: Data) -> Any:
    warm, rain = d.fields.warm, d.fields.rain
    return ((warm - warm.mean("lon")) * (rain - rain.mean("lon"))).mean(("time", "lon"))


@program
def eof(d: Data) -> Any:
    x = d.cube - d.cube.mean(axis=0)
    days = x.shape[0]
    flat = x[:, ::4, ::4].reshape(days, -1).rechunk((d.chunks[0], -1)).T
    return da.linalg.svd(flat.rechunk((flat.shape[0], -1)))[1][:8]


@program
def eof_by_covariance(d: Data) -> Any:
    x = (d.cube - d.cube.mean(axis=0))[:, ::2, ::2]
    flat = x.reshape(x.shape[0], -1)
    return flat @ flat.T / flat.shape[1]


@program
def regridded(d: Data) -> Any:
    _, lats, lons = d.shape
    rows = np.repeat(np.eye(lats // 2), 2, axis=1) / 2
    columns = np.repeat(np.eye(lons // 2), 2, axis=1) / 2
    return da.einsum("tyx,ay,bx->tab", d.cube, rows, columns)


@program
def interpolated(d: Data) -> Any:
    return d.warm.interp(lat=np.linspace(-80, 80, 30), lon=np.linspace(5, 340, 40)).mean("time")


@program
def quantiles(d: Data) -> Any:
    return d.warm.chunk(time=-1).quantile([0.1, 0.5, 0.9], "time")


@program
def detrended(d: Data) -> Any:
    fit = d.warm.polyfit("time", deg=1)
    return (d.warm - xr.polyval(d.warm.time, fit.polyfit_coefficients)).std("time")


@program
def detrended_by_hand(d: Data) -> Any:
    x, t = d.cube, np.arange(d.shape[0], dtype="f8") - (d.shape[0] - 1) / 2
    slope = (x * t[:, None, None]).sum(axis=0) / (t**2).sum()
    return abs(x - x.mean(axis=0) - slope * t[:, None, None]).mean(axis=0)


@program
def correlation(d: Data) -> Any:
    return xr.corr(d.fields.warm, d.fields.rain, "time")


@program
def lagged_correlation(d: Data) -> Any:
    return xr.corr(d.warm, d.warm.shift(time=1), "time")


@program
def spectra(d: Data) -> Any:
    return (abs(da.fft.rfft(d.cube.rechunk((-1, 24, 32)), axis=0)) ** 2).mean(axis=(1, 2))


@program
def cumulated(d: Data) -> Any:
    return d.fields.rain.cumsum("time")


@program
def differences(d: Data) -> Any:
    return d.warm.differentiate("lat").std("time") + abs(d.warm.diff("time")).mean("time")


@program
def gradients(d: Data) -> Any:
    gy, gx = da.gradient(d.cube, axis=(1, 2))
    return (gx**2 + gy**2) ** 0.5


@program
def laplacian(d: Data) -> Any:
    x = d.cube
    return (x[:, 2:, 1:-1] + x[:, :-2, 1:-1] + x[:, 1:-1, 2:] + x[:, 1:-1, :-2] - 4 * x[:, 1:-1, 1:-1]).std(0)


@program
def masked_mean(d: Data) -> Any:
    return d.warm.where(d.fields.rain > 0.1).mean("time")


@program
def over_land(d: Data) -> Any:
    land = (d.warm.lat > 0) & (d.warm.lon < 180)
    return d.fields.where(land).mean(("lat", "lon"))


@program
def hot_days(d: Data) -> Any:
    return (d.warm > d.warm.mean("time") + 2 * d.warm.std("time")).sum("time")


@program
def histogram(d: Data) -> Any:
    return da.histogram(d.cube, bins=50, range=(250, 310))[0]


@program
def joint_histogram(d: Data) -> Any:
    pair = d.fields.warm.data.ravel(), d.fields.rain.data.ravel()
    return da.histogram2d(*pair, bins=20, range=((250, 310), (0, 5)))[0]


@program
def pyramid(d: Data) -> Any:
    levels = [d.cube]
    for _ in range(3):
        levels.append(da.coarsen(np.mean, levels[-1], {1: 2, 2: 2}))
    return tuple(levels[1:])


@program
def coarsened(d: Data) -> Any:
    return d.fields.coarsen(lat=4, lon=4).mean().max("time")


@program
def one_place(d: Data) -> Any:
    return d.fields.sel(lat=10, lon=100, method="nearest") - 273.15


@program
def one_week(d: Data) -> Any:
    return (d.warm - d.warm.mean(("lat", "lon"))).isel(time=slice(30, 37))


@program
def blocks_of_fields(d: Data) -> Any:
    return xr.map_blocks(_scaled, d.fields, template=d.fields).mean("time")


@program
def ufunc_of_series(d: Data) -> Any:
    x = d.warm.chunk(time=-1)
    return xr.apply_ufunc(
        np.median,
        x,
        input_core_dims=[["time"]],
        kwargs={"axis": -1},
        dask="parallelized",
        output_dtypes=["f8"],
    )


@program
def many_files(d: Data) -> Any:
    data = xr.open_mfdataset(d.files, engine="h5netcdf", combine="nested", concat_dim="time", chunks={})
    return data.warm.mean("time"), data.rain.groupby("time.month").sum()


def _scaled(part: Any) -> Any:
    return part * 2 - 1
