"""Programs as people write them over images, tables, random numbers and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import zarr
from scipy import ndimage

from benchmarks.workloads.written_data import Data

#: Each gives what is computed together; with a path in the end, what is written there is the answer.
WORK: dict[str, Callable[[Data], Any]] = {}


def program(make: Callable[[Data], Any]) -> Callable[[Data], Any]:
    WORK[make.__name__] = make
    return make


def _plates(d: Data) -> Any:
    """The images as one array, an image a block."""
    side = 4 * d.shape[1]
    loaded = [da.from_delayed(dask.delayed(np.load)(path), (side, side), "f8") for path in d.plates]
    return da.stack(loaded)


@program
def hundred_files(d: Data) -> Any:
    x = _plates(d)
    return x.mean(axis=0), x.std(axis=0)


@program
def cells(d: Data) -> Any:
    x = _plates(d)[:16]
    smooth = x.map_overlap(
        ndimage.gaussian_filter, depth=(0, 4, 4), boundary="reflect", sigma=(0, 1, 1), dtype="f8"
    )
    return (smooth > smooth.mean()).sum(axis=(1, 2))


@program
def background(d: Data) -> Any:
    x = _plates(d)
    flat = x - x.mean(axis=0)
    return flat.max(axis=0) - flat.min(axis=0)


@program
def mosaic(d: Data) -> Any:
    x = _plates(d)
    rows = [da.concatenate([x[5 * i + j] for j in range(4)], axis=1) for i in range(4)]
    whole = da.concatenate(rows, axis=0)
    return da.coarsen(np.mean, whole.rechunk(4 * d.shape[1]), {0: 4, 1: 4})


@program
def frames(d: Data) -> Any:
    parts = [dask.delayed(_frame)(path) for path in d.plates]
    merged = dask.delayed(_merged)(parts)
    return merged.groupby("row").value.mean()


@program
def k_means(d: Data) -> Any:
    x = d.table
    centres: Any = np.linspace(-1, 1, 64).reshape(4, 16)
    for _ in range(3):
        near = ((x[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
        centres = da.stack(
            [da.where((near == k)[:, None], x, 0).sum(axis=0) / (near == k).sum() for k in range(4)]
        )
    return centres


@program
def principal_components(d: Data) -> Any:
    x = d.table - d.table.mean(axis=0)
    return da.linalg.svd(x)[1]


@program
def covariance_matrix(d: Data) -> Any:
    x = (d.table - d.table.mean(axis=0)) / d.table.std(axis=0)
    return x.T @ x / len(x)


@program
def logistic_regression(d: Data) -> Any:
    x, y, w = d.table, d.label, da.zeros(16)
    for _ in range(5):
        w = w - 0.1 * (x.T @ (1 / (1 + da.exp(-(x @ w))) - y)) / x.shape[0]
    return w


@program
def ridge_regression(d: Data) -> Any:
    x, y = d.table, d.label
    w = da.linalg.solve(x.T @ x + 0.1 * da.eye(16), x.T @ y)
    return w, ((x @ w - y) ** 2).mean()


@program
def conjugate_gradients(d: Data) -> Any:
    a, b = d.table.T @ d.table + da.eye(16), d.table.T @ d.label
    x, r = da.zeros(16), b
    p = r
    for _ in range(4):
        step = (r @ r) / (p @ (a @ p))
        x, new = x + step * p, r - step * (a @ p)
        p, r = new + (new @ new) / (r @ r) * p, new
    return x


@program
def power_iteration(d: Data) -> Any:
    x = d.table - d.table.mean(axis=0)
    v = da.ones(16)
    for _ in range(5):
        v = x.T @ (x @ v)
        v = v / da.linalg.norm(v)
    return v


@program
def heat_equation(d: Data) -> Any:
    u = d.cube[0].rechunk(16)
    for _ in range(3):
        u = u + 0.1 * (da.roll(u, 1, 0) + da.roll(u, -1, 0) + da.roll(u, 1, 1) + da.roll(u, -1, 1) - 4 * u)
    return u


@program
def wave_equation(d: Data) -> Any:
    a = b = d.cube[0].rechunk(24)
    for _ in range(3):
        p = da.pad(b, 1)
        a, b = b, 2 * b - a + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * b)
    return b


@program
def boolean_selection(d: Data) -> Any:
    rows = d.table[d.label > 0]
    return rows.mean(axis=0), rows[:, 0].max()


@program
def fancy_selection(d: Data) -> Any:
    rng = np.random.default_rng(1)
    _, lats, lons = d.shape
    return d.cube[:, rng.permutation(lats)[: lats // 2]][:, :, rng.integers(0, lons, 20)].mean(axis=0)


@program
def points(d: Data) -> Any:
    rng = np.random.default_rng(1)
    where = tuple(rng.integers(0, n, 500) for n in d.shape)
    return d.cube.vindex[where] * 2


@program
def largest(d: Data) -> Any:
    return da.topk(d.cube.ravel(), 10), d.cube.argmax(axis=0)


@program
def circle(d: Data) -> Any:
    xy = da.random.default_rng(1).random((d.shape[0] * 2000, 2), chunks=(d.shape[0] * 100, 2))
    return 4 * ((xy**2).sum(axis=1) < 1).mean()


@program
def option_price(d: Data) -> Any:
    draws = da.random.default_rng(1).normal(size=(50, d.shape[0] * 400), chunks=(50, d.shape[0] * 20))
    paths = da.exp((0.01 * draws - 0.00005).sum(axis=0)) * 100
    return da.maximum(paths - 100, 0).mean(), paths.std()


@program
def members(d: Data) -> Any:
    return da.random.default_rng(1).random((40, d.shape[0] * 400), chunks=(1, -1)).sum(axis=0)


@program
def degrees(d: Data) -> Any:
    return ((d.cube.rechunk((-1, -1, 32)) * 1.8 + 32) ** 2 - 1).mean()


@program
def delayed_pipeline(d: Data) -> Any:
    found = [dask.delayed(np.mean)(dask.delayed(np.sort)(dask.delayed(np.load)(path))) for path in d.plates]
    return dask.delayed(sum)(found)


@program
def bags(d: Data) -> Any:
    return db.from_sequence(range(2000), npartitions=40).filter(_is_odd).map(_squared).sum()


@program
def rechunk_and_store(d: Data) -> Any:
    path = str(d.folder / "series.zarr")
    return d.cube.rechunk((-1, 12, 16)).to_zarr(path, overwrite=True, compute=False), path


@program
def region_writes(d: Data) -> Any:
    path = str(d.folder / "region.zarr")
    target = zarr.open(path, mode="w", shape=d.shape, chunks=d.chunks, dtype="f8")
    half = d.chunks[1]
    region = (slice(None), slice(half, 2 * half))
    return da.store(d.cube[region] * 2, target, regions=region, compute=False, lock=False), path


@program
def stored_anomaly(d: Data) -> Any:
    path = str(d.folder / "anomaly.zarr")
    return (d.cube - d.cube.mean(axis=0)).to_zarr(path, overwrite=True, compute=False), path


def _frame(path: Any) -> Any:
    import pandas as pd

    values = np.load(path)[:100, :10]
    return pd.DataFrame({"row": np.repeat(np.arange(len(values)), 10), "value": values.ravel()})


def _merged(parts: Any) -> Any:
    import pandas as pd

    return pd.concat(parts)


def _is_odd(value: int) -> bool:
    return value % 2 == 1


def _squared(value: int) -> int:
    return value * value
