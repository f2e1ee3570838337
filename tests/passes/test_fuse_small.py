"""Small work moves into the task that gathers it."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.graph import Graph
from dask_rewrite.passes.fuse_small import FuseSmall
from dask_rewrite.remarks import Remarks
from dask_rewrite.verify import verify
from helpers import assert_same, assert_same_as_stock, switched_on


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
    after = FuseSmall(**options).run(graph, remarks)
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


def test_is_idempotent() -> None:
    after, _ = run(gathering())
    again, remarks = run(after)
    assert again is after
    assert not len(remarks)


def test_the_bisect_limit_counts_single_tasks() -> None:
    remarks = Remarks(2)
    after = FuseSmall().run(gathering(), remarks)
    assert len(after.nodes) == 5


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
