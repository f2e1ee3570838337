"""What users of xarray do, from files and without: the same answers as with dask's own optimizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from helpers import stock, switched_on

xr = pytest.importorskip("xarray")
pd = pytest.importorskip("pandas")


def weather() -> Any:
    """A year of daily values on a small grid, with a gap in it."""
    shape = (60, 6, 8)
    values = np.sin(np.arange(np.prod(shape), dtype="f8")).reshape(shape)
    values[5:9, 2, 3] = np.nan
    dims = ("time", "lat", "lon")
    return xr.Dataset(
        {"t": (dims, values, {"units": "K"}), "rain": (dims, values.astype("f4") ** 2)},
        coords={
            "time": pd.date_range("2020-01-01", periods=60),
            "lat": np.linspace(-50, 50, 6),
            "lon": np.arange(8) * 45.0,
            "land": (("lat", "lon"), np.arange(48).reshape(6, 8) % 3 == 0),
        },
        attrs={"title": "weather"},
    )


@pytest.fixture(scope="module", params=["memory", "zarr", "netcdf"])
def ds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    chunks = {"time": 10, "lat": 3, "lon": 4}
    if request.param == "memory":
        yield weather().chunk(chunks)
        return
    path = tmp_path_factory.mktemp("weather") / request.param
    if request.param == "zarr":
        pytest.importorskip("zarr")
        weather().chunk(chunks).to_zarr(path, consolidated=False, zarr_format=2)
        with xr.open_zarr(path, consolidated=False) as opened:
            yield opened
    else:
        pytest.importorskip("scipy")
        weather().to_netcdf(path, engine="scipy")
        with xr.open_dataset(path, engine="scipy", chunks=chunks) as opened:
            yield opened


def scaled(block: np.ndarray, factor: float) -> np.ndarray:
    return block * factor


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "anomaly": lambda ds: ds.t - ds.t.mean("time"),
    "by month": lambda ds: ds.groupby("time.month").mean(),
    "anomaly by month": lambda ds: ds.t.groupby("time.month") - ds.t.groupby("time.month").mean(),
    "weekly": lambda ds: ds.resample(time="7D").max(),
    "running mean": lambda ds: ds.t.rolling(time=5, center=True).mean(),
    "where": lambda ds: ds.where(ds.t > 0),
    "fill": lambda ds: ds.t.fillna(0).cumsum("time"),
    "selected": lambda ds: ds.sel(lat=slice(-20, 20), lon=[45.0, 90.0]).isel(time=slice(3, 40, 4)),
    "point": lambda ds: ds.sel(lat=10, lon=100, method="nearest"),
    "interpolated": lambda ds: ds.t.chunk(lat=-1).interp(lat=[0.0, 12.5]),
    "weighted": lambda ds: ds.t.weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "lon")),
    "quantile": lambda ds: ds.t.chunk(time=-1).quantile([0.1, 0.9], dim="time"),
    "shifted": lambda ds: ds.shift(time=2) + ds.roll(lon=3, roll_coords=False),
    "padded": lambda ds: ds.t.pad(lon=2, mode="wrap").diff("lon"),
    "stacked": lambda ds: ds.t.stack(cell=("lat", "lon")).isel(cell=slice(5, 20)),
    "concatenated": lambda ds: xr.concat([ds.isel(time=slice(0, 15)), ds.isel(time=slice(40, 55))], "time"),
    "merged": lambda ds: xr.merge([ds.t.rename("a"), ds.rain.rename("b") * 2]),
    "broadcast": lambda ds: ds.t.mean("time") * ds.rain.mean(("lat", "lon")),
    "dot": lambda ds: xr.dot(ds.t.fillna(0), ds.rain.fillna(0), dim="time"),
    "coarse": lambda ds: ds.coarsen(lat=2, lon=2).mean(),
    "extremes": lambda ds: ds.t.fillna(-9).argmax("time"),
    "to array": lambda ds: ds.to_dataarray().std("variable"),
    "ufunc": lambda ds: xr.apply_ufunc(
        scaled, ds.t, kwargs={"factor": 3.0}, dask="parallelized", output_dtypes=["f8"]
    ),
    "ufunc over a dimension": lambda ds: xr.apply_ufunc(
        np.ptp, ds.t.chunk(time=-1), input_core_dims=[["time"]], kwargs={"axis": -1},
        dask="parallelized", output_dtypes=["f8"],
    ),
    "map_blocks": lambda ds: ds.map_blocks(lambda part: part * 2 + part.lat, template=ds * 2 + ds.lat),
    "rechunk": lambda ds: ds.chunk(time=-1).chunk(time=7).isel(time=slice(0, 7)),
    "assigned": lambda ds: ds.assign(u=ds.t**2).assign(v=lambda d: d.u + 1).drop_vars("rain"),
    "masked by a coordinate": lambda ds: ds.t.where(ds.land == 0, -1.0),
    "rank and sort": lambda ds: ds.t.isel(time=slice(0, 9)).sortby("lat", ascending=False),
    "time steps": lambda ds: stepped(ds.t.fillna(0), 15),
    "many maps": lambda ds: sum((ds.t * i for i in range(2, 12)), start=ds.t),
}  # fmt: skip


def stepped(state: Any, steps: int) -> Any:
    before = state
    for _ in range(steps):
        before, state = state, 0.5 * (before + state.shift(lon=1, fill_value=0.0))
    return state


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, over the gaps in the data
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_with_dasks_own(name: str, ds: Any) -> None:
    program = PROGRAMS[name]
    with stock():
        expected = program(ds).compute()
    with switched_on():
        actual = program(ds).compute()
    xr.testing.assert_identical(actual, expected)
    variables = actual.variables if isinstance(actual, xr.Dataset) else {"": actual.variable}
    others = expected.variables if isinstance(expected, xr.Dataset) else {"": expected.variable}
    for key, variable in variables.items():
        assert variable.dtype == others[key].dtype
        if variable.dtype.kind == "f":
            assert variable.values.tobytes() == others[key].values.tobytes()
    again = dask_rewrite.optimize(program(ds))
    xr.testing.assert_identical(again.compute(), expected)


def test_persist_then_select(ds: Any) -> None:
    with switched_on():
        kept = (ds - ds.mean("time")).persist()
        actual = kept.isel(time=slice(4, 9)).mean("lat").compute()
    with stock():
        expected = (ds - ds.mean("time")).isel(time=slice(4, 9)).mean("lat").compute()
    xr.testing.assert_identical(actual, expected)


def test_writing_to_zarr_and_reading_back(ds: Any, tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    changed = (ds * 2).drop_encoding()
    with switched_on():
        changed.to_zarr(tmp_path / "a", consolidated=False, zarr_format=2)
        later = changed.to_zarr(tmp_path / "b", consolidated=False, zarr_format=2, compute=False)
        later.compute()
    for name in ("a", "b"):
        with xr.open_zarr(tmp_path / name, consolidated=False) as back:
            xr.testing.assert_equal(back.compute(), changed.compute())


def test_writing_to_netcdf(ds: Any, tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    changed = (ds[["t"]] * 2).drop_vars("land").drop_encoding()
    with switched_on():
        changed.to_netcdf(tmp_path / "x.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "x.nc", engine="scipy") as back:
        xr.testing.assert_equal(back.compute(), changed.compute())


def test_several_at_once(ds: Any) -> None:
    with switched_on():
        mean, maximum, number = dask.compute(ds.t.mean("time"), ds.max(), da.ones(3, chunks=1).sum())
    xr.testing.assert_identical(mean, ds.t.mean("time").compute())
    xr.testing.assert_identical(maximum, ds.max().compute())
    assert number == 3
