"""Blocks that would wait for a reduction over many blocks are read again instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.harness.memory import Held
from dask.array.optimization import optimize as stock_optimizer
from reread_cases import (
    PROGRAMS,
    STEP,
    TIMES,
    Stored,
    anomaly,
    cube,
    lagged,
    standardized_by_hand,
    two_results,
)

import dask_rewrite
from helpers import assert_linear, assert_same, assert_same_as_stock, checked, distinct


def reading_again(threads: int = 2, **config: Any) -> Any:
    options = {f"rewrite.{name}": value for name, value in {"reread": True, **config}.items()}
    how = {"scheduler": "threads", "num_workers": threads}
    return dask.config.set({"array_optimize": dask_rewrite.optimize, **how, **options})


def read_again(*collections: Any) -> int:
    """How many blocks are read again."""
    found = dask_rewrite.explain(*collections)
    mine = [each for each in found.remarks if each.rule == "reread" and each.kind == "applied"]
    return sum(int(each.reason.rpartition(" ")[2]) for each in mine)


def held(collections: Any, nbytes: int) -> tuple[Any, float]:
    """The results, and the blocks that are held at most."""
    with Held() as found:
        results = dask.compute(*collections)
    return results, found.peak / nbytes


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_read_a_phase_and_no_block_is_held(program: Callable[[da.Array], tuple[Any, ...]]) -> None:
    source, reads, most = PROGRAMS[program]
    stored = source()
    collections = program(stored.x)
    with dask.config.set(scheduler="threads", num_workers=2, array_optimize=stock_optimizer):
        expected, before = held(collections, stored.nbytes)
    assert before >= 40
    assert stored.reads == 1
    stored.reset()
    with reading_again():
        _, after = held(collections, stored.nbytes)
        assert after <= most
        assert stored.reads == reads
        forecast = dask_rewrite.forecast(*collections, threads=2).after
        assert forecast.peak <= 1.25 * most * stored.nbytes
        assert forecast.read == pytest.approx(reads * stored.values.nbytes)
    with reading_again(reassociate=False):
        for actual, one in zip(dask.compute(*collections), expected, strict=True):
            assert_same(actual, one)


def test_only_where_somebody_asks_for_it() -> None:
    stored = cube()
    with reading_again(reread=False):
        assert not read_again(*anomaly(stored.x))
        dask.compute(*anomaly(stored.x))
    assert stored.reads == 1


def test_a_copy_has_a_name_of_its_own_or_is_part_of_its_only_user() -> None:
    x = cube().x
    apart = {"rewrite.disable": ["fuse-small", "siblings"]}  # how far small steps go together is not asked
    with reading_again(), dask.config.set(apart):
        inside, shared = checked(*anomaly(x)), checked(*two_results(x))
    with reading_again(reread=False), dask.config.set(apart):
        before = checked(*anomaly(x)), checked(*two_results(x))
    blocks = TIMES // STEP
    assert len(inside) <= len(before[0])
    assert 0 < len(shared) - len(before[1]) + blocks <= blocks  # the first read becomes part of the mean


def wanted_blocks(x: da.Array) -> tuple[Any, ...]:
    return x, abs(x - x.mean(axis=0)).max()


def wanted_result(x: da.Array) -> tuple[Any, ...]:
    return (x - x.mean(axis=0),)


def no_barrier(x: da.Array) -> tuple[Any, ...]:
    return x.mean(axis=0), x.std(axis=0), abs(x).max()


def another_array(x: da.Array) -> tuple[Any, ...]:
    """The mean of other blocks does not wait for these."""
    y = Stored((TIMES, 48, 48), (STEP, 48, 48)).x
    return abs(x - y.mean(axis=0)).max(), x.sum()


def made_by_a_user(x: da.Array) -> tuple[Any, ...]:
    return anomaly(x.map_blocks(lambda block: block + 1, meta=np.empty((0, 0, 0))))


def in_memory(x: da.Array) -> tuple[Any, ...]:
    return anomaly(da.from_array(np.arange(48.0 * 4096).reshape(48, 4096), chunks=(1, -1)))


def from_a_generator(x: da.Array) -> tuple[Any, ...]:
    """``choice`` goes on with one generator, which gives other numbers the second time."""
    return anomaly(da.random.default_rng(1).choice(1000, size=(48 * 8192,), chunks=8192))


DECLINED = [
    wanted_blocks,
    wanted_result,
    no_barrier,
    another_array,
    made_by_a_user,
    in_memory,
    from_a_generator,
]


@pytest.mark.parametrize("program", DECLINED, ids=lambda program: program.__name__)
def test_declined(program: Callable[[da.Array], tuple[Any, ...]]) -> None:
    stored = cube()
    with reading_again(reassociate=False):
        collections = program(stored.x)
        assert not read_again(*collections)
        stored.reset()
        dask.compute(*collections)
        assert stored.reads <= 1
        if program is not from_a_generator:  # whose blocks are others at each computation
            assert_same_as_stock(*collections)


@pytest.mark.parametrize(("threads", "blocks", "fires"), [(2, 8, False), (2, 9, True), (3, 9, False)])
def test_as_many_blocks_as_threads_hold_anyway(threads: int, blocks: int, fires: bool) -> None:
    stored = Stored((blocks * 4, 64, 64), (4, 64, 64))
    with reading_again(threads, reassociate=False):
        assert read_again(*anomaly(stored.x)) == (blocks if fires else 0)
        assert_same_as_stock(*anomaly(stored.x))


@pytest.mark.parametrize(("side", "fires"), [(90, False), (91, True)])
def test_small_blocks_are_held(side: int, fires: bool) -> None:
    stored = Stored((16, side, side), (1, side, side))
    with reading_again(reassociate=False):
        assert bool(read_again(*anomaly(stored.x))) == fires
        assert_same_as_stock(*anomaly(stored.x))


def test_options_move_the_thresholds() -> None:
    small = Stored((16, 20, 20), (1, 20, 20))
    for options, fires in (({"min-bytes": 3200}, True), ({"min-bytes": 3201}, False)):
        with reading_again(options={"reread": options}):
            assert bool(read_again(*anomaly(small.x))) == fires
    with reading_again(options={"reread": {"min-bytes": 1, "min-blocks": 8}}):
        assert not read_again(*anomaly(small.x))


def test_a_small_part_of_a_block_is_held() -> None:
    """To read a whole block for the fifth part of it, or less, does not pay."""
    x = Stored((48 * 8, 40, 40), (8, 40, 40)).x

    def edges(share: int) -> tuple[da.Array, ...]:
        some, chunks = np.arange(40 // share), (x.chunks[0], 40 // share, 40)
        part = x.map_blocks(np.take, some, axis=1, chunks=chunks, dtype=x.dtype)
        return abs(part - x.mean(axis=0)[: 40 // share]).max(), part.sum()

    with reading_again(options={"reread": {"min-bytes": 1}}, reassociate=False):
        assert read_again(*edges(4))
        assert not read_again(*edges(5))
        assert_same_as_stock(*edges(4), *edges(5))


def test_random_blocks_are_drawn_again_from_their_seed() -> None:
    for x in (
        da.random.default_rng(1).normal(size=(64, 9000), chunks=(1, -1)),
        da.random.RandomState(1).normal(size=(64, 9000), chunks=(1, -1)),
    ):
        with reading_again(reassociate=False):
            assert read_again(*anomaly(x)) == 64
            assert_same_as_stock(*anomaly(x))


def test_cheap_work_is_repeated_with_the_read() -> None:
    stored = cube()
    y = (stored.x.astype("f4") * 2)[:, 1:]
    with reading_again(reassociate=False):
        assert read_again(*anomaly(y)) == TIMES // STEP
        stored.reset()
        assert_same_as_stock(*anomaly(y))
        assert stored.reads == 1 + 2  # stock's, and ours


def test_a_store_takes_what_is_read_again() -> None:
    stored = cube()
    target = np.empty(stored.values.shape)
    with reading_again(), Held() as found:
        da.store(stored.x - stored.x.mean(axis=0), target, lock=False)
    assert found.peak <= 6 * stored.nbytes
    assert stored.reads == 2
    np.testing.assert_allclose(target, stored.values - stored.values.mean(axis=0), atol=1e-9)


def test_annotated_blocks_keep_their_annotations() -> None:
    stored = cube()
    with dask.annotate(priority=3):
        x = stored.x.map_blocks(np.negative)
    with reading_again(reassociate=False):
        assert read_again(*anomaly(x))
        assert_same_as_stock(*anomaly(x))


def test_what_others_may_hold_is_not_read_again() -> None:
    stored = cube()
    with reading_again():
        dask.compute(*dask.optimize(*anomaly(stored.x)), optimize_graph=False)
    assert stored.reads == 1


def test_special_values_and_types() -> None:
    for dtype in ("f4", "i2", "c16", "b1"):
        x = Stored((64, 200, 200), (4, 200, 200), dtype).x
        with reading_again(reassociate=False):
            assert read_again(*anomaly(x))
            assert_same_as_stock(*anomaly(x))


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_on_every_scheduler(scheduler: str) -> None:
    x = distinct((64, 9000), (1, 9000)) + da.random.default_rng(2).random((64, 9000), chunks=(1, -1))
    with reading_again(reassociate=False, verify="rule"), dask.config.set(scheduler=scheduler):
        assert_same_as_stock(abs(x - x.mean(axis=0)).max(), (x - x.max(axis=0)).min())


def test_the_same_graph_each_time() -> None:
    x = cube().x
    with reading_again():
        first, second = checked(*lagged(x)), checked(*lagged(x))
    assert list(first) == list(second)


def test_a_block_is_read_again_for_the_limit_and_only_then() -> None:
    stored = cube()
    for limit, reads in (("10 MB", 1), ("2 MB", 2)):
        stored.reset()
        with reading_again(reread=False, **{"memory-limit": limit, "on-memory": "raise"}):
            again = read_again(*anomaly(stored.x))
            assert bool(again) == (reads == 2)
            (result,) = dask.compute(*anomaly(stored.x))
            peak = dask_rewrite.forecast(*anomaly(stored.x), threads=2).after.peak
            assert (peak < 2_000_000) == (reads == 2)
        blocks = stored.x.npartitions
        assert round(stored.reads * blocks) == blocks + again
        assert stored.reads <= reads
        np.testing.assert_allclose(result, abs(stored.values - stored.values.mean(axis=0)).mean())


def test_a_limit_that_no_plan_keeps() -> None:
    stored = cube()
    limit = reading_again(reread=False, **{"memory-limit": "20 kB", "on-memory": "raise"})
    with limit, pytest.raises(dask_rewrite.MemoryLimitError):
        dask.compute(*anomaly(stored.x))
    assert not stored.reads


@pytest.mark.once
def test_takes_time_in_proportion() -> None:
    def several_phases(n: int) -> da.Array:
        x = da.random.default_rng(1).random((n, 9000), chunks=(1, -1))
        return standardized_by_hand(x)[0]

    with reading_again():
        assert_linear(several_phases, (60, 120, 240))


@pytest.mark.parametrize(("least", "again"), [(1, True), (2, False)])
def test_two_blocks_are_a_barrier_if_somebody_asks(tmp_path: Any, least: int, again: bool) -> None:
    """A limit tries that last: each mean waits for two blocks, which both threads have anyway."""
    data = np.arange(8 * 100 * 200.0).reshape(8, 100, 200)
    da.from_array(data, chunks=(1, 100, 100)).to_zarr(str(tmp_path / "x.zarr"))
    x = da.from_zarr(str(tmp_path / "x.zarr"))
    y = abs(x - x.mean(axis=2, keepdims=True)).max()
    options = {"rewrite.reread": True, "rewrite.options": {"reread": {"min-blocks": least}}}
    with dask.config.set({**options, "num_workers": 2, "scheduler": "threads"}):
        remarks = dask_rewrite.explain(y).remarks
        found = dask_rewrite.optimize(y).compute()
    assert bool([each for each in remarks if (each.rule, each.kind) == ("reread", "applied")]) == again
    assert found == y.compute(scheduler="sync")
