"""Elementwise work inside of reductions goes on coarse grids by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.regrid import Regrid
from dask_rewrite.passes.regrid.reduced import taken_apart
from dask_rewrite.passes.site import Site
from dask_rewrite.remarks import Remarks
from helpers import assert_linear, assert_same_as_stock, distinct, stock_tasks_of, tasks_of
from passes.contract_cases import lowered


def cross(u: da.Array) -> da.Array:
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]


def rolls(u: da.Array) -> da.Array:
    for _ in range(2):
        u = 0.2 * (da.roll(u, 1, 0) + da.roll(u, -1, 0) + da.roll(u, 1, 1) + da.roll(u, -1, 1)) + 0.2 * u
    return u


def field(size: int = 20, shape: tuple[int, int] = (120, 100)) -> da.Array:
    return distinct(shape, size).astype("f8") / 7


def own_sum(block: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    """Nobody knows this, nor that it writes into its block."""
    found = np.sum(block, axis=axis, keepdims=keepdims)
    block[...] = -1
    return found


REDUCTIONS: dict[str, Callable[[da.Array], Any]] = {
    "sum": lambda z: z.sum(),
    "sum of rows": lambda z: z.sum(axis=1),
    "mean": lambda z: abs(z).mean(axis=0),
    "std": lambda z: z.std(),
    "extremes": lambda z: [z.max(), z.min(axis=0)],
    "truth": lambda z: [(z > 3).any(), (z > 3).all(axis=1)],
    "nan": lambda z: da.nansum(da.where(z > 3, z, np.nan), axis=0),
    "of the user": lambda z: da.reduction(z, own_sum, np.sum, dtype="f8"),
    "place": lambda z: z.argmax(axis=0),
    "two, and the array": lambda z: [z.sum(), z, z.max(axis=1)],
}


@pytest.mark.parametrize("stencil", [cross, rolls, lambda u: cross(cross(u))])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_equivalent(name: str, stencil: Callable[[da.Array], da.Array]) -> None:
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(REDUCTIONS[name](stencil(field(shape=(80, 60)))))


@pytest.mark.once
@pytest.mark.parametrize("stencil", [cross, rolls])
def test_few_tasks(stencil: Callable[[da.Array], da.Array]) -> None:
    z = stencil(field(160, (640, 640)))
    for y in (z.sum(), z.mean(axis=0), abs(z).max(axis=1)):
        assert len(tasks_of(y)) < len(stock_tasks_of(y)) / 8


@pytest.mark.once
def test_what_is_held() -> None:
    """Blocks of 0.5 MB: edges of neighbours are cut out, and a few blocks wait for theirs."""
    u = da.random.default_rng(0).random((2048, 2048), chunks=256)
    for z in (cross(u), cross(cross(cross(u)))):
        assert dask_rewrite.forecast(z.sum(), threads=2).after.peak < u.nbytes


def test_what_does_not_go_on_a_coarse_grid_is_put_together_again() -> None:
    """Blocks of 72 kB: moments over time are as large as what they are made of."""
    x = distinct((16, 192, 192), (1, 96, 96))
    y = x[:, 2:, 1:-1] + x[:, :-2, 1:-1] + x[:, 1:-1, 2:] + x[:, 1:-1, :-2] - 4 * x[:, 1:-1, 1:-1]
    graph, context = lowered(y.std(axis=0)), Context(Remarks())
    site = Site(graph, context)
    assert taken_apart(site, {key[0] for key in graph.nodes if key[0][:3] == "add"}).names
    assert Regrid().run(graph, context) is graph


def test_what_is_not_crumbled_is_not_looked_at() -> None:
    x = field()
    for y in ((x + 1).sum(), (x[:50] + x[50:100]).sum(axis=0), abs(x.T + 1).max()):
        graph = lowered(y)
        assert not taken_apart(Site(graph, Context(Remarks())), {key[0] for key in graph.nodes}).names


@pytest.mark.once
def test_graphs_stay_whole() -> None:
    graph = lowered(cross(field()).sum(axis=0), rolls(field()).std())
    after = Regrid().run(graph, Context(Remarks()))
    assert after is not graph
    verify(after)
    assert after.outputs == graph.outputs


@pytest.mark.once
def test_is_linear() -> None:
    assert_linear(lambda n: cross(field(10, (40 * n, 40))).sum(), (2, 4))


def test_slivers_that_a_function_of_the_user_gets_are_no_coarse_blocks() -> None:
    """It gets each by itself, so that what it makes of them is made in as many tasks."""
    x = distinct((8 * 96, 8 * 96), 96).astype("f8")
    for _ in range(2):
        x = da.roll(x, 1, 0) + da.roll(x, -1, 1)
    y = x.map_blocks(lambda block: block * 1.5, dtype="f8").sum(axis=0)
    with dask.config.set({"rewrite.disable": ["regrid"]}):
        without = len(tasks_of(y))
    assert len(tasks_of(y)) < 1.2 * without
