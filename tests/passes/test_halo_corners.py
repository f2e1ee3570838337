"""Corners of a halo are cut from its edges."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.array.chunk import getitem
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.halo_corners import HaloCorners
from dask_rewrite.remarks import Remarks
from helpers import assert_same, assert_same_as_stock, tasks_of

FIRST, LAST, ALL = slice(0, 1), slice(-1, None), slice(None)


def halo(func: Any = np.concatenate, cut: Any = getitem, shape: tuple[int, ...] = (90, 100)) -> Graph:
    """An edge of a block, used by one task, and a corner of it, used by another."""
    rest = (ALL,) * (len(shape) - 2)
    x = np.arange(float(np.prod(shape))).reshape(shape)
    nodes: dict[Any, Any] = {
        "x": DataNode("x", x),
        "edge": Task("edge", cut, TaskRef("x"), (LAST, ALL, *rest)),
        "corner": Task("corner", cut, TaskRef("x"), (LAST, FIRST, *rest)),
        "one": Task("one", np.concatenate, List(TaskRef("edge"), TaskRef("edge"))),
        "other": Task("other", func, List(TaskRef("corner"), TaskRef("x"))),
    }
    if func is np.concatenate:
        column = Task(None, getitem, TaskRef("x"), (LAST, FIRST, *rest))
        nodes["other"] = Task("other", func, List(TaskRef("corner"), column))
    return Graph(nodes, ("one", "other"))


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    after = HaloCorners(**options).run(graph, Context(remarks))
    verify(after, thorough=True)
    assert_same(dask.get(after.nodes, list(graph.outputs)), dask.get(graph.nodes, list(graph.outputs)))
    return after, remarks


@pytest.mark.parametrize("cut", [getitem, operator.getitem])
def test_fires(cut: Any) -> None:
    graph = halo(cut=cut)
    after, remarks = run(graph)
    assert list(after.nodes) == ["x", "edge", "one", "other"]
    assert after.nodes["other"].dependencies == {"edge", "x"}
    assert remarks.counts["halo-corners", "applied"] == 1
    assert list(graph.nodes) == ["x", "edge", "corner", "one", "other"]


def _unknown(blocks: list[Any]) -> Any:
    return len(blocks)


def test_declines() -> None:
    for graph in (halo(_unknown), halo(shape=(4, 100, 100))):
        after, _ = run(graph)
        assert after is graph
    with_facts, _ = run(halo(shape=(40, 50, 60)))
    assert "corner" not in with_facts.nodes


def test_small_blocks_travel_as_a_whole() -> None:
    at_most = halo(shape=(64, 128))  # 65,536 bytes
    assert run(at_most)[0] is at_most
    assert "corner" not in run(halo(shape=(64, 129)))[0].nodes
    assert "corner" not in run(at_most, max_bytes=65_535)[0].nodes


def test_outputs_shared_slices_and_annotations_stay() -> None:
    graph = halo()
    graph.outputs = ("one", "other", "corner")
    assert run(graph)[0] is graph
    graph = halo()
    graph.nodes["third"] = Task("third", np.concatenate, List(TaskRef("corner"), TaskRef("edge")))
    graph.outputs = ("one", "other", "third")
    graph.nodes["third"] = Task("third", np.negative, TaskRef("corner"))
    assert run(graph)[0] is graph
    graph = halo()
    graph.annotations = {"corner": {"priority": 1}}
    assert run(graph)[0] is graph


def test_is_idempotent_and_counted() -> None:
    after, _ = run(halo())
    assert run(after)[0] is after
    graph = halo()
    assert HaloCorners().run(graph, Context(Remarks(0))) is graph


def smooth(block: np.ndarray) -> np.ndarray:
    out = block.copy()
    out[1:-1, 1:-1] = (block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:]) / 4
    return out


@given(
    st.sampled_from(["none", "periodic", "reflect", "nearest", 0]),
    st.integers(1, 2),
    st.integers(4, 7),
    st.sampled_from([1, 65_536]),
)
def test_equivalent(boundary: Any, depth: int, chunk: int, max_bytes: int) -> None:
    x = da.from_array(np.arange(float(11 * 13)).reshape(11, 13) % 17, chunks=chunk)
    for _ in range(2):
        x = x.map_overlap(smooth, depth=depth, boundary=boundary, dtype=float)
    with dask.config.set({"rewrite.options.halo-corners.max-bytes": max_bytes}):
        assert_same_as_stock(x)


def test_cubes() -> None:
    x = da.from_array(np.arange(6.0**3).reshape(6, 6, 6), chunks=3)
    assert_same_as_stock(x.map_overlap(np.negative, depth=1, boundary="periodic", dtype=float))


def test_pays() -> None:
    x = da.from_array(np.arange(810_000.0).reshape(900, 900), chunks=300)  # small ones are fused away
    for _ in range(4):
        x = x.map_overlap(smooth, depth=1, boundary="periodic", dtype=float)
    with dask.config.set({"rewrite.disable": ["halo-corners", "siblings"]}):  # which puts edges together
        without = len(tasks_of(x))
    with dask.config.set({"rewrite.disable": ["siblings"]}):
        assert len(tasks_of(x)) < 0.6 * without
