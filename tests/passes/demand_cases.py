"""Stored arrays that count what is read of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from zarr.storage import LoggingStore, MemoryStore


class Stored:
    """A Zarr array whose store counts how often a chunk is read."""

    def __init__(self, data: np.ndarray[Any, Any], chunks: tuple[int, ...]) -> None:
        store = LoggingStore(MemoryStore(), log_level="ERROR")
        self.array = zarr.create_array(store=store, shape=data.shape, chunks=chunks, dtype=data.dtype)
        self.array[...] = data
        self.counter = store.counter
        self.counter.clear()


def gets(
    make: Callable[[Any], Any], source: Stored, chunks: tuple[int, ...], **config: Any
) -> tuple[int, Any]:
    """How many stored chunks are read, and the result."""
    made = make(da.from_array(source.array, chunks=chunks))
    source.counter.clear()
    with dask.config.set(config):
        several = dask.compute(*(made if type(made) is tuple else (made,)), scheduler="sync")
    return source.counter["get"], several


def square(dtype: str = "f8") -> np.ndarray[Any, Any]:
    data = (np.random.default_rng(0).random((100, 100)) * 1000).astype(dtype)
    if dtype == "f8":
        data[::7, ::3] = np.nan
        data[::5, 1::4] = -0.0
    return data
