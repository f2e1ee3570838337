"""Libraries that build on dask, as their users use them: the same answers, and what they cost beside stock.

    python -m benchmarks.downstream                   all of them, on two threads
    python -m benchmarks.downstream cluster           on a local cluster of two processes
    python -m benchmarks.downstream closing zonal     only these

Every block comes from a function that nobody knows. Seconds are the processor's on threads, which a busy
machine changes little, and those of the clock on a cluster. Some answers of stock differ from run to run on a
cluster, as shuffles bring rows in any order; those are "close".
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import dask_image.ndfilters
import dask_image.ndmeasure
import dask_image.ndmorph
import dask_ml.cluster
import dask_ml.decomposition
import dask_ml.linear_model
import dask_ml.model_selection
import dask_ml.preprocessing
import flox.xarray
import numpy as np
import pandas as pd
import pint_xarray  # noqa: F401  # (gives arrays their `.pint`)
import sparse
import xarray as xr
import xrspatial
import xrspatial.focal
from xhistogram.xarray import histogram

from benchmarks.as_written import SIDES
from benchmarks.harness.figures import same
from benchmarks.harness.rows import geometric_mean
from benchmarks.harness.table import grid

PROGRAMS: dict[str, Callable[[], Any]] = {}
#: The best time of these counts, after one for what is imported and compiled at first.
TURNS = 3


def program(build: Callable[[], Any]) -> Callable[[], Any]:
    """Register a program by its name; it returns collections, or tuples of them, or answers."""
    PROGRAMS[build.__name__] = build
    return build


def loaded(block: np.ndarray) -> np.ndarray:
    return np.sin(block) + block * 0.001


def blocks(shape: tuple[int, ...], chunks: tuple[int, ...]) -> da.Array:
    """Values that tell where they are, out of blocks of a user's function."""
    numbers = np.arange(np.prod(shape), dtype=float).reshape(shape) % 1013
    return da.from_array(numbers, chunks=chunks).map_blocks(loaded)


def image() -> da.Array:
    return blocks((1200, 1500), (100, 150))


def table() -> da.Array:
    return blocks((24_000, 20), (300, 20))


def field() -> xr.DataArray:
    """Two years of days on a map."""
    shape = (730, 40, 60)
    days = pd.date_range("2001-01-01", periods=shape[0])
    places = {"y": np.linspace(-80, 80, shape[1]), "x": np.linspace(0, 354, shape[2])}
    return xr.DataArray(blocks(shape, (24, 10, 20)), {"time": days, **places}, ("time", "y", "x"), "v")


def plane() -> xr.DataArray:
    values = image()
    places = {name: np.arange(float(n)) for name, n in zip("yx", values.shape, strict=True)}
    return xr.DataArray(values, places, ("y", "x"), attrs={"res": (1, 1)})


@program
def months() -> Any:
    return field().groupby("time.month").mean()


@program
def day_of_year_anomalies() -> Any:
    days = field().groupby("time.dayofyear")
    return days - days.mean()


@program
def cohorts() -> Any:
    values = field()
    return flox.xarray.xarray_reduce(values, values.time.dt.month, func="mean", method="cohorts")


@program
def group_quantiles() -> Any:
    values = field().chunk(time=-1)
    return flox.xarray.xarray_reduce(values, values.time.dt.month, func="quantile", q=0.3)


@program
def bands() -> Any:
    values = field()
    zones = (values.isel(time=0) * 0 + values.y).compute(scheduler="sync").rename("zone")
    edges = pd.IntervalIndex.from_breaks(np.arange(-90, 91, 30))
    return flox.xarray.xarray_reduce(values, zones, func="nanmax", expected_groups=edges, isbin=True)


@program
def pentads() -> Any:
    return field().resample(time="5D").max()


@program
def histograms() -> Any:
    values, bins = field(), np.linspace(-2, 2, 20)
    other = (values * 0.5).rename("w")
    return histogram(values, bins=[bins], dim=["time"]), histogram(values, other, bins=[bins, bins[::2]])


@program
def units() -> Any:
    values = field().pint.quantify("K")
    return (values - values.mean("time")).pint.to("mK").pint.dequantify()


@program
def gaussian() -> Any:
    return dask_image.ndfilters.gaussian_filter(image(), sigma=2)


@program
def edges() -> Any:
    sobel = dask_image.ndfilters.sobel
    return da.hypot(sobel(image(), 0), sobel(image(), 1)).max(axis=0)


@program
def closing() -> Any:
    opened = dask_image.ndmorph.binary_opening(image() > 0.5, iterations=2)
    return dask_image.ndmorph.binary_closing(opened)


@program
def labels() -> Any:
    return dask_image.ndmeasure.label(image()[:300, :450] > 0.8)


@program
def label_means() -> Any:
    cut = image()[:300, :450]
    of = da.from_array(np.arange(cut.size).reshape(cut.shape) // 777 % 13, chunks=cut.chunksize)
    return dask_image.ndmeasure.mean(cut, of, np.arange(13))


@program
def scalers() -> Any:
    known = (dask_ml.preprocessing.StandardScaler(), dask_ml.preprocessing.MinMaxScaler())
    return tuple(each.fit_transform(table()) for each in known)


@program
def principal_components() -> Any:
    model = dask_ml.decomposition.PCA(n_components=3, random_state=0, svd_solver="tsqr")
    return model.fit(table()).components_


@program
def clusters() -> Any:
    model = dask_ml.cluster.KMeans(n_clusters=3, random_state=0, init="random", max_iter=5)
    found = model.fit(table()[:, :4])
    return found.labels_, found.cluster_centers_


@program
def regression() -> Any:
    values = table()[:, :4]
    return dask_ml.linear_model.LinearRegression(max_iter=3).fit(values, values @ np.arange(4.0)).coef_


@program
def split() -> Any:
    return tuple(dask_ml.model_selection.train_test_split(table(), random_state=0))


@program
def sparse_product() -> Any:
    values = da.where(image() > 0.9, image(), 0).map_blocks(sparse.COO)
    return (values.T @ values.sum(axis=1).map_blocks(dense)).map_blocks(np.asarray)


def dense(block: Any) -> np.ndarray:
    return block.todense()


@program
def terrain() -> Any:
    return xrspatial.slope(plane()), xrspatial.aspect(plane()), xrspatial.hillshade(plane())


@program
def focal() -> Any:
    return xrspatial.focal.mean(plane(), passes=3)


@program
def zonal() -> Any:
    values = plane()[:200, :300]
    zones = da.from_array(np.arange(values.size).reshape(values.shape) // 10_000, chunks=(100, 150))
    return xrspatial.zonal_stats(xr.DataArray(zones, dims=("y", "x")), values)


def plain(answer: Any) -> list[Any]:
    """Arrays and scalars of an answer: labelled, framed and nested ones too."""
    if isinstance(answer, tuple | list):
        return [part for each in answer for part in plain(each)]
    if isinstance(answer, xr.Dataset):
        return [each.values for each in answer.data_vars.values()]
    return [answer.to_numpy() if hasattr(answer, "to_numpy") else answer]


def computed(build: Callable[[], Any], side: str, clock: Callable[[], float]) -> tuple[list[Any], float]:
    """The answer, and seconds from the first line of the program on: some compute on their way."""
    seconds = []
    with dask.config.set({name: value for name, value in SIDES[side].items() if value is not None}):
        for _ in range(1 + TURNS):
            start = clock()
            answer = plain(dask.compute(build())[0])
            seconds.append(clock() - start)
    return answer, min(seconds[1:])


@contextlib.contextmanager
def scheduler(where: str) -> Iterator[None]:
    """Two threads, or a cluster of two processes."""
    if where == "threads":
        with dask.config.set(scheduler="threads", num_workers=2):
            yield
        return
    from distributed import Client, LocalCluster

    small = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**small) as cluster, Client(cluster):
        yield


def main(arguments: list[str]) -> int:
    """Measure and print; an answer that differs is a failure."""
    where = "cluster" if "cluster" in arguments else "threads"
    clock = time.perf_counter if where == "cluster" else time.process_time
    names = [name for name in arguments if name != "cluster"] or list(PROGRAMS)
    lines, ratios = [], []
    with warnings.catch_warnings(), scheduler(where):
        warnings.simplefilter("ignore")  # these libraries warn of much, with and without us
        for name in names:
            stock, before = computed(PROGRAMS[name], "stock", clock)
            ours, after = computed(PROGRAMS[name], "ours", clock)
            line = [name, same(stock, ours), f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"]
            print(*line, file=sys.stderr, flush=True)
            lines.append(line)
            ratios.append(after / before)
    print(grid(["program", "same", "stock s", "ours s", "ratio"], lines))
    print(f"\n{len(lines)} programs, geometric mean of seconds {geometric_mean(ratios):.2f}")
    return int(any(line[1] == "NO" for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
