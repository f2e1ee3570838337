"""Cheap blocks that are made out of nothing are made where they are used."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import chunk

from dask_rewrite.graph.graph import Graph, Origin
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes import inline_sources
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.inline_sources import InlineSources
from dask_rewrite.remarks import Remarks
from helpers import assert_same, assert_same_as_stock, switched_on, tasks_of


def twice(block: Any) -> Any:
    """Nobody knows what this does."""
    return block * 2


def grid(source: Task, users: int = 3, func: Any = twice) -> Graph:
    """One block used by several tasks."""
    nodes: dict[Any, Any] = {source.key: source}
    nodes.update({("y", i): Task(("y", i), func, TaskRef(source.key)) for i in range(users)})
    return Graph(nodes, tuple(("y", i) for i in range(users)))


def arange(length: int = 100) -> Task:
    return Task(("r", 0), chunk.arange, 0, length, 1, length, np.dtype("i8"))


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    after = InlineSources(**options).run(graph, Context(remarks))
    verify(after, thorough=True)
    assert_same(dask.get(after.nodes, list(graph.outputs)), dask.get(graph.nodes, list(graph.outputs)))
    return after, remarks


SOURCES = {
    "arange": arange(),
    "linspace": Task(("r", 0), chunk.linspace, 0.0, 1.0, 100, True, np.dtype("f8")),
    "zeros": Task(("r", 0), np.zeros, (4, 5), np.dtype("f4")),
    "full": Task(("r", 0), np.full, (4, 5), -0.0, np.dtype("f8")),
    "nan": Task(("r", 0), np.full, (), np.nan, np.dtype("f8")),
    "empty": arange(0),
    "row": Task(("r", 0), operator.getitem, arange(), (None, slice(None))),
    "cosine": Task(("r", 0), np.cos, arange()),
    "broadcast": Task(("r", 0), np.broadcast_to, arange(), (50, 100)),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_fires(source: Task) -> None:
    graph = grid(source)
    after, remarks = run(graph)
    assert list(after.nodes) == list(graph.outputs)
    assert not any(node.dependencies for node in after.nodes.values())
    assert remarks.counts["inline-sources", "applied"] == 3
    assert ("r", 0) in graph.nodes
    assert run(after)[0] is after


def test_what_is_made_of_sources_goes_too() -> None:
    """A row of a grid, down to the count of positions."""
    graph = grid(Task(("wide", 0), np.broadcast_to, TaskRef(("row", 0)), (50, 100)))
    graph.nodes["row", 0] = Task(("row", 0), operator.getitem, TaskRef(("r", 0)), (None, slice(None)))
    graph.nodes["r", 0] = arange()
    after, _ = run(graph)
    assert list(after.nodes) == list(graph.outputs)


DECLINED = {
    "large": arange(100_000),
    "unknown": Task(("r", 0), twice, 3),
    "random": Task(("r", 0), np.random.random, 3),
    "empty_like": Task(("r", 0), np.empty, 0),
    "part of a large one": Task(("r", 0), operator.getitem, Task(None, np.zeros, 10**6), slice(3)),
    "reduction": Task(("r", 0), np.sum, arange()),
    "text": Task("r", np.zeros, 3),
    "load": Task(("r", 0), np.zeros, 3, _data_producer=True),
}


@pytest.mark.parametrize("source", DECLINED.values(), ids=DECLINED)
def test_declines(source: Task) -> None:
    graph = grid(source, func=np.shape)
    if source.func is np.random.random:
        graph.outputs = (("y", 0),)
    assert InlineSources().run(graph, Context()) is graph


def test_bounds() -> None:
    """Large blocks are made again only where they are little beside what is made of them."""
    large = arange(100_000)
    for rows, made in ((4, False), (40, True)):
        wide = Task(("wide", 0), np.broadcast_to, TaskRef(("r", 0)), (rows, 100_000))
        graph = grid(wide, func=np.shape)
        graph.nodes["r", 0] = large
        assert (("r", 0) not in run(graph)[0].nodes) == made
    nodes: dict[Any, Any] = {("r", i): Task(("r", i), np.zeros, 3 + i) for i in range(20)}
    nodes["y"] = Task("y", max, *[Task(None, np.sum, TaskRef(key)) for key in list(nodes)[:20]])
    after, _ = run(Graph(nodes, ("y",)), max_sources=8)
    assert len(after.nodes["y"].dependencies) == 12
    assert not run(Graph(nodes, ("y",)), max_bytes=1)[1].counts


def test_guards() -> None:
    """Outputs, what is used twice, annotations, and what others hold."""
    graph = grid(arange())
    graph.outputs = (*graph.outputs, ("r", 0))
    assert run(graph)[0] is graph
    graph = grid(arange())
    graph.nodes["y", 0] = Task(("y", 0), np.add, TaskRef(("r", 0)), TaskRef(("r", 0)))
    after, _ = run(graph)
    assert after.nodes["y", 0].dependencies == {("r", 0)}
    assert not after.nodes["y", 1].dependencies
    graph = grid(arange())
    graph.annotations["y", 0] = {"workers": ["alice"]}
    after, _ = run(graph)
    assert [key for key, node in after.nodes.items() if node.dependencies] == [("y", 0)]
    graph = grid(arange())
    graph.origin = Origin(shared=True)
    assert run(graph)[0] is graph
    data = Graph({"x": DataNode("x", 3), "y": Task("y", abs, TaskRef("x"))}, ("y",))
    assert run(data)[0] is data


def masks(length: int, func: Any = operator.or_) -> Graph:
    """A mask of a column and a row in memory, used by several tasks."""
    graph = grid(Task(("mask", 0), func, TaskRef(("rows", 0)), TaskRef(("columns", 0))))
    for name, shape in (("rows", (-1, 1)), ("columns", (1, -1))):
        at_hand = DataNode(("at hand", name), np.arange(length).reshape(shape))
        graph.nodes[at_hand.key] = at_hand
        graph.nodes[name, 0] = Task((name, 0), operator.eq, TaskRef(at_hand.key), -1)
    return graph


def test_what_is_made_of_small_arrays_in_memory() -> None:
    """It is worked out where it is used; the arrays themselves are neither copied nor moved."""
    graph = masks(30)
    after, remarks = run(graph)
    at_hand = {("at hand", "rows"), ("at hand", "columns")}
    assert after.nodes.keys() == {*at_hand, *graph.outputs}
    assert all(after.nodes[key] is graph.nodes[key] for key in at_hand)
    assert all(after.nodes[key].dependencies == at_hand for key in graph.outputs)
    assert remarks.counts["inline-sources", "applied"] == 3


def test_bounds_of_what_is_made_of_data() -> None:
    """Three results of 8 bytes an element: two rows, and a square."""
    for length, goes in ((44, True), (45, False)):
        after, _ = run(masks(length))
        assert (("mask", 0) not in after.nodes) == goes
    for length, goes in ((2048, True), (2049, False)):
        graph = masks(5)
        graph.nodes["at hand", "rows"] = DataNode(("at hand", "rows"), np.arange(length)[:, None])
        graph.nodes["rows", 0] = Task(("rows", 0), operator.getitem, TaskRef(("at hand", "rows")), slice(5))
        assert (("mask", 0) not in run(graph)[0].nodes) == goes
    graph = masks(5)
    graph.nodes["mask", 0] = Task(("mask", 0), operator.invert, TaskRef(("rows", 0)))
    assert run(graph)[0] is graph  # of one array


@pytest.mark.parametrize("value", [[1, 2], np.ma.zeros((5, 1)), np.full((5, 1), "a", object), 3], ids=type)
def test_other_data_is_left_alone(value: Any) -> None:
    graph = masks(5)
    graph.nodes["at hand", "rows"] = DataNode(("at hand", "rows"), value)
    assert run(graph)[0] is graph


def test_masks_do_not_tie_blocks_together() -> None:
    """As xarray's ``reindex`` makes them: two rows of positions for each block of a large array."""
    x = da.from_array(np.arange(8 * 6 * 4.0).reshape(8, 6, 4), chunks=(2, 3, 2)).map_blocks(twice)
    rows, lines = da.from_array(np.arange(8), chunks=2), da.from_array(np.arange(6), chunks=3)
    masked = da.where((rows[:, None, None] == -1) | (lines[:, None] == 4), np.nan, x)
    assert_same_as_stock(masked.mean(axis=0))
    with switched_on():
        graph = tasks_of(masked)
    users = Counter(dep for node in graph.values() for dep in node.dependencies)
    assert all(users[key] <= 1 for key, node in graph.items() if type(node) is Task)


def lonlat() -> tuple[Any, Any]:
    lon = da.arange(64, chunks=8)
    return tuple(da.meshgrid(lon, da.arange(64, chunks=8)))  # type: ignore[return-value] # two arrays


def users_of(*collections: Any) -> Counter[Any]:
    with switched_on():
        graph = tasks_of(*collections)
    return Counter(dep for node in graph.values() for dep in node.dependencies)


def test_grids_become_chains() -> None:
    """Blocks of a grid of coordinates wait for nothing and share nothing before they are summed up."""
    lon, lat = lonlat()
    total = (np.sin(lon) * np.cos(lat)).sum()
    with switched_on(**{"rewrite.disable": ["fuse-small"]}):
        graph = tasks_of(total)
        assert max(users_of(total).values()) == 1
    sources = [node for node in graph.values() if not node.dependencies]
    assert len(sources) == 64
    assert len(graph) == 64 + 16 + 4 + 1
    assert_same_as_stock(total)
    with switched_on():  # tiny ones are made together
        assert len(tasks_of(total)) < 64 / 2
        assert max(users_of(total).values()) == 1


@pytest.mark.parametrize("optimize", [True, False])
def test_random_blocks_are_drawn_once(optimize: bool) -> None:
    x = da.random.default_rng(3).random((64, 64), chunks=8)
    lon, lat = lonlat()
    assert_same_as_stock(x + lon, x - lat, (x * np.cos(lat)).sum(), optimize_graph=optimize)


def test_sums_of_products_with_a_row() -> None:
    x = da.random.default_rng(3).random((64, 64), chunks=8)
    weights = np.cos(np.deg2rad(da.linspace(-90, 90, 64, chunks=8)))
    weighted = (x * weights[:, None]).sum()
    assert max(users_of(weighted).values()) == 1
    assert_same_as_stock(weighted)


def test_other_kinds_of_blocks() -> None:
    """What they meet may be anything."""
    lon, lat = lonlat()
    x = da.from_array(np.arange(4096.0).reshape(64, 64), chunks=8)
    masked = da.ma.masked_where(x > 7, x)
    objects = x.astype(object)
    unknown = x[x[:, 0] > 640]
    assert_same_as_stock(masked * lon + lat, objects + lon, unknown + da.arange(64, chunks=8))
    assert_same_as_stock(lon.map_blocks(twice), lat.map_blocks(twice), lon + lat)
    assert_same_as_stock(
        da.ones((9, 9), chunks=4) * da.zeros(9, chunks=4), da.full((5,), -0.0, chunks=2) + x[:5, :5]
    )


def test_what_is_picked_by_an_array_of_positions() -> None:
    picked = Task(("r", 0), operator.getitem, arange(), (np.array([3, 1, 2]),))
    nested = Task(("r", 0), np.negative, Task(None, operator.getitem, arange(), (np.array([3, 1, 2]),)))
    for source in (picked, nested):
        run(grid(source))


def test_blocks_that_a_scheduler_holds_are_waited_for() -> None:
    nodes: dict[Any, Any] = {("r", 0): arange(), ("s", 0): Task(("s", 0), chunk.arange, 0, 1, 1, 1, "i8")}
    nodes["y", 0] = Task(("y", 0), operator.add, TaskRef(("r", 0)), TaskRef(("held", 0)))
    nodes["z", 0] = Task(("z", 0), operator.add, TaskRef(("s", 0)), TaskRef(("y", 0)))
    graph = Graph(nodes, (("z", 0),), external={("held", 0)})
    after = InlineSources().run(graph, Context())
    verify(after, thorough=True, external=graph.external)
    assert after.nodes.keys() == {("y", 0), ("z", 0)}
    assert after.nodes["y", 0].dependencies == {("held", 0)}


def test_blocks_of_one_array_each_are_not_weighed_where_nothing_is_made_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    source = inline_sources._Sources._source

    def asking(self: Any, task: Task, made: Any) -> Any:
        asked.append(task.key)
        return source(self, task, made)

    monkeypatch.setattr(inline_sources._Sources, "_source", asking)
    nodes: dict[Any, Any] = {}
    for i in range(4):
        nodes["data", i] = DataNode(("data", i), np.arange(10.0))
        nodes["x", i] = Task(("x", i), np.negative, TaskRef(("data", i)))
        nodes["y", i] = Task(("y", i), twice, TaskRef(("x", i)))
        nodes["z", i] = Task(("z", i), twice, TaskRef(("x", i)))
    outputs = tuple(key for key in nodes if key[0] in "yz")
    graph = Graph(nodes, outputs)
    assert run(graph)[0] is graph
    assert not asked
    nodes["sum", 0] = Task(("sum", 0), np.add, TaskRef(("x", 0)), TaskRef(("x", 1)))
    nodes["w", 0], nodes["w", 1] = (Task(("w", i), twice, TaskRef(("sum", 0))) for i in range(2))
    after, _ = run(Graph(nodes, (*outputs, ("w", 0), ("w", 1))))
    assert asked == [("x", 0), ("x", 1), ("sum", 0)]
    assert ("sum", 0) not in after.nodes
