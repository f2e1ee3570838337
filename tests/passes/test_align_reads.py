"""Files are read along their own chunks, and each chunk is decoded once."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from dask.array.core import getter
from dask.callbacks import Callback
from zarr.storage import LoggingStore, MemoryStore

from dask_rewrite.analysis.knowledge.stored import stored_chunks
from dask_rewrite.pipeline.run import Trace, rewrite_tasks
from helpers import (
    allocated,
    assert_same,
    assert_same_as_stock,
    keys_of,
    loads,
    stock,
    stock_tasks_of,
    switched_on,
    tasks_of,
)

SIZE = 200


class Stored:
    """A Zarr array of distinct values whose store counts how often a chunk is read."""

    def __init__(self, chunks: tuple[int, ...] = (20, 20), dtype: str = "f8", **kwargs: Any) -> None:
        store = LoggingStore(MemoryStore(), log_level="ERROR")
        data = np.arange(SIZE * SIZE).reshape(SIZE, SIZE).astype(dtype)
        if dtype == "f8":
            data[::7, ::3] = np.nan
            data[::5, 1::4] = -0.0
        self.array = zarr.create_array(store=store, shape=data.shape, chunks=chunks, dtype=dtype, **kwargs)
        self.array[...] = data
        self.counter = store.counter

    def gets(self, make: Callable[[Any], Any], chunks: Any) -> tuple[int, Any]:
        """How many stored chunks are read, and the results."""
        made = make(da.from_array(self.array, chunks=chunks))
        self.counter.clear()
        several = dask.compute(*(made if type(made) is tuple else (made,)), scheduler="sync")
        return self.counter["get"], several


#: Nobody writes into them, so tests share them.
stored = cache(Stored)


def reasons(made: Any) -> list[tuple[str, str]]:
    trace = Trace()
    rewrite_tasks(made.dask, made.__dask_keys__(), trace=trace)
    return [(r.kind, r.reason) for r in trace.remarks if r.rule == "align-reads"]


def mean_free(block: Any) -> Any:
    return block - np.nanmean(block)


#: Programs over 100 stored chunks of (20, 20): the blocks asked for, and the chunks that are read.
PROGRAMS: dict[str, tuple[Any, Callable[[Any], Any], int]] = {
    "blocks that cut chunks": ((30, 30), lambda v: v.sum(), 100),
    "along one axis": ((30, 40), lambda v: (v + 1).max(axis=0), 100),
    "blocks of several chunks": ((70, 70), lambda v: v * 2, 100),
    "uneven blocks": (((50, 33, 17, 100), (SIZE,)), lambda v: v.min(), 100),
    "unknown function": ((30, 30), lambda v: v.map_blocks(mean_free, dtype="f8").sum(), 100),
    "rechunk": ((20, 20), lambda v: v.rechunk((100, 100)), 100),
    "rechunk twice": ((20, 20), lambda v: v.rechunk((50, 30)).rechunk((100, 100)) + 1, 100),
    "rechunk to smaller": ((40, 40), lambda v: v.rechunk((20, 20)).sum(), 100),
    "rechunk of what cuts chunks": ((30, 30), lambda v: v.rechunk((40, 60)).sum(), 100),
    "rechunk to what cuts chunks": ((20, 20), lambda v: v.rechunk((30, 30)).sum(), 100),
    "rechunk of a slice": ((30, 30), lambda v: v[20:].rechunk((60, 60)).sum(), 90),
    "rechunk and the blocks themselves": ((20, 20), lambda v: (v.rechunk((100, 100)), v.sum()), 100),
    "two uses of blocks that cut chunks": (
        (30, 30),
        lambda v: (v.sum(), (v + 1).rechunk((60, 60)).max()),
        100,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["f8", "i2"])
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:Increasing number of chunks")
def test_each_chunk_is_decoded_once(name: str, dtype: str) -> None:
    chunks, make, wanted = PROGRAMS[name]
    source = stored(dtype=dtype)
    with stock():
        before, expected = source.gets(make, chunks)
    with switched_on():
        after, found = source.gets(make, chunks)
    assert_same(found, expected)
    assert after <= wanted <= before


def test_the_figures_of_large_blocks() -> None:
    store = LoggingStore(MemoryStore(), log_level="ERROR")
    z = zarr.create_array(store=store, shape=(1000, 1000), chunks=(100, 100), dtype="f8")
    z[...] = 1
    with switched_on(num_workers=2):
        for chunks, make, reads in (
            ((150, 150), lambda v: v.sum(), 49),
            ((150, 150), lambda v: v.map_blocks(mean_free, dtype="f8").sum(), 100),
            ((100, 100), lambda v: v.rechunk((500, 500)).map_blocks(np.sin).sum(), 4),
        ):
            made = make(da.from_array(z, chunks=chunks))
            store.counter.clear()
            made.compute(scheduler="sync")
            assert store.counter["get"] == 100
            assert loads(tasks_of(made), getter) == reads


def test_shards_are_what_is_decoded() -> None:
    source = stored(chunks=(10, 10), shards=(40, 40))
    assert stored_chunks(source.array) == (40, 40)
    v = da.from_array(source.array, chunks=(60, 60))
    assert reasons(v + 1) == [("applied", "49 decoded chunks become 25")]
    with stock():
        expected = (v + 1).compute(scheduler="sync")
    with switched_on():
        assert_same((v + 1).compute(scheduler="sync"), expected)


def test_there_are_no_fewer_reads_than_threads() -> None:
    v = da.from_array(stored().array, chunks=(20, 20)).rechunk((100, 100))
    with dask.config.set(scheduler="threads", num_workers=4):
        assert reasons(v) == [("applied", "100 reads become 4")]
    with dask.config.set(scheduler="threads", num_workers=5):
        assert reasons(v) == [("missed", "there would be fewer reads than threads")]


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("chunks", [(20, 20), None])
def test_hdf5(tmp_path: Path, lock: bool, chunks: Any) -> None:
    data = np.arange(SIZE * SIZE, dtype="f4").reshape(SIZE, SIZE)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=data, chunks=chunks)
        v = da.from_array(file["x"], chunks=(30, 30), lock=lock)
        assert reasons(v + 1) == ([("applied", "169 decoded chunks become 100")] if chunks else [])
        with switched_on():
            assert_same((v + 1).compute(scheduler="threads"), data + 1)


def test_who_gets_a_block_may_write_into_it() -> None:
    def writes(block: Any) -> Any:
        block += 1
        return block

    source = stored(dtype="i8")
    v = da.from_array(source.array, chunks=((10, 50, 140), (SIZE,)))
    made = v.map_blocks(writes, dtype="i8", meta=np.empty((0, 0), "i8")), v
    with stock():
        expected = dask.compute(made[0], scheduler="sync") + dask.compute(made[1], scheduler="sync")
    with switched_on():
        assert_same(
            dask.compute(made[0], scheduler="sync") + dask.compute(made[1], scheduler="sync"), expected
        )


@pytest.mark.parametrize(
    ("chunks", "make"),
    [
        ((20, 20), lambda v: v.sum()),
        ((100, 40), lambda v: v + 1),
        ((190, 100), lambda v: v + 1),
        ((1, SIZE), lambda v: v[:60:20, 5:6]),
    ],
    ids=["aligned", "several chunks each", "hardly cut", "each in a chunk of its own"],
)
def test_leaves_alone(chunks: Any, make: Callable[[Any], Any]) -> None:
    assert reasons(make(da.from_array(stored().array, chunks=chunks))) == []


def test_leaves_other_sources_alone() -> None:
    class Lazy:
        shape, dtype, ndim, chunks = (SIZE, SIZE), np.dtype("f8"), 2, (20, 20)

        def __getitem__(self, index: Any) -> Any:
            return np.ma.masked_less(np.arange(float(SIZE * SIZE)).reshape(SIZE, SIZE)[index], 7)

    v = da.from_array(Lazy(), chunks=(30, 30), asarray=False)
    assert stored_chunks(Lazy()) is None
    assert reasons(v + 1) == []


def test_annotations_go_to_the_aligned_reads() -> None:
    with dask.annotate(priority=3):
        v = da.from_array(stored().array, chunks=(30, 30))
    graph = rewrite_tasks((v + 1).dask, (v + 1).__dask_keys__())
    assert graph is not None
    units = [key for key in graph.nodes if "aligned" in str(key)]
    assert units
    assert all(graph.annotations[key] == {"priority": 3} for key in units)


def held_bytes(made: Any) -> int:
    """The most bytes of results that wait for a task which needs them."""
    now = most = 0
    held: dict[Any, int] = {}

    def after(key: Any, result: Any, dsk: Any, state: Any, worker: Any) -> None:
        nonlocal now, most
        held[key] = result.nbytes if isinstance(result, np.ndarray) else 0
        now += held[key]
        most = max(most, now)
        for one in (key, *state["dependencies"][key]):
            if one not in state["cache"]:
                now -= held.pop(one, 0)

    with Callback(posttask=after):
        made.compute(scheduler="sync")
    return most


def test_only_chunks_of_two_blocks_are_held() -> None:
    """A row of blocks of (50, 200) over chunks of (20, 20): the chunks on a border are half of 20 x 200."""
    v = da.from_array(stored().array, chunks=(50, SIZE)).map_blocks(mean_free, dtype="f8").sum()
    with switched_on():
        assert loads(tasks_of(v), getter) == 4 + 2
        assert held_bytes(v) <= 2 * 20 * SIZE * 8 + 100


@pytest.mark.parametrize(
    ("chunks", "held", "wanted"),
    [((30, 30), 2**24, 100), ((30, 30), 2000 * 8, 130), ((30, 30), 1, 169), ((50, SIZE), 1, 120)],
)
def test_memory_goes_before_reads(chunks: Any, held: int, wanted: int) -> None:
    """Chunks are decoded again along the leading axis, or along all, rather than held."""
    source = stored()
    with stock(), dask.config.set(num_workers=1):
        before, expected = source.gets(lambda v: v + 1, chunks)
    with switched_on(**{"rewrite.options": {"align-reads": {"max-held": held}}}, scheduler="sync"):
        after, found = source.gets(lambda v: v + 1, chunks)
    assert_same(found, expected)
    assert after <= before
    assert after == wanted


def test_unknown_functions_are_given_blocks_of_their_own() -> None:
    """Some take contiguous blocks only; others write into them, as may those of another array of the file."""
    array = stored(dtype="i8").array

    def digest(block: Any) -> Any:
        return np.full((1, 1), zlib.crc32(block))

    def doubled(block: Any) -> Any:
        block *= 2
        return block

    def program() -> Any:
        u, v, w = (da.from_array(array, chunks=chunks) for chunks in (10, 5, 4))
        return (
            u.map_blocks(digest, chunks=((1,) * 20,) * 2, dtype="i8"),
            v.map_blocks(doubled, dtype="i8"),
            w.map_blocks(doubled, dtype="i8").T,
        )

    with stock():
        expected = dask.compute(*program(), scheduler="sync")
    with switched_on(scheduler="sync"):
        found = dask.compute(*program())
        (alone,) = dask.compute(program()[0])
    assert_same(found, expected)
    assert_same(alone, expected[0])


def test_chunks_are_decoded_again_along_the_axis_whose_neighbours_come_last() -> None:
    """Columns are summed up one after the other: chunks between two of them would wait for a whole one."""
    source = stored()

    def program(v: da.Array) -> da.Array:
        return v.map_blocks(mean_free, dtype="f8").sum(axis=0)

    with stock():
        before, expected = source.gets(program, (30, 30))
    for held, wanted in ((200 * 20 * 8 * 2, 100), (2000 * 8, 130), (1, 169)):
        with switched_on(**{"rewrite.options": {"align-reads": {"max-held": held}}}, scheduler="sync"):
            after, found = source.gets(program, (30, 30))
        assert_same(found, expected)
        assert (before, after) == (169, wanted), held


def test_large_blocks_are_put_together_only_where_that_saves_much() -> None:
    """A copy of 5 MB for each thread: too much for a sixth of the chunks, not for half of them."""
    z = zarr.zeros((1200, 1200), chunks=(200, 200), dtype="f8")
    few, many = (da.from_array(z, chunks=chunks) + 1 for chunks in ((500, 1200), (500, 700)))
    with dask.config.set(scheduler="threads", num_workers=3):
        assert reasons(few) == [("applied", "42 decoded chunks become 36")]
        assert reasons(many) == [("applied", "49 decoded chunks become 36")]
    with dask.config.set(scheduler="threads", num_workers=8):
        reason = "to put large blocks together takes memory, and saves few chunks"
        assert reasons(few) == [("missed", reason)]
        assert reasons(many) == [("applied", "49 decoded chunks become 36")]


def test_boxes_that_two_tasks_read_are_read_once() -> None:
    """Blocks of one array that are blocks of another too, one of them written into."""
    source = stored(dtype="i8")
    v = da.from_array(source.array, chunks=((10, 50, 140), (SIZE,)))
    w = da.from_array(source.array, chunks=((10, 40, 150), (SIZE,)))
    with stock():
        before, expected = source.gets(lambda _: (v.sum(), (w + 1).max(axis=0), w), SIZE)
    with switched_on():
        after, found = source.gets(lambda _: (v.sum(), (w + 1).max(axis=0), w), SIZE)
    assert_same(found, expected)
    assert after <= before


def test_the_parts_of_a_block_are_not_there_at_the_same_time(tmp_path: Path) -> None:
    """A block of 3.9 MB, what waits for the next one, and a run of chunks; it was the block twice."""
    with h5py.File(tmp_path / "x.h5", "w", rdcc_nbytes=0) as file:
        data = np.arange(1400.0 * 1400).reshape(1400, 1400)
        v = da.from_array(file.create_dataset("x", data=data, chunks=(100, 100)), chunks=(350, 1400)).sum()
        with switched_on(num_workers=1):
            after, before = tasks_of(v), stock_tasks_of(v)
        assert dask.get(after, keys_of(v))[0] == dask.get(before, keys_of(v))[0]
        taken = allocated(lambda: dask.get(after, keys_of(v)))
        assert taken <= 1.7 * allocated(lambda: dask.get(before, keys_of(v)))


@pytest.mark.parametrize("dtype", [">f4", "?", "c16", ">i2"])
@pytest.mark.parametrize("chunks", [(330, 333), (500, 1000), 150])
def test_blocks_of_several_runs(tmp_path: Path, dtype: str, chunks: Any) -> None:
    values = (np.arange(1000 * 1000).reshape(1000, 1000) % 1013).astype(dtype)
    values[::7, ::5] = 0
    with h5py.File(tmp_path / "x.h5", "w") as file:
        stored = file.create_dataset("x", data=values, chunks=(70, 90))
        v = da.from_array(stored, chunks=chunks)
        for made in (v, v.T, v.map_blocks(lambda block: block[::-1].copy(), dtype=v.dtype), v.max(axis=0)):
            with stock():
                expected = made.compute(scheduler="sync")
            with switched_on(num_workers=2):
                assert_same(made.compute(scheduler="sync"), expected)


@pytest.mark.parametrize("chunks", [(5, 100), (12, 100), (5, 60)])
def test_files_in_fortran_order_are_read_as_written(chunks: Any, tmp_path: Any) -> None:
    """Rows of blocks that lie otherwise in memory are summed up in another order."""
    values = (np.arange(1200.0).reshape(12, 100) * 7 % 97 + 1) / 7
    file = zarr.create_array(str(tmp_path / "x"), data=values, chunks=(4, 50), config={"order": "F"})
    x = da.from_array(file, chunks=chunks).rechunk((4, 100)) / 3
    assert_same_as_stock(x.mean(axis=-1, keepdims=True))
