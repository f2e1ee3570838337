"""Steps of reductions go into the next step: wide trees, and the same answer bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_rewrite.passes.fuse_small import WIDE
from helpers import assert_same_as_stock, distinct, stock_tasks_of, tasks_of

REDUCTIONS: dict[str, Callable[[da.Array], Any]] = {
    "sum": lambda x: x.sum(),
    "max of columns": lambda x: x.max(axis=0),
    "mean": lambda x: x.mean(),
    "deviations of rows": lambda x: x.std(axis=1),
    "positions": lambda x: x.argmax(axis=0),
    "any": lambda x: (x > 7).any(),
    "nansum": lambda x: da.nansum(da.where(x % 5 == 0, np.nan, x)),
}


def random(shape: tuple[int, ...], chunks: Any) -> da.Array:
    return da.random.default_rng(0).random(shape, chunks=chunks)


def widest(tasks: dict[Any, Any]) -> int:
    return max(len(task.dependencies) for task in tasks.values())


@pytest.mark.parametrize("name", REDUCTIONS)
def test_stock_joins_four_here_are_sixteen(name: str) -> None:
    """20 x 20 blocks of 80 kB, each of which is a task with its first step."""
    made = REDUCTIONS[name](random((2000, 2000), 100))
    after = tasks_of(made)
    assert len(after) <= 400 + 2 * 20
    assert len(stock_tasks_of(made)) >= 500
    assert widest(after) == WIDE == 16


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "c16"])
def test_bit_for_bit(dtype: str) -> None:
    """Nothing is regrouped: the steps are called in one task as they were in several."""
    values = random((1800, 1800), 100).astype(dtype)
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(values.sum(), values.sum(axis=0), abs(values).mean(axis=1), values.var())


def test_larger_partial_results_where_blocks_are_not_shared() -> None:
    """Four partial sums of 8 kB each go together, unless the blocks wait for another reduction."""
    x = random((1600, 4000), (100, 1000))
    assert len(tasks_of(x.sum(axis=0))) <= 64 + 4
    shared = tasks_of(x.sum(axis=0), (x * x).max(axis=0))
    assert widest(shared) < WIDE


def test_blocks_of_any_kind() -> None:
    x = distinct((400, 60), (20, 20))
    masked = x.map_blocks(lambda block: np.ma.masked_less(block, 50), dtype=x.dtype)
    seen = x.map_blocks(lambda block: block[::-1].copy(), dtype=x.dtype)
    assert_same_as_stock(masked.sum(axis=0), seen.max(axis=0), seen.mean(), x.sum() + seen.sum())
