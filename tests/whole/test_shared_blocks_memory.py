"""Several results of the same blocks: batches and fused tasks make none of them wait for the others."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from helpers import assert_same_as_stock, stock, switched_on, tasks_of

zarr = pytest.importorskip("zarr")


def stored(shape: tuple[int, ...], chunks: tuple[int, ...]) -> da.Array:
    """Nothing is written: what is not there is zero."""
    return da.from_zarr(zarr.create_array(store={}, shape=shape, chunks=chunks, dtype="f8"))


def same(block: Any) -> Any:
    return block


def smoothed_twice(steps: int, side: int) -> list[Any]:
    """Edges of two widths, and the blocks themselves once more."""
    x = stored((10 * steps, 2 * side, 2 * side), (10, side, side))
    meta = np.empty((0, 0, 0))
    narrow, wide = [x.map_overlap(same, (0, n, n), "nearest", dtype="f8", meta=meta) for n in (4, 8)]
    d = wide - narrow
    return [d.max(axis=0), (d > 0.1).sum(axis=(1, 2)), da.where(d > 0, x, 0).mean(axis=0)]


def reflected(steps: int, side: int) -> list[Any]:
    """A mean of each place and a deviation of all, of which the first wants blocks in another order."""
    x = da.random.default_rng(0).random((10 * steps, 2 * side, 2 * side), chunks=(10, side, side))
    depth, kind = {0: 2, 1: 3, 2: 3}, {0: "reflect", 1: "periodic", 2: "nearest"}
    t = da.overlap.trim_internal(da.overlap.overlap(x, depth, kind).map_blocks(same, dtype="f8"), depth, kind)
    return [t.mean(axis=0), (t - x).std()]


def products(side: int, chunk: int) -> list[Any]:
    """Each of them would take the blocks in an order of its own, if it were accumulated."""
    x = da.random.default_rng(0).random((side, side, 60), chunks=(chunk, chunk, 30))
    y = da.random.default_rng(1).random((60, 200), chunks=(30, 50))
    return [da.einsum("ijk,kl->ijl", x, y).sum(axis=2), da.einsum("ijk,ijl->kl", x, x), x.sum(axis=(0, 1))]


def test_products_of_the_same_blocks_hold_no_more_than_stock() -> None:
    found = dask_rewrite.forecast(*products(800, 100), threads=2)
    assert found.after.peak <= 1.1 * found.before.peak
    reasons = [remark.reason for remark in dask_rewrite.explain(*products(800, 100)).remarks]
    assert "other sums take the same blocks in another order" in reasons
    for ours, theirs in zip(*both(*products(40, 8)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_product_alone_is_accumulated() -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        reasons = [remark.reason for remark in dask_rewrite.explain(products(800, 100)[1]).remarks]
    assert any("64 terms each" in reason for reason in reasons)


def both(*collections: Any) -> Any:
    with switched_on():
        ours = dask.compute(*collections)
    with stock():
        return ours, dask.compute(*collections)


@pytest.mark.once
@pytest.mark.parametrize("program", [smoothed_twice, reflected])
def test_they_hold_no_more_than_stock(program: Any) -> None:
    found = dask_rewrite.forecast(*program(48, 128), threads=2)
    assert found.after.tasks * 2 < found.before.tasks
    assert found.after.peak <= 1.1 * found.before.peak


@pytest.mark.parametrize("program", [smoothed_twice, reflected])
def test_they_are_the_same(program: Any) -> None:
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock(*program(6, 16))


def test_the_largest_elements_do_not_hold_what_they_were_taken_from() -> None:
    """``topk`` gives a view of a copy of its block, which a list would hold until its last user."""
    x = da.random.default_rng(0).random((2000, 1000), chunks=(100, 250))
    programs = da.topk(x, 5, axis=0), x.argmin(1), da.nanargmax(x, 0), x.argmax(1), x.sum(1), x.max(0)
    with switched_on(), dask.config.set(scheduler="threads", num_workers=2):
        tasks = tasks_of(*programs).values()
    lists = [task for task in tasks if str(task.key).startswith("('siblings")]
    assert len(lists) == 80
    assert not [task for task in lists if "topk(" in str(task.args)]
    assert sum(getattr(task, "func", None) is np.copy for task in tasks) == 80
    assert_same_as_stock(*programs)


def test_what_is_gathered_is_not_taken_from_blocks_that_are_larger() -> None:
    """The greatest less the smallest of each week: some weeks are made of parts of two blocks."""
    xr = pytest.importorskip("xarray")
    days = np.arange(360).astype("M8[D]").astype("M8[ns]")
    x = xr.DataArray(stored((360, 48, 64), (60, 24, 32)), dims=("time", "y", "x"), coords={"time": days})
    weeks = x.resample(time="7D")
    found = dask_rewrite.forecast(weeks.max() - weeks.min(), threads=2)
    assert found.after.peak <= found.before.peak
