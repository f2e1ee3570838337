"""What stays as it is although it moves data, and what moving must not break."""

from __future__ import annotations

import operator
import warnings
from itertools import product
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import List, Task, TaskRef
from dask.array import chunk
from dask.array.core import concatenate_shaped
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement import Movement
from dask_rewrite.passes.movement.isolated import staying
from dask_rewrite.passes.movement.read import NOT_TILED, Reader
from dask_rewrite.passes.site import Site
from dask_rewrite.remarks import Remarks
from helpers import (
    assert_same,
    assert_same_as_stock,
    checked,
    distinct,
    functions_in,
    tasks_of,
)
from passes.movement_cases import X, cut, data, graph_of, join, run, same_values, scribble, whatever


def reasons(remarks: Remarks) -> set[str]:
    return {remark.reason for remark in remarks if remark.kind == "missed"}


# -- declines ------------------------------------------------------------------------------------


def test_a_graph_without_moves_comes_back_as_it_was() -> None:
    graph = graph_of(data("x"), Task("y", whatever, TaskRef("x")))
    assert run(graph)[0] is graph


def test_single_moves_stay_as_they_are() -> None:
    graph = graph_of(data("x"), data("y"), cut("a", "x", slice(0, 2)), join("b", ["x", "y"], ["y", "x"]))
    after, remarks = run(Graph(graph.nodes, ("a", "b")))
    assert after.nodes == graph.nodes
    assert not len(remarks)


def test_lists_and_masks_are_not_looked_into() -> None:
    before = graph_of(data("x"), cut("a", "x", slice(0, 3)), cut("b", "a", [0, 2], slice(None)))
    assert run(before)[0] is before


def test_other_dtypes_are_not_mixed() -> None:
    single = np.dtype("f4")
    before = graph_of(
        data("x"), Task("z", np.zeros, (4, 2), single), join("a", ["x", "z"]), cut("b", "a", slice(0, 2))
    )
    after, _ = run(before)
    assert "a" in after.nodes
    same_values(before, after)


def test_a_pad_needs_a_block_that_is_known_to_be_an_array() -> None:
    """Stock dispatches by the type of the blocks: a masked one must stay masked."""
    x = da.from_array(np.arange(12.0).reshape(3, 4), chunks=-1).map_blocks(
        lambda b: np.ma.masked_less(b, 5), dtype=float, meta=np.empty((0, 0))
    )
    y = da.concatenate([x, da.zeros((3, 2), chunks=-1)], axis=1).rechunk(-1)
    assert_same_as_stock(y)
    assert np.pad not in [f for task in tasks_of(y).values() for f in functions_in(task)]


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("?", 0), ("i4", np.nan), ("U1", "abc"), (">f8", 0.0), ("f4", 0.0), ("i1", -1), ("M8[s]", 0)],
)
def test_the_fill_does_not_change_its_dtype(dtype: str, fill: Any) -> None:
    values = np.arange(6).astype("i1").astype(dtype) if dtype != "U1" else np.array(list("abcdef"))
    x = da.from_array(values, chunks=3)
    for kind in (None, dtype):
        if kind == "i4" and fill != fill:
            continue
        try:
            border = da.full(3, fill, dtype=kind or np.asarray(fill).dtype, chunks=3)
            y = da.concatenate([border, x, border]).rechunk(4)
        except (TypeError, ValueError):
            continue
        assert_same_as_stock(y)


def test_stages_of_one_plan_stay() -> None:
    """A rechunk of columns to rows in two stages does not become one with the product of their edges."""
    with dask.config.set({"array.rechunk.threshold": 1}):
        x = da.ones((64, 64), chunks=(64, 1)).map_blocks(whatever, dtype=float)
        y = (da.from_array(np.arange(64.0 * 64).reshape(64, 64), chunks=(64, 1)) + 0).rechunk((1, 64))
    assert x.dtype == y.dtype
    with dask.config.set({"rewrite.disable": ["movement"]}):
        before = checked(y)
    after = checked(y)
    assert max(len(task.dependencies) for task in after.values()) <= 64
    edges = [sum(len(t.dependencies) for t in tasks.values()) for tasks in (before, after)]
    assert edges[1] <= edges[0]
    assert_same_as_stock(y)


def test_a_block_that_many_use_whole_is_put_together_once() -> None:
    nodes = [data(f"x{i}", X + i) for i in range(8)]
    joined = join("j", [f"x{i}" for i in range(8)])
    users = [join(f"u{i}", ["j"], ["j"]) for i in range(5)]
    before = graph_of(*nodes, joined, *users, outputs=tuple(f"u{i}" for i in range(5)))
    after, _ = run(before)
    assert all("j" in after.nodes[f"u{i}"].dependencies for i in range(5))
    same_values(before, after)


def test_fan_in_is_bounded() -> None:
    rows = da.concatenate([distinct((1, 8), 8) + i for i in range(64)], axis=0)
    y = rows.rechunk((8, 8)).rechunk((64, 8))
    tasks = checked(y)
    assert max(len(task.dependencies) for task in tasks.values()) <= 16
    assert_same_as_stock(y)


def test_many_small_blocks_do_not_travel_whole() -> None:
    """A small block is referred to as a whole, but not sixteen of them for a sliver of each."""
    x = distinct((1024, 64), (64, 64)) + 0
    rows = x.rechunk((1024, 4), threshold=1000)  # in one stage
    with dask.config.set({"rewrite.disable": ["fuse-small"]}):
        tasks = checked(rows)
    wanted = [tasks[key] for key in tasks if key[0] == rows.name]
    assert len(wanted) == 16
    for task in wanted:
        assert all(tasks[dep].func is chunk.getitem for dep in task.dependencies)
    few = distinct((8, 8), (4, 8)) + 0
    assert len(checked(few.rechunk((8, 4)))) == 4


class OtherTask(Task):
    """A task of a kind of its own, as those of shuffles between workers are."""


def test_tasks_of_other_kinds_are_left_alone() -> None:
    other = OtherTask("a", chunk.getitem, TaskRef("x"), (slice(0, 3), slice(0, 3)))
    views = [cut(*pair, slice(0, 2), func=operator.getitem) for pair in ("ba", "cb")]
    before = graph_of(data("x"), other, *views)
    after, _ = run(before)
    assert after.nodes["a"] is other
    assert after.nodes["c"].dependencies == {"a"}
    same_values(before, after)


def test_delayed_work_keeps_its_tasks() -> None:
    before = graph_of(data("x"), cut("a", "x", slice(0, 3)), cut("b", "a", slice(0, 2)))
    assert Movement().run(before, Context(fuse_text_keys=False)) is before


def test_structured_borders() -> None:
    kind = np.dtype([("a", "i4"), ("b", "f8")])
    x = da.from_array(np.ones((4, 4), dtype=kind), chunks=2)
    z = da.zeros((4, 1), dtype=kind, chunks=1)
    assert_same_as_stock(da.concatenate([z, x, z], axis=1).rechunk((2, 3)))


# -- guards --------------------------------------------------------------------------------------


def test_a_function_that_writes_gets_a_block_of_its_own() -> None:
    """The round trip stands between the block and a function that writes into it."""
    r = distinct((6, 6), (2, 6)) + 0
    z = r.rechunk((6, 2)).rechunk((2, 6)).map_blocks(scribble)
    assert_same_as_stock(z - r)
    assert float((z - r).sum().compute(scheduler="sync")) == 36.0


def test_a_result_is_never_the_users_array() -> None:
    x = np.arange(36.0).reshape(6, 6)
    y = da.from_array(x, chunks=(2, 6)).rechunk((6, 2)).rechunk((2, 6))
    (result,) = dask.persist(y, scheduler="sync")
    blocks = [block.compute(scheduler="sync") for block in result.blocks]
    for block in blocks:
        block += 100
    assert x.max() == 35


def test_writers_of_slices() -> None:
    x = distinct((8, 8), 4) + 0
    a = x.rechunk((8, 4))[1:7].map_blocks(scribble)
    b = da.concatenate([x, x], axis=1).rechunk((4, 16))[:, 2:].map_blocks(scribble)
    assert_same_as_stock(a, b, x)


def careful(block: np.ndarray) -> np.ndarray:
    """Writes into what it is given, if that is allowed."""
    if not block.flags.writeable:
        block = block.copy()
    block += 1
    return block


def test_what_cannot_be_written_into_stays_so() -> None:
    """Dask makes constants of one element; functions may ask whether they can write."""
    stacked = da.stack([da.ones(4, chunks=4), da.zeros(4, chunks=4)], axis=1)
    both = da.concatenate([stacked, stacked]).map_blocks(careful, dtype="f8", meta=np.empty((0, 0)))
    assert_same_as_stock(both)

    for x in (da.zeros(6, chunks=6)[1:], da.concatenate([da.zeros(6, chunks=6)]).T.T):
        assert_same_as_stock(x.map_blocks(lambda b: b * 0 + b.flags.writeable, dtype="f8", meta=np.empty(0)))


def test_the_same_column_twice_is_not_a_slice() -> None:
    x = distinct((5,), 5)
    stacked = da.stack([x, x], axis=1)
    assert_same_as_stock(stacked.ravel())
    assert_same_as_stock(stacked.rechunk((5, 2)), stacked.T.rechunk((2, 3)))
    assert_same_as_stock(stacked.map_overlap(lambda b: b * 2, depth=1, boundary="none", dtype="f8"))


def test_an_output_inside() -> None:
    x = distinct((8, 8), (2, 8)) + 0
    y = x.rechunk((8, 2))
    z = y.rechunk((2, 8))
    assert_same_as_stock(x, y, z)
    assert_same_as_stock(z, y)


def test_annotations_are_not_mixed() -> None:
    x = distinct((8, 8), (2, 8)) + 0
    with dask.annotate(priority=3):
        y = x.rechunk((8, 2))
    z = y.rechunk((2, 8))
    assert_same_as_stock(z)
    before = graph_of(
        data("x"), cut("a", "x", slice(0, 3)), cut("b", "a", slice(0, 2)), annotations={"a": {"priority": 1}}
    )
    after, remarks = run(before)
    assert after is before
    assert reasons(remarks) == {"annotations differ"}


def test_no_data_at_all() -> None:
    x = da.zeros((0, 5), chunks=(0, 2))
    y = da.concatenate([x, da.ones((3, 5), chunks=2), x]).rechunk((2, 5))
    assert_same_as_stock(y, y[1:1], x.rechunk((0, 5)).T)


def test_numbers_out_of_arrays_stay_numbers() -> None:
    x = distinct((6, 6), 3)
    y = da.concatenate([x, x])
    assert_same_as_stock(y[3, 4], y[7, :2][1], y[..., 1][2])


@pytest.mark.parametrize("kind", ["nan", "negative zero", "object", "structured", "masked", "big endian"])
def test_kinds_of_blocks(kind: str) -> None:
    values: Any = {
        "nan": np.array([np.nan, 1.0, -np.inf, 2.0, 3.0, np.nan]),
        "negative zero": np.array([-0.0, 0.0, 1.0, -0.0, 2.0, 0.0]),
        "object": np.array([None, "a", 1, 2.5, (1,), b"b"], dtype=object),
        "structured": np.array([(i, i / 2) for i in range(6)], dtype=[("a", "i4"), ("b", ">f8")]),
        "masked": np.ma.masked_array(np.arange(6.0), mask=[0, 1, 0, 0, 1, 0]),
        "big endian": np.arange(6, dtype=">i2"),
    }[kind]
    x = da.from_array(values, chunks=2)
    y = x.rechunk(3).rechunk(2)[1:].rechunk(5)
    z = da.concatenate([x[::-1], x[1:3]]).rechunk(4)
    assert_same_as_stock(y, z)
    if kind == "nan":
        assert_same_as_stock(da.concatenate([da.full(2, np.nan), x, da.full(2, -0.0)]).rechunk(5))


def test_sparse_blocks_stay_sparse() -> None:
    sparse = pytest.importorskip("sparse")
    x = distinct((6, 6), 3).map_blocks(sparse.COO.from_numpy)
    y = x.rechunk((2, 6)).rechunk((3, 3))[1:, ::2]
    assert_same_as_stock(y)


def test_sums_add_in_the_same_order() -> None:
    """Sums over several axes follow the memory: the last bits tell whether a block lies as it did."""
    rng = np.random.default_rng(0)
    x = da.from_array(rng.random((40, 40)), chunks=20)
    for y in (
        x.rechunk((40, 7)).rechunk(20)[3:, 2:],
        da.concatenate([x, x])[5:70, 3:],
        x[1:].rechunk((13, 40))[:, 4:39],
        da.from_array(np.asfortranarray(rng.random((30, 30))), chunks=-1).rechunk(10).rechunk(30),
    ):
        for chunked in (y, y.rechunk((30, 30)), y.T):
            assert_same_as_stock(chunked.sum(), chunked.std(), chunked.sum(axis=0), chunked.mean(axis=1))


def test_sums_of_work_on_turned_blocks() -> None:
    """What is worked out of a block lies as that does: two sums of it tell in which order."""
    x = da.from_array(np.random.default_rng(0).random((20, 18, 16), "f4"), chunks=(5, 9, 8))
    y = x[:, :, ::-1].transpose(1, 0, 2)[::-1] * 2 + 1
    assert_same_as_stock(y.mean(axis=(1, 2)), y.std(axis=1))


# -- what is not looked into ---------------------------------------------------------------------


def test_moves_that_stand_alone_stay() -> None:
    graph = graph_of(
        data("x"),
        Task("u", whatever, TaskRef("x")),
        Task("fill", np.zeros, (4, 6)),
        cut("part", "x", slice(1, 3), slice(None)),
        cut("unknown", "u", slice(1, 3), slice(None)),
        cut("picked", "x", [0, 2], slice(None)),
        cut("nothing", "x", slice(4, 9), slice(None)),
        cut("constant", "fill", slice(1, 3), slice(None)),
        cut("first", "x", slice(0, 2), slice(None)),
        cut("second", "first", slice(0, 1), slice(None)),
        Task("turned", np.transpose, TaskRef("x")),
        Task("tiled", concatenate_shaped, List(TaskRef("x"), TaskRef("u")), (2, 1)),
        Task("mixed", concatenate_shaped, List(TaskRef("x"), TaskRef("fill")), (2, 1)),
        outputs=("part", "unknown", "picked", "nothing", "constant", "second", "turned", "tiled", "mixed"),
    )
    moves = set(graph.nodes) - {"x", "u", "fill"}
    assert staying(moves, Site(graph, Context()), Movement().max_whole) == {
        "part",
        "unknown",
        "picked",
        "turned",
        "tiled",
    }
    after, _ = run(graph)
    assert all(after.nodes[key] is graph.nodes[key] for key in ("part", "unknown", "picked", "turned"))
    assert after.nodes["nothing"] is not graph.nodes["nothing"]
    same_values(graph, after)


class _Nested(Reader):
    """Reads grids as joins of joins."""

    def _tiled(self, task: Task) -> Any:
        return NOT_TILED


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=3), st.data())
def test_grids_are_read_as_nested_joins(sizes: list[list[int]], drawn: st.DataObject) -> None:
    shape = tuple(map(len, sizes))
    nodes: list[Any] = []
    refs: list[Any] = []
    for i, size in enumerate(product(*sizes)):
        kind = drawn.draw(st.sampled_from(["block", "block", "block", "again", "fill", "odd", "unknown"]))
        value = np.zeros(size if kind != "odd" else (*size[:-1], size[-1] + 1), "f8")
        if kind == "fill":
            nodes.append(Task(f"b{i}", np.ones, size))
        elif kind == "unknown":
            nodes.append(Task(f"b{i}", whatever, TaskRef("b0")))
        else:
            nodes.append(data(f"b{i}", value))
        refs.append(TaskRef(f"b{max(i - 1, 0) if kind == 'again' else i}"))
    task = Task("z", concatenate_shaped, List(*refs), shape)
    graph = graph_of(*nodes, task)
    reader, nested = Reader(Site(graph, Context()).facts), _Nested(Site(graph, Context()).facts)
    found, expected = reader.read(task), nested.read(task)
    assert found == expected
    if found is not None:
        assert reader.referred == nested.referred


# --------------------------------------------------------------------------------------
# casts that warn


def assigned(x: da.Array) -> da.Array:
    y = da.zeros(x.shape, chunks=x.chunks)
    y[1:3] = x[1:3]
    return y


@pytest.mark.parametrize(
    "cut",
    [
        lambda y: y[:0],
        lambda y: y[:, 1:1],
        lambda y: y[:, 1:1].sum(axis=1),
        lambda y: y[2:9][:0],
        lambda y: y.rechunk(6)[:0],
        lambda y: da.stack([y, y])[1:, :0],
    ],
)
@pytest.mark.parametrize("cast", [lambda x: x.astype("f8"), lambda x: x.astype("i4") + 1, assigned])
def test_a_cast_that_warns_does_so_where_its_block_is_sliced_to_nothing(cast: Any, cut: Any) -> None:
    x = da.from_array(np.arange(24.0).reshape(6, 4) + 1j, chunks=(3, 2))
    with warnings.catch_warnings():  # dask tries the assignment on an empty block
        warnings.simplefilter("ignore")
        y = cut(cast(x))
    with pytest.warns(np.exceptions.ComplexWarning):
        expected = y.compute(optimize_graph=False)
    with pytest.warns(np.exceptions.ComplexWarning):
        assert_same(dask_rewrite.optimize(y).compute(), expected)
