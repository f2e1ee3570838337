"""Assignments to one block become one task, and mean what they meant."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from dask.array.slicing import setitem
from dask.local import get_sync
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.setitem import Setitem
from dask_rewrite.remarks import Remarks
from helpers import (
    assert_linear,
    assert_same,
    assert_same_as_stock,
    checked,
    distinct,
    fan_in,
    functions_in,
    stock_tasks_of,
    tasks_of,
)


def diagonal(n: int, side: int = 4) -> da.Array:
    m = da.zeros((n, n), chunks=-(-n // side))
    for i in range(n):
        m[i, i] = i % 3 + 1
    return m


def graph_of(*nodes: Any, outputs: tuple[Any, ...] = (), **options: Any) -> Graph:
    return Graph({node.key: node for node in nodes}, outputs or (nodes[-1].key,), **options)


def assign(key: str, block: str, value: Any, indices: list[Any]) -> Task:
    return Task(key, setitem, TaskRef(block), value, indices)


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    return Setitem(**options).run(graph, Context(remarks)), remarks


def reasons(remarks: Remarks) -> set[str]:
    return {remark.reason for remark in remarks if remark.kind == "missed"}


ONE, TWO = DataNode(None, np.array(1.0)), DataNode(None, np.array(2.0))
BLOCK = DataNode("x", np.arange(6.0))


# -- fires ---------------------------------------------------------------------------------


def test_assignments_to_a_block_become_one_task() -> None:
    graph = graph_of(BLOCK, assign("y", "x", ONE, [0]), assign("z", "y", TWO, [slice(3, 5)]))
    after, remarks = run(graph)
    assert set(after.nodes) == {"x", "z"}
    assert remarks.counts["setitem", "applied"] == 1
    assert [f for f in functions_in(after.nodes["z"]) if f is setitem] == [setitem]
    result = get_sync(after.nodes, "z")
    assert_same(result, np.array([1.0, 1, 2, 2, 2, 5]))
    assert_same(BLOCK.value, np.arange(6.0))


def test_untouched_blocks_cost_nothing() -> None:
    tasks = checked(diagonal(32))
    assert len(tasks) == 16
    assert max(map(fan_in, tasks.values())) == 0
    assert_same_as_stock(diagonal(32))


def test_the_last_write_wins() -> None:
    m = distinct((6,), 3)
    m[2] = 10
    m[1:5] = 20
    m[::-2] = np.arange(3)
    m[2] = 30
    m[np.array([5, 0])] = np.array([7, 8])
    (result,) = assert_same_as_stock(m)
    assert_same(result, np.array([8.0, 2, 30, 1, 20, 7]))


def test_values_that_are_blocks_are_waited_for() -> None:
    m = distinct((8,), 8)
    for i in range(8):
        m[i] = da.arange(3, chunks=1)[i % 3] * 5
    tasks = checked(m)
    assert len([t for t in tasks.values() if setitem in functions_in(t)]) <= 2
    assert_same_as_stock(m)


def test_small_parts_of_data_stand_in_the_task() -> None:
    m = distinct((4, 4), 4)
    for i in range(4):
        m[:, i] = np.arange(4.0) * i
    assert len(checked(m)) <= 2
    assert_same_as_stock(m)


def test_values_made_of_the_block_itself() -> None:
    m = distinct((12, 12), 3)
    for i in range(12):
        m[i, i] += 1
    for i in range(1, 12):
        m[i] = m[i - 1] * 0.5 + m[i]
    assert len(stock_tasks_of(m)) > 150
    assert len(checked(m)) <= 100
    assert_same_as_stock(m)


def test_views_of_the_block_as_values() -> None:
    m = distinct((8,), 8)
    for _ in range(3):
        m[1:] = m[:-1]
        m[:4] = m[7:3:-1]
        m[2] = m[5]
        m[::-1] = m[np.array([3, 1, 2, 0, 7, 5, 6, 4])]
    assert len(checked(m)) <= 3
    assert_same_as_stock(m)


# -- declines ------------------------------------------------------------------------------


def test_a_single_assignment_stays() -> None:
    graph = graph_of(BLOCK, assign("y", "x", ONE, [0]))
    after, remarks = run(graph)
    assert after is graph
    assert not len(remarks)


def test_a_version_that_others_use_is_copied() -> None:
    graph = graph_of(
        BLOCK,
        assign("y", "x", ONE, [0]),
        assign("z", "y", TWO, [1]),
        Task("w", operator.add, TaskRef("y"), TaskRef("z")),
    )
    after, remarks = run(graph)
    assert after is graph
    assert reasons(remarks) == {"others use the block as it was before the assignment"}


def test_a_version_that_is_an_output_is_copied() -> None:
    graph = graph_of(BLOCK, assign("y", "x", ONE, [0]), assign("z", "y", TWO, [1]), outputs=("y", "z"))
    after, remarks = run(graph)
    assert after is graph
    assert reasons(remarks) == {"others use the block as it was before the assignment"}


def test_a_version_assigned_to_itself() -> None:
    graph = graph_of(BLOCK, assign("y", "x", ONE, [0]), assign("z", "y", TaskRef("y"), [slice(None)]))
    after, remarks = run(graph)
    assert after is graph
    assert reasons(remarks) == {"others use the block as it was before the assignment"}


def test_other_annotations() -> None:
    nodes = (BLOCK, assign("y", "x", ONE, [0]), assign("z", "y", TWO, [1]))
    graph = graph_of(*nodes, annotations={"y": {"priority": 1}})
    after, remarks = run(graph)
    assert after is graph
    assert reasons(remarks) == {"annotations differ"}
    same = graph_of(*nodes, annotations={"y": {"priority": 1}, "z": {"priority": 1}})
    assert set(run(same)[0].nodes) == {"x", "z"}


def test_bisect_limit() -> None:
    graph = graph_of(BLOCK, assign("y", "x", ONE, [0]), assign("z", "y", TWO, [1]))
    remarks = Remarks(bisect_limit=0)
    assert Setitem().run(graph, Context(remarks)) is graph
    assert reasons(remarks) == {"beyond rewrite.bisect-limit"}


# -- guards --------------------------------------------------------------------------------


def test_nobody_sees_a_write_too_early() -> None:
    x = distinct((4, 4), 2)
    versions = [x]
    m = x.copy()
    for i in range(4):
        m[i, i] = -1
        m[i] = m[3 - i] * 2
        if i % 2:
            versions.append(m.copy())
    assert_same_as_stock(*versions, m, x + m)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u8", "c16", "?", "U3", "M8[s]", "m8[us]", "O", ">i4"])
def test_dtypes(dtype: str) -> None:
    m = da.from_array(np.arange(12).astype("i1").astype(dtype), chunks=4)
    values = [np.array(1).astype(dtype)[()], np.array([3, 2]).astype(dtype)]
    for i in range(4):
        m[i * 2] = values[0]
        m[i : i + 2] = values[1]
    assert_same_as_stock(m)


def test_structured() -> None:
    m = da.from_array(np.zeros(4, dtype=[("a", "i4"), ("b", "f8")]), chunks=2)
    for i in range(4):
        m[i] = np.array((i, i / 2), dtype=m.dtype)
    assert_same_as_stock(m)


def test_bits_of_values() -> None:
    m = distinct((6,), 3)
    for i, value in enumerate([np.nan, -0.0, 0.0, np.inf, -np.nan, 1e-320]):
        m[i] = value
    assert_same_as_stock(m)


def test_masked() -> None:
    m = distinct((4, 4), 2)
    m[0, 0] = 1
    m[1, 1] = np.ma.masked
    m[0, 1] = 5
    m[3] = np.ma.masked_array(np.arange(4.0), mask=[True, False, False, True])
    m[3, 0] = 7
    m[0, 0] = np.ma.masked
    m[0, :] = np.arange(4)
    tasks = checked(m)
    assert len(tasks) < len(stock_tasks_of(m))
    assert_same_as_stock(m)
    hard = da.from_array(np.ma.masked_array(np.arange(4.0), mask=[1, 0, 0, 1]), chunks=2, asarray=False)
    hard = hard.map_blocks(lambda b: b.copy().harden_mask(), meta=np.ma.masked_array([]))
    hard[0], hard[1], hard[0] = 1, np.ma.masked, 2
    assert_same_as_stock(hard)


def test_a_function_that_keeps_what_it_gets() -> None:
    kept: list[Any] = []

    def keep(block: Any) -> Any:
        kept.append(block)
        return block if len(kept) % 2 else block[::-1]

    nodes: list[Any] = [BLOCK]
    for i in range(4):
        nodes.append(assign(f"a{i}", f"c{i - 1}" if i else "x", ONE, [i]))
        nodes.append(Task(f"b{i}", keep, TaskRef(f"a{i}")))
        nodes.append(assign(f"c{i}", f"a{i}", TaskRef(f"b{i}"), [slice(6)]))
    graph = graph_of(*nodes)
    get_sync(graph.nodes, "c3")
    expected, kept = [each.copy() for each in kept], []
    after, _ = run(graph)
    assert set(after.nodes) == {"x", "c3"}
    get_sync(after.nodes, "c3")
    assert_same(kept, expected)


def test_nothing_is_known_of_the_value() -> None:
    # An empty value makes dask's function return the block itself, which must not be written into.
    def source(block: np.ndarray) -> np.ndarray:
        return block

    x = distinct((3,), 3)
    nothing = da.from_array(np.arange(0.0)).map_blocks(source, dtype="f8", meta=np.empty(0))
    m = x.copy()
    m[0:0] = nothing
    m[1] = 7
    m[2] = 8
    assert_same_as_stock(m, x)


def test_masked_blocks_that_nobody_told_of() -> None:
    def mask(block: np.ndarray) -> Any:
        return np.ma.masked_greater(block, 3)

    value = distinct((6,), 6).map_blocks(mask, dtype="f8", meta=np.empty(0))
    m = distinct((6,), 6)
    m[0] = 1
    m[1:] = value[:5]
    m[0] = value[5]
    m[3] = 9
    assert_same_as_stock(m)


def test_empty_and_zero_dimensional() -> None:
    m = da.from_array(np.array(3.0), chunks=())
    m[()] = 4
    m[...] = 5
    assert_same_as_stock(m)
    m = distinct((6, 0), 2)
    m[1] = 4
    m[2:4] = 5
    assert_same_as_stock(m)
    scalar = distinct((3,), 3)[1]  # a NumPy scalar, which cannot be written into
    scalar[()] = 4
    scalar[()] = 5
    assert_same_as_stock(scalar)


def test_masks() -> None:
    m = distinct((4, 6), 2)
    m[m > 15] = 0
    m[np.array([True, False, True, False])] = 5
    m[:, np.array([False, True] * 3)] = np.arange(3)
    m[da.from_array(np.array([1, 2]), chunks=1)] = 8
    m[1, da.from_array(np.array([True, False] * 3), chunks=3)] = 9
    m[da.where(m == 8, True, False)] = -8
    assert_same_as_stock(m)


def test_integers_beyond_a_block_that_is_smaller_than_its_chunks_say() -> None:
    # dask drops such integers; assigning in place would raise.
    m = distinct((4,), 4).map_blocks(lambda block: block[:3], dtype="f8", meta=np.empty(0))
    m[0] = 5
    m[np.array([1, 3])] = 6
    m[1] = 7
    assert_same_as_stock(m)


class Duck:
    """As much of an array as assignments need, of a class of its own."""

    def __init__(self, values: Any) -> None:
        self.values = values

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)

    def copy(self) -> Duck:
        return Duck(self.values.copy())

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[index] = value.values if isinstance(value, Duck) else value


def test_duck_arrays() -> None:
    graph = graph_of(
        Task("x", Duck, np.arange(4.0)),
        Task("v", Duck, np.array([8.0, 9.0])),
        assign("a", "x", ONE, [0]),
        assign("b", "a", TaskRef("v"), [slice(1, 3)]),
        assign("c", "b", TWO, [np.array([3])]),
        assign("d", "c", TWO, [0]),
    )
    after, _ = run(graph)
    assert set(after.nodes) == {"x", "v", "d"}
    assert_same(get_sync(after.nodes, "d").values, np.array([2.0, 8, 9, 2]))


def test_errors_stay_what_they_are() -> None:
    sparse = pytest.importorskip("sparse")
    blocks: list[Any] = [sparse.COO(np.eye(3)[0]), np.arange(3.0), 7, (1, 2, 3), np.arange(3)]
    wrong: list[Any] = [
        (np.arange(2.0), [slice(0, 3)]),
        (np.array(1.0), [7]),
        (np.array(1.0), [0, 0]),
        (np.array("text"), [0]),
    ]
    for block in blocks:
        for value, indices in wrong:
            graph = graph_of(
                DataNode("x", block),
                assign("y", "x", ONE, [0]),
                assign("z", "y", DataNode(None, value), indices),
                assign("w", "z", TWO, [0]),
            )
            after, _ = run(graph)
            assert set(after.nodes) == {"x", "w"}
            with pytest.raises(Exception) as stock:
                get_sync(graph.nodes, "w")
            with pytest.raises(type(stock.value)):
                get_sync(after.nodes, "w")


def test_only_functions_that_are_everywhere() -> None:
    tasks = checked(diagonal(16))
    for task in tasks.values():
        for function in functions_in(task):
            module = getattr(function, "__module__", "") or ""
            assert not module.startswith("dask_rewrite")
        assert b"dask_rewrite" not in pickle.dumps(task)


# -- fan-in --------------------------------------------------------------------------------


def test_a_task_waits_for_few_blocks() -> None:
    blocks = [DataNode(f"v{i}", np.full(9000, float(i))) for i in range(100)]
    chain = [
        assign(f"y{i}", f"y{i - 1}" if i else "x", TaskRef(f"v{i}"), [slice(9000 * i, 9000 * (i + 1))])
        for i in range(100)
    ]
    graph = graph_of(DataNode("x", np.arange(9e5)), *blocks, *chain)
    after, _ = run(graph)
    assert max(len(node.dependencies) for node in after.nodes.values()) <= 16
    assert len(after.nodes) == 101 + 7
    expected = np.repeat(np.arange(100.0), 9000)
    assert_same(get_sync(after.nodes, "y99"), expected)
    assert len(run(graph, max_inputs=8)[0].nodes) == 101 + 15


def test_blocks_of_unknown_size_are_held_only_few_at_a_time() -> None:
    values = [Task(f"v{i}", lambda i=i: np.full(3, i)) for i in range(12)]
    chain = [assign(f"y{i}", f"y{i - 1}" if i else "x", TaskRef(f"v{i}"), [slice(3)]) for i in range(12)]
    after, _ = run(graph_of(BLOCK, *values, *chain))
    assert max(len(node.dependencies) for node in after.nodes.values()) == 5
    assert_same(get_sync(after.nodes, "y11"), np.array([11.0, 11, 11, 3, 4, 5]))


def test_values_larger_than_the_block_are_not_held_together() -> None:
    values = [DataNode(f"v{i}", np.ones(2**17)) for i in range(6)]  # a megabyte each
    chain = [assign(f"y{i}", f"y{i - 1}" if i else "x", TaskRef(f"v{i}"), [slice(None)]) for i in range(6)]
    after, _ = run(graph_of(DataNode("x", np.arange(2.0**17)), *values, *chain))
    assert after.nodes.keys() >= {f"y{i}" for i in range(6)}


# -- equivalent ----------------------------------------------------------------------------

_position = st.integers(0, 5)
_write = st.one_of(
    st.tuples(st.just("item"), _position, _position),
    st.tuples(st.just("row"), _position, st.sampled_from([1, -1, 2, -2])),
    st.tuples(st.just("part"), _position, _position),
    st.tuples(st.just("list"), _position, _position),
    st.tuples(st.just("bools"), _position, _position),
    st.tuples(st.just("where"), _position, _position),
    st.tuples(st.just("own"), _position, _position),
    st.tuples(st.just("lazy"), _position, _position),
    st.tuples(st.just("masked"), _position, _position),
)


def _apply(m: da.Array, write: tuple[str, int, int]) -> None:
    kind, i, j = write
    if kind == "item":
        m[i, j] = i - j
    elif kind == "row":
        m[i : i + 1, ::j] = np.arange(len(range(6)[::j]))
    elif kind == "part":
        m[i:, :j] = 7
    elif kind == "list":
        m[np.array([i, (i + 2) % 6]), j] = np.array([50, 60])
    elif kind == "bools":
        m[np.arange(6) % 3 == i % 3, j] = 3
    elif kind == "where":
        m[m > 4 * i] = j
    elif kind == "own":
        m[i] = m[j][::-1] * 2
    elif kind == "lazy":
        m[:, j] = da.from_array(np.arange(6.0), chunks=i + 1)
    else:
        m[i, j] = np.ma.masked


@given(st.lists(_write, max_size=12), st.integers(2, 6), st.booleans())
def test_equivalent(writes: list[tuple[str, int, int]], chunk: int, several: bool) -> None:
    m = distinct((6, 6), chunk)
    versions = []
    for position, write in enumerate(writes):
        _apply(m, write)
        if several and position % 4 == 1:
            versions.append(m.copy())
    assert_same_as_stock(*versions, m)


def test_idempotent() -> None:
    graph = graph_of(BLOCK, *[assign(f"y{i}", f"y{i - 1}" if i else "x", ONE, [i]) for i in range(6)])
    after, _ = run(graph)
    again, remarks = run(after)
    assert again is after
    assert not len(remarks)


# -- pays ----------------------------------------------------------------------------------


def test_pays() -> None:
    m = diagonal(400)
    stock = stock_tasks_of(m)
    tasks = checked(m)
    assert len(stock) > 400
    assert len(tasks) == 16
    ours = sum(len(pickle.dumps(task)) for task in tasks.values())
    assert ours * 10 < sum(len(pickle.dumps(task)) for task in stock.values())


def test_linear() -> None:
    assert_linear(diagonal, (100, 200, 400))


def test_off() -> None:
    with dask.config.set({"rewrite.disable": ["setitem"]}):
        assert len(tasks_of(diagonal(32))) > 16
