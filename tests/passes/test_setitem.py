"""Assignments to one block become one task, and mean what they meant."""

from __future__ import annotations

import operator
import pickle

import dask
import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array.slicing import setitem
from dask.local import get_sync
from hypothesis import given
from hypothesis import strategies as st

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
from passes.setitem_cases import BLOCK, ONE, TWO, assign, diagonal, graph_of, run


def reasons(remarks: Remarks) -> set[str]:
    return {remark.reason for remark in remarks if remark.kind == "missed"}


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
