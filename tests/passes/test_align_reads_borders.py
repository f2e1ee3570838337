"""Borders of reads that nobody sees, since their blocks are summed up, go between stored chunks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from dask.array.core import getter
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import LoggingStore, MemoryStore

from dask_rewrite.passes.align_reads.borders import _in_bands
from dask_rewrite.pipeline.run import Trace, rewrite_tasks
from helpers import (
    allocated,
    assert_same,
    examples,
    keys_of,
    loads,
    stock,
    stock_tasks_of,
    switched_on,
    tasks_of,
)

SIZE, CHUNK, BLOCK = 200, 20, 30
pytestmark = pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")


class Stored:
    """A Zarr array of distinct values whose store counts how often a chunk is read."""

    def __init__(
        self, dtype: str, shape: tuple[int, ...] = (SIZE, SIZE), chunks: tuple[int, ...] = (CHUNK, CHUNK)
    ) -> None:
        store = LoggingStore(MemoryStore(), log_level="ERROR")
        self.data = (np.arange(np.prod(shape)).reshape(shape) % 10007).astype(dtype)
        self.array = zarr.create_array(store=store, shape=shape, chunks=chunks, dtype=dtype)
        self.array[...] = self.data
        self.counter = store.counter

    def gets(self, make: Callable[[Any], Any], chunks: Any = BLOCK) -> tuple[int, Any]:
        made = make(da.from_array(self.array, chunks=chunks))
        self.counter.clear()
        found = dask.compute(made, scheduler="sync")[0]
        return self.counter["get"], found


#: Nobody writes into them, so tests share them.
stored = cache(Stored)


def applied(made: Any) -> list[str]:
    trace = Trace()
    rewrite_tasks(made.dask, made.__dask_keys__(), trace=trace)
    return [r.reason for r in trace.remarks if r.rule == "align-reads" and r.kind == "applied"]


def is_moved(make: Callable[[Any], Any], chunks: Any = BLOCK, dtype: str = "f8") -> bool:
    return "go between chunks" in " ".join(applied(make(da.from_array(stored(dtype).array, chunks=chunks))))


def close(found: Any, expected: Any) -> None:
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def some_missing(v: Any) -> Any:
    return da.where(v % 7 == 3, np.nan, v)


def zeros_for_missing(v: Any) -> Any:
    """As xarray does it."""
    return da.where(da.isnan(v), da.zeros_like(v), v)


MOVED: dict[str, Callable[[Any], Any]] = {
    "sum": lambda v: v.sum(),
    "sum of rows": lambda v: (v * 2 + 1).sum(axis=1),
    "sum of columns": lambda v: v.sum(axis=0, keepdims=True),
    "product": lambda v: (v % 2 + 1).prod(axis=0),
    "extremes": lambda v: v.max() - v.min(),
    "mean": lambda v: ((v + 1) ** 2).mean(),
    "mean without nans": lambda v: da.nanmean(v.astype("f8"), axis=0),
    "extremes without nans": lambda v: da.nanmax(some_missing(v)) - da.nanmin(some_missing(v)),
    "deviation": lambda v: v.std(axis=0),
    "deviation without nans": lambda v: da.nanstd(some_missing(v), axis=0),
    "zeros for nans": lambda v: zeros_for_missing(some_missing(v)).sum(),
    "zeros for nans, by columns": lambda v: zeros_for_missing(some_missing(v)).sum(axis=0),
    "anomaly": lambda v: (v - v.mean(axis=0)).std(axis=0),
    "anomaly of all": lambda v: abs(v - v.mean()).max(),
    "counts": lambda v: (v > 70).sum(axis=0),
    "any and all": lambda v: (v > 70).any() & (v >= 0).all(),
    "with one row for all": lambda v: (v * da.arange(SIZE, chunks=BLOCK)).sum(axis=0),
    "two of them": lambda v: da.stack([v.sum(axis=0), (v + 1).max(axis=0)]),
    "few at a time": lambda v: v.sum(split_every=2),
    "some of the rows": lambda v: v[:90].sum(),
    "in narrow numbers": lambda v: v.astype("f4").mean(split_every=2),
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_each_chunk_is_decoded_once(name: str, dtype: str) -> None:
    make = MOVED[name]
    source = stored(dtype)
    with stock():
        _, expected = source.gets(make)
    with switched_on(num_workers=2):
        gets, found = source.gets(make)
        assert is_moved(make, dtype=dtype)
    assert gets == (50 if name == "some of the rows" else 100)
    close(found, expected)
    with switched_on(num_workers=2):
        close(source.gets(make, ((50, 33, 17, 100), (60, 140)))[1], expected)


def partial_sums(v: Any) -> Any:
    return v.map_blocks(np.sum, axis=(0, 1), keepdims=True, chunks=(1, 1), dtype=v.dtype)


def integers(sums: Any, axis: Any, keepdims: bool) -> Any:
    return np.sum(sums.astype(int), axis=axis, keepdims=keepdims)


def with_sum(block: Any, other: Any) -> Any:
    return block + other.sum()


def ones(v: Any) -> Any:
    return da.ones(v.shape, chunks=v.chunks)


SEEN: dict[str, Callable[[Any], Any]] = {
    "how many ones make up a block": lambda v: v.map_blocks(with_sum, ones(v), dtype="f8").sum(),
    "constants that are not broadcast": lambda v: (v * (ones(v).cumsum(axis=0) + ones(v).sum(axis=0))).sum(),
    "the blocks": lambda v: v + 1,
    "the blocks too": lambda v: da.stack([v[:1, :1].sum(), v.sum()]) + v[0, 0],
    "a sum of each block": partial_sums,
    "the largest sum of a block": lambda v: da.reduction(v, np.sum, np.max, concatenate=True, dtype=v.dtype),
    "every second block": lambda v: partial_sums(v)[::2].sum(),
    "an unknown function": lambda v: v.map_blocks(lambda b: b - b.min(), dtype=v.dtype).sum(),
    "positions": lambda v: v.argmax(axis=0),
    "running totals": lambda v: v.cumsum(axis=0).sum(),
    "other blocks": lambda v: (v * da.ones((SIZE, SIZE), chunks=BLOCK).map_blocks(np.cumsum, axis=0)).sum(),
    "its transpose": lambda v: (v + v.T).sum(),
    "cut off block by block": lambda v: da.reduction(v / 7, np.sum, integers, dtype=int),
}


def assert_borders_stay(make: Callable[[Any], Any], dtype: str) -> None:
    source = stored(dtype)
    with stock():
        _, expected = source.gets(make)
    with switched_on(num_workers=2):
        assert not is_moved(make, dtype=dtype)
        assert_same(source.gets(make)[1], expected)


@pytest.mark.parametrize("name", SEEN)
def test_where_somebody_sees_the_blocks(name: str) -> None:
    assert_borders_stay(SEEN[name], "f8")


def test_blocks_that_are_made_differently_are_seen() -> None:
    """Sums of blocks of one grid, of which some are doubled, or have another number of their own."""
    source = stored("i8")
    v = da.from_array(source.array, chunks=(BLOCK, SIZE))
    rows = [v[i : i + BLOCK] for i in range(0, SIZE, BLOCK)]
    for made in (
        da.concatenate([row * 2 if i % 2 else row for i, row in enumerate(rows)]).sum(),
        da.concatenate([row * i for i, row in enumerate(rows)]).sum(),
        da.concatenate([row - row.max() for row in rows]).sum(),
        da.concatenate([row.sum(axis=0, keepdims=True) for row in rows]).max(),
    ):
        with stock():
            expected = made.compute(scheduler="sync")
        with switched_on(num_workers=2):
            assert not [reason for reason in applied(made) if "between" in reason]
            assert made.compute(scheduler="sync") == expected


def narrow(func: Any, v: Any, dtype: str) -> Any:
    return v.map_blocks(partial(func, axis=(0, 1), keepdims=True, dtype=dtype), chunks=(1, 1), dtype=dtype)


CUT_OFF: dict[str, Callable[[Any], Any]] = {
    "sums of blocks in 8 bits": lambda v: narrow(np.sum, v, "i1").sum(dtype="i8"),
    "whether blocks have any": lambda v: narrow(np.sum, v % 1000 == 1, "?").sum(dtype="i8"),
    "products of blocks in 8 bits": lambda v: narrow(np.prod, v | 1, "u1").prod(dtype="f8"),
    "sums of blocks in 64 bits": lambda v: narrow(np.sum, v << 48, "i8").sum(dtype="f8"),
    "distances of complex numbers": lambda v: da.moment(v * (1 + 2j), 3, axis=0),
    "nans of complex numbers": lambda v: (v + 1j * da.where(v % 17 == 5, np.nan, v)).max(axis=0),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_what_is_lost_of_a_block(name: str) -> None:
    """What is put together is not a sum any more: other borders would change it by more than rounding."""
    assert_borders_stay(CUT_OFF[name], "i8")
    with switched_on(num_workers=2):
        assert is_moved(lambda v: narrow(np.sum, v, "i1").sum(dtype="i1"), dtype="i8")
        assert is_moved(lambda v: da.moment(v * 2, 3, axis=0), dtype="i8")
        assert is_moved(lambda v: (v * (1 + 2j)).std(axis=0), dtype="i8")


def test_outputs_of_the_same_names_keep_their_blocks() -> None:
    v = da.from_array(stored("i8").array, chunks=BLOCK)
    with stock():
        expected = dask.compute(v.sum(), v + 1, partial_sums(v), scheduler="sync")
    with switched_on(num_workers=2):
        assert_same(dask.compute(v.sum(), v + 1, partial_sums(v), scheduler="sync"), expected)


def test_other_blocks_have_other_names() -> None:
    """Partial sums over other borders are other values: their names must be others than those of stock."""
    made = da.from_array(stored("f8").array, chunks=BLOCK).sum()
    with switched_on(num_workers=2):
        ours = tasks_of(made)
    common = {key for key in ours.keys() & stock_tasks_of(made).keys() if type(key) is tuple}
    assert common == set(keys_of(made))


def test_floats_are_regrouped_only_where_that_is_allowed() -> None:
    with switched_on(num_workers=2), dask.config.set({"rewrite.reassociate": False}):
        assert not is_moved(lambda v: v.sum())
        assert not is_moved(lambda v: v.max())
        assert is_moved(lambda v: v.sum(), dtype="i4")
        assert is_moved(lambda v: (v > 7).any())


def test_blocks_grow_by_what_there_is_room_for() -> None:
    options = {"rewrite.options": {"align-reads": {"max-held": 1}}}
    with switched_on(**options, scheduler="sync"):
        assert not is_moved(lambda v: v.sum())
        assert is_moved(lambda v: v.sum(), chunks=(50, 110))


def test_blocks_within_chunks_stay() -> None:
    with switched_on(num_workers=2):
        assert not is_moved(lambda v: v.sum(), chunks=10)
        assert not is_moved(lambda v: v.sum(), chunks=CHUNK)
        assert is_moved(lambda v: v.sum(), chunks=(10, 30))


def test_annotations_stay() -> None:
    with dask.annotate(priority=3):
        v = da.from_array(stored("f8").array, chunks=BLOCK)
    made = v.sum()
    with switched_on(num_workers=2):
        graph = rewrite_tasks(made.dask, made.__dask_keys__())
    assert graph is not None
    reading = [key for key, node in graph.nodes.items() if loads({key: node}, getter)]
    assert len(reading) == 49
    assert all(graph.annotations[key] == {"priority": 3} for key in reading)


SMALL = [(150, 150), (730, 730), (250, 250), (60, 190)]
LARGE = [(250, 250), (350, 2100), (150, 2100)]


@pytest.mark.once
@pytest.mark.parametrize(
    ("chunks", "scale"), [*[(each, 1) for each in SMALL], *[(each, 2) for each in LARGE]]
)
def test_no_more_memory_than_in_stock(tmp_path: Path, chunks: tuple[int, int], scale: int) -> None:
    """It was 1.9 to 2.6 times as much where blocks were put together from parts, 1.3 with larger blocks."""
    shape, blocks = (2100 * scale, 2100 * scale), (chunks[0] * scale, chunks[1] * scale)
    with h5py.File(tmp_path / "x.h5", "w", rdcc_nbytes=0) as file:
        data = np.arange(float(shape[0] * shape[1])).reshape(shape)
        made = file.create_dataset("x", data=data, chunks=(100 * scale, 100 * scale))
        v = da.from_array(made, chunks=blocks).sum()
        with switched_on(num_workers=1):
            after, before = tasks_of(v), stock_tasks_of(v)
        assert dask.get(after, keys_of(v))[0] == dask.get(before, keys_of(v))[0]
        taken = allocated(lambda: dask.get(after, keys_of(v)))
        assert taken <= 1.1 * allocated(lambda: dask.get(before, keys_of(v)))


@pytest.mark.parametrize("block", [(1, 40), (3, 30)])
def test_numbers_of_their_own_keep_the_rows(block: tuple[int, int]) -> None:
    """Blocks of one row times a number that goes with that row alone could not be told from any others."""
    v = da.from_array(Stored("i8", (40, 40), (4, 4)).array, chunks=block)
    own = da.from_array(np.arange(40)[:, None], chunks=(block[0], 1))
    for weights, moves in ((own, False), (da.arange(40, chunks=block[0])[:, None], False), (2, True)):
        made = (v * weights).sum()
        with stock():
            expected = made.compute(scheduler="sync")
        with switched_on(num_workers=1):
            assert bool([reason for reason in applied(made) if "between" in reason]) == moves
            assert made.compute(scheduler="sync") == expected


def test_blocks_of_planes_are_cut_into_bands() -> None:
    """Blocks smaller than chunks on one axis; a leading axis whose borders move by themselves."""
    for shape, chunk, block in [((200, 200), (20, 20), (12, 38)), ((30, 100, 100), (4, 20, 20), (6, 30, 50))]:
        source = Stored("f8", shape, chunk)
        with stock():
            _, expected = source.gets(lambda v: v.std(), block)
        with switched_on(num_workers=2):
            gets, found = source.gets(lambda v: v.std(), block)
        close(found, expected)
        assert gets == source.array.nchunks


@given(st.data())
@examples(200)
def test_boxes_cover_what_the_blocks_covered(data: st.DataObject) -> None:
    """Each element once, in as many boxes; borders of the last two axes lie between chunks, or stay."""
    grid, chunks = [], []
    for _ in range(data.draw(st.integers(2, 3))):
        lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
        first = data.draw(st.integers(0, 9))
        ends = [first + sum(lengths[:i]) for i in range(len(lengths) + 1)]
        grid.append(list(pairwise(ends)))
        chunks.append(data.draw(st.integers(1, 6)))
    moved = _in_bands(grid, chunks)
    assert list(moved) == list(product(*grid))
    count = np.zeros([ranges[-1][1] for ranges in grid], int)
    for box in moved.values():
        assert all(a < b for a, b in box)
        count[tuple([slice(a, b) for a, b in box])] += 1
    assert (count[tuple([slice(ranges[0][0], None) for ranges in grid])] == 1).all()
    assert count.sum() == np.prod([ranges[-1][1] - ranges[0][0] for ranges in grid])
    if any(a != b for a, b in moved.items()):
        for axis in (-2, -1):
            assert all(
                b % chunks[axis] == 0 or b == grid[axis][-1][1] for *_, b in [m[axis] for m in moved.values()]
            )
