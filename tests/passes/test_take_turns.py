"""Tasks take turns where far more blocks would be held than need to be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.forecasts import Added
from dask._task_spec import Task
from dask.graph_manipulation import chunks

import dask_rewrite
from dask_rewrite import scheduler
from dask_rewrite.passes import take_turns, waiting
from dask_rewrite.passes.take_turns import sharing
from dask_rewrite.passes.take_turns.numbers import numbers_of
from dask_rewrite.scheduler import as_if
from helpers import assert_same, stock, switched_on

OFF = {"rewrite.disable": ["take-turns"]}
#: Blocks of 80 kB: (4, 50, 50), so many times and rows of as many.
TIMES, ROWS = 12, 3
ALL = TIMES * ROWS**2 * 80_000
#: Blocks with several users of these programs are taken for much.
LOW = {"rewrite.options": {"take-turns": {"min-bytes": ALL // 8}}}


def _load(calls: Counter[Any], block_info: Any = None) -> np.ndarray:
    where = block_info[None]
    calls[tuple(where["chunk-location"])] += 1
    first = 1000 * sum(where["chunk-location"])
    return (first + np.arange(np.prod(where["chunk-shape"])) % 997.0).reshape(where["chunk-shape"])


def fields(calls: Counter[Any] | None = None, times: int = TIMES) -> da.Array:
    """Blocks of a function that nobody knows."""
    cut = ((4,) * times, (50,) * ROWS, (50,) * ROWS)
    return da.map_blocks(_load, Counter() if calls is None else calls, chunks=cut, dtype=float)


def slope(x: da.Array) -> da.Array:
    """Each mean waits for all times, and each of these for the means of its neighbours."""
    return (da.gradient(x, axis=1) ** 2 + da.gradient(x, axis=2) ** 2).mean(axis=0)


def stencil(x: da.Array) -> da.Array:
    """Slices that are added: all sums are put together from blocks and slivers of their neighbours."""
    y = x[:, 2:, 1:-1] + x[:, :-2, 1:-1] + x[:, 1:-1, 2:] + x[:, 1:-1, :-2] - 4 * x[:, 1:-1, 1:-1]
    return y.max()


def _plus(block: Any) -> Any:
    """Nobody knows what this does."""
    return block + 1


def gates_of(*made: Any, **config: Any) -> int:
    with switched_on(**{**LOW, "scheduler": "threads", "num_workers": 2, **config}):
        graph = dict(dask.base.collections_to_expr(made).optimize().__dask_graph__())
    return sum(type(node) is Task and node.func is chunks.checkpoint for node in graph.values())


def held(made: Any, **config: Any) -> tuple[int, Any]:
    with switched_on(**{**LOW, "scheduler": "sync", **config}), Added() as found:
        value = made.compute()
    return found.peak, value


@pytest.mark.parametrize("program", [slope, stencil])
def test_a_fraction_of_the_blocks_is_held(program: Any) -> None:
    x = fields()
    with stock(scheduler="sync"):
        expected = program(x).compute()
    here, found = held(program(x))
    without, _ = held(program(x), **OFF)
    assert_same(found, expected)
    assert here < without / 2
    assert here < ALL / 4


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_each_block_is_made_once(threads: int) -> None:
    calls: Counter[Any] = Counter()
    x = slope(fields(calls))
    with stock(scheduler="sync"):
        expected = slope(fields()).compute()
    assert gates_of(x, num_workers=threads)
    with switched_on(**LOW, scheduler="threads", num_workers=threads):
        assert_same(x.compute(), expected)
    assert set(calls.values()) == {1}


def test_blocks_that_are_not_much_together() -> None:
    for least, some in ((ALL // 2, True), (ALL + 1, False)):
        options = {"take-turns": {"min-bytes": least}}
        assert bool(gates_of(slope(fields()), **{"rewrite.options": options})) is some


def test_a_quarter_is_enough_where_blocks_wait_for_neighbours_because_of_regrid() -> None:
    def stencil_over_time(x: da.Array) -> da.Array:
        y = x[:, 2:, 1:-1] + x[:, :-2, 1:-1] + x[:, 1:-1, 2:] + x[:, 1:-1, :-2] - 4 * x[:, 1:-1, 1:-1]
        return y.std(axis=0)

    x = da.random.default_rng(0).random((360, 48, 60), chunks=(40, 16, 20))
    for program, least, some in (
        (stencil_over_time, x.nbytes, True),
        (stencil_over_time, 8 * x.nbytes, False),
        (slope, 2 * x.nbytes, False),
    ):
        options = {"rewrite.options": {"take-turns": {"min-bytes": least}}}
        with dask.config.set({**options, "scheduler": "threads", "num_workers": 2}):
            assert (("take-turns", "applied") in dask_rewrite.explain(program(x)).counts) is some
    # Names of tasks break ties of dask's order: what one program holds varies by a tenth.
    ratios = []
    for seed in range(12):
        x = da.random.default_rng(seed).random(x.shape, chunks=x.chunks)
        with dask.config.set({"rewrite.options": {"take-turns": {"min-bytes": x.nbytes}}}):
            found = dask_rewrite.forecast(stencil_over_time(x), threads=2)
        with dask.config.set({"rewrite.disable": ["take-turns"]}):
            without = dask_rewrite.forecast(stencil_over_time(x), threads=2)
        assert found.after.peak < 0.7 * without.after.peak
        ratios.append(found.after.peak / found.before.peak)
    assert np.mean(ratios) < 1.1


def test_what_no_order_helps() -> None:
    x = fields()
    assert not gates_of(x - x.mean())
    assert not gates_of((x - x.mean(axis=0)).std(axis=0))  # column by column, by itself
    assert not gates_of((x + 1).sum())
    assert gates_of(slope(x), slope(x * 2))


def test_only_blocks_that_stay_for_neighbours_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that no order helps are not put into several, which takes its time."""
    looks: list[Any] = []
    monkeypatch.setattr(take_turns, "numbers_of", lambda site: looks.append(site) or numbers_of(site))
    x = fields()
    apart = {"rewrite.disable": ["siblings", "stream"]}
    for made in (
        [x - x.mean(axis=0)],  # until its mean is there, a block has to stay
        [(x - x.mean(axis=0)) / x.std(axis=0)],
        [x.mean(axis=2), x.max()],  # all that is left of a block is a little, and needs nothing else
        [da.concatenate([x, x[::-1] * 2])],  # all that is made is asked for
        [x.rechunk((-1, 25, 50)).max(axis=1)],  # before anything goes, all blocks of a column are there
        [x.rechunk((24, 50, 25)).map_blocks(np.sort).max(axis=0)],
    ):
        gates_of(*made)
        gates_of(*made, **apart)
        assert not looks
    halves = [x.mean(axis=0), x.max()]  # sums and counts of four rows are half of these
    for made in ([slope(x)], [(x[1:] * x[:-1]).sum()], halves):
        looks.clear()
        gates_of(*made)
        assert len(looks) == 1


def test_an_array_of_a_layer_for_each_file() -> None:
    """Blocks of one kind wait for those of other layers as well."""
    cut = ((4,) * 2 * TIMES, (50,), (50,) * 2)
    files = [
        da.map_blocks(_load, Counter(), chunks=cut, dtype=float, name=f"open-{i:032x}") for i in range(4)
    ]
    x = da.concatenate(files, axis=1)
    edges = {"depth": (0, 1, 1), "boundary": "none", "dtype": float, "meta": np.empty((0, 0, 0))}
    assert gates_of(x.map_overlap(_plus, **edges).mean(axis=0))


def test_how_much_less_it_has_to_be() -> None:
    for gain, some in ((100, True), (5000, False)):
        options = {"take-turns": {"min-bytes": ALL // 8, "gain": gain}}
        assert bool(gates_of(slope(fields()), **{"rewrite.options": options})) is some


def test_blocks_in_memory_are_there_anyway() -> None:
    numbers = np.arange(ALL // 8, dtype=float).reshape(4 * TIMES, 50 * ROWS, -1)
    x = da.from_array(numbers, chunks=(4, 50, 50))
    assert not gates_of(stencil(x))


def test_results_that_hold_all_blocks_anyway() -> None:
    assert not gates_of(da.gradient(fields(), axis=1))


def test_what_is_asked_for_waits_for_nothing_that_was_not_needed() -> None:
    x = fields()
    with switched_on(**LOW, scheduler="threads", num_workers=2):
        graph = dict(dask.base.collections_to_expr((x, slope(x))).optimize().__dask_graph__())
    for key in dask.core.flatten(x.__dask_keys__()):
        assert "bind" not in repr(graph[key])


def test_others_whom_nobody_knows_may_hold_the_blocks() -> None:
    with switched_on(**LOW, scheduler="threads", num_workers=2):
        (found,) = dask.optimize(slope(fields()))
    assert not any(getattr(node, "func", None) is chunks.checkpoint for node in dict(found.dask).values())


def test_a_limit_is_kept_in_its_own_way() -> None:
    assert not gates_of(slope(fields()), **{"rewrite.memory-limit": "1 GB"})


def test_a_cluster_with_room_and_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    program = slope(fields())
    for memory, some in ((1_000 * ALL, False), (ALL, True), (0, True)):
        monkeypatch.setattr(scheduler, "_physical_memory", lambda memory=memory: memory)
        assert bool(gates_of(program, **as_if(1, 2))) is some


def test_explain_says_what_it_does_and_bisect_may_leave_it_out() -> None:
    with switched_on(**LOW, scheduler="threads", num_workers=2):
        said = str(dask_rewrite.explain(slope(fields())))
    assert "would be held" in said
    assert not gates_of(slope(fields()), **OFF)
    assert not gates_of(slope(fields()), **{"rewrite.bisect-limit": 0})


def test_the_same_program_has_the_same_names() -> None:
    with switched_on(**LOW, scheduler="threads", num_workers=2):
        one, two = (
            dict(dask.base.collections_to_expr((slope(fields(Counter())),)).optimize().__dask_graph__())
            for _ in range(2)
        )
    assert sorted(map(str, one)) == sorted(map(str, two))


@pytest.mark.parametrize("part", [1, waiting.PART])
def test_users_that_wait_for_much(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is taken for much, answers are those of dask."""
    monkeypatch.setattr(sharing, "_PART", part)
    with stock(scheduler="sync"):
        expected = stencil(fields()).compute()
    assert bool(gates_of(stencil(fields()))) is (part == 1)
    assert_same(held(stencil(fields()))[1], expected)


def test_no_event_loop_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_turns, "on_event_loop", lambda: True)
    assert not gates_of(slope(fields()))


@pytest.mark.parametrize("times", [TIMES, 4 * TIMES])
def test_much_and_not_much_by_default(times: int) -> None:
    """9 and 35 MB of blocks, of which the gradient holds nearly all."""
    made = slope(fields(times=times))
    with stock(scheduler="sync"):
        expected = made.compute()
    assert bool(gates_of(made, **{"rewrite.options": {}})) is (times > TIMES)
    with switched_on(scheduler="threads", num_workers=2):
        assert_same(made.compute(), expected)
