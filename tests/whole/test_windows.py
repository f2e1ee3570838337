"""Means over moving windows: one task for each block that is asked for, and the blocks themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from dask.callbacks import Callback

from helpers import assert_same_as_stock, distinct, stock_tasks_of, switched_on, tasks_of

BLOCKS = 100  #: of the array


def source(shape: tuple[int, int] = (1000, 50), chunks: tuple[int, int] = (100, 5)) -> Any:
    return da.random.default_rng(0).random(shape, chunks=chunks)


def windows(x: Any, length: int = 31) -> Any:
    return da.lib.stride_tricks.sliding_window_view(x, length, axis=0).mean(axis=-1)


def test_a_task_for_each_block() -> None:
    """Dask splits the other axis, so that windows are no larger than blocks: 500 blocks come out."""
    made = windows(source())
    assert made.npartitions == 500
    assert len(stock_tasks_of(made)) >= 2900
    with switched_on():
        assert len(tasks_of(made)) <= 500 + BLOCKS


def scheduled(made: Any) -> int:
    """How many tasks a scheduler gets to compute this: the blocks that are put together are nobody's."""
    counts: list[int] = []
    with Callback(start=lambda dsk: counts.append(len(dsk))), switched_on():
        made.compute(scheduler="sync")
    return counts[0]


SOURCES: dict[str, Callable[[], Any]] = {
    "made in tasks": source,
    "in memory": lambda: da.from_array(np.random.default_rng(0).random((1000, 50)), chunks=(100, 5)),
    "of a user's function": lambda: source().map_blocks(lambda block: block + 1, dtype="f8"),
    "stored": lambda: da.from_array(zarr.zeros((1000, 50), chunks=(100, 5)), chunks=(100, 5)),
}


@pytest.mark.once
@pytest.mark.parametrize("name", SOURCES)
def test_no_more_than_native_chunks_where_the_result_is_computed(name: str) -> None:
    """Another optimizer needs 490 for the first, of which its blocks are those of the source."""
    xr = pytest.importorskip("xarray")
    x = SOURCES[name]()
    assert scheduled(xr.DataArray(x, dims=("t", "x")).rolling(t=31).mean()) <= 490
    assert scheduled(windows(x)) <= 2 * BLOCKS + 1


def test_fewer_where_the_blocks_are_not_asked_for() -> None:
    made = windows(source()).sum()
    with switched_on():
        assert len(tasks_of(made)) <= 300


@pytest.mark.parametrize("length", [1, 3, 31])
def test_same_values(length: int) -> None:
    x = distinct((90, 12), (20, 4))
    x = da.where(x % 7 == 0, np.nan, x)
    assert_same_as_stock(windows(x, length), windows(x[:, :5], length)[3:])


def test_xarray() -> None:
    xr = pytest.importorskip("xarray")
    made = xr.DataArray(source(), dims=("t", "x")).rolling(t=31).mean()
    assert len(stock_tasks_of(made.data)) >= 5000
    with switched_on():
        assert len(tasks_of(made.data)) <= 900
    small = xr.DataArray(distinct((60, 6), (20, 3)), dims=("t", "x")).rolling(t=7, min_periods=2).mean()
    assert_same_as_stock(small.data)
