"""Under a limit blocks are read again for which there is no room, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.forecasts import Added

import dask_rewrite
from dask_rewrite.analysis.memory.evictions import Evicted, evictions
from dask_rewrite.analysis.memory.turns import last_uses
from dask_rewrite.analysis.memory.work import Work
from dask_rewrite.hook import plan_search, plans
from helpers import switched_on

#: Tall blocks: so many, of so many rows and columns.
BLOCKS, ROWS, COLUMNS = 24, 1000, 20
BLOCK = 8 * ROWS * COLUMNS


class Stored:
    """An array in a file, which counts what is read of it."""

    dtype, shape, ndim = np.dtype("f8"), (BLOCKS * ROWS, COLUMNS), 2

    def __init__(self) -> None:
        self.reads = Counter[int]()
        self._data = np.arange(BLOCKS * ROWS * COLUMNS, dtype="f8").reshape(self.shape) % 1013

    def __getitem__(self, index: Any) -> Any:
        self.reads[index[0].start] += 1
        return self._data[index].copy()

    def array(self) -> da.Array:
        return da.from_array(self, chunks=(ROWS, COLUMNS), name="stored", meta=np.empty((0, 0)))


def anomaly(x: da.Array) -> tuple[Any, ...]:
    return (abs(x - x.mean()).max(),)


def iterated(x: da.Array) -> tuple[Any, ...]:
    """Each step needs all blocks, and views of them."""
    v = da.ones(COLUMNS, chunks=COLUMNS)
    for _ in range(3):
        v = x.T @ (x @ v)
        v = v / abs(v).max()
    return (v.sum(),)


def turned(x: da.Array) -> tuple[Any, ...]:
    """Each new block needs a part of every old one."""
    columns = x.rechunk((-1, COLUMNS // 4)).map_blocks(np.sort, axis=0, dtype="f8")
    return (columns[::7].sum(),)


def centred(x: da.Array) -> tuple[Any, ...]:
    """What is made of each block, and of what is there for all of them, is used again and again."""
    y = x - x.mean(axis=0)
    v = da.ones(COLUMNS, chunks=COLUMNS)
    for _ in range(3):
        v = y.T @ (y @ v)
        v = v / abs(v).max()
    return (v.sum(),)


def limited(limit: int | None, threads: int = 2) -> Any:
    return dask.config.set(
        {"rewrite.memory-limit": limit, "rewrite.on-memory": "raise", "num_workers": threads}
    )


@pytest.mark.parametrize("program", [anomaly, iterated, centred])
@pytest.mark.parametrize("blocks", [8, 16])
def test_only_what_there_is_no_room_for(program: Callable[[da.Array], tuple[Any, ...]], blocks: int) -> None:
    stored = Stored()
    x = stored.array()
    with switched_on(), dask.config.set({"rewrite.disable": ["contract", "stream"]}):
        with limited(None):
            expected = dask.compute(*program(x), scheduler="threads")
        uses = max(stored.reads.values())
        stored.reads.clear()
        with limited(blocks * BLOCK), Added() as held:
            found = dask.compute(*program(x), scheduler="threads")
    assert uses == 1
    assert found == expected
    assert held.peak <= blocks * BLOCK
    again = sum(stored.reads.values()) - BLOCKS
    rounds = {anomaly: 1, iterated: 5, centred: 6}[program]
    assert 0 < again < rounds * BLOCKS


@pytest.mark.parametrize(
    ("more", "others", "twice"), [(1.25, True, False), (0, True, True), (0, False, False)]
)
def test_ways_that_do_much_again_are_looked_at_last(
    more: float, others: bool, twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other plans come before them, here one that reads all twice; where none fits they are what there is."""
    monkeypatch.setattr(plan_search, "_MORE", more)
    if not others:
        real = plans._plans
        monkeypatch.setattr(plans, "_plans", lambda *given: islice(real(*given), 1))
    stored = Stored()
    x = stored.array()
    with switched_on(), limited(8 * BLOCK), Added() as held:
        dask.compute(*anomaly(x))
        found = dask_rewrite.explain(*anomaly(x))
    assert held.peak <= 8 * BLOCK
    assert (sum(stored.reads.values()) == 2 * BLOCKS) is twice
    assert any("where there is no room" in each.reason for each in found.remarks) is not twice
    assert found.steps[0].name == "lower"


@pytest.mark.parametrize("gathered", [True, False])
def test_results_of_known_size_are_no_reason_not_to_read_again(gathered: bool) -> None:
    """The last step of a reduction is made with what xarray makes of the answer."""
    xr = pytest.importorskip("xarray")
    stored = Stored()
    array = da.from_array(stored, chunks=(2 * ROWS, COLUMNS // 2), name="stored", meta=np.empty((0, 0)))
    x = xr.DataArray(array, dims=("time", "place"))
    program = abs(x - x.mean("time")).mean()
    expected = float(program.compute(array_optimize=None))
    stored.reads.clear()
    with switched_on(), limited(8 * BLOCK), Added() as held:
        found = program.compute() if gathered else dask.compute(program.data)[0]
    assert float(found) == expected
    assert held.peak <= 8 * BLOCK
    assert BLOCKS < sum(stored.reads.values()) < 2 * BLOCKS


def sorted_rows(x: da.Array) -> tuple[Any, ...]:
    """What is made of each block takes longer than to go through it once."""
    x = x.map_blocks(np.sort, axis=0, dtype="f8", meta=np.empty((0, 0)))
    return (abs(x - x.mean()).max(),)


def test_work_that_takes_longer_is_done_again_only_where_nothing_else_fits() -> None:
    stored = Stored()
    x = stored.array()
    reads, held = {}, {}
    for limit in (None, BLOCKS * 2, 8):
        stored.reads.clear()
        most = None if limit is None else limit * BLOCK
        with switched_on(), limited(most), Added() as peak:
            found = dask.compute(*sorted_rows(x), scheduler="threads")
        reads[limit], held[limit] = sum(stored.reads.values()), peak.peak
        assert found == dask.compute(*sorted_rows(x), array_optimize=None, scheduler="sync")
    assert reads == {None: BLOCKS, BLOCKS * 2: BLOCKS, 8: reads[8]}
    assert BLOCKS < reads[8] <= 2 * BLOCKS
    assert held[8] <= 8 * BLOCK < held[None]
    opaque = x.map_blocks(lambda block: np.sort(block, axis=0), meta=np.empty((0, 0)))
    with switched_on(), limited(8 * BLOCK), pytest.raises(dask_rewrite.MemoryLimitError):
        dask.compute(abs(opaque - opaque.mean()).max(), scheduler="threads")


def test_parts_are_cut_again_where_they_wait_for_each_other() -> None:
    """A rechunk holds parts of all blocks for its last block: some are let go of, and cut again."""
    stored = Stored()
    x = stored.array()
    with switched_on(), limited(None), Added() as most:
        (expected,) = dask.compute(*turned(x), scheduler="threads")
    assert most.peak > 18 * BLOCK
    assert sum(stored.reads.values()) == BLOCKS
    stored.reads.clear()
    with switched_on(), limited(18 * BLOCK), Added() as held:
        (found,) = dask.compute(*turned(x), scheduler="threads")
    assert found == expected
    assert held.peak <= 18 * BLOCK
    assert BLOCKS < sum(stored.reads.values()) <= 4 * BLOCKS


def test_one_task_after_the_other_where_what_is_made_of_many_blocks_would_pile_up() -> None:
    """Rows of two arrays are put together out of columns; all of one come first where that holds less."""
    both = [Stored(), Stored()]
    wide = (6 * ROWS, COLUMNS // 4)
    arrays = [
        da.from_array(each, wide, name=f"stored-{i}", meta=np.empty((0, 0))) for i, each in enumerate(both)
    ]
    rows = [array.rechunk((ROWS, COLUMNS)) for array in arrays]
    program = da.map_blocks(lambda a, b: (a * b).sum(axis=0, keepdims=True), *rows, dtype="f8").sum()
    with switched_on(), limited(None), Added() as most:
        (expected,) = dask.compute(program, scheduler="threads")
    with switched_on(), limited(9 * BLOCK), Added() as held:
        (found,) = dask.compute(program, scheduler="threads")
    assert found == expected
    assert most.peak > 12 * BLOCK
    assert held.peak <= 9 * BLOCK


def test_it_is_told() -> None:
    x = Stored().array()
    with switched_on(), limited(8 * BLOCK):
        found = dask_rewrite.explain(*anomaly(x))
    assert any("read again where there is no room" in each.reason for each in found.remarks)


def test_nothing_is_read_again_where_that_is_switched_off() -> None:
    stored = Stored()
    x = stored.array()
    off = dask.config.set({"rewrite.disable": ["reread"]})
    with switched_on(), limited(8 * BLOCK), off, pytest.raises(dask_rewrite.MemoryLimitError):
        dask.compute(*anomaly(x))
    assert not stored.reads


def test_what_nobody_knows_is_done_once() -> None:
    calls: list[int] = []

    def seen(block: Any) -> Any:
        calls.append(1)
        return block + 1

    ones = da.ones((BLOCKS * ROWS, COLUMNS), chunks=(ROWS, COLUMNS))
    x = ones.map_blocks(seen, dtype="f8", meta=np.empty((0, 0)))
    warned = pytest.warns(dask_rewrite.RewriteWarning, match="would hold")
    with switched_on(), limited(8 * BLOCK), dask.config.set({"rewrite.on-memory": "warn"}), warned:
        dask.compute(*anomaly(x))
    assert len(calls) == BLOCKS


# -- the numbers -------------------------------------------------------------------------------


def rounds(blocks: int, steps: int, view: bool = False) -> tuple[Work, list[int]]:
    """Each step takes every block, or a view of it, and what the step before gave."""
    inputs: list[tuple[int, ...]] = [() for _ in range(blocks)]
    views: list[tuple[int, ...]] = [() for _ in range(blocks)]
    sizes = [10] * blocks
    parts = list(range(blocks))
    order: list[int] = []
    if view:
        inputs += [(i,) for i in range(blocks)]
        views += [(i,) for i in range(blocks)]
        sizes += [0] * blocks
        parts = list(range(blocks, 2 * blocks))
    last: tuple[int, ...] = ()
    for step in range(steps):
        for i in range(blocks):
            if not step:
                order += [i, parts[i]] if view else [i]
            order.append(len(inputs))
            last = (order[-1],)
            before = (order[-1] - 1,) if step or i else ()
            inputs.append((parts[i], *before))
            views.append(())
            sizes.append(1)
    n = len(inputs)
    return Work(inputs, views, sizes, sizes, [1.0] * n, [True] * n, kept=frozenset(last)), order


def peak(work: Work, order: list[int]) -> int:
    """Most bytes held, one task after the other."""
    last = last_uses(work, order)
    held = most = 0
    for place, task in enumerate(order):
        held += work.owned[task]
        most = max(most, held)
        held -= sum([work.owned[one] for one in order[: place + 1] if last[one] == place])
    return most


def fewest(blocks: int, steps: int, room: int) -> int:
    """How often a block is missing where so many have room, and the one goes that is used last."""
    used = list(range(blocks)) * steps
    there: set[int] = set()
    missing = 0
    for place, one in enumerate(used):
        if one not in there:
            missing += 1
            if len(there) == room:
                later = used[place:]
                there.remove(max(there, key=lambda each: (*later, each).index(each)))
            there.add(one)
    return missing - blocks


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("room", [20, 6, 3])
def test_as_few_as_can_be(room: int, view: bool) -> None:
    """Of ten blocks those that there is room for stay; the others are read again in each round."""
    work, order = rounds(10, 3, view)
    again = frozenset(range(20 if view else 10))
    limit = 10 * room + 2
    found = evictions(work, order, limit, again, 100)
    assert isinstance(found, Evicted)
    read = [task for task in found.copies if task < 10]
    assert len(read) == fewest(10, 3, room)
    more = found.work(work)
    assert len(more) == len(work) + len(found.copies)
    done: set[int] = set()
    for task in found.order:
        assert done.issuperset(more.inputs[task])
        assert set(more.views[task]) <= set(more.inputs[task])
        done.add(task)
    assert done == set(range(len(more)))
    assert peak(more, found.order) <= limit


@pytest.mark.parametrize(("limit", "reads"), [(160, 0), (125, 3), (95, 7), (65, 11)])
def test_parts_that_are_arrays_of_their_own_are_cut_again(limit: int, reads: int) -> None:
    """Four blocks are cut into four parts each, and one task after the other needs a part of each block."""
    blocks = parts = 4
    inputs: list[tuple[int, ...]] = [()] * blocks
    inputs += [(block,) for block in range(blocks) for _ in range(parts)]
    inputs += [tuple(blocks + block * parts + part for block in range(blocks)) for part in range(parts)]
    first = len(inputs) - parts
    cuts = range(blocks, first)
    order = [each for block in range(blocks) for each in (block, *cuts[block * parts : (block + 1) * parts])]
    sizes = [20] * blocks + [8] * len(cuts) + [1] * parts
    n = len(inputs)
    done = frozenset(range(first, n))
    work = Work(inputs, [()] * n, sizes, sizes, [1.0] * n, [True] * n, kept=done)
    found = evictions(work, [*order, *done], limit, frozenset(range(first)), 100)
    assert found is not None
    assert len([task for task in found.copies if task < blocks]) == reads
    more = found.work(work)
    seen: set[int] = set()
    for task in found.order:
        assert seen.issuperset(more.inputs[task])
        assert len(more.inputs[task]) == len(inputs[task if task < n else found.copies[task - n]])
        seen.add(task)
    assert seen == set(range(len(more)))
    assert peak(more, found.order) <= limit
    assert evictions(work, [*order, *done], 40, frozenset(range(first)), 100) is None


def test_no_more_copies_than_are_allowed_and_none_if_that_does_not_help() -> None:
    work, order = rounds(10, 3)
    again = frozenset(range(10))
    most = fewest(10, 3, 3)
    assert evictions(work, order, 32, again, most) is not None
    assert evictions(work, order, 32, again, most - 1) is None
    assert evictions(work, order, 9, again, 100) is None
    assert evictions(work, order, 62, frozenset(), 100) is None
