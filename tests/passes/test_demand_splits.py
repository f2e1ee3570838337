"""Blocks that grow out of little and are cut apart are made in parts; all others as they were."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from benchmarks.workloads.grids import detrended_columns
from dask.callbacks import Callback
from zarr.storage import MemoryStore

import dask_rewrite
from dask_rewrite.pipeline.run import rewrite_tasks
from dask_rewrite.pipeline.trace import Trace
from helpers import assert_same_as_stock, distinct, keys_of, stock_tasks_of, switched_on, tasks_of

N = 400
SPLIT = "parts that it is cut into"


@pytest.fixture(autouse=True)
def small_blocks_too() -> Any:
    """As the blocks of these tests are."""
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        yield


def vector(n: int = N) -> Any:
    return distinct((n,), n) + 0.5


def outer() -> Any:
    return vector()[:, None] * np.arange(float(N))


def sizes(made: Any, tasks: Any) -> list[int]:
    """Bytes of the block that each task gives."""
    found = []

    def seen(key: Any, value: Any, *rest: Any) -> None:
        found.append(getattr(value, "nbytes", 0))

    with Callback(posttask=seen):
        dask.get(tasks, keys_of(made))
    return found


def largest(made: Any) -> int:
    """Bytes of the largest block that a task gives."""
    with switched_on(num_workers=1):
        return max(sizes(made, tasks_of(made)))


def test_the_product_of_two_vectors() -> None:
    made = outer().rechunk((N, N // 10)).std(axis=0)
    assert largest(made) <= 8 * N * N // 10
    assert_same_as_stock(made, outer().rechunk((N, N // 4)).T)
    assert SPLIT in str(dask_rewrite.explain(made))


def test_types_that_grow() -> None:
    x = distinct((N, N), N, "i1")
    made = (x.astype("f8") + 1).rechunk((N // 4, N))
    assert largest(made) <= 8 * N * N // 4
    assert_same_as_stock(made)


def test_what_detrended_columns_make() -> None:
    """Sizes, not what is held together: that is for the order, and names break ties in it."""
    made = detrended_columns(da, 2)
    with switched_on(num_workers=1):
        tasks = tasks_of(made)
    ours, stock = sizes(made, tasks), sizes(made, stock_tasks_of(made))
    assert len(tasks) <= len(stock_tasks_of(made))
    assert max(ours) <= max(stock) / 2
    assert sum(ours) < 0.7 * sum(stock)


def unknown(block: Any) -> Any:
    return block


WHOLE = {
    "half of it and more is a view": lambda: [outer()[: N // 2 + 1], outer()[N // 2 + 1 :]],
    "parts overlap": lambda: [outer()[i : i + N // 3] for i in range(0, N // 2, 10)],
    "parts of one half of it": lambda: [outer()[: N // 2], outer()[1 : N // 2 + 1]],
    "backwards": lambda: [outer()[: N // 4][::-1], outer()[::-2], outer()[N // 2 :: 2]],
    "lists": lambda: [outer()[[3, 1, 2]], outer()[[7, 5]]],
    "it is asked for": lambda: [(x := outer()), x.rechunk((N, N // 4))],
    "used as a whole, too": lambda: [(x := outer()).rechunk((N, N // 4)), x.sum()],
    "of a function that nobody knows": lambda: [outer().map_blocks(unknown).rechunk((N, N // 4))],
    "an argument as large": lambda: [(distinct((N, N), N) + 1.0).rechunk((N, N // 4))],
    "masked": lambda: [da.ma.filled(da.ma.masked_less(outer(), 9).rechunk((N, N // 4)), 3)],
    "objects": lambda: [outer().astype(object).rechunk((N, N // 4))],
    "empty": lambda: [outer()[:0], outer()[: N // 4]],
    "elements": lambda: [outer()[3], outer()[:, 4], outer()[5, 6]],
}


@pytest.mark.parametrize("case", WHOLE)
def test_made_as_a_whole(case: str) -> None:
    assert_same_as_stock(*WHOLE[case]())
    assert SPLIT not in str(dask_rewrite.explain(*WHOLE[case]()))


def test_work_of_users_is_done_once() -> None:
    calls = 0

    def slow(block: Any) -> Any:
        nonlocal calls
        calls += block.size > 0
        return block

    grown = (vector().map_blocks(slow, dtype="f8", meta=np.empty(0)) + 1)[:, None] * np.arange(float(N))
    with switched_on():
        grown.rechunk((N, N // 10)).compute(scheduler="sync")
    assert calls == 1


@pytest.mark.parametrize("inline", [False, True])
def test_files_are_read_once(inline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = zarr.create_array(store=MemoryStore(), shape=(N, 1), chunks=(N, 1), dtype="f8")
    stored[:] = np.arange(float(N))[:, None]
    reads = 0
    read = zarr.Array.__getitem__

    def counting(self: Any, index: Any) -> Any:
        nonlocal reads
        reads += 1
        return read(self, index)

    x = da.from_zarr(stored, inline_array=inline)
    made = (x * vector()).rechunk((N // 4, N // 4))
    monkeypatch.setattr(zarr.Array, "__getitem__", counting)
    with switched_on():
        made.compute(scheduler="sync")
    assert reads == 1
    assert_same_as_stock(made)


def test_annotated_otherwise() -> None:
    with dask.annotate(priority=3):
        made = outer()
    with switched_on():
        assert largest(made.rechunk((N, N // 4))) == 8 * N * N
    assert_same_as_stock(made.rechunk((N, N // 4)))


def shrunk(made: Any, min_bytes: int) -> int:
    """How many blocks are made smaller."""
    trace = Trace()
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": min_bytes}}}):
        rewrite_tasks(made.dask, made.__dask_keys__(), trace=trace)
        assert_same_as_stock(made)
    return trace.remarks.counts["demand", "applied"]


@pytest.mark.parametrize("inline", [False, True])
def test_plans_nothing_where_all_blocks_are_small_and_none_is_read(inline: bool) -> None:
    data = np.arange(20.0)
    made = (da.from_array(data, chunks=10) + 1)[:3]
    assert shrunk(made, 80) == 1
    assert shrunk(made, 81) == 0
    stored = zarr.create_array(MemoryStore(), data=data, chunks=(10,))
    read = da.from_array(stored, chunks=10, inline_array=inline)
    assert shrunk((read.rechunk(20) + 1)[:3], 10**6) == 3
    assert shrunk((-(read * 2) + 1)[:3], 10**6) == 1
