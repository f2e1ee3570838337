"""Reductions take each slab in when it is there: siblings together, and in chains."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.harness.memory import Held
from dask.array.optimization import optimize as stock_optimizer

import dask_rewrite
from helpers import assert_same, assert_same_as_stock, assert_sound, checked, distinct, tasks_of

SHAPE, CHUNKS, SLAB = (48, 60, 60), (1, -1, -1), 60 * 60 * 8


def _load(seed: int, dtype: Any, block_info: Any = None) -> np.ndarray:
    where = block_info[None]
    first = 1 + seed + 7 * sum(where["chunk-location"])
    return (
        (first + np.arange(np.prod(where["chunk-shape"])) % 101).reshape(where["chunk-shape"]).astype(dtype)
    )


def made(
    name: str, shape: tuple[int, ...] = SHAPE, chunks: Any = CHUNKS, dtype: Any = float, load: Any = _load
) -> da.Array:
    """Blocks of a function that nobody knows, all different."""
    blocks = da.core.normalize_chunks(chunks, shape, dtype=dtype)
    meta = np.empty((0,) * len(shape), dtype)
    return da.map_blocks(load, len(name), dtype, chunks=blocks, dtype=dtype, name=name, meta=meta)


def siblings(source: Callable[..., da.Array] = made) -> tuple[da.Array, ...]:
    u, v, w = source("u"), source("vv"), source("www")
    return (u * v).mean(axis=0), (v * w).mean(axis=0)


def moments() -> tuple[da.Array, ...]:
    x = made("x")
    return x.mean(axis=0), x.std(axis=0), x.max(axis=0)


def assert_close_to_stock(*collections: Any) -> None:
    """Up to rounding: sums are regrouped."""
    with dask.config.set(array_optimize=dask_rewrite.optimize):
        found = dask.compute(*collections)
    for one, actual in zip(dask.compute(*collections, optimize_graph=False), found, strict=True):
        assert type(actual) is type(one)
        assert actual.dtype == one.dtype
        assert_same(np.ma.getmaskarray(actual), np.ma.getmaskarray(one))
        np.testing.assert_allclose(actual, one, rtol=1e-13)


def on_threads(threads: int = 2) -> Any:
    return dask.config.set(scheduler="threads", num_workers=threads)


def held(collections: Any, optimizer: Any) -> int:
    """Slabs that are held at most on two threads."""
    with on_threads(), dask.config.set(array_optimize=optimizer), Held() as found:
        dask.compute(*collections)
    return found.peak // SLAB


def streams(*collections: Any) -> list[Any]:
    """What was streamed."""
    found = dask_rewrite.explain(*collections)
    return [each for each in found.remarks if each.rule == "stream" and each.kind == "applied"]


@pytest.mark.parametrize(("program", "most"), [(siblings, 16), (moments, 18)])
def test_siblings_are_worked_through_together(program: Any, most: int) -> None:
    """Partial means are two blocks, and partial moments three: each thread holds those of all siblings."""
    collections = program()
    with on_threads():
        assert len(streams(*collections)) == 1
        assert_same_as_stock(*collections)
    assert held(collections, dask_rewrite.optimize) <= most < held(collections, stock_optimizer)


@pytest.mark.parametrize("reduce", [da.sum, da.max, da.any, da.prod])
def test_a_thread_holds_two_blocks_of_a_long_reduction(reduce: Any) -> None:
    x = da.random.default_rng(1).random((64, 3600), chunks=(1, -1))
    collections = (reduce(x, axis=0),)
    with on_threads():
        assert_close_to_stock(*collections)
    if reduce is not da.any:
        assert held(collections, dask_rewrite.optimize) <= 4 <= held(collections, stock_optimizer) - 4


def test_where_nobody_says_how_many_threads_there_are_less_is_held_than_in_dask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``compute(num_workers=2)`` cannot be seen from the graph: two chains for each processor."""
    monkeypatch.setattr(dask_rewrite.scheduler, "CPU_COUNT", 2)
    x = da.random.default_rng(1).random((64, 3600), chunks=(1, -1))
    for collection in (x.max(axis=0), x.std(axis=0), x.sum(axis=0)):
        most = []
        for optimizer in (dask_rewrite.optimize, stock_optimizer):
            with dask.config.set(array_optimize=optimizer), Held() as found:
                dask.compute(collection, scheduler="threads", num_workers=2)
            most.append(found.peak)
        assert most[0] <= 0.6 * most[1]


def test_blocks_are_made_once_and_in_the_chains() -> None:
    calls: list[int] = []

    def load(seed: int, dtype: Any, block_info: Any = None) -> np.ndarray:
        calls.append(seed)
        return _load(seed, dtype, block_info)

    with on_threads():
        collections = siblings(lambda name: made(name, load=load))
        assert len(checked(*collections)) < 60
        calls.clear()
        dask.compute(*dask_rewrite.optimize(*collections), optimize_graph=False)
    assert sorted(calls) == sorted(48 * [1, 2, 3])


def test_where_sums_stay_as_they_are_so_do_trees() -> None:
    with on_threads(), dask.config.set({"rewrite.reassociate": False}):
        assert not streams(*siblings())
        assert_same_as_stock(*siblings())


def test_small_partial_results_of_one_block_come_out_of_one_task() -> None:
    x = made("x", (64, 200, 40), (2, -1, -1))
    small = made("y", (64, 20, 20), (2, -1, -1))
    collections = x.mean(), x.std(), x.max(axis=(0, 1, 2))
    with on_threads():
        assert not streams(small.mean(), small.std())  # nothing to hold: fuse-small makes fewer tasks of them
        assert len(streams(*collections)) == 1
        assert_same_as_stock(*collections)
        assert len(tasks_of(*collections)) <= 65


def test_normal_equations_hold_no_block() -> None:
    """``x.T @ x`` and ``x.T @ y`` come out of one task for each slab, which loads it."""
    x, y = made("x", (16_000, 12), (1000, -1)), made("yy", (16_000,), 1000)
    collections = x.T @ x, x.T @ y
    with on_threads():
        assert_close_to_stock(*collections)
    with on_threads(), dask.config.set(array_optimize=dask_rewrite.optimize), Held() as found:
        dask.compute(*collections)
    assert found.peak < 1000 * 12 * 8


def _waiting(x: da.Array) -> tuple[Any, ...]:
    m = x.mean(axis=0)
    return m, (abs(x - m)).sum(axis=0)


DECLINED: dict[str, Callable[[da.Array], tuple[Any, ...]]] = {
    "one waits for the other": _waiting,
    "blocks are wanted": lambda x: (x, x.mean(axis=0), x.std(axis=0)),
    "partial results are wanted": lambda x: (x.sum(axis=0, keepdims=True), x[:1].sum(axis=0, keepdims=True)),
    "other forms": lambda x: (x[:24].sum(axis=(0, 1)), x[:30].sum(axis=(0, 1))),
    "across": lambda x: (x.sum(axis=(0, 1)), x.rechunk((4, 30, 60)).sum(axis=1)),
}


@pytest.mark.parametrize("name", DECLINED)
def test_others_are_right_too(name: str) -> None:
    with on_threads():
        assert_same_as_stock(*DECLINED[name](made("x")))


def test_declines_where_blocks_stay_for_others() -> None:
    x = made("x")
    with on_threads():
        assert not streams(x, x.mean(axis=0), x.std(axis=0))
        assert not streams(x - x.mean(axis=0))
    with dask.config.set(scheduler="threads"):
        assert not streams(x[:12].sum(axis=0))


@pytest.mark.parametrize("dtype", ["f4", "c8", "f2", "O"])
def test_no_chains_where_digits_or_the_order_would_be_lost(dtype: str) -> None:
    collections = (made("x", dtype=dtype).sum(axis=0),)
    with on_threads():
        assert not any("chains" in each.reason for each in streams(*collections))
        assert_same_as_stock(*collections)


@pytest.mark.parametrize("over", [("y",), ("t", "y")])
@pytest.mark.parametrize("chunked", [True, False])
def test_sums_of_values_and_of_weights_are_one_task_for_each_block(over: Any, chunked: bool) -> None:
    """Each step of the sums takes other weights, which are light, and which all rows of blocks share."""
    xr = pytest.importorskip("xarray")
    rows, columns, side = 6, 8, 120
    load = made("wide", (rows * side, columns * side), (side, side)).map_blocks(_without_some, dtype=float)
    weights = xr.DataArray(np.cos(np.linspace(0, 1, columns * side)), dims="y")
    if chunked:
        weights = weights.chunk(y=side)
    mean = xr.DataArray(load, dims=("t", "y")).weighted(weights).mean(over).data
    with on_threads():
        sent = checked(mean)
        assert streams(mean)
    assert len(sent) <= 2 * rows * columns
    for found in (key[0] for key in sent if type(key) is tuple):
        assert not found.startswith(("wide", "_without_some", "isnan"))  # all a block needs is one task
    assert_same_as_stock(mean)


def test_blocks_in_memory_are_nothing_to_wait_for() -> None:
    x = da.from_array(distinct((800, 800), (800, 800)).compute(), chunks=(100, 100))
    program = (x + 1).mean(), (x + 1).std()
    with on_threads():
        assert len(checked(*program)) <= 64 + 64 + 30  # the data, and a task for each block
        assert streams(*program)
    assert_same_as_stock(*program)


def test_steps_that_take_other_large_blocks_stay_as_they_are() -> None:
    """To sum them together would have each step wait for three blocks instead of two."""
    x, u, v = made("x"), made("uu"), made("vvv")
    program = (x * u).sum(axis=(1, 2)), (x * v).sum(axis=(1, 2)), u.max(axis=0), v.max(axis=0)
    assert_same_as_stock(*program)
    kept = dask_rewrite.forecast(*program, threads=2)
    assert kept.after.peak <= 1.05 * kept.before.peak


def _without_some(block: np.ndarray) -> np.ndarray:
    return np.where(block % 7 == 0, np.nan, block)


def _masked(block: np.ndarray) -> Any:
    return np.ma.masked_equal(block, block.flat[3])


def test_masked_blocks_and_nans() -> None:
    x = made("x")
    masked = x.map_blocks(_masked, dtype=float)
    nans = da.where(x % 5 == 0, np.nan, x)
    with on_threads():
        assert_close_to_stock(masked.sum(axis=0), masked.max(axis=0))
        assert_close_to_stock(da.nanmean(nans, axis=0), da.nanstd(nans, axis=0), nans.sum(axis=0))
        assert_same_as_stock(x.astype(int).sum(axis=0), x.astype(int).max(axis=0))
        assert_close_to_stock(x.sum(axis=(0, 2)), x.mean(axis=(0, 2)), x.argmax(axis=0))


def test_unknown_chunk_sizes() -> None:
    x = distinct((40, 50), (1, 50))
    unknown = x[x[:, 0] > 300]
    with on_threads():
        assert_close_to_stock(unknown.sum(axis=0), unknown.mean(axis=0), unknown.prod(axis=0))


def test_leaves_that_are_shared_are_computed_once() -> None:
    x = made("x")
    total = x.sum(axis=0)
    with on_threads():
        assert_same_as_stock(total, x.sum(axis=0, keepdims=True), x.mean(axis=0))


def test_annotations_keep_reductions_apart() -> None:
    x = made("x")
    with dask.annotate(priority=3):
        mean = x.mean(axis=0)
    deviation = x.std(axis=0)
    with on_threads():
        assert_same_as_stock(mean, deviation)


def test_again_nothing_is_left_to_do() -> None:
    with on_threads():
        once = dask_rewrite.optimize(*siblings())
        assert not streams(*once)
        again = dask_rewrite.optimize(*once)
        outputs = [key for each in again for key in dask.core.flatten(each.__dask_keys__())]
        assert_sound(tasks_of(*again), outputs)
        assert_same(dask.compute(*again), dask.compute(*siblings()))


def test_forecasts_know_what_slabs_weigh() -> None:
    with on_threads():
        found = dask_rewrite.forecast(*siblings(), threads=2)
    assert 0 < found.after.peak <= 16 * SLAB
    assert not found.after.unknown


def _image(i: int) -> np.ndarray:
    return (i + np.arange(3600.0) % 101).reshape(60, 60)


def delayed_blocks(name: Callable[[int], str], count: int = 40) -> da.Array:
    """Files as people load them: one delayed call for each."""
    load = dask.delayed(_image, pure=False)
    parts = [load(i, dask_key_name=name(i)) for i in range(count)]
    return da.stack([da.from_delayed(part, (60, 60), "f8") for part in parts])


@pytest.mark.parametrize(("name", "joins"), [("load-{}", True), ("file {}", True), ("x{}", False)])
def test_delayed_loads_become_part_of_chains_unless_programs_give_such_names(name: str, joins: bool) -> None:
    x = delayed_blocks(name.format)
    with on_threads():
        assert bool(streams(x.mean(axis=0), x.std(axis=0))) == joins
        assert_close_to_stock(x.mean(axis=0), x.std(axis=0))
    if joins:
        assert held((x.mean(axis=0), x.std(axis=0)), dask_rewrite.optimize) <= 16  # of 40


def test_delayed_loads_that_people_watch_stay_as_they_are() -> None:
    x = delayed_blocks("load-{}".format)
    watched = dask.delayed(np.sum)(x.mean(axis=0))
    with on_threads():
        assert not streams(watched, x.std(axis=0))


def test_delayed_loads_that_are_wanted_themselves_are_held_for_that() -> None:
    load = dask.delayed(_image)
    parts = [load(i, dask_key_name=f"load-{i}") for i in range(40)]
    x = da.stack([da.from_delayed(part, (60, 60), "f8") for part in parts])
    with on_threads():
        assert not streams(x.sum(axis=0), *parts)


class Counted:
    """Something that is read from, and how many blocks of it are there at one time."""

    shape, dtype, ndim = (480, 48, 64), np.dtype("f8"), 3

    def __init__(self) -> None:
        self.held = self.most = 0

    def __getitem__(self, index: Any) -> np.ndarray:
        block = np.ones([part.stop - part.start for part in index])
        weakref.finalize(block, self._let_go)
        self.held += 1
        self.most = max(self.most, self.held)
        return block

    def _let_go(self) -> None:
        self.held -= 1


@pytest.mark.parametrize("names", [("mean", "max"), ("mean", "max", "std")])
def test_blocks_of_a_chain_are_made_one_after_the_other(names: tuple[str, ...]) -> None:
    """All that a task read was there before its first step: some sixty blocks, and then eight."""
    source = Counted()
    x = da.from_array(source, chunks=(2, -1, -1))  # type: ignore[arg-type]
    program = tuple([getattr(x, name)(axis=0) for name in names])
    with dask.config.set(array_optimize=dask_rewrite.optimize, scheduler="sync"):
        assert len(tasks_of(*program)) <= 240 // 8 + 10
        dask.compute(*program)
    assert source.most <= 3
