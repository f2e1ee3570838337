"""Fusion and loads: no block is read twice, and no more of it than is wanted."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef
from dask.local import get_sync

import dask_rewrite
from helpers import (
    Source,
    add_one,
    assert_same,
    assert_same_as_stock,
    checked,
    counted,
    distinct,
    fan_in,
    functions_in,
    keys_of,
    loads,
    rewrite_graph,
    stock_tasks_of,
    tasks_of,
)
from lowering.fusion_cases import Calls

#: How many other blocks a task fused from arrays may wait for (dask's own reductions take 4 to 16).
MAX_FAN_IN = 40


# --------------------------------------------------------------------------------------
# loads


def test_every_block_of_a_tensordot_is_loaded_once() -> None:
    source, x = counted((4, 40), 1)
    y = da.tensordot(x, x, axes=((1,), (1,)))
    result = dask_rewrite.optimize(y).compute()
    expected = np.tensordot(source.values, source.values, axes=((1,), (1,)))
    np.testing.assert_allclose(result, expected)
    source.reset()
    assert_same_as_stock(y)
    assert source.loads % 160 == 0
    source.reset()
    dask_rewrite.optimize(y).compute()
    assert source.loads == 160


LOADED_ONCE = {
    "matmul": lambda x: x @ x.T,
    "x + x.T": lambda x: x + x.T,
    "standardized": lambda x: (x - x.mean()) / x.std(),
    "columns": lambda x: (x - x.mean(0)) / x.std(0),
    "twice": lambda x: (x + 1) * (x - 1),
    "reversed": lambda x: x + x[::-1],
    "roll": lambda x: x + da.roll(x, 2, axis=0),
    "einsum": lambda x: da.einsum("ij,kj->ik", x, x),
    "overlap": lambda x: x.map_overlap(lambda b: b, depth=1, boundary="none"),
    "rechunk": lambda x: x.rechunk((3, 8)) + 1,
    "one element": lambda x: x + x[0, 0],
    "outer": lambda x: x[:, 0][:, None] + x,
    "reductions": lambda x: x.sum(0) + x.max(0) + x.min(0),
}


@pytest.mark.parametrize("name", LOADED_ONCE)
def test_no_load_is_duplicated(name: str) -> None:
    source, x = counted((8, 8), 2)
    y = LOADED_ONCE[name](x)
    source.reset()
    dask_rewrite.optimize(y).compute()
    assert source.loads == 16
    assert_same_as_stock(y)


def test_two_outputs_share_their_loads() -> None:
    source, x = counted((8, 8), 2)
    a, b = dask_rewrite.optimize(x + 1, x.sum())
    source.reset()
    dask.compute(a, b)
    assert source.loads == 16


def test_the_number_of_loads_in_one_task_is_bounded() -> None:
    parts = [counted((4,), 4)[1] for _ in range(60)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    tasks = checked(total)

    def loads_in(task: Any) -> int:
        from dask.array.core import getter, getter_inline

        try:
            from dask.array.core import getter_nofancy
        except ImportError:
            getter_nofancy = getter
        count = 0
        for function in functions_in(task):
            if function in (getter, getter_inline, getter_nofancy):
                count += 1
        return count

    assert max(map(loads_in, tasks.values())) <= 16
    assert_same_as_stock(total)


def made(seed: int) -> np.ndarray:
    return np.arange(4.0) + seed


def test_the_number_of_blocks_made_in_one_task_is_bounded() -> None:
    # Sources that depend on nothing are no wider as tasks, yet they would run one after the other.
    parts = [
        da.map_blocks(made, chunks=((4,),), dtype="f8", meta=np.empty(0), seed=i, name=f"made-{i}")
        for i in range(60)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    tasks = checked(total)
    assert max(loads({key: task}, made) for key, task in tasks.items()) <= 16
    assert sum(loads({key: task}, made) for key, task in tasks.items()) == 60
    assert_same_as_stock(total)


@pytest.mark.parametrize("entry", ["persist", "optimize"])
def test_an_output_that_another_uses_is_computed_once(entry: str) -> None:
    calls = Calls()
    y = distinct((6,), 2).map_blocks(calls, dtype="f8", meta=np.empty(0))
    z = y * 2
    calls.count = 0
    with dask_rewrite.enable():
        if entry == "persist":
            results = dask.compute(*dask.persist(y, z))
        else:
            results = dask.compute(*dask_rewrite.optimize(y, z))
    assert_same(results, (np.arange(6.0) + 1, (np.arange(6.0) + 1) * 2))
    assert calls.count == 3


@pytest.mark.parametrize("n", [100, 400])
def test_fan_in_is_bounded_whatever_the_number_of_terms(n: int) -> None:
    def term(i: int) -> da.Array:
        return da.from_array(np.arange(2.0) + i, chunks=2, name=f"term-{i}")

    total = sum((term(i).rechunk(1) for i in range(1, n)), start=term(0).rechunk(1))
    tasks = checked(total)
    assert max(map(fan_in, tasks.values())) <= MAX_FAN_IN
    assert_same_as_stock(total)


def test_fan_in_of_a_loop_of_masked_updates_is_bounded() -> None:
    x = distinct((4, 4), 2)
    for i in range(100):
        x = da.where(x > i, x - distinct((4, 4), 2) / (i + 1), x + distinct((4,), 2) * i)
    tasks = checked(x)
    assert max(map(fan_in, tasks.values())) <= MAX_FAN_IN
    assert_same_as_stock(x)


def test_parallel_reads_are_not_made_serial() -> None:
    _, x = counted((64,), 1)
    total = x.sum(split_every=64)
    tasks = checked(total)
    assert len(tasks) >= 32, "sixty-four loads in one task would run one after the other"


def _producers(tasks: dict[Any, Any], keys: list[Any]) -> dict[Any, bool]:
    return {key: tasks[key].data_producer for key in keys}


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x,
        lambda x: x + 1,
        lambda x: (x + 1) * 2 - x.sum(),
        lambda x: x[1:] + 1,
    ],
)
def test_data_producers_stay_data_producers(build: Any) -> None:
    _, x = counted((8,), 2)
    y = build(x)
    ours, theirs = tasks_of(y), stock_tasks_of(y)
    expected = sum(task.data_producer for task in theirs.values() if task.dependencies)
    actual = sum(task.data_producer for task in ours.values() if task.dependencies)
    assert actual == expected
    assert any(task.data_producer for task in ours.values())


def test_random_arrays_stay_data_producers() -> None:
    x = da.random.default_rng(1).normal(size=(8,), chunks=2) + 1
    ours, theirs = tasks_of(x), stock_tasks_of(x)
    assert _producers(ours, keys_of(x)) == _producers(theirs, keys_of(x))


def test_the_flag_stays_on_hand_made_tasks() -> None:
    dsk = {
        "a": Task("a", dict, _data_producer=True),
        "b": Task("b", len, TaskRef("a")),
        "c": Task("c", add_one, TaskRef("b")),
    }
    tasks = rewrite_graph(dsk, ["c"])
    assert any(task.data_producer for task in tasks.values())
    assert get_sync(tasks, "c") == 1


# --------------------------------------------------------------------------------------
# slices of what is read


SLICES = {
    "corner": (lambda x: x[5:6, :3], 3),
    "integer": (lambda x: x[5, :3], 3),
    "after nothing": (lambda x: x[5:6, :3] + 1, 3),
    "transposed": (lambda x: x[5:6, :3].T, 3),
    "steps": (lambda x: x[0:10:5, 0:9:3], 6),
}


@pytest.mark.parametrize("name", SLICES)
def test_only_what_is_asked_for_is_read(name: str) -> None:
    build, elements = SLICES[name]
    source, x = counted((100, 100), 100)
    y = build(x)
    source.reset()
    result = dask_rewrite.optimize(y).compute()
    assert source.elements == elements
    assert_same(result, build(source.values))


def test_other_slices_read_no_more_than_stock() -> None:
    for build in (
        lambda x: x[[1, 5, 3]],
        lambda x: x[:, [0, 4]][2:4],
        lambda x: x[None, 3, ::2],
        lambda x: x[2:8][3:4, :3],
        lambda x: x[::-1, 3],
        lambda x: (x[2:8] + 1)[3:4],
    ):
        counts = []
        for optimize in (dask_rewrite.optimize, lambda y: dask.optimize(y)[0]):
            source, x = counted((20, 20), 10)
            y = build(x)
            source.reset()
            result = optimize(y).compute()
            assert_same(result, build(source.values))
            counts.append(source.elements)
        assert counts[0] <= counts[1], counts


def test_a_sliced_load_with_a_second_user_is_read_once() -> None:
    source, x = counted((10, 10), 10)
    y = dask_rewrite.optimize(x.sum() + x[2:3, :3].sum())
    source.reset()
    y.compute()
    assert source.loads <= 2


def test_locked_and_inlined_sources() -> None:
    for kwargs in ({"lock": True}, {"inline_array": True}, {"asarray": False}):
        source = Source(np.arange(100.0).reshape(10, 10))
        x = da.from_array(source, chunks=5, **kwargs)
        y = x[5:6, :3] + 1
        source.reset()
        assert_same(dask_rewrite.optimize(y).compute(), source.values[5:6, :3] + 1)
        assert source.elements == 3, kwargs
