"""Small work moves into the task that gathers it."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.array._shuffle import _getitem as chunk_getitem
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nesting import survey
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.fuse_small import FuseSmall
from dask_rewrite.remarks import Remarks
from helpers import assert_same, assert_same_as_stock, examples, switched_on


def gathering(size: int = 8, pieces: int = 3, func: Any = operator.getitem) -> Graph:
    """A task over slices of three blocks."""
    nodes: dict[Any, Any] = {}
    for i in range(pieces):
        nodes["x", i] = DataNode(("x", i), np.arange(float(size)) + i)
        nodes["s", i] = Task(("s", i), func, TaskRef(("x", i)), slice(1, None))
    nodes["all"] = Task("all", sum, List(*[TaskRef(("s", i)) for i in range(pieces)]))
    return Graph(nodes, ("all",))


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    after = FuseSmall(**options).run(graph, Context(remarks))
    verify(after, thorough=True)
    assert_same(dask.get(after.nodes, list(graph.outputs)), dask.get(graph.nodes, list(graph.outputs)))
    return after, remarks


def test_fires() -> None:
    graph = gathering()
    after, remarks = run(graph)
    assert len(after.nodes) == 4
    assert len(graph.nodes) == 7
    assert after.nodes["all"].dependencies == {("x", 0), ("x", 1), ("x", 2)}
    assert remarks.counts["fuse-small", "applied"] == 3


def test_absorbs_what_was_absorbed() -> None:
    graph = gathering()
    for i in range(3):
        graph.nodes["s", i] = Task(("s", i), operator.add, TaskRef(("t", i)), TaskRef(("x", i)))
        graph.nodes["t", i] = Task(("t", i), operator.getitem, TaskRef(("x", i)), slice(None))
    after, _ = run(graph)
    assert len(after.nodes) == 4


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(gathering(size=10_000), id="large blocks"),
        pytest.param(gathering(func=lambda x, i: x[i]), id="an unknown function"),
        pytest.param(gathering(pieces=0), id="nothing to gather"),
    ],
)
def test_declines(graph: Graph) -> None:
    after, _ = run(graph)
    assert after is graph


def test_outputs_and_shared_blocks_stay() -> None:
    graph = gathering()
    graph.outputs = ("all", ("s", 0))
    graph.nodes["also"] = Task("also", operator.add, TaskRef(("s", 1)), TaskRef(("s", 1)))
    graph.outputs += ("also",)
    after, _ = run(graph)
    assert ("s", 0) in after.nodes
    assert ("s", 1) in after.nodes
    assert ("s", 2) not in after.nodes


def test_a_block_used_twice_by_one_task_stays() -> None:
    graph = gathering(pieces=1)
    graph.nodes["all"] = Task("all", operator.add, TaskRef(("s", 0)), TaskRef(("s", 0)))
    after, _ = run(graph)
    assert after is graph


def test_only_what_is_used_twice_stays() -> None:
    graph = gathering()
    blocks = [TaskRef(("s", i)) for i in (0, 1, 0, 2)]
    graph.nodes["all"] = Task("all", _total, List(*blocks[:2], Task(None, _add, blocks[2], other=blocks[3])))
    after, _ = run(graph)
    assert after.nodes.keys() == {("x", 0), ("x", 1), ("x", 2), ("s", 0), "all"}
    assert after.nodes["all"].dependencies == {("x", 1), ("x", 2), ("s", 0)}


def test_what_did_not_fit_at_first_is_not_taken_later() -> None:
    nodes: dict[Any, Any] = {("x", i): DataNode(("x", i), np.arange(4.0) + i) for i in range(2)}
    nodes["s", 0] = Task(("s", 0), operator.add, TaskRef(("x", 0)), TaskRef(("x", 1)))
    nodes["s", 1] = Task(("s", 1), operator.neg, TaskRef(("x", 0)))
    nodes["all"] = Task("all", _total, List(*[TaskRef(("s", i)) for i in (0, 1, 0)]))
    after, _ = run(Graph(nodes, ("all",)), max_inputs=2)
    assert after.nodes.keys() == {("x", 0), ("x", 1), ("s", 0), "all"}


class _OwnTask(Task):
    """A task of a library's own, as the shuffle of distributed has them."""


@pytest.mark.parametrize("first", [True, False])
def test_references_in_tasks_of_other_classes_stay(first: bool) -> None:
    graph = gathering()
    refs = [TaskRef(("s", i)) for i in range(3)]
    own = _OwnTask(None, _add, refs[0], refs[1])
    parts = [own, refs[0], refs[2]] if first else [refs[0], refs[2], own]
    graph.nodes["all"] = Task("all", _total, List(*parts))
    after, _ = run(graph)
    assert after.nodes.keys() == {("x", 0), ("x", 1), ("x", 2), ("s", 0), ("s", 1), "all"}


def _add(block: Any, other: Any) -> Any:
    return block + other


def test_depth_counts_what_is_nested_already() -> None:
    assert len(run(gathering(), max_depth=1)[0].nodes) == 7
    assert len(run(gathering(), max_depth=2)[0].nodes) == 4
    graph = gathering()
    template = Task(None, operator.neg, Task(None, sum, TaskRef("x0")))
    given = Task(None, dict, x0=graph.nodes["all"].args[0])
    graph.nodes["all"] = Task("all", template.__call__, given)
    assert len(run(graph, max_depth=2)[0].nodes) == 7
    after, _ = run(graph, max_depth=3)
    assert len(after.nodes) == 4
    assert survey(after.nodes["all"])[0] == 3


def test_loads_stay() -> None:
    graph = gathering()
    for i in range(3):
        task = Task(("s", i), operator.getitem, TaskRef(("x", i)), slice(1, None), _data_producer=True)
        graph.nodes["s", i] = task
    after, _ = run(graph)
    assert after is graph


def test_annotations_are_kept_apart() -> None:
    graph = gathering()
    graph.annotations = {("s", 0): {"priority": 1}}
    after, _ = run(graph)
    assert ("s", 0) in after.nodes
    assert len(after.nodes) == 5


def test_bounds() -> None:
    after, _ = run(gathering(pieces=40))
    assert len(after.nodes) == 41 + 8  # 32 moved
    assert all(len(node.dependencies) <= 40 for node in after.nodes.values())
    graph = gathering(pieces=2)
    for i in range(2):
        sources = [TaskRef(("x", j)) for j in range(2, 14)]
        for j in range(2, 14):
            graph.nodes["x", j] = DataNode(("x", j), np.arange(7.0) * j)
        graph.nodes["s", i] = Task(("s", i), _total, List(*sources))
    after, _ = run(graph)
    assert after is graph


def _total(blocks: list[Any]) -> Any:
    return sum(blocks)


def test_indices_count_as_small() -> None:
    graph = gathering(func=chunk_getitem)
    for i in range(3):
        graph.nodes["taker", i] = DataNode(("taker", i), (1, np.array([1, 0, 1], "u1")))
        graph.nodes["s", i] = Task(("s", i), chunk_getitem, TaskRef(("x", i)), TaskRef(("taker", i)))
    after, _ = run(graph)
    assert len(after.nodes) == 7
    assert after.nodes["all"].dependencies == {(name, i) for i in range(3) for name in ("x", "taker")}


@pytest.mark.parametrize("taker", [(1, "name"), (1, np.zeros(100_000, "i8")), tuple(range(1000)), {1: 2}])
def test_other_data_does_not_count_as_small(taker: Any) -> None:
    nodes: dict[Any, Any] = {"x": DataNode("x", np.arange(4)), "t": DataNode("t", taker)}
    nodes["y"] = Task("y", chunk_getitem, TaskRef("x"), TaskRef("t"))
    nodes["z"] = Task("z", len, TaskRef("y"))
    graph = Graph(nodes, ("z",))
    assert FuseSmall().run(graph, Context()) is graph


def layer(sizes: list[int], functions: Any = (operator.neg,)) -> Graph:
    """Blocks of one layer, each in a task that uses it."""
    nodes: dict[Any, Any] = {}
    for i, size in enumerate(sizes):
        nodes["x", i] = DataNode(("x", i), np.arange(float(size)))
        nodes["y", i] = Task(("y", i), functions[i % len(functions)], TaskRef(("x", i)))
        nodes["z", i] = Task(("z", i), np.sum, TaskRef(("y", i)))
    return Graph(nodes, tuple(("z", i) for i in range(len(sizes))))


class Watched(Facts):
    """Facts that note what was asked for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.nodes.get)
        self.asked: list[Any] = []

    def of(self, key: Any) -> Any:
        self.asked.append(key)
        return super().of(key)


def test_blocks_of_one_layer_are_alike_unless_some_differ() -> None:
    graph = layer([8] * 1000)
    context = Context()
    context._facts = watched = Watched(graph)
    after = FuseSmall().run(graph, context)
    assert len(after.nodes) == 2000
    assert len([key for key in watched.asked if key[0] == "y"]) < 60


@pytest.mark.parametrize("half", [20, 24, 32])
def test_where_blocks_differ_each_is_looked_at(half: int) -> None:
    graph = layer([8, 100_000] * half)
    context = Context()
    context._facts = watched = Watched(graph)
    after = FuseSmall().run(graph, context)
    assert len(after.nodes) == 5 * half
    assert all(("y", i) in after.nodes for i in range(1, 2 * half, 2))
    asked = [key for key in watched.asked if key[0] == "y"]
    assert sorted(set(asked)) == [("y", i) for i in range(2 * half)]
    assert len(asked) <= 2 * len(set(asked))


def test_an_unknown_function_in_a_layer_of_known_ones_stays() -> None:
    def slow(block: Any) -> Any:
        return -block

    graph = layer([8] * 160, functions=[operator.neg] * 7 + [slow])
    after, _ = run(graph)
    assert {key for key in after.nodes if key[0] == "y"} == {("y", i) for i in range(7, 160, 8)}


def test_is_idempotent() -> None:
    after, _ = run(gathering())
    again, remarks = run(after)
    assert again is after
    assert not len(remarks)


def test_the_bisect_limit_counts_single_tasks() -> None:
    remarks = Remarks(2)
    after = FuseSmall().run(gathering(), Context(remarks))
    assert len(after.nodes) == 5


@examples(60)
@given(st.integers(1, 30), st.integers(1, 7), st.sampled_from(["rows", "columns", "both"]))
def test_equivalent_on_fancy_indexing(n: int, chunk: int, axis: str) -> None:
    x = da.from_array(np.arange(float(n * n)).reshape(n, n), chunks=chunk)
    order = [(7 * i) % n for i in range(n)][::-1]
    y = x[order] if axis == "rows" else x[:, order] if axis == "columns" else x[order][:, order]
    assert_same_as_stock(y.sum(axis=0))
    assert_same_as_stock(y)


def test_pays() -> None:
    x = da.from_array(np.arange(6400.0).reshape(80, 80), chunks=4)
    y = x[list(range(79, -1, -3))].sum(axis=1)
    with switched_on():
        ours = len(dask_rewrite.optimize(y).dask.to_dict())
    with dask.config.set({"rewrite.disable": ["fuse-small"]}):
        without = len(dask_rewrite.optimize(y).dask.to_dict())
    assert ours < without
