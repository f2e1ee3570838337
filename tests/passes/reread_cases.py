"""Programs that use stored blocks before and after a reduction over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import zarr
from zarr.storage import LoggingStore, MemoryStore

#: Steps in time, and the side of the square at each of them; a block has eight steps and 147 kB.
TIMES, SIDE, STEP = 384, 48, 8


class Stored:
    """A Zarr array of distinct values, and how often each of its chunks was read."""

    def __init__(self, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "f8") -> None:
        store = LoggingStore(MemoryStore(), log_level="ERROR")
        self.values = (np.arange(np.prod(shape)).reshape(shape) * 7 % 1013 / 7).astype(dtype)
        if dtype == "f8":
            self.values.flat[:: 7 * SIDE] = -0.0
        self.array = zarr.create_array(store=store, shape=shape, chunks=chunks, dtype=dtype)
        self.array[...] = self.values
        self._counter = store.counter
        self.x = da.from_array(self.array, chunks=chunks)
        self.nbytes = int(np.prod(chunks)) * self.values.itemsize
        self.reset()

    def reset(self) -> None:
        self._counter.clear()

    @property
    def reads(self) -> float:
        """Reads for each chunk."""
        return self._counter["get"] / self.x.npartitions


def cube() -> Stored:
    return Stored((TIMES, SIDE, SIDE), (STEP, SIDE, SIDE))


def tall() -> Stored:
    return Stored((48 * 256, 64), (256, 64))


def anomaly(x: da.Array) -> tuple[Any, ...]:
    return (abs(x - x.mean(axis=0)).mean(),)


def detrended(x: da.Array) -> tuple[Any, ...]:
    t = (da.arange(TIMES, chunks=STEP) - (TIMES - 1) / 2)[:, None, None]
    slope = (x * t).sum(axis=0) / (t * t).sum()
    return ((x - x.mean(axis=0) - slope * t).std(),)


def lagged(x: da.Array) -> tuple[Any, ...]:
    a, b = x[:-1], x[1:]
    product = ((a - a.mean(axis=0)) * (b - b.mean(axis=0))).mean(axis=0)
    return (product / (a.std(axis=0) * b.std(axis=0)),)


def seasons(x: da.Array) -> tuple[Any, ...]:
    """Anomalies: each step less the mean of the steps of its season."""
    years = x.reshape((-1, 4, *x.shape[1:]))
    return ((years - years.mean(axis=0)).std(),)


def standardized(x: da.Array) -> tuple[Any, ...]:
    return (abs((x - x.mean(axis=0)) / x.std(axis=0)).max(),)


def standardized_by_hand(x: da.Array) -> tuple[Any, ...]:
    """Three phases: the mean, the deviation from it, and what is made of both."""
    centred = x - x.mean(axis=0)
    deviation = da.sqrt((centred**2).mean(axis=0))
    return (abs(centred / deviation).max(),)


def two_results(x: da.Array) -> tuple[Any, ...]:
    mean = x.mean(axis=0)
    return (x - mean).max(), (x * mean).min()


def covariance(x: da.Array) -> tuple[Any, ...]:
    centred = x - x.mean(axis=0)
    return (centred.T @ centred / x.shape[0],)


def subspace(x: da.Array) -> tuple[Any, ...]:
    """Two power iterations, and a last product: five phases."""
    q = np.arange(64 * 4).reshape(64, 4) % 7 / 3
    for _ in range(2):
        left, _ = da.linalg.qr(x @ q)
        q, _ = da.linalg.qr(x.T @ left)
    return (da.linalg.svd(x @ q)[1],)


#: source, reads for each chunk, and blocks that two threads hold at most; most of the 20 are partial
#: results, of four reductions at once, or of products.
PROGRAMS: dict[Callable[[da.Array], tuple[Any, ...]], tuple[Callable[[], Stored], int, float]] = {
    anomaly: (cube, 2, 6),
    detrended: (cube, 2, 6),
    lagged: (cube, 2, 20),
    seasons: (cube, 2, 6),
    standardized: (cube, 2, 8),
    standardized_by_hand: (cube, 3, 6),
    two_results: (cube, 2, 6),
    covariance: (tall, 2, 6),
    subspace: (tall, 5, 20),
}
