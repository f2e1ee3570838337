"""Equal work becomes one task, and nobody can tell."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._task_spec import Alias, DataNode, List, Task, TaskRef
from dask.local import get_sync
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.passes.context import Context
from dask_rewrite.passes.share import Share
from dask_rewrite.remarks import Remarks
from helpers import (
    assert_linear,
    assert_same,
    assert_same_as_stock,
    checked,
    distinct,
    stock_tasks_of,
    switched_on,
    tasks_of,
)
from passes.share_cases import add_one_in_place, full, gathered, graph_of, key, left_over, run


def reasons(remarks: Remarks) -> set[str]:
    return {remark.reason for remark in remarks if remark.kind == "missed"}


def added(name: str, *names: str) -> Task:
    return Task(key(name), operator.add, *[TaskRef(key(each)) for each in names])


# -- fires ---------------------------------------------------------------------------------


def test_equal_constants_become_one() -> None:
    graph = graph_of(full("a", 1.0), full("b", 1.0), full("c", 2.0), gathered("a", "b", "c"))
    after, remarks = run(graph)
    assert left_over(after) == {"a", "c", "out"}
    assert remarks.counts["share", "applied"] == 1
    assert_same(get_sync(after.nodes, key("out")), get_sync(graph.nodes, key("out")))


def test_whoever_made_them() -> None:
    nodes = (
        Task(key("a"), np.zeros, (2, 3)),
        full("b", 0.0),
        Task(key("c"), np.broadcast_to, np.float64(0.0), (2, 3)),
        full("d", -0.0),
        full("e", 0),
        gathered("a", "b", "c", "d", "e"),
    )
    assert left_over(run(graph_of(*nodes))[0]) == {"a", "d", "e", "out"}
    assert run(graph_of(*nodes), reassociate=False)[0].nodes.keys() == graph_of(*nodes).nodes.keys()


def test_what_is_made_of_them_too() -> None:
    graph = graph_of(
        full("a", 1.0),
        full("b", 1.0),
        DataNode(key("x"), np.arange(3.0)),
        added("p", "a", "x"),
        added("q", "b", "x"),
        Task(key("s"), np.sum, TaskRef(key("p"))),
        Task(key("t"), np.sum, TaskRef(key("q"))),
        added("out", "s", "t"),
    )
    after, _ = run(graph)
    assert left_over(after) == {"a", "x", "p", "s", "out"}
    assert after.nodes[key("out")].dependencies == {key("s")}
    assert_same(get_sync(after.nodes, key("out")), get_sync(graph.nodes, key("out")))


def test_parts_of_constants_are_constants() -> None:
    big = Task(key("big"), np.ones, (4, 9))
    graph = graph_of(
        big,
        Task(key("a"), operator.getitem, TaskRef(key("big")), (slice(2), slice(3))),
        Task(key("b"), operator.getitem, TaskRef(key("big")), (slice(2, 4), slice(3, 6))),
        gathered("a", "b"),
    )
    after, _ = run(graph)
    assert left_over(after) == {"a", "out"}
    assert not after.nodes[key("a")].dependencies
    assert_same(get_sync(after.nodes, key("out")), np.ones((4, 3)))


def test_a_block_and_a_part_that_is_all_of_it() -> None:
    graph = graph_of(
        Task(key("x"), np.ones, (2, 3)),
        Task(key("a"), operator.getitem, TaskRef(key("x")), slice(None)),
        Task(key("b"), operator.getitem, TaskRef(key("a")), slice(None)),
        gathered("x", "a", "b"),
    )
    after, _ = run(graph)
    assert left_over(after) == {"x", "out"}


def test_templates_that_do_the_same() -> None:
    def call(name: str) -> Task:
        template = Task(None, operator.mul, TaskRef("x0"), 3)
        return Task(key(name), template.__call__, Task(None, dict, x0=TaskRef(key("x"))))

    graph = graph_of(
        DataNode(key("x"), np.arange(3)),
        DataNode(key("y"), np.arange(3)),
        call("a"),
        call("b"),
        gathered("a", "b", "y"),
    )
    # both are looked at because what they use stands for something else as well
    after, _ = run(graph)
    assert left_over(after) == {"x", "a", "out"}


def test_equal_data() -> None:
    nodes = [DataNode(key(name), np.arange(600.0)) for name in "ab"]
    other = DataNode(key("c"), np.arange(600.0) + (np.arange(600) == 300))
    after, _ = run(graph_of(*nodes, other, gathered("a", "b", "c")))
    assert left_over(after) == {"a", "c", "out"}


# -- declines ------------------------------------------------------------------------------


def declines(*nodes: Any, reason: str | None = None, **options: Any) -> None:
    graph = graph_of(*nodes, **options)
    after, remarks = run(graph)
    assert after is graph
    assert not remarks.counts["share", "applied"]
    assert reasons(remarks) == ({reason} if reason else set())


def test_somebody_may_write() -> None:
    declines(
        full("a", 1.0),
        full("b", 1.0),
        Task(key("p"), add_one_in_place, TaskRef(key("a"))),
        Task(key("q"), operator.neg, TaskRef(key("b"))),
        Task(key("out"), np.concatenate, List(*[TaskRef(key(each)) for each in "pqab"])),
        reason="somebody may write into the blocks",
    )


def test_somebody_may_write_into_a_view() -> None:
    declines(
        full("a", 1.0),
        full("b", 1.0),
        Task(key("v"), operator.getitem, TaskRef(key("a")), (0,)),
        Task(key("p"), add_one_in_place, TaskRef(key("v"))),
        added("out", "p", "b", "a"),
        reason="somebody may write into the blocks",
    )


def test_the_one_that_is_written_into_stays_apart() -> None:
    graph = graph_of(
        *[full(name, 1.0) for name in "abc"],
        Task(key("p"), add_one_in_place, TaskRef(key("a"))),
        Task(key("out"), np.concatenate, List(*[TaskRef(key(n)) for n in "pbca"])),
    )
    after, _ = run(graph)
    assert left_over(after) == {"a", "b", "p", "out"}


def test_results_belong_to_the_user() -> None:
    declines(full("a", 1.0), full("b", 1.0), outputs=(key("a"), key("b")))
    declines(full("a", 1.0), full("b", 1.0), Alias(key("c"), key("a")), outputs=(key("c"), key("b")))


def test_functions_that_nobody_knows() -> None:
    def make(shape: Any) -> Any:
        return np.ones(shape)

    declines(Task(key("a"), make, (2,)), Task(key("b"), make, (2,)), added("out", "a", "b"))
    declines(
        Task(key("a"), operator.neg, Task(None, make, (2,))),
        Task(key("b"), operator.neg, Task(None, make, (2,))),
        added("out", "a", "b"),
    )


def test_random_numbers_stay_two() -> None:
    declines(
        Task(key("a"), np.random.random, (2,)),
        Task(key("b"), np.random.random, (2,)),
        added("out", "a", "b"),
    )
    x, y = da.random.random((4, 4), chunks=2), da.random.random((4, 4), chunks=2)
    with switched_on():
        assert (x - y).sum().compute() != 0


def test_delayed_work_stays_two() -> None:
    declines(
        Task("ones-1", np.ones, 3),
        Task("ones-2", np.ones, 3),
        Task("out", operator.add, TaskRef("ones-1"), TaskRef("ones-2")),
    )
    calls: list[int] = []

    def note(value: int) -> int:
        calls.append(value)
        return value

    both = [dask.delayed(note, pure=False)(1) for _ in range(2)]
    with switched_on():
        assert dask.delayed(sum)(both).compute(scheduler="sync") == 2
    assert calls == [1, 1]


def test_annotations_and_marks_agree() -> None:
    nodes = (full("a", 1.0), full("b", 1.0), added("out", "a", "b"))
    declines(*nodes, annotations={key("a"): {"priority": 1}})
    same = graph_of(*nodes, annotations={key(n): {"priority": 1} for n in "ab"})
    assert left_over(run(same)[0]) == {"a", "out"}
    declines(
        full("a", 1.0),
        Task(key("b"), np.full, (2, 3), 1.0, _data_producer=True),
        added("out", "a", "b"),
    )


def test_large_blocks_of_a_constant() -> None:
    declines(
        full("a", 1.0, (400, 400)),
        full("b", 1.0, (400, 400)),
        added("out", "a", "b"),
        reason="the blocks are large",
    )
    graph = graph_of(
        full("a", 1.0, (400, 400)),
        full("b", 1.0, (400, 400)),
        Task(key("s"), np.sum, TaskRef(key("a"))),
        Task(key("t"), np.sum, TaskRef(key("b"))),
        added("out", "s", "t"),
    )
    after, _ = run(graph)
    assert left_over(after) == {"s", "out"}
    assert_same(get_sync(after.nodes, key("out")), np.float64(320_000))


def test_what_becomes_part_of_its_consumer_anyway() -> None:
    declines(
        full("a", 1.0),
        full("b", 1.0),
        Task(key("p"), operator.getitem, TaskRef(key("a")), 0),
        Task(key("q"), add_one_in_place, TaskRef(key("b"))),
        added("out", "p", "q"),
    )


def test_bisect_limit() -> None:
    graph = graph_of(*[full(name, 1.0) for name in "abcd"], gathered("a", "b", "c", "d"))
    for limit, left in ((0, 5), (1, 4), (2, 3), (-1, 2)):
        after = Share().run(graph, Context(Remarks(bisect_limit=limit)))
        assert len(after.nodes) == left
        assert_same(get_sync(after.nodes, key("out")), np.ones((8, 3)))


# -- equivalent ----------------------------------------------------------------------------


@st.composite
def programs(draw: Any) -> da.Array:
    value = st.sampled_from([0.0, -0.0, 1.0, 0.1, np.nan])
    shape, chunk = (6, 6), st.integers(1, 6)
    arrays = [distinct(shape, 3)]
    for _ in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["full", "add", "rows", "join", "double", "part", "sum"]))
        one, other = (arrays[draw(st.integers(0, len(arrays) - 1))] for _ in range(2))
        if kind == "full":
            made = da.full(shape, draw(value), chunks=draw(chunk))
        elif kind == "add":
            made = one + other
        elif kind == "rows":
            made = one[::-1]
        elif kind == "join":
            made = da.concatenate([one, other])[3:9].rechunk(draw(chunk))
        elif kind == "double":
            made = one * 2
        elif kind == "part":
            made = da.concatenate([other[:2], one[2:]])
        else:
            made = one + other.sum(axis=0)
        arrays.append(made)
    return arrays[-1]


@given(programs(), st.booleans())
def test_equivalent(x: da.Array, exact: bool) -> None:
    with dask.config.set({"rewrite.reassociate": not exact}):
        assert_same_as_stock(x, x.max(axis=0))


def test_idempotent() -> None:
    graph = graph_of(*[full(name, 1.0) for name in "abcd"], gathered("a", "b", "c", "d"))
    after, _ = run(graph)
    again, remarks = run(after)
    assert again is after
    assert not len(remarks)


def test_one_name_never_stands_for_two_tasks() -> None:
    def tasks(value: float) -> dict[Any, Any]:
        x = da.full((6, 6), value, chunks=2)
        return tasks_of(da.concatenate([x, da.full((6, 6), 1.0, chunks=3)]).sum(axis=0))

    one, other = tasks(1.0), tasks(2.0)
    inner = {k for k in one if "aggregate" not in k[0]}
    assert not inner & other.keys()


# -- pays ----------------------------------------------------------------------------------


def test_pays() -> None:
    x = da.ones((120, 120), chunks=2).sum()
    assert len(stock_tasks_of(x)) > 4000
    assert len(checked(x)) <= 12
    assert_same_as_stock(x)


def test_linear() -> None:
    assert_linear(lambda n: da.ones((n * 8, 8), chunks=2).sum(axis=0), (50, 100, 200))


def test_off() -> None:
    with dask.config.set({"rewrite.disable": ["share", "fuse-small"]}):
        assert len(tasks_of(da.ones((40, 40), chunks=2).sum())) > 100
