"""Elementwise work on a grid that crumbled."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.regrid import Regrid
from dask_rewrite.passes.regrid.grids import coarse_edges
from dask_rewrite.passes.regrid.names import producers_first
from dask_rewrite.remarks import Remarks
from helpers import assert_linear, assert_same_as_stock, distinct, examples, tasks_of


def padded(x: da.Array) -> da.Array:
    p = da.pad(x, 1)
    return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4


def rolled(x: da.Array) -> da.Array:
    return da.roll(x, 1, 0) * 0.3 + da.roll(x, -1, 1) - x


def stencil(
    steps: int,
    step: Callable[[da.Array], da.Array] = padded,
    chunks: Any = 20,
    dtype: Any = "f8",
    shape: tuple[int, int] = (60, 40),
) -> da.Array:
    x = distinct(shape, chunks).astype(dtype)
    for _ in range(steps):
        x = step(x)
    return x


def applied(*collections: Any, **config: Any) -> int:
    """How many blocks became slices."""
    with dask.config.set(config):
        found: int = dask_rewrite.explain(*collections).counts.get(("regrid", "applied"), 0)
    return found


@pytest.mark.parametrize("step", [padded, rolled])
@pytest.mark.parametrize("dtype", ["f8", "?", "c16"])
def test_equivalent(step: Any, dtype: str) -> None:
    x = stencil(2, step, dtype=dtype)
    assert applied(x)
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(x, x.sum(), (x + 1).max(axis=0))


@examples(6)
@given(
    st.tuples(st.integers(3, 9), st.integers(3, 9)),
    st.lists(st.tuples(st.integers(-4, 4), st.sampled_from([0, 1])), min_size=1, max_size=5),
)
def test_any_shifts(chunks: tuple[int, int], shifts: list[tuple[int, int]]) -> None:
    x = distinct((23, 17), chunks)
    for by, axis in shifts:
        x = da.roll(x, by, axis) * 2 - x
    assert_same_as_stock(x, x.T.sum(axis=0), x[3:, ::2])


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap", "constant"])
def test_borders_of_each_kind(mode: str) -> None:
    """An edge that is there twice is one block in two places."""

    def step(x: da.Array) -> da.Array:
        p = da.pad(x, 1, mode=mode)
        return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] * p[1:-1, 2:]) / 4

    x = stencil(3, step)
    assert applied(x) > 200
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(x, x.sum(), (x + 1).max(axis=0))


@examples(6)
@given(
    st.tuples(st.integers(3, 9), st.integers(3, 9)),
    st.lists(
        st.tuples(st.sampled_from(["edge", "symmetric", "wrap"]), st.integers(1, 2), st.sampled_from([0, 1])),
        min_size=1,
        max_size=4,
    ),
)
def test_any_borders(chunks: tuple[int, int], borders: list[tuple[str, int, int]]) -> None:
    x = distinct((23, 17), chunks)
    for mode, width, axis in borders:
        p = da.pad(x, [(width, width) if i == axis else (0, 0) for i in range(2)], mode=mode)
        n = x.shape[axis]
        before, after = (np.s_[:n], np.s_[2 * width :]) if not axis else (np.s_[:, :n], np.s_[:, 2 * width :])
        x = p[before] * 2 - p[after] + x
    assert_same_as_stock(x, x.T.sum(axis=0), x[3:, ::2])


def test_functions_nobody_knows_shared_blocks_and_outputs() -> None:
    x = stencil(3)
    seen = x.map_blocks(lambda block: block[::-1].copy(), dtype=float)
    assert_same_as_stock(x, seen, (x - seen).sum(axis=1), x + x.mean(), x * distinct((40,), 7))


def test_unknown_and_masked_blocks_stay_where_only_proven_facts_count() -> None:
    with dask.config.set({"rewrite.assume": "proven"}):
        for block in (lambda b: np.array(b), lambda b: np.ma.masked_less(b, 50.0)):
            x = distinct((60, 40), 20).map_blocks(block, dtype=float)
            for _ in range(2):
                x = rolled(x)
            assert not applied(x)
            assert_same_as_stock(x)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values(special: float) -> None:
    """One at a time: which of two nan comes out where they meet hangs on NumPy's loops."""
    values = np.arange(1200.0).reshape(40, 30)
    values[::3], values[1::7] = special, -0.0
    x = da.from_array(values, chunks=10)
    for _ in range(2):
        x = rolled(x)
    assert applied(x)
    with np.errstate(all="ignore"):
        assert_same_as_stock(x)


def test_what_is_not_crumbled_stays() -> None:
    x = distinct((60, 40), 20)
    months = distinct((365, 4), ((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), (2, 2)))
    given_so = distinct((60, 4), ((10, 10, 5, 30, 5), (2, 2)))
    fine = x.rechunk((2, 2)) + 1
    assert not applied(x + 1, months - months.mean(axis=0), given_so + 1, fine)


@pytest.mark.parametrize("turned", [False, True])
def test_other_orders_in_memory(turned: bool) -> None:
    """Sums over both axes of blocks in Fortran order add in another order; who gets them joined sees none."""
    values = np.random.default_rng(0).random((60, 40))
    x = da.from_array(values.T, chunks=20).T if turned else da.from_array(values, chunks=20)
    for _ in range(4):
        x = (x[1:] + x[:-1])[:, 1:] - (x[1:] * x[:-1])[:, :-1]
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(x.sum(), x)
    assert turned == (not applied(x.sum(), **{"rewrite.reassociate": False}))
    assert applied(x)
    assert applied(x.sum())


def test_annotations_stay() -> None:
    with dask.annotate(priority=3):
        x = stencil(2)
    assert not applied(x)
    assert_same_as_stock(x)


def test_blocks_that_are_not_needed() -> None:
    x = stencil(3)
    assert_same_as_stock(x[:7, 30:], x.blocks[2, 3], x[5])


def test_gate_and_options() -> None:
    x = stencil(2)
    with dask.config.set({"rewrite.bisect-limit": 0}):
        assert not applied(x)
    assert not applied(x, **{"rewrite.options": {"regrid": {"gain": 100_000}}})
    assert applied(x, **{"rewrite.options": {"regrid": {"slack": 1}}})


def test_names_in_circles() -> None:
    """A block that is made of another one of its array must not become one with it."""
    nodes = {("x", i): Task(("x", i), np.ones, 2) for i in range(2)}
    nodes |= {("y", 0): Task(("y", 0), operator.neg, TaskRef(("x", 0)))}
    nodes |= {("z", 0): Task(("z", 0), operator.neg, TaskRef(("y", 0)))}
    nodes |= {("y", 1): Task(("y", 1), operator.neg, TaskRef(("z", 0)))}
    nodes |= {("w", 0): Task(("w", 0), operator.neg, TaskRef(("y", 1)))}
    graph = Graph(nodes, (("w", 0),))
    assert producers_first(graph) == ["x", "w"]
    assert Regrid().run(graph, Context(Remarks())) is graph


def test_edges() -> None:
    assert coarse_edges(((1, 98, 2, 98, 2, 98, 1),), (100,), 25) == ((0, 2, 4, 7),)
    assert coarse_edges(((1,) * 12,), (4,), 25) == (tuple(range(13)),)
    (edges,) = coarse_edges(((1, 3) * 10,), (8,), 25)
    assert len(edges) == 6


def test_pays() -> None:
    x = stencil(4)
    with dask.config.set({"rewrite.disable": ["regrid", "crumbs"]}):
        without = tasks_of(x)
    after = tasks_of(x)
    verify(
        Graph(after, tuple(key for key in after if key in set(dask.core.flatten(x.__dask_keys__())))),
        thorough=True,
    )
    assert len(after) < 0.45 * len(without)


def test_is_linear() -> None:
    assert_linear(lambda n: stencil(2, chunks=(60 // n, 8)), (3, 6))


def test_same_graph_again() -> None:
    x = stencil(2)
    assert list(tasks_of(x)) == list(tasks_of(x))


def test_files_that_are_cast_as_they_are_read(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    values = np.random.default_rng(0).random((60, 40))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        read = da.from_array(file.create_dataset("x", data=values, chunks=(20, 20)), chunks=20)
        for x in (read.astype("f4").astype("f8"), np.sqrt(read.astype("f4"))):
            y = rolled(rolled(x))
            assert applied(y)
            with dask.config.set({"rewrite.reassociate": False}):
                assert_same_as_stock(y.sum(), y.astype("f8"))
        turned = da.from_array(values.T, chunks=20).T.astype("f4")
        assert not applied(rolled(rolled(turned + 1)).sum(), **{"rewrite.reassociate": False})


@pytest.mark.parametrize(("side", "coarse"), [(96, False), (90, True)])
def test_large_blocks_are_not_held_for_slivers(side: int, coarse: bool) -> None:
    """A reduction of each sliver over all times would hold the coarse blocks of all times."""
    x = distinct((16, 2 * side, 2 * side), (1, side, side))  # of 72 kB, and of 63
    y = x[:, 2:, 1:-1] + x[:, :-2, 1:-1] + x[:, 1:-1, 2:] + x[:, 1:-1, :-2] - 4 * x[:, 1:-1, 1:-1]
    assert bool(applied(y.std(axis=0))) is coarse
    assert applied(stencil(2, chunks=96, shape=(192, 192)))  # here most slivers go
