"""What the fusing of assignments must not break."""

from __future__ import annotations

import pickle
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from dask.local import get_sync

from helpers import (
    assert_same,
    assert_same_as_stock,
    checked,
    distinct,
    functions_in,
    stock_tasks_of,
)
from passes.setitem_cases import BLOCK, ONE, TWO, assign, diagonal, graph_of, run

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
