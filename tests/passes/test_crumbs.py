"""Blocks of a grid that crumbled are made together, whatever they are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.crumbs import Crumbs
from dask_rewrite.remarks import Remarks
from helpers import assert_linear, assert_same_as_stock, distinct, tasks_of


@pytest.fixture(autouse=True)
def without_coarse_grids() -> Iterator[None]:
    """Most of these arrays would go on a coarse grid before this pass sees them."""
    with dask.config.set({"rewrite.disable": ["regrid"]}):
        yield


def unknown(x: da.Array, change: Callable[[Any], Any] = np.copy) -> da.Array:
    """Blocks that a function of the user's makes."""
    return x.map_blocks(lambda block: change(block), dtype=x.dtype, meta=x._meta)


def waves(x: da.Array, steps: int = 3) -> da.Array:
    for _ in range(steps):
        x = da.roll(x, 1, 0) + da.roll(x, -1, 1)
    return x


def made_together(*collections: Any, **config: Any) -> int:
    with dask.config.set(config):
        found: int = dask_rewrite.explain(*collections).counts.get(("crumbs", "applied"), 0)
    return found


def field(dtype: str = "f8") -> da.Array:
    return distinct((24, 20), 5).astype(dtype)


@pytest.mark.parametrize("dtype", ["f8", "i2", "?", "c16", ">f8"])
def test_equivalent(dtype: str) -> None:
    x = waves(unknown(field(dtype)))
    assert made_together(x)
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(x, x.sum(), x.T[3:, ::2].max(axis=0))


def test_padded() -> None:
    x = unknown(field())
    for _ in range(2):
        p = da.pad(x, 1)
        x = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4
    assert made_together(x)
    assert_same_as_stock(x)


def masked(block: Any) -> Any:
    found = np.ma.masked_equal(block, 3)
    found.fill_value = 7
    return found


def objects(block: Any) -> Any:
    return np.array(block, dtype=object)


def sparse_like(block: Any) -> Any:
    import sparse

    return sparse.COO.from_numpy(np.asarray(block), fill_value=float(np.asarray(block).flat[0]))


def turned(block: Any) -> Any:
    return np.asfortranarray(block)


def special(block: Any) -> Any:
    found = np.array(block)
    found[found % 3 == 0] = -0.0
    found[found % 5 == 0] = np.nan
    return found


@pytest.mark.parametrize("change", [masked, objects, turned, special, lambda block: block.astype("f4")])
def test_blocks_of_any_kind(change: Callable[[Any], Any]) -> None:
    x = waves(unknown(field(), change))
    assert made_together(x)
    blocks = [block for part in (x, x * 2) for block in part.to_delayed().ravel()[::7]]
    assert_same_as_stock(x, *blocks)


def test_blocks_that_cannot_be_joined() -> None:
    pytest.importorskip("sparse")
    x = waves(unknown(field(), sparse_like), 1)
    assert made_together(x)
    blocks = x.map_blocks(
        lambda block: np.asarray([[block.nnz, block.fill_value]]), chunks=(1, 2), dtype=float
    )
    assert_same_as_stock(blocks)


def test_shared_blocks_outputs_and_functions_nobody_knows() -> None:
    x = unknown(field())
    once, twice = waves(x, 1), waves(x, 2)
    seen = once.map_blocks(lambda block: block[::-1].copy(), dtype=float)
    assert made_together(once, twice, seen, once + seen)
    assert_same_as_stock(once, twice, seen, once + seen, (twice - seen).sum(axis=1))


def test_a_step_that_writes_into_its_block() -> None:
    def overwrites(block: Any) -> Any:
        block[...] = block.max() if block.size else 0
        return block

    x = waves(unknown(field()), 2)
    y = x.map_blocks(overwrites, dtype=float)
    assert_same_as_stock(waves(y, 2))


def test_errors_come_through() -> None:
    def fails(block: Any) -> Any:
        return np.array(["a"]) if block.size and block.flat[0] == 0 else block

    x = waves(unknown(field(), fails), 2)
    with pytest.raises(Exception) as stock, dask.config.set({"rewrite.enabled": False}):
        x.compute(scheduler="sync")
    with pytest.raises(type(stock.value)):
        dask_rewrite.optimize(x).compute(scheduler="sync")


def test_declines() -> None:
    x = unknown(field())
    assert not made_together(waves(x), **{"rewrite.disable": ["regrid", "crumbs"]})
    assert not made_together(x + 1, x[:, :15] + x[:, 5:])  # even grids
    assert not made_together(waves(x), **{"rewrite.options": {"crumbs": {"max-bytes": 100}}})
    assert not made_together(waves(x), **{"rewrite.options": {"crumbs": {"gain": 100_000}}})
    with dask.annotate(priority=1):
        annotated = waves(unknown(field()))
    with dask.config.set({"optimization.fuse.active": False}):
        assert not made_together(annotated)


def test_what_others_may_hold_stays() -> None:
    (x,) = dask.optimize(waves(unknown(field())))
    assert_same_as_stock(x, x + 1)


def test_same_graph_twice() -> None:
    x = waves(unknown(field()))
    assert tasks_of(x).keys() == tasks_of(x).keys()
    (again,) = dask.optimize(dask_rewrite.optimize(x))
    assert_same_as_stock(again)


def test_single_blocks_stay_as_they_are() -> None:
    nodes: dict[Any, Any] = {("y", i): Task(("y", i), operator.add, TaskRef(("x", i)), 1) for i in range(32)}
    nodes.update({("x", i): Task(("x", i), np.arange, i + 1) for i in range(32)})
    graph = Graph(nodes, tuple(("y", i) for i in range(32)))
    assert Crumbs().run(graph, Context(Remarks())) is graph


def test_pays() -> None:
    x = waves(unknown(distinct((64, 64), 8)), 4)
    with dask.config.set({"rewrite.disable": ["regrid", "coalesce", "crumbs"]}):
        without = len(tasks_of(x))
    # what is left would go into batches, if it is much
    with dask.config.set({"rewrite.disable": ["regrid", "coalesce"]}):
        known = len(tasks_of(waves(distinct((64, 64), 8), 4)))
        after = len(tasks_of(x))
    assert after < 0.6 * without
    assert after <= 1.15 * known


def test_is_linear() -> None:
    assert_linear(lambda n: waves(unknown(distinct((60 * n, 20), (10, 20))), 2), (2, 4))
