"""Reshapes that give a block its old shape back are undone, and nobody can tell."""

from __future__ import annotations

import operator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef
from dask.utils import M

from helpers import assert_linear, assert_same_as_stock, checked, distinct, tasks_of
from passes.movement_cases import X, cut, data, graph_of, join, run, same_values, scribble, whatever


def reshaped(key: str, source: str, *shape: int) -> Task:
    return Task(key, M.reshape, TaskRef(source), shape)


def there_and_back(x: da.Array) -> da.Array:
    rows = x.rechunk((x.chunks[0][0], -1))
    return rows.reshape(-1).reshape(x.shape).rechunk(x.chunks)


def unknown(x: da.Array, function: Any = whatever) -> da.Array:
    return x.map_blocks(function, dtype=x.dtype, meta=np.empty((0, 0), x.dtype))


# -- fires ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda x: x, unknown, lambda x: unknown(x + 1)])
def test_reshape_and_back_leaves_one_task_a_block(make: Any) -> None:
    x = make(da.random.default_rng(0).integers(0, 50, (16, 16), chunks=4).astype(float))
    y = there_and_back(x)
    assert len(tasks_of(y)) <= 17
    assert_same_as_stock(y)


def test_any_number_of_reshapes_is_one() -> None:
    before = graph_of(
        data("x"),
        cut("a", "x", slice(0, 2), slice(0, 6)),
        *[
            reshaped("r", "a", 12),
            reshaped("s", "r", 3, 4),
            reshaped("t", "s", 2, 1, 6),
            reshaped("u", "t", 2, 6),
        ],
        cut("b", "u", slice(0, 1), slice(2, 4)),
    )
    after, _ = run(before)
    assert set(after.nodes) == {"x", "b"}
    same_values(before, after)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize(
    "kind", [np.asarray, np.ma.masked_invalid, np.asmatrix, np.asfortranarray, lambda x: x.astype("f4")]
)
def test_blocks_of_any_kind_stay_what_they_are(kind: Any) -> None:
    x = distinct((12, 12), chunks=4)
    y = there_and_back(unknown(x, kind))
    assert_same_as_stock(y)
    assert_same_as_stock(unknown(y, lambda block: np.ravel(block, "K").reshape(block.shape)))


def test_linear() -> None:
    def again(times: int) -> da.Array:
        x = distinct((8, 8), chunks=4)
        for _ in range(times):
            x = there_and_back(x) + 1
        return x

    assert_linear(again, (20, 40, 80))


# -- declines ------------------------------------------------------------------------------------


def test_what_somebody_else_uses_stays_one_block() -> None:
    left, right = (slice(None), slice(0, 3)), (slice(None), slice(3, 6))
    before = graph_of(
        *[data("x"), cut("a", "x", *left), cut("b", "x", *right), Task("c", whatever, TaskRef("a"))],
        *[Task("d", whatever, TaskRef("b")), join("j", ["c", "d"])],
        *[reshaped("r", "j", 24), reshaped("s", "r", 4, 6), Task("e", operator.neg, TaskRef("s"))],
        outputs=("j", "r", "e"),
    )
    after, _ = run(before)
    assert {"j", "r"} < set(after.nodes)
    same_values(before, after)


@pytest.mark.parametrize("last", [whatever, scribble, np.sum, np.ravel])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_order_in_memory_is_kept(last: Any, order: Any) -> None:
    value = np.array(X / 7, order=order)
    tail = (reshaped("r", "a", 24), reshaped("s", "r", 4, 6))
    for first in (Task("a", operator.add, TaskRef("x"), 1), Task("a", np.transpose, TaskRef("x"))):
        if first.func is np.transpose:
            tail = (reshaped("r", "a", 24), reshaped("s", "r", 6, 4))
        same_values(*_both(data("x", value), first, *tail, Task("b", last, TaskRef("s"))))
        same_values(*_both(data("x", value), first, *tail))


def _both(*nodes: Any) -> tuple[Any, Any]:
    before = graph_of(*nodes)
    return before, run(before)[0]


def test_a_constant_that_cannot_be_written_into_stays_one() -> None:
    fill = Task("a", np.broadcast_to, np.float64(3), (4, 6))
    nodes = (fill, reshaped("r", "a", 24), reshaped("s", "r", 4, 6))
    same_values(*_both(*nodes))
    same_values(*_both(*nodes, Task("b", lambda x: x.flags.writeable, TaskRef("s"))))


def test_other_reshapes_stay() -> None:
    for second in (
        reshaped("s", "r", 6, 4),
        Task("s", M.reshape, TaskRef("r"), (4, -1)),
        Task("s", M.reshape, TaskRef("r"), (4, 6), order="F"),
        Task("s", np.reshape, TaskRef("r"), (4, 6), order="F"),
    ):
        after = _both(data("x", X), cut("a", "x", slice(0, 4)), reshaped("r", "a", 24), second)
        assert "r" in after[1].nodes
        same_values(*after)


def test_no_elements_and_unknown_sizes() -> None:
    empty = da.from_array(np.empty((0, 4)), chunks=4)
    assert_same_as_stock(empty.reshape(-1).reshape((0, 4)) + 1)
    x = distinct((8, 8), chunks=4)
    some = x[x > 2].map_blocks(np.reshape, (-1,), dtype=x.dtype)
    checked(some)
    assert_same_as_stock(some)
