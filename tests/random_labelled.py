"""Random programs in labels: xarray's own steps over fields of time, latitude and longitude."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from hypothesis import strategies as st

from laid_blocks import made_by_function
from random_more import one_of

STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {}
#: Blocks of a field at most: rolling and grouping multiply them.
MOST_BLOCKS = 200
NAMES = ("time", "lat", "lon")
_numbers = itertools.count()


def step(function: Any) -> Any:
    STEPS[function.__name__] = function
    return function


def name_of(draw: Any, x: Any) -> str:
    return str(draw(st.sampled_from(sorted(map(str, x.dims)))))


def span_of(draw: Any, size: int) -> slice:
    start = draw(st.integers(0, max(0, size - 1)))
    stop = draw(st.integers(start, size))
    return slice(start, stop, draw(st.sampled_from((None, None, 2))))


@step
def arithmetic(draw: Any, x: Any, y: Any) -> Any:
    return one_of(draw, lambda: x + y, lambda: x - y, lambda: x * 2 + 1, lambda: y / (abs(x) + 1))


@step
def selected(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    return x.isel({name: span_of(draw, x.sizes[name])})


@step
def one_position(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    if x.ndim < 2 or not x.sizes[name]:
        return x
    return x.isel({name: draw(st.integers(0, x.sizes[name] - 1))}, drop=draw(st.booleans()))


@step
def taken(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    if not x.sizes[name]:
        return x
    where = draw(st.lists(st.integers(0, x.sizes[name] - 1), min_size=1, max_size=6))
    return x.isel({name: where})


@step
def points(draw: Any, x: Any, y: Any) -> Any:
    import xarray as xr

    if not {"lat", "lon"} <= set(x.dims) or not x.sizes["lat"] * x.sizes["lon"]:
        return x
    where = [draw(st.lists(st.integers(0, x.sizes[n] - 1), min_size=3, max_size=3)) for n in ("lat", "lon")]
    return x.isel(lat=xr.DataArray(where[0], dims="lat"), lon=xr.DataArray(where[1], dims="lat"))


@step
def nearest(draw: Any, x: Any, y: Any) -> Any:
    if "lat" not in x.indexes or x.sizes["lat"] < 2 or not x.indexes["lat"].is_unique:
        return x
    if not x.indexes["lat"].is_monotonic_increasing:
        return x.sortby("lat")
    return x.sel(lat=[0.4, 1.6, 2.5], method="nearest")


@step
def shifted(draw: Any, x: Any, y: Any) -> Any:
    name, by = name_of(draw, x), draw(st.integers(-2, 2))
    return one_of(
        draw,
        lambda: x.shift({name: by}),
        lambda: x.roll({name: by}),
        lambda: x.diff(name) if x.sizes[name] > 1 else x,
        lambda: x - x.shift({name: 1}),
        lambda: x.differentiate(name) if x.sizes[name] > 2 and name in x.indexes else x,
    )


@step
def padded(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    if not x.sizes[name]:
        return x
    mode = draw(st.sampled_from(("constant", "edge", "wrap")))
    return x.pad({name: (1, draw(st.integers(0, 1)))}, mode=mode)


@step
def reduced(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    if x.ndim < 2 or not x.sizes[name]:
        return x
    how = draw(st.sampled_from(("mean", "sum", "max", "min", "std", "count", "any", "prod")))
    return getattr(x, how)(name)


@step
def anomaly(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    if not x.sizes[name]:
        return x
    mean = x.mean(name)
    return one_of(draw, lambda: x - mean, lambda: (x - mean) / x.std(name), lambda: mean - y)


@step
def grouped(draw: Any, x: Any, y: Any) -> Any:
    if "time" not in x.dims or "time" not in x.indexes or x.sizes["time"] < 2:
        return x
    if not np.issubdtype(x["time"].dtype, np.datetime64) or np.isnat(x["time"].values).any():
        return x
    groups = x.groupby(draw(st.sampled_from(("time.month", "time.day", "time.dayofyear"))))
    return one_of(
        draw,
        lambda: groups - groups.mean(),
        lambda: groups.mean(),
        lambda: groups.max(),
        lambda: groups.sum(),
    )


@step
def resampled(draw: Any, x: Any, y: Any) -> Any:
    if "time" not in x.dims or "time" not in x.indexes or not x.sizes["time"]:
        return x
    index = x.indexes["time"]
    if not hasattr(index, "freq") or not index.is_monotonic_increasing or index.hasnans:
        return x
    how = draw(st.sampled_from(("mean", "max", "sum", "first")))
    return getattr(x.resample(time=draw(st.sampled_from(("3D", "1ME", "7D")))), how)()


@step
def rolled_window(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    size = draw(st.integers(1, 3))
    if x.sizes[name] < size or not x.sizes[name]:
        return x
    window = x.rolling({name: size}, center=draw(st.booleans()), min_periods=draw(st.sampled_from((None, 1))))
    return getattr(window, draw(st.sampled_from(("mean", "sum", "max", "min"))))()


@step
def coarsened(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    if x.sizes[name] < 2:
        return x
    return getattr(x.coarsen({name: 2}, boundary="trim"), draw(st.sampled_from(("mean", "max", "sum"))))()


@step
def masked(draw: Any, x: Any, y: Any) -> Any:
    return one_of(
        draw,
        lambda: x.where(x > 2),
        lambda: x.where(y < 3, 0),
        lambda: x.fillna(-1.0),
        lambda: x.where(x.notnull(), y),
        lambda: x.clip(0, 5),
    )


@step
def cumulated(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    return getattr(x, draw(st.sampled_from(("cumsum", "cumprod"))))(name) if x.sizes[name] else x


@step
def filled(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    return getattr(x, draw(st.sampled_from(("ffill", "bfill"))))(name) if x.sizes[name] else x


@step
def interpolated(draw: Any, x: Any, y: Any) -> Any:
    for name in ("lat", "lon"):
        if name in x.dims and name in x.indexes and x.sizes[name] > 2 and x.indexes[name].is_unique:
            if x.indexes[name].is_monotonic_increasing and not np.isnan(x[name].values).any():
                return x.interp({name: [0.5, 1.25, 2.0]})
    return x


@step
def joined(draw: Any, x: Any, y: Any) -> Any:
    import xarray as xr

    name = name_of(draw, x)
    if name in x.indexes and draw(st.booleans()):
        return xr.concat([x, x.isel({name: slice(None, None, -1)})], name)
    return xr.concat([x, x * 2, x.isel({name: slice(0, 1)})], name)


@step
def stacked(draw: Any, x: Any, y: Any) -> Any:
    if x.ndim < 2 or len(set(x.dims)) < x.ndim or "z" in x.dims:
        return x
    one, other = list(x.dims)[:2]
    bare = x.drop_vars([one, other], errors="ignore").stack(z=(one, other))
    return bare.drop_vars(["z", one, other], errors="ignore").rename(z=one if other == "lat" else "lat")


@step
def turned(draw: Any, x: Any, y: Any) -> Any:
    return x.transpose(*draw(st.permutations(list(x.dims))))


@step
def rechunked(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    return x.chunk({name: draw(st.sampled_from((-1, 1, 2, 3)))}) if x.sizes[name] else x


@step
def product(draw: Any, x: Any, y: Any) -> Any:
    import xarray as xr

    shared = [n for n in x.dims if n in y.dims]
    if len(shared) < 2 or any(x.sizes[n] != y.sizes[n] for n in shared):
        return x
    return xr.dot(x.fillna(0), y.fillna(0), dim=shared[0])


@step
def weighted(draw: Any, x: Any, y: Any) -> Any:
    import xarray as xr

    if "lat" not in x.dims or x.ndim < 2 or not x.sizes["lat"]:
        return x
    weights = xr.DataArray(np.arange(1.0, x.sizes["lat"] + 1), dims="lat")
    made = x.weighted(weights)
    return made.mean("lat") if draw(st.booleans()) else made.sum("lat")


@step
def quantiled(draw: Any, x: Any, y: Any) -> Any:
    name = name_of(draw, x)
    if x.ndim < 2 or not x.sizes[name]:
        return x
    return x.chunk({name: -1}).quantile(0.4, name).drop_vars("quantile")


@step
def applied(draw: Any, x: Any, y: Any) -> Any:
    import xarray as xr

    name = name_of(draw, x)
    if not x.sizes[name] or x.ndim < 2:
        return x
    if draw(st.booleans()):
        return xr.apply_ufunc(lambda b: b * 2 + 1, x, dask="parallelized", output_dtypes=["f8"])
    return xr.apply_ufunc(
        lambda b: b.max(axis=-1),
        x.chunk({name: -1}),
        input_core_dims=[[name]],
        dask="parallelized",
        output_dtypes=["f8"],
    )


@step
def mapped(draw: Any, x: Any, y: Any) -> Any:
    import xarray as xr

    return xr.map_blocks(lambda part: part * 2 - 1, x, template=x.astype("f8"))


@step
def typed(draw: Any, x: Any, y: Any) -> Any:
    return x.astype(draw(st.sampled_from(("f4", "f8", "f8"))))


@step
def assigned(draw: Any, x: Any, y: Any) -> Any:
    made = x.copy()
    name = name_of(draw, x)
    if x.sizes[name]:
        made[{name: draw(st.integers(0, x.sizes[name] - 1))}] = 7.5
    return made


def _chunks(draw: Any, shape: tuple[int, ...]) -> Any:
    return tuple(draw(st.integers(1, size)) for size in shape)


@st.composite
def fields(draw: Any) -> Any:
    """Two fields of one grid, of chunks of their own, from a source each."""
    import pandas as pd
    import xarray as xr

    shape = tuple(draw(st.integers(2, 8)) for _ in NAMES)
    days = pd.date_range("2001-01-25", periods=shape[0])
    labels = {"time": days, "lat": np.arange(shape[1]) * 1.0, "lon": np.arange(shape[2]) * 1.0}
    found = []
    for number in range(2):
        values = (np.arange(np.prod(shape)).reshape(shape) % (11 + number)).astype("f8") - 3
        values[values == 4] = np.nan
        values[values == 2] = -0.0
        kind = draw(st.sampled_from(("memory", "function", "zarr", "delayed")))
        chunks = _chunks(draw, shape)
        if kind == "memory":
            x = da.from_array(values, chunks=chunks)
        elif kind == "function":
            whole = da.core.normalize_chunks(chunks, shape)
            x = made_by_function(values, whole, lambda block: block, f"field-{next(_numbers)}")
        elif kind == "delayed":
            whole = dask.delayed(values.copy, pure=False)()
            x = da.from_delayed(whole, shape, dtype="f8").rechunk(chunks)
        else:
            from zarr.storage import MemoryStore

            store = MemoryStore()
            made = xr.Dataset({"x": (NAMES, values)})
            made.to_zarr(store, encoding={"x": {"chunks": _chunks(draw, shape)}}, consolidated=False)
            opened = xr.open_zarr(store, chunks=None, consolidated=False).x
            x = opened.chunk(dict(zip(NAMES, chunks))).data
        found.append(xr.DataArray(x, dims=NAMES, coords=labels))
    return found


@st.composite
def labelled_programs(draw: Any) -> list[Any]:
    """One to three labelled arrays that are computed together, two to eight steps away from two fields."""
    made = draw(fields())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(draw(st.integers(2, 8))):
            name = draw(st.sampled_from(sorted(STEPS)))
            x, y = draw(st.sampled_from(made)), draw(st.sampled_from(made))
            try:
                found = STEPS[name](draw, x, y)
            except (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError):
                continue  # dask or xarray cannot build it: labels that do not go together, empty blocks
            blocks = getattr(found.data, "npartitions", None)
            if blocks is not None and found.ndim and blocks <= MOST_BLOCKS and found.size <= 20_000:
                made.append(found)
    return draw(st.lists(st.sampled_from(made[2:] or made), min_size=1, max_size=3))
