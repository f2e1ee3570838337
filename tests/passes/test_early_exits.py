"""What passes find out without a look at every block: the short way gives what the long one does."""

from __future__ import annotations

import gc
import operator
import weakref
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef
from dask.array import core
from dask.typing import Key
from hypothesis import given
from hypothesis import strategies as st
from toolz import compose

import dask_rewrite
from dask_rewrite.analysis.evaluate import Evaluator
from dask_rewrite.analysis.facts import UNKNOWN, Fact, Facts
from dask_rewrite.graph import nodes
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nodes import list_of
from dask_rewrite.hook import assemble
from dask_rewrite.passes import halo_corners
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand import beginnings, forms
from dask_rewrite.passes.demand.boxes import length
from dask_rewrite.passes.demand.forms import form_of
from dask_rewrite.passes.demand.takes import Takes
from dask_rewrite.passes.demand.windows import taken
from dask_rewrite.passes.regrid import Regrid
from dask_rewrite.passes.share import Share
from dask_rewrite.passes.site import Site
from dask_rewrite.pipeline.run import rewrite_tasks
from dask_rewrite.remarks import Remarks

ENDS = st.none() | st.integers(-12, 12)
SLICES = st.builds(slice, ENDS, ENDS, st.none() | st.sampled_from([1, 2, -1, True]))


@given(st.tuples(SLICES, SLICES) | st.tuples(SLICES), st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_boxes_hold_just_what_an_index_takes(index: tuple[slice, ...], shape: tuple[int, int]) -> None:
    block = np.arange(np.prod(shape)).reshape(shape)
    places = np.argwhere(np.isin(block, block[index]))
    found = taken(index, shape)
    assert (found is None) == (not len(places))
    if found is not None:
        assert [list(range(*each)) for each in found] == [sorted(set(axis)) for axis in places.T.tolist()]
        assert all(len(each) == 2 or length(each) > 1 for each in found)


def test_which_constant_a_block_holds_makes_no_other_plan() -> None:
    def form(value: Any) -> Any:
        return form_of(Task("y", np.add, TaskRef("x"), 1), {"x": value}.get)[0]

    facts = Facts({i: Task(i, np.full, (2, 3), float(i)) for i in range(2)}.get)
    zero, one = facts.of(0), facts.of(1)
    assert zero != one
    assert form(zero) == form(one)
    assert form(zero) != form(Facts({0: Task(0, np.full, (2, 3), 0)}.get).of(0))  # another dtype


class Store:
    """Nobody knows what its slices are."""

    shape, dtype, ndim = (4, 4), np.dtype("f8"), 2

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("nothing is read")


@pytest.mark.parametrize("getter", [core.getter, core.getter_nofancy, core.getter_inline])
def test_reads_of_unknown_sources_are_unknown_whatever_the_index(getter: Any) -> None:
    known: Any = {"known": Fact((4, 4), np.dtype("f8")), "unknown": Store(), "memory": np.zeros((40, 40))}
    evaluator = Evaluator()
    for name in known:
        for index in ((slice(2), slice(3)), (slice(2), slice(1, None))):
            found = evaluator.of(Task("y", getter, TaskRef(name), index), known)
            assert (found is UNKNOWN) == (name == "unknown")


def _asked(x: da.Array, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of how many blocks regrid found out what is known."""
    asked = []
    run = Regrid.run

    def counted(self: Regrid, graph: Any, context: Context) -> Any:
        own = Context(Remarks(), context.options)
        own.declared = context.declared
        after = run(self, graph, own)
        asked.append(len(own.facts(graph.nodes.get)._values))
        return after

    monkeypatch.setattr(Regrid, "run", counted)
    assert rewrite_tasks(x.dask, x.__dask_keys__()) is not None
    monkeypatch.undo()
    return sum(asked)


def test_regrid_asks_what_is_known_only_where_declared_sizes_look_crumbled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = da.from_array(np.arange(3600.0).reshape(60, 60), chunks=20)
    there_and_back = x.rechunk((60, 10)).rechunk((20, 60)) + 1
    assert _asked(there_and_back, monkeypatch) == 0
    p = da.pad(x, 1)
    crumbled = (p[:-2, 1:-1] + p[2:, 1:-1]) * 0.5
    crumbled = crumbled + da.pad(crumbled, 1)[2:, 2:]
    assert _asked(crumbled, monkeypatch) > 0


@given(st.lists(st.sampled_from(["ref", "task", "list", "value", "raw"]), max_size=4))
def test_lists_are_those_of_dask(kinds: list[str]) -> None:
    made: dict[str, Any] = {
        "ref": TaskRef("a"),
        "task": Task(None, abs, TaskRef("b")),
        "list": List(TaskRef("c"), 1),
        "value": DataNode(None, 2),
        "raw": 3,
    }
    items = [made[kind] for kind in kinds]
    new, old = list_of(items), List(*items)
    assert type(new) is List
    assert (new.args, new.kwargs) == (old.args, old.kwargs)
    assert new.dependencies == old.dependencies
    values = {"a": 5, "b": -6, "c": 7}
    assert new(values) == old(values)


def test_consumers_are_counted_once_and_change_with_what_is_replaced() -> None:
    nodes: Any = {key: Task(key, abs, TaskRef(dep)) for key, dep in ("ax", "bx", "ya", "zb")}
    nodes["x"] = Task("x", abs, -1)
    graph, context = Graph(nodes, ("y", "z")), Context()
    early, late = Site(graph, context), Site(graph, context)
    assert early.consumers("x") == ["a", "b"]
    assert context.consumers(graph) is context.consumers(graph)
    for site in (early, late):  # asked before it changes, and only after
        site.replace("y", {"y": Task("y", abs, TaskRef("x"))})
        assert site.consumers("x") == ["b", "y"]
    assert context.consumers(graph)["x"] == ["a", "b"]
    assert Site(graph, context).consumers("a") == ["y"]


class Says:
    """Declares all blocks to be of this size."""

    assume = True

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked = 0

    def belief(self, key: Any) -> Fact:
        self.asked += 1
        return Fact((self.size,), np.dtype("f8"))


@pytest.mark.parametrize(
    ("size", "declared", "kept"),
    [(4, None, 3), (2**18, None, 4), (4, 4, 3), (4, 2**18, 3), (2**18, 2**18, 4)],
)
def test_large_blocks_are_not_shared_and_what_is_declared_large_is_looked_into(
    size: int, declared: int | None, kept: int
) -> None:
    nodes: Any = {}
    for i in range(2):
        nodes["a", i] = Task(("a", i), np.negative, TaskRef(("x", i)))
        nodes["x", i] = DataNode(("x", i), np.arange(float(size)))
    nodes["y"] = Task("y", np.subtract, TaskRef(("a", 0)), TaskRef(("a", 1)))
    context = Context(Remarks())
    context.declared = says = Says(declared) if declared else None  # type: ignore[assignment] # a stand-in
    after = Share().run(Graph(nodes, ("y",)), context)
    assert len(after.nodes) == kept
    assert says is None or says.asked
    assert (after.nodes["y"].dependencies == {("a", 0)}) == (kept == 3)


def test_a_block_that_is_needed_whole_after_all_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[Any] = []

    class Planning(forms.Plan):
        def __init__(self, node: GraphNode, facts: Facts, reassociate: bool, box: Any) -> None:
            func = getattr(node, "func", None)
            if getattr(func, "func", func) is np.nancumsum:  # sums along the axis that is cut
                boxes.append(box)
            super().__init__(node, facts, reassociate, box)

    monkeypatch.setattr(forms, "Plan", Planning)
    y = da.nancumsum(da.random.default_rng(0).random((40, 8), chunks=(20, 8)), axis=0)[::13]
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        rewrite_tasks(y.dask, y.__dask_keys__())
    assert boxes
    assert None not in boxes


def test_who_takes_parts_of_blocks_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Key] = []
    source = Takes.source

    def asking(self: Takes, node: Any) -> Key | None:
        asked.append(node.key)
        return source(self, node)

    monkeypatch.setattr(Takes, "source", asking)
    x = da.random.default_rng(0).random((40, 40), chunks=(40, 8)) + 1
    y = x.rechunk((8, 40))
    rewrite_tasks(y.dask, y.__dask_keys__())
    assert len(asked) == len(set(asked)) == 25


class Nodes(dict[Any, Any]):
    """A dict of which it can be told when it goes."""


def test_a_context_that_is_closed_keeps_no_graph() -> None:
    context = Context()
    graph = Graph(Nodes(y=Task("y", abs, -1)), ("y",))
    asked = context.users(graph), context.consumers(graph), context.by_function(graph)
    assert all(type(each) is not Nodes for each in asked)
    kept = weakref.ref(graph.nodes)
    context.close()
    del graph, asked
    assert kept() is None


def test_rewriting_leaves_no_garbage() -> None:
    x = da.from_array(np.arange(3600.0).reshape(60, 60), chunks=20)
    y = (x + x.T)[::2, 30:].mean(axis=1)
    rewrite_tasks(y.dask, y.__dask_keys__())  # what is imported and remembered
    gc.collect()
    gc.disable()
    try:
        graph = rewrite_tasks(y.dask, y.__dask_keys__())
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [each for each in gc.garbage if isinstance(each, GraphNode) or "dask_rewrite" in repr(each)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert graph is not None
    assert not left


def test_the_collector_rests_until_the_graph_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = []
    original = assemble.assemble

    def put_together(graph: Any) -> Any:
        resting.append(not gc.isenabled())
        return original(graph)

    monkeypatch.setattr(assemble, "assemble", put_together)
    with dask_rewrite.enable():
        (da.ones((6, 6), chunks=3) + 1).compute(scheduler="sync")
    assert resting == [True]
    assert gc.isenabled()


async def later(block: Any) -> Any:
    return block


def test_a_composition_is_not_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(nodes.inspect, "iscoroutinefunction", lambda func: asked.append(func) or True)
    steps = compose(np.sum, np.square)
    assert not nodes.is_coroutine(steps)
    assert not nodes.is_coroutine(partial(partial(steps), keepdims=True))
    assert asked == []
    assert nodes.is_coroutine(partial(later))
    assert nodes.is_coroutine(later)


def test_remarks_are_put_into_words_when_they_are_read() -> None:
    asked: list[int] = []
    remarks = Remarks()
    for i in range(200):
        remarks.applied("demand", ("x", i), lambda i=i: asked.append(i) or f"part {i}")  # type: ignore[misc] # i is bound
    assert remarks.counts["demand", "applied"] == 200
    assert asked == []
    assert [str(remark) for remark in remarks][99] == "applied demand at ('x', 99): part 99"
    assert asked == list(range(100))


def test_corners_need_a_block_of_several_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sized: list[Any] = []
    monkeypatch.setattr(halo_corners, "estimate", lambda facts, key: sized.append(key))
    x = Task(("x", 0, 0), np.ones, (4, 4))
    y = Task(("y", 0, 0), np.ones, (4, 4))
    parts = [
        Task(("p", i), operator.getitem, TaskRef(block.key), (slice(i, 2), slice(None)))
        for i, block in enumerate([x, y, y])
    ]
    graph = Graph({node.key: node for node in (*parts, x, y)}, tuple(part.key for part in parts))
    assert halo_corners.HaloCorners().run(graph, Context()) is graph
    assert sized == [("y", 0, 0)]


def test_demand_passes_over_layers_of_which_some_blocks_cannot_shrink() -> None:
    blocks = {("x", i): [] for i in range(50)}
    nodes: dict[Key, Any] = {key: Task(key, np.negative, 1) for key in blocks}
    asked: list[Key] = []

    def holds(among: set[Key], key: Key) -> bool:
        asked.append(key)
        return key in among

    assert beginnings.among(blocks, nodes, partial(holds, set())) == []
    assert len(asked) == 8
    some = {("x", 0), ("x", 33)}  # one that is looked at, one that is not
    assert beginnings.among(blocks, nodes, partial(holds, some)) == [("x", 0), ("x", 33)]
    few = dict(list(blocks.items())[:16])
    assert beginnings.among(few, nodes, partial(holds, {("x", 15)})) == [("x", 15)]
