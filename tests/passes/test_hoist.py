"""hoist: heavy constants and functions that many tasks carry."""

from __future__ import annotations

import operator
import pickle
import threading
from functools import partial
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.hoist import Hoist
from dask_rewrite.passes.hoist.size_bounds import suspects
from dask_rewrite.passes.hoist.sizes import Scales
from helpers import assert_same, assert_same_as_stock, checked, keys_of, tasks_of, work_of
from passes.hoist_cases import (
    Model,
    X,
    apply,
    declined,
    hoisted,
    run,
    ways,
)


def bytes_of(tasks: Any) -> int:
    return sum(len(cloudpickle.dumps(task)) for task in tasks.values())


# -- fires ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(ways()))
def test_fires(way: str) -> None:
    x = ways()[way]()
    tasks = checked(x)
    assert 1 <= len(hoisted(tasks)) <= 2
    assert bytes_of(tasks) < 3500 * len(tasks) + 2 * 241_000
    assert_same_as_stock(x)
    assert_same_as_stock(x, scheduler="threads")


def test_before_and_after() -> None:
    model = Model()
    nodes = {i: Task(i, apply, X[i : i + 1], model) for i in range(3)}
    graph, remarks = run(nodes)
    (key,) = hoisted(graph.nodes)
    assert isinstance(graph.nodes[key], DataNode)
    for i in range(3):
        task = graph.nodes[i]
        assert task.func is operator.call
        assert task.dependencies == {key}
        assert task.args[0].func is operator.call
        assert task.args[0].args == (TaskRef(key),)
        assert_same(task({key: graph.nodes[key].value}), X[i : i + 1] + 2)
    assert remarks.counts["hoist", "applied"] == 1
    assert "240 kB" in str(remarks.kept[0])


def test_a_heavy_function_alone_is_called_through_the_key() -> None:
    function = Model().predict
    graph, _ = run({i: Task(i, function, TaskRef("x")) for i in range(3)} | {"x": DataNode("x", X)})
    (key,) = hoisted(graph.nodes)
    assert graph.nodes[0].dependencies == {key, "x"}
    assert graph.nodes[key].value() is function


def test_dependencies_of_a_task_grow_by_one() -> None:
    one, two, three = Model(), Model(), np.arange(9_000.0)
    nodes: dict[Any, Any] = {"x": DataNode("x", X)}
    for i in range(9):
        nodes[i] = Task(i, max, TaskRef("x"), one, two, three, [three])
    graph, _ = run(nodes)
    assert [len(graph.nodes[i].dependencies) for i in range(9)] == [2] * 9
    assert len(hoisted(graph.nodes)) == 1


def test_a_part_that_tasks_carry_in_different_objects() -> None:
    model = Model()
    functions = [partial(apply, model=model) for _ in range(9)]
    graph, _ = run({i: Task(i, functions[i], X[i : i + 1]) for i in range(9)})
    (key,) = hoisted(graph.nodes)
    value = graph.nodes[key].value
    task = graph.nodes[3]
    assert task.args[0]({key: value}) is functions[3]
    task, value = pickle.loads(cloudpickle.dumps((task, value)))  # as on a worker
    assert_same(task({key: value}), X[3:4] + 2)
    one, two = task.args[0]({key: value}), task.args[0]({key: value})
    assert one.keywords["model"].table is not two.keywords["model"].table


def test_templates_that_are_heavy_by_themselves() -> None:
    steps = Task(None, operator.add, TaskRef("x0"), 1)
    for i in range(300):
        steps = Task(None, operator.add, TaskRef("x0"), steps) if i % 30 == 0 else steps
    call = Task(None, sum, [len(str(steps))] * 3000).__call__
    nodes = {i: Task(i, call, Task(None, dict, x0=i)) for i in range(20)}
    graph, _ = run(nodes)
    assert len(hoisted(graph.nodes)) == 1


def test_declines_without_constants() -> None:
    assert declined({i: Task(i, operator.add, i, 1) for i in range(100)}) == []
    assert declined({}) == []


def test_declines_what_is_light() -> None:
    table = np.arange(100)
    assert declined({i: Task(i, max, table, i) for i in range(100)}) == []


def test_declines_what_would_save_little() -> None:
    table = np.arange(2000)
    assert declined({i: Task(i, max, table, i) for i in range(3)}) == []
    graph, _ = run({i: Task(i, max, table, i) for i in range(10)})
    assert hoisted(graph.nodes)


def test_declines_what_one_task_carries() -> None:
    assert declined({0: Task(0, max, Model(), Model())}) == []
    assert declined({i: Task(i, max, np.arange(30_000) + i) for i in range(9)}) == []


def test_declines_what_is_sent_by_name() -> None:
    assert declined({i: Task(i, apply, i, Model) for i in range(9)}, min_bytes=100, min_saved=100) == []


def test_leaves_keys_and_futures_alone() -> None:
    assert (
        declined({"x": DataNode("x", Model()), **{i: Task(i, apply, i, TaskRef("x")) for i in range(9)}})
        == []
    )


@pytest.mark.parametrize("min_bytes", [50, 300, 1000, 5000, 20_000])
def test_what_is_said_to_be_light_is_light(min_bytes: int) -> None:
    table = np.arange(300.0)

    def local(x: Any = table) -> Any:
        return x

    class Odd:
        __module__ = None

        def __init__(self) -> None:
            self.table = table

    compose = pytest.importorskip("toolz").compose
    values = [
        *([1, 2], [1] * 100, [[1] * 10] * 10, [[[1, "a" * 400]]], ("a", "b" * 3000), {"a": table}, {1: 2}),
        *(partial(print, 1), partial(print, table), partial(local, 1), compose(abs, partial(np.add, table))),
        *(compose(abs, np.sum), Task(None, abs, [table]), Task(None, abs, 1), DataNode(None, table)),
        *(Task(None, abs, table).__call__, np.random.default_rng(0), np.random.SeedSequence(1), Odd()),
        *(table, np.array([table, 1], dtype=object), "a" * 2000, b"a", np.concatenate, Odd, local, range(3)),
        *(set(range(200)), frozenset((1, 2)), partial(partial(local, table), 2)),
    ]
    objects = {id(value): value for value in values}
    scales = Scales(min_bytes)
    left = suspects(objects, scales)
    alone = {at for at in objects if suspects({at: objects[at]}, scales)}
    for at, value in objects.items():
        if scales.weigh(value).cores:
            assert at in left
            assert at in alone


def test_leaves_coroutines_alone() -> None:
    async def slow(model: Any) -> Any:
        return model

    model = Model()
    assert declined({i: Task(i, slow, model) for i in range(9)}) == []
    assert declined({i: Task(i, partial(slow, model)) for i in range(9)}) == []


def test_leaves_other_kinds_of_tasks_alone() -> None:
    class Special(Task):
        pass

    model = Model()
    assert declined({i: Special(i, apply, i, model) for i in range(9)}) == []


def test_says_what_cannot_be_weighed() -> None:
    class Closed:
        def __reduce__(self) -> Any:
            raise ValueError("not today")

    closed = Closed()
    (remark,) = declined({i: Task(i, max, closed) for i in range(9)})
    assert "not today" in remark
    lock = threading.Lock()
    (remark,) = declined({i: Task(i, max, lock) for i in range(9)})
    assert "lock" in remark


def test_objects_that_do_not_want_to_be_looked_at() -> None:
    class Shy:
        @property
        def __dict__(self) -> Any:
            raise OSError("go away")

    shy = Shy()
    (remark,) = declined({i: Task(i, max, shy) for i in range(9)})
    assert "go away" in remark


def test_what_cannot_be_pickled_is_named() -> None:
    from dask_rewrite.graph.culprit import culprit

    model = Model()
    model.lock = threading.Lock()
    graph, _ = run({i: Task(i, apply, i, model) for i in range(9)})
    found = culprit(graph.nodes)
    assert found is not None
    assert "attribute 'lock' of Model" in found.path


def test_recursion_while_weighing() -> None:
    class Deep:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __reduce__(self) -> Any:
            return Deep, (self.inner,)

    deep: Any = None
    for _ in range(100_000):  # Python 3.14 has a deeper stack
        deep = Deep(deep)
    remarks = declined({i: Task(i, max, deep) for i in range(9)})
    assert len(remarks) == 1


def test_nested_containers_of_any_depth() -> None:
    deep: Any = [np.arange(30_000)]
    for _ in range(3000):
        deep = [deep]
    loop: list[Any] = [np.arange(30_000)]
    loop.append(loop)
    for holding in (deep, loop):
        graph, _ = run({i: Task(i, len, holding) for i in range(9)})
        assert graph.nodes[3]({key: graph.nodes[key].value for key in hoisted(graph.nodes)}) == len(holding)


# -- equivalent ----------------------------------------------------------------------------------

_tables = [np.arange(20_000.0) + i for i in range(3)]


_leaves = st.one_of(st.integers(-3, 3), st.sampled_from(_tables), st.just("text"), st.none())


_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        st.builds(lambda value: partial(_described, value), inner),
    ),
    max_leaves=6,
)


def _described(*args: Any, **kwargs: Any) -> Any:
    def describe(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return "array", float(value[0]), value.size
        if isinstance(value, partial):
            return "partial", describe(value.args)
        if isinstance(value, (list, tuple)):
            return type(value).__name__, [describe(item) for item in value]
        if isinstance(value, dict):
            return {name: describe(item) for name, item in value.items()}
        return value

    return describe(args), describe(kwargs)


@given(st.lists(st.tuples(_values, _values, st.booleans()), min_size=1, max_size=6))
def test_equivalent(arguments: list[Any]) -> None:
    nodes: dict[Any, Any] = {"x": DataNode("x", X)}
    for i, (one, two, nested) in enumerate(arguments * 3):
        inner = Task(None, _described, TaskRef("x"), two) if nested else two
        nodes[i] = Task(i, partial(_described, one) if i % 2 else _described, one, inner, key=two)
    graph, _ = run(nodes)
    values = {key: node.value for key, node in graph.nodes.items() if isinstance(node, DataNode)}
    sent = pickle.loads(cloudpickle.dumps(values))
    for i in range(len(arguments) * 3):
        expected = nodes[i]({"x": X})
        task = graph.nodes[i]
        assert task({key: values[key] for key in task.dependencies}) == expected
        task = pickle.loads(cloudpickle.dumps(task))
        assert task({key: sent[key] for key in task.dependencies}) == expected


def everyday() -> list[Any]:
    x = da.from_array(np.arange(144.0).reshape(12, 12), chunks=3)

    def with_info(block: Any, block_info: Any = None, shift: Any = None) -> Any:
        return block + len(block_info) + shift[0]

    return [
        (x - x.mean(0)) / x.std(0),
        x @ x.T,
        x.rechunk((4, 12)).cumsum(0)[::2],
        da.random.default_rng(3).normal(size=20, chunks=5) * 2,
        x.map_blocks(with_info, shift=[1, 2], dtype=float),
        x.map_overlap(lambda block: block * 2, depth=1, boundary="reflect"),
        x[x > 5],
        da.histogram(x, bins=5, range=(0, 10))[0],
        da.einsum("ij,kj->ik", x, x),
        da.ma.masked_greater(x, 50).sum(0),
        da.linalg.svd(x[:, :3].rechunk((3, 3)))[1],
        da.concatenate([x.map_blocks(partial(np.add, i), dtype=float) for i in range(3)]),
    ]


@pytest.mark.parametrize("index", range(12))
def test_everyday_programs_with_all_that_can_be_hoisted(index: int) -> None:
    x = everyday()[index]
    with dask.config.set({"rewrite.options": {"hoist": {"min-bytes": 1, "min-saved": 1}}}):
        assert_same_as_stock(x)
        tasks = tasks_of(x)
    sent = {key: pickle.loads(cloudpickle.dumps(task)) for key, task in tasks.items()}
    assert_same(dask.get(sent, keys_of(x)), dask.get(tasks, keys_of(x)))


# -- idempotent ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(ways()))
def test_idempotent(way: str) -> None:
    x = dask_rewrite.optimize(ways()[way]())
    again = Graph(dict(x.dask), tuple(keys_of(x)))
    assert Hoist().run(again, Context()) is again
    assert hoisted(tasks_of(x)) == hoisted(dict(x.dask))
    assert_same(x.compute(), ways()[way]().compute())


# -- pays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["argument", "keyword", "closure", "partial keyword", "bound method"])
def test_pays(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("passes.hoist_cases.X", np.arange(1000.0))
    tasks = tasks_of(ways()[way]())
    assert len(tasks) == 1001
    assert bytes_of(tasks) < 1_000_000


def test_graphs_without_constants_cost_little() -> None:
    def cost(n: int) -> int:
        nodes = {("x", i): Task(("x", i), operator.add, TaskRef("y"), i) for i in range(n)}
        graph = Graph({**nodes, "y": DataNode("y", 1)}, tuple(nodes))
        return work_of(lambda: Hoist().run(graph, Context()))

    few, many = cost(1000), cost(10_000)
    assert (many - few) / 9000 < 6  # lines of Python per task, all of them in comprehensions


def test_linear() -> None:
    def cost(n: int) -> int:
        model = Model()
        nodes = {i: Task(i, partial(apply, model=model), i) for i in range(n)}
        graph = Graph(nodes, tuple(nodes))
        return work_of(lambda: Hoist().run(graph, Context()))

    cost(10)
    assert cost(800) < 2.3 * cost(400)
