"""Wide sums and other folds become trees, and mean what they meant."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.local import get_sync
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.graph.graph import Graph, depths_of
from helpers import (
    assert_same,
    assert_same_as_stock,
    assert_sound,
    checked,
    fan_in,
    functions_in,
    keys_of,
    stock_tasks_of,
    tasks_of,
    work_of,
)
from passes.tree_sum_cases import (
    FOLDS,
    KEY,
    LINALG,
    added,
    blocks,
    folded,
    graph_of,
    many_blocks,
    number,
    rechunked,
    rewritten,
    run,
    system,
)

# -- fires ---------------------------------------------------------------------------------


def test_a_wide_sum_becomes_a_tree() -> None:
    after = rewritten(graph_of(folded(sum), blocks(19)))
    low = added(after)
    assert [len(task.dependencies) for task in low] == [7, 6, 6]
    assert after.nodes[KEY].dependencies == {task.key for task in low}
    assert {f for task in (*low, after.nodes[KEY]) for f in functions_in(task)} - {sum} == {
        List(1).func  # what makes the lists
    }


def test_neighbours_are_added_up_first() -> None:
    after = rewritten(graph_of(folded(sum), blocks(96)))
    for task in added(after):
        places = sorted(key[1] for key in task.dependencies if key[0] == "x")
        assert places == list(range(places[0], places[0] + len(places))) if places else True


def test_a_tree_has_as_many_levels_as_it_needs() -> None:
    after = rewritten(graph_of(folded(sum), blocks(1000)))
    assert after.metrics().depth == 1 + 4  # 1000 → 125 → 16 → 2 → 1


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "u8"])
@pytest.mark.parametrize("name", FOLDS)
def test_folds_of_integers_are_exact(name: str, dtype: str) -> None:
    rewritten(graph_of(FOLDS[name], blocks(20, dtype)))


@pytest.mark.parametrize("func", [max, min, any, all])
def test_folds_of_single_numbers(func: Any) -> None:
    rewritten(graph_of(folded(func), blocks(20, shape=(1, 1))))
    rewritten(graph_of(folded(func), [number(7 * i % 20) for i in range(20)]))


def test_sums_nested_in_a_task_leave_room_for_its_other_inputs() -> None:
    nodes = {("x", i): DataNode(("x", i), block) for i, block in enumerate(blocks(21, "f8", (3, 3)))}
    refs = list(map(TaskRef, nodes))
    difference = Task(None, operator.sub, refs[0], Task(None, sum, List(*refs[2:])))
    nodes[KEY] = Task(KEY, np.dot, refs[1], difference)
    graph = Graph(nodes, (KEY,))
    after, _ = run(graph)
    assert max(map(fan_in, after.nodes.values())) == 7
    assert [*functions_in(after.nodes[KEY])][:3] == [np.dot, operator.sub, sum]
    assert_same(get_sync(after.nodes, KEY), get_sync(graph.nodes, KEY))


def test_two_sums_in_one_task_share_its_room() -> None:
    nodes = {("x", i): DataNode(("x", i), block) for i, block in enumerate(blocks(40))}
    refs = list(map(TaskRef, nodes))
    nodes[KEY] = Task(
        KEY, operator.mul, Task(None, sum, List(*refs[:20])), Task(None, np.max, List(*refs[20:]), axis=0)
    )
    rewritten(Graph(nodes, (KEY,)))


def test_sums_in_templates() -> None:
    template = Task(None, operator.neg, Task(None, sum, TaskRef("x0")))
    terms = {("x", i): DataNode(("x", i), block) for i, block in enumerate(blocks(20))}
    call = Task(KEY, template.__call__, Task(None, dict, x0=List(*map(TaskRef, terms))))
    rewritten(Graph({**terms, KEY: call}, (KEY,)))


def test_other_fan_in() -> None:
    for fan_in_ in (1, 2, 3, 4, 16):
        rewritten(graph_of(folded(sum), blocks(50)), fan_in=fan_in_)


def test_options_by_configuration() -> None:
    x = delayed(np.add.reduce)([delayed(np.full)((2, 2), i) for i in range(30)])
    with dask.config.set({"rewrite.options": {"tree-sum": {"fan-in": 4}}}):
        assert max(map(fan_in, tasks_of(x).values())) == 4
    with (
        dask.config.set({"rewrite.options": {"tree-sum": {"width": 4}}}),
        pytest.raises(ValueError, match=r"no option 'width'; it has: fan-in, delayed"),
    ):
        tasks_of(x)
    with (
        dask.config.set({"rewrite.options": {"tree-sum": {"reassociate": True}}}),
        pytest.raises(ValueError, match="no option 'reassociate'"),
    ):
        tasks_of(x)


# -- equivalent ----------------------------------------------------------------------------


@given(st.data())
def test_any_fold_of_anything(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FOLDS)))
    dtype = data.draw(st.sampled_from(["?", "i1", "u2", "i8", "f4", "f8", "c16"]))
    shape = data.draw(st.sampled_from([(), (1,), (3,), (2, 2), (0, 2)]))
    n = data.draw(st.integers(2, 80))
    fan_in_ = data.draw(st.integers(2, 10))
    reassociate = data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    exact = data.draw(st.booleans())  # floats without any rounding
    scale = 1 if exact else 0.37
    terms = [(rng.integers(-3, 4, shape) * scale).astype(dtype) for _ in range(n)]
    if "prod" in name or "mul" in name:
        terms = [np.clip(term.real, 0, 2).astype(dtype) for term in terms]
    graph = graph_of(FOLDS[name], terms)
    after, _ = run(graph, fan_in=fan_in_, reassociate=reassociate)
    assert_sound(after.nodes, after.outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = get_sync(graph.nodes, KEY)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                get_sync(after.nodes, KEY)
            return
        actual = get_sync(after.nodes, KEY)
    if not reassociate or dtype[0] in "?iu":
        assert_same(actual, expected)
    else:
        assert type(actual) is type(expected)
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


# -- idempotent ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"fan_in": 2}, {"reassociate": False}])
@pytest.mark.parametrize("name", ["sum", "np.sum", "reduce(add)"])
def test_a_second_run_finds_nothing(name: str, options: Any) -> None:
    graph = graph_of(FOLDS[name], blocks(100, "f8"))
    after, _ = run(graph, **options)
    again, remarks = run(after, **options)
    assert again is after
    assert not remarks.counts["tree-sum", "applied"]


@many_blocks
def test_linear_algebra_twice() -> None:
    a, b = system(12)
    x = da.linalg.solve(a, rechunked(b))
    once = checked(x)
    after, _ = run(Graph(dict(once), tuple(keys_of(x))))
    assert after.nodes.keys() == once.keys()


def test_bisection_stops_between_single_rewrites() -> None:
    a, _ = system()
    x = da.linalg.cholesky(a, lower=True)
    for limit in (1, 50):
        with dask.config.set({"rewrite.bisect-limit": limit}):
            assert_same_as_stock(x)


# -- pays ----------------------------------------------------------------------------------


def held(tasks: Any, keys: Sequence[Any]) -> int:
    """The most results held at a time when tasks run one by one in dask's order.

    Keys become numbers first: the order among equals hangs on how keys are hashed, which differs from
    process to process.
    """
    from dask.order import order

    number = {key: i for i, key in enumerate(sorted(tasks, key=str))}
    tasks = {
        number[key]: DataNode(number[key], 0)
        if isinstance(task, DataNode)
        else Task(number[key], max, *[TaskRef(i) for i in sorted(map(number.__getitem__, task.dependencies))])
        for key, task in tasks.items()
    }
    keys = [number[key] for key in keys]
    waiting: dict[Any, int] = {}
    for task in tasks.values():
        for dep in task.dependencies:
            waiting[dep] = waiting.get(dep, 0) + 1
    here: set[Any] = set()
    most = 0
    ranks = order(dict(tasks))
    for key in sorted(tasks, key=ranks.__getitem__):
        here.add(key)
        most = max(most, len(here))
        for dep in tasks[key].dependencies:
            waiting[dep] -= 1
            if not waiting[dep] and dep not in keys:
                here.discard(dep)
    return most


def test_few_members_are_held() -> None:
    x = delayed(sum)([delayed(np.full)((2, 3), i) for i in range(96)])
    assert held(stock_tasks_of(x), keys_of(x)) >= 96
    assert held(tasks_of(x), keys_of(x)) <= 24


@many_blocks
@pytest.mark.parametrize("name", ["lu", "cholesky", "solve", "inv"])
def test_linear_algebra_holds_no_more(name: str) -> None:
    a, b = system()
    x = LINALG[name](a, rechunked(b))
    with dask.config.set({"rewrite.disable": ["share"]}):  # equal blocks may be held longer, once
        assert held(tasks_of(x), keys_of(x)) <= held(stock_tasks_of(x), keys_of(x))


def longest(tasks: Any) -> int:
    """Products on the longest path."""
    below: dict[Any, int] = {}
    depths = depths_of(tasks)
    for key in sorted(tasks, key=depths.__getitem__):
        products = sum(function is np.dot for function in functions_in(tasks[key]))
        below[key] = products + max((below[dep] for dep in tasks[key].dependencies), default=0)
    return max(below.values())


@pytest.mark.parametrize("name", ["lu", "cholesky", "lower triangle", "upper triangle"])
def test_the_longest_path_stays_as_long(name: str) -> None:
    """Products in a row could make many threads wait."""
    a, b = system(16)
    x = LINALG[name](a, rechunked(b))
    without = {"rewrite.disable": ["tree-sum", "fuse-small", "contract"]}
    alone = {"rewrite.disable": ["fuse-small", "contract"]}
    with dask.config.set(without):
        before = longest(tasks_of(x))
    with dask.config.set(alone):
        assert longest(tasks_of(x)) <= before + 4


def test_a_graph_without_wide_tasks_costs_next_to_nothing() -> None:
    nodes = {("x", i): Task(("x", i), operator.neg, TaskRef(("x", i - 1))) for i in range(1, 10_000)}
    nodes["x", 0] = DataNode(("x", 0), np.arange(3))
    graph = Graph(nodes, (("x", 9_999),))
    assert work_of(lambda: run(graph)) < 10_000 * 1.2 + 100
