"""Tasks that only move data become one, and the blocks stay what they were."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, List, Task, TaskRef
from dask.array import chunk
from dask.array.core import concatenate3, concatenate_shaped
from dask.local import get_sync
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.graph.graph import Graph
from helpers import (
    assert_linear,
    assert_same_as_stock,
    checked,
    distinct,
    examples,
    functions_in,
    stock,
    stock_tasks_of,
    tasks_of,
)
from passes.movement_cases import X, cut, data, graph_of, join, run, same_values, scribble, whatever

# -- fires ---------------------------------------------------------------------------------------


def test_slice_of_slice_is_one_slice() -> None:
    before = graph_of(
        data("x"), cut("a", "x", slice(1, 4), slice(0, 5)), cut("b", "a", slice(1, 3), slice(2, 4))
    )
    after, _ = run(before)
    assert set(after.nodes) == {"x", "b"}
    assert after.nodes["b"].args[1] == (slice(2, 4, 1), slice(2, 4, 1))
    same_values(before, after)


def test_there_and_back_is_a_copy_for_the_user() -> None:
    left, right = (slice(None), slice(0, 3)), (slice(None), slice(3, 6))
    before = graph_of(data("x"), cut("a", "x", *left), cut("b", "x", *right), join("c", ["a", "b"]))
    after, _ = run(before)
    assert set(after.nodes) == {"x", "c"}
    assert after.nodes["c"].func is np.array
    same_values(before, after)
    result = get_sync(dict(after.nodes), "c")
    assert not np.shares_memory(result, X)


def test_there_and_back_is_an_alias_where_nobody_writes() -> None:
    left, right = (slice(None), slice(0, 3)), (slice(None), slice(3, 6))
    before = graph_of(
        data("x"),
        cut("a", "x", *left),
        cut("b", "x", *right),
        join("c", ["a", "b"]),
        Task("d", operator.add, TaskRef("c"), 1),
    )
    after, _ = run(before)
    assert type(after.nodes["c"]) is Alias
    same_values(before, after)


def test_a_constant_border_is_a_pad() -> None:
    zeros = Task("z", np.zeros, (4, 2))
    before = graph_of(data("x"), zeros, join("a", ["z", "x", "z"]))
    after, _ = run(before)
    assert set(after.nodes) == {"x", "a"}
    assert after.nodes["a"].func is np.pad
    same_values(before, after)


def test_borders_of_borders_are_one_pad() -> None:
    x = distinct((6, 6), 6)
    for _ in range(4):
        r, c = x.shape
        x = da.concatenate([da.zeros((r, 1)), x, da.zeros((r, 1))], axis=1).rechunk((r, c + 2))
        x = da.concatenate([da.zeros((1, c + 2)), x, da.zeros((1, c + 2))], axis=0).rechunk((r + 2, c + 2))
    tasks = checked(x)
    assert len(tasks) == 1
    assert np.pad in list(functions_in(next(iter(tasks.values()))))
    assert_same_as_stock(x)


def test_a_slice_of_a_constant_is_a_constant() -> None:
    before = graph_of(
        Task("z", np.full, (4, 6), 7.0), cut("a", "z", slice(1, 2)), Task("b", whatever, TaskRef("a"))
    )
    after, _ = run(before)
    assert set(after.nodes) == {"a", "b"}
    same_values(before, after)


def test_rechunk_round_trips_cost_what_one_costs() -> None:
    def trips(count: int) -> int:
        x = distinct((16, 16), (4, 16)) + 0
        for _ in range(count):
            x = x.rechunk((16, 4)).rechunk((4, 16))
        assert_same_as_stock(x)
        return len(checked(x))

    assert trips(12) == trips(1) <= 8


def test_half_a_round_trip_more() -> None:
    x = distinct((16, 16), (4, 16)) + 0
    once = len(checked(x.rechunk((16, 4))))
    y = x.rechunk((16, 4)).rechunk((4, 16)).rechunk((16, 4))
    assert len(checked(y)) == once
    assert_same_as_stock(y)


def test_slices_of_large_blocks_stay_with_the_block() -> None:
    """Only the slices travel; each is made once, though three tasks need it."""
    nodes = [data(f"x{i}", np.arange(4e4).reshape(200, 200) + i) for i in range(2)]
    half = slice(0, 100)
    for i in range(2):
        nodes += [cut(f"m{i}", f"x{i}", half), cut(f"n{i}", f"m{i}", slice(0, 10))]
    joins = [join(f"j{i}", ["n0"], ["n1"]) for i in range(3)]
    before = graph_of(*nodes, *joins, outputs=("j0", "j1", "j2"))
    after, _ = run(before)
    assert len(after.nodes) == 7
    assert all("x0" not in after.nodes[f"j{i}"].dependencies for i in range(3))
    same_values(before, after)


def test_a_wanted_part_of_a_large_block_gets_a_name_of_its_own() -> None:
    big = np.arange(4e4).reshape(200, 200)
    before = graph_of(
        data("x", big),
        data("y", big + 1),
        join("a", ["x"], ["y"]),
        cut("b", "a", slice(190, 205)),
        Task("c", whatever, TaskRef("b")),
    )
    after, _ = run(before)
    cuts = [key for key in after.nodes if type(key) is tuple]
    assert sorted(key[0].split("-")[0] for key in cuts) == ["movement", "movement"]
    assert "a" not in after.nodes
    same_values(before, after)


def test_halos_take_what_they_need_of_their_own_block_along() -> None:
    x = distinct((12, 12), 4).map_blocks(whatever)
    y = x.map_overlap(whatever, depth=1, boundary="reflect")
    halos = len(checked(x.map_overlap(whatever, depth=1, boundary="none")))
    assert len(checked(y)) == halos
    assert_same_as_stock(y)


@pytest.mark.parametrize("boundary", ["none", 0, "reflect", "periodic", "nearest"])
@pytest.mark.parametrize("depth", [1, 2, {0: 1, 1: 3}])
def test_halos(boundary: Any, depth: Any) -> None:
    x = distinct((12, 13), 4)
    for _ in range(3):
        x = x.map_overlap(whatever, depth=depth, boundary=boundary)
    assert_same_as_stock(x)
    assert len(checked(x)) <= len(stock_tasks_of(x))


def test_transposed_pieces() -> None:
    x = distinct((6, 4), (3, 2))
    y = da.concatenate([x, x.T.rechunk((2, 3)).T], axis=1).rechunk((6, 5))
    assert_same_as_stock(y)
    checked(y)


# -- equivalent ----------------------------------------------------------------------------------


@st.composite
def programs(draw: Any) -> list[da.Array]:
    """Arrays that move data back and forth, with some arithmetic in between."""
    shape = (draw(st.integers(1, 7)), draw(st.integers(1, 7)))
    kinds = ["known", "made", "constant", "unknown", "write"]
    x = distinct(shape, draw(st.integers(1, 4)), draw(st.sampled_from(["f8", "i4"])))
    made = [x]
    for _ in range(draw(st.integers(1, 7))):
        x = draw(st.sampled_from(made))
        r, c = x.shape
        step = draw(
            st.sampled_from(
                ["cut", "rechunk", "rechunk", "join", "join", "border", "pad", "turn", "roll", *kinds]
            )
        )
        if step == "cut" and r and c:
            rows = slice(*sorted(draw(st.lists(st.integers(0, r), min_size=2, max_size=2))))
            step_by = draw(st.sampled_from([None, 2, -1]))
            x = x[rows, ::step_by]
        elif step == "rechunk" and r and c:
            x = x.rechunk((draw(st.integers(1, r)), draw(st.integers(1, c))))
        elif step == "join":
            others = [y for y in made if y.shape == x.shape]
            x = da.concatenate([x, draw(st.sampled_from(others))], axis=draw(st.integers(0, 1)))
        elif step == "border" and r:
            x = da.concatenate([da.zeros((r, 2), dtype=x.dtype, chunks=1), x], axis=1)
        elif step == "pad" and r and c:
            mode = draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
            x = da.pad(x, draw(st.integers(0, min(r, c) - 1)), mode=mode)
        elif step == "turn":
            x = x.T
        elif step == "roll" and r and c:
            x = da.roll(x, draw(st.integers(-3, 3)), axis=draw(st.integers(0, 1)))
        elif step == "known":
            x = x * 2 + 1
        elif step == "constant":
            x = da.full(x.shape, 3, dtype=x.dtype, chunks=x.chunks)
        elif step == "unknown":
            x = x.map_blocks(whatever, dtype=x.dtype)
        elif step == "write":
            x = (x + 0).map_blocks(scribble, dtype=x.dtype)
        made.append(x)
        if x.size > 2000:
            break
    return made


@given(programs())
@examples(150)
def test_equivalent(made: list[da.Array]) -> None:
    last = made[-1]
    assert_same_as_stock(last, last.sum(), *made[len(made) // 2 : len(made) // 2 + 1])
    checked(last)


# -- idempotent, linear, pays ----------------------------------------------------------------------


def test_idempotent() -> None:
    x = distinct((12, 12), 4).map_blocks(whatever)
    y = da.concatenate([da.zeros((12, 3)), distinct((12, 12), 4), x], axis=1).rechunk((6, 9))[1:]
    z = y.map_overlap(whatever, depth=1, boundary="reflect")
    with dask.config.set({"rewrite.disable": ["fuse-chains", "fuse-small"]}):
        from dask_rewrite.pipeline.run import rewrite_tasks

        graph = rewrite_tasks(z.dask, z.__dask_keys__())
    assert graph is not None
    again, _ = run(graph)
    assert again is graph


def test_linear() -> None:
    def trips(count: int) -> da.Array:
        x = distinct((8, 8), (2, 8)) + 0
        for _ in range(count):
            x = x.rechunk((8, 2)).rechunk((2, 8))
        return x

    assert_linear(trips, (8, 16, 32))

    def appends(count: int) -> da.Array:
        parts = [distinct((3, 4), 4) + i for i in range(count)]
        return da.concatenate(parts).rechunk((4, 4))

    assert_linear(appends, (40, 80, 160))


def test_one_large_block_and_back_is_linear() -> None:
    """A block of very many pieces, cut again into very many."""

    def there(count: int) -> da.Array:
        x = distinct((count, 2), (1, 2)) + 0
        return x.rechunk((count, 2)).rechunk((1, 2))

    assert_linear(there, (50, 100, 200))


def test_a_ragged_matrix_filled_up_to_whole_blocks() -> None:
    """Appended zeros and a rechunk, block by block: one pad each."""
    parts = []
    for i in range(6):
        x = da.append(distinct((7, 5), 7) + i, da.zeros((1, 5)), axis=0)
        parts.append(da.append(x, da.zeros((8, 3)), axis=1))
    y = da.concatenate(parts).rechunk((8, 8))
    assert len(checked(y)) == 7
    assert_same_as_stock(y)


def test_twelve_borders() -> None:
    x = distinct((64, 64), 16)
    for _ in range(6):
        r, c = x.shape
        s, t = da.zeros((r, 4), chunks=16), da.zeros((4, c + 8), chunks=16)
        x = da.concatenate([s, x, s], axis=1)
        x = da.concatenate([t, x, t], axis=0)
    y = x.sum(axis=0)
    assert_same_as_stock(y)
    with stock():
        theirs = len(stock_tasks_of(y))
    assert len(checked(y)) <= theirs / 4


def test_concatenate_shaped_is_read_too() -> None:
    parts = [cut(f"p{i}", "x", slice(i, i + 1)) for i in range(4)]
    whole = Task("y", concatenate_shaped, List(*[TaskRef(f"p{i}") for i in range(4)]), (4, 1))
    before = graph_of(data("x"), *parts, whole)
    after, _ = run(before)
    assert set(after.nodes) == {"x", "y"}
    same_values(before, after)


@pytest.mark.parametrize("source", ["known", "unknown"])
def test_slices_of_a_stage_that_lie_in_one_of_its_blocks(source: str) -> None:
    """Dask takes rows to columns by way of the whole array, put together from more than 16 blocks."""
    x = distinct((64, 64), 8)
    if source == "unknown":
        x = x.map_blocks(lambda block: block, dtype=float)
    y = x
    for _ in range(3):
        y = y.rechunk((8, 64)).rechunk((64, 8)).rechunk((8, 8))
    assert len(checked(y)) <= 64 + 1
    assert_same_as_stock(y)
    assert_same_as_stock(x.rechunk((8, 64)).rechunk((64, 8))[3:, ::2].rechunk(8))


def test_a_large_block_that_is_only_cut_again_is_not_made() -> None:
    x = distinct((1000, 1600), (100, 1600)).map_blocks(np.negative)
    tall = x.rechunk((1000, 400))
    stages = [dep for node in tasks_of(tall.sum(axis=0)).values() for dep in node.dependencies]
    assert max(map(stages.count, stages)) <= 4  # no block goes to more than the four that need it
    assert not [key for key in tasks_of(tall.sum(axis=0)) if "rechunk-merge" in str(key)]
    assert_same_as_stock(tall, tall.sum(axis=0), tall.sum())
    small = distinct((100, 160), (10, 160)).map_blocks(np.negative).rechunk((100, 16))
    assert [key for key in tasks_of(small.sum(axis=0)) if "rechunk-merge" in str(key)]


def test_a_join_does_not_wait_for_slices_of_itself() -> None:
    """Slices of a join that show what it takes of large blocks, and that stay slices of the join."""
    below = Task(None, chunk.getitem, TaskRef(("part", 0)), (slice(0, 2), slice(2, 3)))
    beside = Task(None, chunk.getitem, TaskRef(("y", 0)), (slice(0, 1), slice(2, 3)))
    nodes: dict[Any, Any] = {
        "x": data("x", np.arange(12.0).reshape(4, 3)),
        ("y", 0): Task(("y", 0), np.negative, Task(None, chunk.getitem, TaskRef("x"), (slice(0, 1),))),
        ("part", 0): Task(("part", 0), chunk.getitem, TaskRef("x"), (slice(2, 4), slice(0, 3))),
        ("join", 0): Task(("join", 0), concatenate3, List(List(below), List(beside))),
        ("seen", 0): Task(("seen", 0), whatever, TaskRef(("join", 0))),
    }
    for i, (first, last) in enumerate([(0, 2), (2, 3)]):
        rows = Task(None, chunk.getitem, TaskRef(("join", 0)), (slice(first, last), slice(0, 1)))
        nodes["slice", i] = Task(("slice", i), chunk.getitem, rows, (slice(0, last - first), slice(0, 1)))
        nodes["used", i] = Task(("used", i), whatever, TaskRef(("slice", i)))
    graph = Graph(nodes, (("seen", 0), ("used", 0), ("used", 1)))
    after, _ = run(graph, max_whole=1)
    same_values(graph, after)
