"""Chains of tasks become one task each."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, Task, TaskRef

import dask_rewrite
from dask_rewrite.graph.graph import Graph, Origin
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.fuse_chains import FuseChains
from helpers import assert_same, assert_same_as_stock, distinct, switched_on, tasks_of


def gathered(steps: int, sources: int) -> da.Array:
    """Elementwise work on several sources, and a chain of steps on what comes of it."""
    arrays = [da.random.default_rng(i).random(4, chunks=4) for i in range(sources)]
    x = da.map_blocks(lambda *blocks: sum(i * b for i, b in enumerate(blocks)), *arrays, dtype=float)
    for i in range(steps):
        x = x + i
    return x


@pytest.mark.parametrize("passes", [["lower", "fuse-chains"], ["lower", "fuse-chains", "sweep"], None])
@pytest.mark.parametrize(
    ("length", "steps"),
    [(1, 5), (2, 0), (2, 3), (3, 6), (7, 6), (8, 6), (9, 6), (64, 56), (64, 57), (64, 60)],
)
def test_sources_stay_with_their_consumer_where_a_chain_is_cut(length: int, steps: int, passes: Any) -> None:
    x = gathered(steps, 7)
    expected = x.compute(optimize_graph=False)
    options = {"rewrite.passes": passes, "rewrite.options": {"fuse-chains": {"max-length": length}}}
    with dask.config.set(options):
        assert_same(dask_rewrite.optimize(x).compute(), expected)
        with switched_on():
            assert_same(x.compute(), expected)


def count(x: Any) -> Any:
    return np.asarray(x) + 1


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 64])
def test_longer_chains_are_cut(length: int) -> None:
    x = dask.delayed(count)(1)
    for _ in range(19):
        x = dask.delayed(count)(x)
    with dask.config.set(
        {"optimization.fuse.delayed": True, "rewrite.options": {"fuse-chains": {"max-length": length}}}
    ):
        assert len(tasks_of(x)) == -(-20 // length)
        assert dask_rewrite.optimize(x).compute() == 21


def test_a_producer_that_is_referred_to_twice_runs_once() -> None:
    runs = []

    def load() -> np.ndarray:
        runs.append(1)
        return np.arange(6.0)

    x = da.from_delayed(dask.delayed(load)(), (6,), dtype=float)
    y = da.where(x > 2, x, -x)
    with switched_on():
        assert len(tasks_of(y)) == 1
        assert_same(y.compute(), np.array([-0.0, -1, -2, 3, 4, 5]))
    assert len(runs) == 1


def test_a_second_name_does_not_keep_a_load_from_its_consumer() -> None:
    """A block that is cut out of a stack of images as a whole is the image under another name."""
    images = [da.from_delayed(dask.delayed(np.full)((8, 8), i), (8, 8), "i8") for i in range(4)]
    stacked = da.stack(images)
    rows = [da.coarsen(np.sum, stacked[i], {0: 4, 1: 4}) for i in range(4)]
    nodes = tasks_of(da.concatenate(rows))
    assert len(nodes) == 4
    assert_same_as_stock(da.concatenate(rows))


def test_what_is_wanted_under_a_second_name_stays() -> None:
    nodes = {
        "x": Task("x", np.arange, 5),
        ("b", 0): Alias(("b", 0), "x"),
        ("c", 0): Alias(("c", 0), ("b", 0)),
        ("d", 0): Task(("d", 0), np.negative, TaskRef(("c", 0))),
    }
    inner = FuseChains().run(Graph(dict(nodes), (("d", 0),)), Context())
    assert list(inner.nodes) == [("d", 0)]
    wanted = FuseChains().run(Graph(dict(nodes), (("b", 0), ("d", 0))), Context())
    assert set(wanted.nodes) == {"x", ("b", 0), ("d", 0)}
    shared = Graph(dict(nodes), (("d", 0),), origin=Origin(shared=True))
    assert FuseChains().run(shared, Context()).nodes.keys() >= {("b", 0), ("c", 0)}


def test_a_list_that_all_share_is_no_reason_to_wait() -> None:
    """Positions that a row of blocks is taken by are data: a block and what is taken of it are one task."""
    x = distinct((768, 768), 96).map_blocks(lambda block: block + 1)
    y = x[np.arange(0, 768, 3)]
    assert len(tasks_of(y.sum(axis=0))) <= 100  # with tasks of their own for 64 blocks, 163
    assert_same_as_stock(y, y.sum(axis=0))
