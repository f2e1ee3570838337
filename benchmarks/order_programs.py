"""Programs as people write them, small, whose order of execution decides what they hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr


def made(shape: tuple[int, ...], chunks: Any, name: str = "loaded") -> da.Array:
    """Blocks of a function that nobody knows."""
    whole = da.core.normalize_chunks(chunks, shape, dtype=float)

    def load(block_info: Any = None) -> np.ndarray:
        time.sleep(0.0003)
        where = block_info[None]
        return np.full(where["chunk-shape"], float(sum(where["chunk-location"])) + len(name))

    return da.map_blocks(load, chunks=whole, dtype=float, meta=np.empty((0,) * len(shape)), name=name)


class File:
    """Stands for a file of numbers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(float), len(shape)

    def __getitem__(self, where: Any) -> np.ndarray:
        time.sleep(0.0003)
        return np.full([len(range(*s.indices(n))) for s, n in zip(where, self.shape)], 1.5)


def stored(shape: tuple[int, ...], chunks: Any, name: str = "stored") -> da.Array:
    """Blocks that are read."""
    return da.from_array(File(shape), chunks=chunks, name=name)


def drawn(shape: tuple[int, ...], chunks: Any, seed: int = 1) -> da.Array:
    """Random blocks."""
    return da.random.default_rng(seed).random(shape, chunks=chunks)


SOURCES: dict[str, Callable[..., da.Array]] = {"made": made, "stored": stored}
SLABS: Any = ((48, 96, 96), (1, -1, -1))


def siblings(source: Callable[..., da.Array]) -> Any:
    u, v, w = (source(*SLABS, f"{source.__name__}-{n}") for n in "uvw")
    return (u * v).mean(axis=0), (v * w).mean(axis=0)


def siblings_drawn() -> Any:
    u, v, w = (drawn(*SLABS, seed) for seed in range(3))
    return (u * v).mean(axis=0), (v * w).mean(axis=0)


def mean_and_std(source: Callable[..., da.Array]) -> Any:
    x = source(*SLABS)
    return x.mean(axis=0), x.std(axis=0)


def extremes_and_mean(source: Callable[..., da.Array]) -> Any:
    x = source(*SLABS)
    return x.min(axis=0), x.max(axis=0), x.mean(axis=0), (x**2).sum(axis=0)


def turned_sum() -> Any:
    x = made((1024, 1024), 128)
    return x + x.T


def turned_sum_drawn() -> Any:
    x = drawn((1024, 1024), 128)
    return x + x.T


def turned_total() -> Any:
    x = drawn((1024, 1024), 128)
    return (x + x.T).mean()


def gram_small() -> Any:
    x = drawn((2000, 60), (200, 20))
    return x.T @ x


def gram_rows() -> Any:
    x = made((4000, 60), (200, -1))
    return x.T @ x


def gram_wide() -> Any:
    x = made((800, 3200), 200)
    return x @ x.T


def products() -> Any:
    x, y = drawn((800, 800), 200), made((800, 800), 200)
    return x @ y


def contracted() -> Any:
    x, y = made((64, 96, 40), (4, -1, -1)), made((64, 96, 30), (4, -1, -1), "other")
    return da.tensordot(x, y, axes=((0, 1), (0, 1)))


def anomalies(source: Callable[..., da.Array]) -> Any:
    x = source(*SLABS)
    return x - x.mean(axis=0)


def anomalies_total(source: Callable[..., da.Array]) -> Any:
    x = source(*SLABS)
    return abs(x - x.mean(axis=0)).mean()


def standardized() -> Any:
    x = made((4000, 400), (200, 200))
    return ((x - x.mean(axis=0)) / x.std(axis=0)).max(axis=1)


def climatology() -> Any:
    x = xr.DataArray(drawn((240, 48, 48), (10, -1, -1)), dims=("t", "y", "x"), coords={"t": np.arange(240)})
    return x.groupby(x.t % 12).mean().data


def anomalies_of_months() -> Any:
    x = xr.DataArray(made((240, 48, 48), (10, -1, -1)), dims=("t", "y", "x"), coords={"t": np.arange(240)})
    groups = x.assign_coords(month=("t", np.arange(240) % 12)).groupby("month")
    return (groups - groups.mean()).std("t").data


def dataset() -> Any:
    u, v, w = (made(*SLABS, f"made-{n}") for n in "uvw")
    all_of = xr.Dataset({n: (("t", "y", "x"), a) for n, a in zip("uvw", (u, v, w))})
    all_of["uv"], all_of["vw"] = all_of.u * all_of.v, all_of.v * all_of.w
    return tuple(a.data for a in all_of.mean("t").data_vars.values())


def overlapped() -> Any:
    x = drawn((512, 512, 16), (64, 64, 16))
    return x.map_overlap(lambda b: b * 2, depth=(1, 1, 0)).mean(axis=(0, 1))


def heated() -> Any:
    x = made((512, 512), 64)
    for _ in range(3):
        x = x.map_overlap(lambda b: b * 0.5 + 0.5, depth=1, boundary="reflect")
    return x.sum()


def turned_chunks() -> Any:
    return made((2000, 1000), (2000, 50)).rechunk((100, 1000)).std(axis=1)


def rechunked() -> Any:
    return made((1000, 1000), (1000, 50)).rechunk((50, 1000))


def accumulated() -> Any:
    return made((3200, 400), (200, 400)).cumsum(axis=0)


def members() -> Any:
    return sum(drawn((200, 200), -1, seed) for seed in range(40)) / 40


def members_spread() -> Any:
    each = [made((200, 200), 100, f"member-{n}") for n in range(20)]
    return sum(each) / 20, sum(x * x for x in each) / 20


def long_sum() -> Any:
    return da.random.default_rng(1).random((60, 40_000), chunks=(1, -1)).sum(axis=0)


def long_moments() -> Any:
    x = da.random.default_rng(1).random((60, 40_000), chunks=(1, -1))
    return x.std(axis=0)


def long_mean() -> Any:
    return made((60, 40_000), (1, -1)).mean(axis=0)


def long_max() -> Any:
    return made((60, 40_000), (1, -1)).max(axis=0)


def regression() -> Any:
    x, y = made((40_000, 20), (2000, 20)), made((40_000,), 2000, "target")
    return x.T @ x, x.T @ y


def lagged() -> Any:
    x = made((480, 48, 48), (10, -1, -1))
    return (x[1:] * x[:-1]).mean(axis=0)


def weighted() -> Any:
    x, w = made(*SLABS), made((48,), 1, "weights")
    return (x * w[:, None, None]).sum(axis=0) / w.sum()


def pyramid() -> Any:
    x = made((1024, 1024), 128)
    half = da.coarsen(np.mean, x, {0: 2, 1: 2})
    quarter = da.coarsen(np.mean, half, {0: 2, 1: 2})
    return x.max(), half, quarter


def both(program: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    return {f"{program.__name__}-{name}": lambda s=source: program(s) for name, source in SOURCES.items()}


PROGRAMS: dict[str, Callable[[], Any]] = {
    **both(siblings), **both(mean_and_std), **both(extremes_and_mean), **both(anomalies),
    **both(anomalies_total),
    **{
        each.__name__: each
        for each in (
            siblings_drawn, turned_sum, turned_sum_drawn, turned_total, gram_small, gram_rows, gram_wide,
            products, contracted, standardized, climatology, anomalies_of_months, dataset, overlapped,
            heated, turned_chunks, rechunked, accumulated, members, members_spread, long_sum, long_moments,
            long_mean, long_max, regression, lagged, weighted, pyramid,
        )
    },
}  # fmt: skip
