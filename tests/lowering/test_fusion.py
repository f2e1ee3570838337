"""Fusion: bounded in nesting and fan-in, never a load twice, and all of it standard functions."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef, _execute_subgraph
from dask.local import get_sync
from dask.threaded import get as get_threaded

import dask_rewrite
from helpers import (
    MAX_NESTING,
    add_one,
    assert_same,
    assert_same_as_stock,
    checked,
    distinct,
    functions_in,
    keys_of,
    leapfrog,
    leapfrog_by_hand,
    nesting,
    rewrite_graph,
    running_total,
    tasks_of,
    there_and_back,
)
from lowering.fusion_cases import Calls

# --------------------------------------------------------------------------------------
# what is fused, and into what


def test_a_tower_is_one_task_per_block() -> None:
    x = distinct((8,), 2)
    for i in range(10):
        x = x * 2 + i
    assert len(checked(x)) <= 8  # for each block its data and one task
    assert_same_as_stock(x)


def test_the_form_of_stock_is_not_used() -> None:
    for x in (
        distinct((8,), 2) * 2 + 1,
        leapfrog(30),
        running_total(30),
        (lambda y: (y - y.mean(0)) / y.std(0))(distinct((6, 4), 2)),
    ):
        for task in checked(x).values():
            assert _execute_subgraph not in set(functions_in(task))


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 8, 31, 32, 33, 64, 200])
def test_nesting_is_bounded_at_any_depth(depth: int) -> None:
    x = distinct((4,), 2)
    for _ in range(depth):
        x = np.sin(x) + 1
    tasks = checked(x)
    assert max(map(nesting, tasks.values())) <= MAX_NESTING
    assert len(tasks) <= 3 + 2 * (2 * depth // 32 + 1)
    assert_same_as_stock(x)


def test_bytes_do_not_grow_with_depth_times_blocks() -> None:
    def size(depth: int) -> int:
        x = da.ones((400,), chunks=1)
        for i in range(depth):
            x = np.sin(x) + i
        return len(pickle.dumps(tasks_of(x)))

    assert max(map(size, (2, 3, 4, 8, 24))) < 1.5 * size(1)


def test_only_functions_of_others() -> None:
    for x in (leapfrog(50), running_total(50), (distinct((6, 6), 2) + 1).sum(axis=0), there_and_back(60)):
        sent = cloudpickle.dumps(tasks_of(x))
        assert b"dask_rewrite" not in sent


def test_outputs_are_never_fused_away() -> None:
    x = distinct((4,), 2) + 1
    y = x * 2
    z = y - 3
    tasks = checked(x, y, z)
    assert set(keys_of(x, y, z)) <= set(tasks)
    assert_same_as_stock(x, y, z)


def test_linear_chains_of_materialized_tasks() -> None:
    dsk: dict[Any, Any] = {"a": Task("a", int, 1)}
    for i in range(9):
        dsk[f"b{i}"] = Task(f"b{i}", add_one, TaskRef(f"b{i - 1}" if i else "a"))
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

    graph = HighLevelGraph({"l": MaterializedLayer(dsk)}, {"l": set()})
    assert get_sync(rewrite_graph(graph, ["b8"]), "b8") == 10


def test_a_value_used_twice_is_computed_once() -> None:
    calls = Calls()
    x = distinct((6,), 2)
    y = x.map_blocks(calls, dtype="f8")
    calls.count = 0
    z = y * y + y
    assert_same(dask_rewrite.optimize(z).compute(), (np.arange(6.0) + 1) ** 2 + np.arange(6.0) + 1)
    assert calls.count == 3


def test_a_shared_value_in_a_tower_of_diamonds_is_computed_once() -> None:
    calls = Calls()
    x = da.from_array(np.linspace(0, 1, 20), chunks=2)
    levels = 12
    for _ in range(levels):
        x = x.map_blocks(calls, dtype="f8", meta=np.empty(0))
        x = (x + 1) * (x - 1) * 0.1
    tasks = checked(x)
    assert len(tasks) <= 2 * 10 + 1
    calls.count = 0
    result = dask_rewrite.optimize(x).compute()
    assert calls.count == levels * 10
    assert_same(result, dask_rewrite.optimize(x).compute(scheduler="threads"))


def test_diamonds_do_not_explode() -> None:
    x = da.from_array(np.linspace(0, 1, 100), chunks=1)
    for _ in range(30):
        x = (x + 1) * (x - 1) * 0.1
    tasks = checked(x)
    assert len(tasks) <= 201  # stock: one task per block, and an original array
    assert_same_as_stock(x)


def test_a_one_block_producer_is_not_recomputed_by_every_consumer() -> None:
    calls = Calls()
    one = distinct((1, 4), 4).map_blocks(calls, dtype="f8", meta=np.empty((0, 0)))
    calls.count = 0
    y = distinct((40, 4), (1, 4)) + one
    assert_same(dask_rewrite.optimize(y).compute()[3], np.arange(12.0, 16) + np.arange(4.0) + 1)
    assert calls.count == 1


def test_row_producers_are_not_recomputed_by_every_column() -> None:
    calls = Calls()
    row = distinct((8,), 2).map_blocks(calls, dtype="f8", meta=np.empty(0))
    calls.count = 0
    z = dask_rewrite.optimize(row[:, None] * row[None, :]).compute()
    assert_same(z, np.multiply.outer(np.arange(1.0, 9), np.arange(1.0, 9)))
    assert calls.count == 4


def test_unequal_annotations_are_not_fused() -> None:
    x = distinct((4,), 2)
    with dask.annotate(workers=["a"]):
        y = x + 1
    with dask.annotate(workers=["b"]):
        z = y * 2
    tasks = checked(z)
    names = {key[0] if isinstance(key, tuple) else key for key in tasks}
    assert len(tasks) >= 4
    assert len(names) >= 2


# --------------------------------------------------------------------------------------
# the loops that kill stock dask


@pytest.mark.parametrize("steps", [220, 1_000, 5_000])
def test_leapfrog(steps: int) -> None:
    x = leapfrog(steps)
    tasks = checked(x)
    assert len(tasks) <= 8
    expected = leapfrog_by_hand(steps)
    assert_same(np.concatenate(get_threaded(tasks, keys_of(x))), expected)
    again = pickle.loads(cloudpickle.dumps(tasks))
    assert_same(np.concatenate(get_sync(again, keys_of(x))), expected)


def test_leapfrog_through_compute() -> None:
    with dask_rewrite.enable():
        assert_same(leapfrog(1_000).compute(scheduler="threads"), leapfrog_by_hand(1_000))


@pytest.mark.parametrize("steps", [150, 1_000])
def test_array_to_delayed_to_array(steps: int) -> None:
    with dask_rewrite.enable():
        x = there_and_back(steps)
        tasks = checked(x)
        assert_same(x.compute(scheduler="threads"), np.arange(4.0) + steps)
        pickle.loads(cloudpickle.dumps(tasks))


def test_array_to_delayed_to_array_built_before_switching_on() -> None:
    x = there_and_back(150)
    assert max(map(nesting, checked(x).values())) <= MAX_NESTING
    with dask_rewrite.enable():
        assert_same(x.compute(scheduler="threads"), np.arange(4.0) + 150)


@pytest.mark.parametrize("steps", [50, 2_000])
def test_running_total(steps: int) -> None:
    x = running_total(steps)
    assert len(checked(x)) <= 8
    assert_same(dask_rewrite.optimize(x).compute(), np.arange(4) * (steps + 1))


def test_three_term_recurrence_and_a_constant() -> None:
    def run(a: Any, b: Any, k: Any) -> Any:
        for _ in range(300):
            a, b = b, 2 * k * b * 0.3 - a * 0.5
        return b

    values = np.arange(6.0)
    expected = run(values, values + 1, values * 0.1)
    x = run(distinct((6,), 2), distinct((6,), 2) + 1, distinct((6,), 2) * 0.1)
    checked(x)
    assert_same(dask_rewrite.optimize(x).compute(), expected)


def test_wide_recurrence_over_reductions() -> None:
    x = distinct((6, 6), 3) + 1.0
    for _ in range(40):
        x = x / x.mean() + x.T * 0.1
    checked(x)
    assert_same_as_stock(x)


def test_delayed_tasks_are_not_fused() -> None:
    # Users watch those tasks on the dashboard, each under its own name.
    a = dask.delayed(add_one)(1, dask_key_name="a")
    b = dask.delayed(add_one)(a, dask_key_name="b")
    c = dask.delayed(add_one)(b, dask_key_name="c")
    assert set(tasks_of(c)) == {"a", "b", "c"}
    assert dask_rewrite.optimize(c).compute() == 4


def test_fused_names_group_well_and_are_unique() -> None:
    from dask.utils import key_split

    x = ((distinct((40,), 4) + 1) * 2).sum(split_every=4)
    groups = Counter(key_split(key) for key in tasks_of(x))
    assert not any(len(group) > 40 for group in groups)
    assert len(groups) <= 8


def test_programs_drop_values_that_are_dead() -> None:
    # A program of many steps over large blocks must not hold every step's value.
    import tracemalloc

    size = 250_000  # two megabytes
    a = da.zeros(size, chunks=size)
    b = da.ones(size, chunks=size)
    for _ in range(60):
        a, b = b, (a + b) * 0.5
    y = dask_rewrite.optimize(b)
    tracemalloc.start()
    try:
        y.compute()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * size * 8


def test_nested_evaluation_holds_no_more_than_it_must() -> None:
    # A right-deep tower of loads, newest on the left, would hold all of its loads at once.
    import tracemalloc

    size = 125_000  # one megabyte

    def load(i: int) -> da.Array:
        return da.from_array(_Made(size, i), chunks=size, name=f"made-{i}", meta=np.empty(0))

    total = load(0)
    for i in range(1, 24):
        total = load(i) + 0.5 * total
    y = dask_rewrite.optimize(total)
    tracemalloc.start()
    try:
        y.compute()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * size * 8


class _Made:
    """A source that makes its data when it is read."""

    def __init__(self, size: int, value: float) -> None:
        self.shape, self.dtype, self.ndim, self.value = (size,), np.dtype("f8"), 1, value

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.full(self.shape, float(self.value))[index]
