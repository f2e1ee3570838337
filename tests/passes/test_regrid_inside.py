"""Arrays that one other array alone takes are worked out inside of it."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.regrid import Regrid
from dask_rewrite.remarks import Remarks
from helpers import assert_same_as_stock, distinct, examples, tasks_of
from passes.contract_cases import lowered


def cross(u: da.Array, side: Any = 0) -> da.Array:
    """The sum of what stands round each element, with other arrays in between."""
    core = u[1:-1, 1:-1]
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * core + side


def steps(count: int, side: Any = 0, chunks: int = 64, shape: tuple[int, int] = (256, 192)) -> da.Array:
    u = distinct(shape, chunks).astype("f8") / 7
    for _ in range(count):
        u = da.pad(u[1:-1, 1:-1] + 0.1 * cross(u, side), 1, mode="edge").rechunk(chunks)
    return u


def sides() -> dict[str, Any]:
    wide = distinct((254, 190), (40, 190))
    return {
        "a scalar block": distinct((6,), 3).sum(),
        "a row": distinct((190,), 50),
        "a column": distinct((254, 1), (100, 1)) * 2,
        "constants": da.ones((254, 190), chunks=(31, 95)),
        "another grid": wide,
        "twice the same": wide * wide,
        "a column of work": (distinct((254, 1), (100, 1)) + 1) * wide,
        "work on a row": da.sqrt(distinct((190,), 95)) - wide,
        "an array in memory": np.arange(190.0),
    }


@pytest.mark.parametrize("side", sides())
def test_equivalent(side: str) -> None:
    u = steps(2, sides()[side])
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(u, u.sum(), (u - distinct((256, 192), 64)).max(axis=0))


@examples(8)
@given(st.data())
def test_any_sums_of_shifted_arrays(data: st.DataObject) -> None:
    """Some of them are needed elsewhere, or by two others, or twice."""
    chunks = data.draw(st.tuples(st.integers(4, 9), st.integers(4, 9)))
    x = distinct((24, 20), chunks)
    made, wanted = [x], []
    for _ in range(data.draw(st.integers(2, 6))):
        one, other = data.draw(st.sampled_from(made)), data.draw(st.sampled_from(made))
        a, b, c = [data.draw(st.integers(0, 2)) for _ in range(3)]
        rows = min(one.shape[0] - a, other.shape[0] - b)
        columns = min(one.shape[1] - c, other.shape[1])
        found = one[a : a + rows, c : c + columns] * 2 - other[b : b + rows, :columns]
        made.append(found)
        if data.draw(st.booleans()):
            wanted.append(found)
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(made[-1].sum(axis=0), *wanted)


def test_one_task_for_each_block() -> None:
    """Of steps of a stencil on 4 x 3 blocks; dask's own graph has some 800 for each step."""
    more = len(tasks_of(steps(5))) - len(tasks_of(steps(4)))
    assert more <= 12 + 16 + 24  # blocks, and what of them goes to their neighbours


def test_large_blocks_are_not_joined_ahead() -> None:
    """Blocks of 1.6 MB: of what is put together for a block's work nothing is held; of two steps all is."""
    u = steps(3, chunks=450, shape=(1800, 1800))
    assert dask_rewrite.forecast(u.sum(), threads=2).after.peak <= 2 * u.nbytes


def test_neighbours_that_are_large_are_not_held_for_their_edges() -> None:
    """A mean over time of what is made of each block and its neighbours, 32 blocks of 0.5 MB a time."""
    x = da.random.default_rng(0).random((8, 1024, 1024), chunks=(1, 256, 256))
    around = x[:, 2:, 1:-1] + x[:, :-2, 1:-1] + x[:, 1:-1, 2:] + x[:, 1:-1, :-2]
    y = (around - 4 * x[:, 1:-1, 1:-1]).rechunk((1, 256, 256)).mean(axis=0)
    sent = tasks_of(y)
    cut = {key for key in sent if "regrid-cut" in str(key)}
    assert cut
    taken = [node for node in sent.values() if not cut.isdisjoint(node.dependencies)]
    assert max(sum(str(dep).startswith("('random") for dep in node.dependencies) for node in taken) == 1
    assert_same_as_stock(y)


def shifted(x: da.Array) -> da.Array:
    return x[1:, 1:] + x[:-1, :-1]


@pytest.mark.parametrize("kept", ["nothing", "output", "a slice", "other work", "two users"])
def test_what_others_need_is_not_made_twice(kept: str) -> None:
    x = distinct((120, 120), 30)
    inner = shifted(x)
    outer = inner[1:, 1:] * x[2:, 2:] - x[:-2, :-2]
    others = {
        "nothing": [],
        "output": [inner],
        "a slice": [inner[3:20, 3:20]],
        "other work": [inner.sum(axis=0)],
        "two users": [inner[:-1, 1:] - x[2:, :-2]],
    }
    graph, context = lowered(outer, *others[kept]), Context(Remarks())
    after = Regrid().run(graph, context)
    assert after is not graph
    names = {key[0] for key in after.nodes if type(key) is tuple}
    calls = sum("regrid" in str(name) and "join" not in str(name) for name in names)
    assert calls == (1 if kept == "nothing" else 2 if kept != "two users" else 3)
    assert_same_as_stock(outer, *others[kept])


def test_depth_and_width_are_bounded() -> None:
    """Sums of 24 shifted arrays are not one task of 24 joins, nested 24 deep."""
    x = distinct((60, 100), 30)
    total: Any = 0
    for i in range(24):
        total = total + x[i : i + 36, 1 + i % 2 : 90 + i % 2]
    assert_same_as_stock(total.sum(axis=0))
    assert max(len(node.dependencies) for node in tasks_of(total.sum(axis=0)).values()) <= 24
