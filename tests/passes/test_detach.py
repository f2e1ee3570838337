"""Small slices let go of the blocks that they are taken from."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.harness.memory import Held
from dask.array.optimization import optimize as stock_optimizer

import dask_rewrite
from helpers import assert_same_as_stock, checked, functions_in


def drawn(shape: tuple[int, ...], chunks: Any) -> da.Array:
    return da.random.default_rng(1).random(shape, chunks=chunks)


def _load(dtype: Any, order: str, block_info: Any = None) -> np.ndarray:
    where = block_info[None]
    first = 7 * sum(where["chunk-location"])
    block = (first + np.arange(np.prod(where["chunk-shape"])) % 101).reshape(where["chunk-shape"])
    return np.asarray(block.astype(dtype), order=order)  # type: ignore[call-overload] # any str


def made(shape: tuple[int, ...], chunks: Any, dtype: Any = float, order: str = "C") -> da.Array:
    """Blocks of a function that nobody knows."""
    blocks = da.core.normalize_chunks(chunks, shape, dtype=dtype)
    return da.map_blocks(_load, dtype, order, chunks=blocks, dtype=dtype, meta=np.empty((0,) * len(shape)))


def smoothed(x: da.Array, depth: Any = 1, **kwargs: Any) -> da.Array:
    return x.map_overlap(lambda block: block * 2, depth=depth, **kwargs)


def copies(*collections: Any) -> int:
    with dask.config.set({"rewrite.disable": ["siblings"]}):  # which copies edges, too
        tasks = checked(*collections).values()
    found = [func for task in tasks for func in functions_in(task)]
    return sum(func is np.copy or func is copy.copy for func in found)


def held(collection: Any, optimizer: Any) -> int:
    """On one thread: with more of them it differs a little from run to run."""
    how = {"scheduler": "sync", "array_optimize": optimizer}
    with dask.config.set(how), Held() as found:
        dask.compute(collection)
    return found.peak


@pytest.mark.parametrize("source", [drawn, made])
@pytest.mark.parametrize("boundary", ["none", "reflect"])
def test_two_rows_of_blocks_are_held(source: Any, boundary: str) -> None:
    x = source((256, 256, 64), (32, 32, 64))
    y = smoothed(x, (1, 1, 0), boundary=boundary).mean(axis=(0, 1))
    block = 32 * 32 * 64 * 8
    # their edges are 1/16 of them; up to three blocks more, as names break the ties in the order of tasks
    most = 20 * block
    assert held(y, stock_optimizer) >= 24 * block
    assert held(y, dask_rewrite.optimize) <= most
    forecast = dask_rewrite.forecast(y, threads=2)
    assert forecast.after.peak <= most < 24 * block <= forecast.before.peak


@pytest.mark.parametrize(("side", "fires"), [(90, False), (91, True)])
def test_small_blocks_are_held(side: int, fires: bool) -> None:
    for source in (drawn, made):
        x = smoothed(source((4 * side, 4 * side), side))
        assert bool(copies(x)) == fires
        assert_same_as_stock(x)


@pytest.mark.parametrize(("depth", "copied"), [(25, 6), (26, 2)])
def test_half_of_a_block_is_no_small_part(depth: int, copied: int) -> None:
    """Blocks at the ends have one neighbour, all others two."""
    x = smoothed(drawn((400, 200), (100, 200)), {0: depth}, boundary="none").max()
    assert copies(x) == copied
    assert_same_as_stock(x)


@pytest.mark.parametrize(("nbytes", "fires"), [(80_000, True), (80_001, False)])
def test_the_option_moves_the_threshold(nbytes: int, fires: bool) -> None:
    x = smoothed(drawn((400, 400), 100))
    with dask.config.set({"rewrite.options": {"detach": {"min-bytes": nbytes}}}):
        assert bool(copies(x)) == fires
        assert_same_as_stock(x)


def in_memory(x: da.Array) -> tuple[Any, ...]:
    """Such blocks are views themselves."""
    return (smoothed(da.from_array(np.arange(400.0 * 400).reshape(400, 400), chunks=100)),)


def wanted(x: da.Array) -> tuple[Any, ...]:
    return x, smoothed(x).max()


def wanted_slices(x: da.Array) -> tuple[Any, ...]:
    return x[:1], x[1:].sum()


DECLINED = [in_memory, wanted, wanted_slices]


@pytest.mark.parametrize("program", DECLINED, ids=lambda program: program.__name__)
def test_declined(program: Callable[[da.Array], tuple[Any, ...]]) -> None:
    collections = program(drawn((400, 400), 100))
    assert not copies(*collections)
    assert_same_as_stock(*collections)


@pytest.mark.parametrize("dtype", ["f4", "i2", "c16", "O", "b1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders_in_memory(dtype: str, order: str) -> None:
    x = made((800, 800), 200, dtype, order)
    y = x.map_overlap(lambda block: block + block, depth=2, boundary="periodic")
    totals = y.map_blocks(lambda block: np.array([[block.ravel(order="K")[:50].sum()]]), chunks=(1, 1))
    assert bool(copies(y)) == (dtype != "b1")  # whose blocks are small
    assert_same_as_stock(y, totals)


def test_masked_blocks_stay_masked() -> None:
    x = made((400, 400), 100).map_blocks(lambda block: np.ma.masked_greater(block, 90))
    y = x.map_overlap(lambda block: block * 2, depth=1, boundary="none", meta=np.ma.array(np.empty((0, 0))))
    assert copies(y)
    assert_same_as_stock(y, y.sum(axis=0))


def test_special_values() -> None:
    x = da.where(drawn((400, 400), 100) > 0.5, np.nan, -0.0)
    assert copies(smoothed(x))
    assert_same_as_stock(smoothed(x))


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_on_every_scheduler(scheduler: str) -> None:
    x = smoothed(smoothed(drawn((400, 400), 100)), 3)
    with dask.config.set(scheduler=scheduler, num_workers=2):
        assert_same_as_stock(x)


@pytest.mark.parametrize(("side", "copied"), [(91, 12), (90, 0)])
def test_the_largest_let_go_of_what_they_were_sorted_with(side: int, copied: int) -> None:
    x = drawn((12 * side, side), (side, side))  # of 66 kB, and of 65
    y = da.topk(x.ravel(), 5)
    both = y, x.std(axis=1)
    assert copies(*both) == copied
    assert_same_as_stock(*both, da.topk(x, -3, axis=0), da.topk(x, 2 * side, axis=0))
    with dask.config.set({"rewrite.disable": ["detach"]}):
        without = held(da.stack([y.sum(), x.argmax()]), dask_rewrite.optimize)
    ours = held(da.stack([y.sum(), x.argmax()]), dask_rewrite.optimize)
    assert ours <= (0.6 if copied else 1) * without


def test_the_largest_of_blocks_nobody_knows() -> None:
    x = made((480, 200), (40, 200))
    both = da.topk(x, 5, axis=0), x.std(axis=1)
    assert not copies(*both)
    assert_same_as_stock(*both)


def largest_and_positions(x: da.Array) -> da.Array:
    return da.stack([da.topk(x, 5, axis=1).sum(), da.argtopk(x, 5, axis=1).max()])


LARGEST: dict[str, Callable[[da.Array], da.Array]] = {
    "fused with their blocks": lambda x: da.topk(x, 5, axis=1),
    "of rows": lambda x: da.topk(x, -5, axis=0),
    "with others that are taken of the blocks": lambda x: da.stack(
        [da.topk(x, 1, axis=1)[:, 0], x.min(axis=1)]
    ),
    "with their positions": largest_and_positions,
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_let_go_wherever_they_are_made(name: str) -> None:
    x = da.sqrt(drawn((4000, 1000), (400, 100)))
    y = LARGEST[name](x)
    assert_same_as_stock(y)
    stock, ours = held(y, stock_optimizer), held(y, dask_rewrite.optimize)
    assert ours < 0.25 * stock
    found = dask_rewrite.forecast(y, threads=1)
    assert 0.7 * ours < found.after.peak < 1.4 * ours
    assert 0.7 * stock < found.before.peak < 1.4 * stock
