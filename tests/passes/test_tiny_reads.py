"""Tiny reads go into the task that gathers them."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.array.core import getter
from zarr.storage import LoggingStore, MemoryStore

from dask_rewrite.graph.nesting import nesting
from helpers import (
    MAX_NESTING,
    assert_same,
    assert_same_as_stock,
    loads,
    stock_tasks_of,
    switched_on,
    tasks_of,
)

ROWS, COLUMNS = 100, 16


def stored(blocks: int = 400, rows: int = ROWS, dtype: str = "f8") -> tuple[Any, Any, Any]:
    """A Zarr array of tiny chunks, its values, and how often these are read."""
    store = LoggingStore(MemoryStore(), log_level="ERROR")
    z = zarr.create_array(store=store, shape=(blocks * rows, COLUMNS), chunks=(rows, COLUMNS), dtype=dtype)
    values = np.arange(blocks * rows * COLUMNS).reshape(blocks * rows, COLUMNS) % 8191 / 7
    z[...] = values.astype(dtype)
    return z, values.astype(dtype), store.counter


def readers(made: Any) -> list[Any]:
    """The tasks that read."""
    with switched_on():
        graph = tasks_of(made)
    return [node for node in graph.values() if loads({0: node}, getter)]


PROGRAMS: dict[str, Any] = {
    "squares": lambda x: ((x + 1) ** 2).sum(),
    "mean of each column": lambda x: (x + 1).mean(axis=0),
    "extremes": lambda x: x.max(axis=0),
    "joined": lambda x: x.rechunk((10 * ROWS, COLUMNS)) * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_fires(name: str) -> None:
    z, _, counter = stored()
    made = PROGRAMS[name](da.from_array(z, chunks=(ROWS, COLUMNS)))
    with dask.config.set(scheduler="threads", num_workers=2):
        assert len(readers(made)) < 400
        assert_same_as_stock(made)
        counter.clear()
        with switched_on():
            made.compute()
        assert counter["get"] == 400


def test_the_figure() -> None:
    """2,000 reads of 6 kB."""
    z, _, _ = stored(2000, 50)
    made = ((da.from_array(z, chunks=(50, 16)) + 1) ** 2).sum()
    with switched_on(scheduler="threads", num_workers=2):
        graph = tasks_of(made)
    assert len(stock_tasks_of(made)) > 2600
    assert len(graph) <= 150
    assert max(map(nesting, graph.values())) <= MAX_NESTING


@pytest.mark.parametrize("threads", [1, 2, 7, 16, 40, 60])
def test_there_is_enough_for_all_threads(threads: int) -> None:
    z, _, _ = stored()
    made = (da.from_array(z, chunks=(ROWS, COLUMNS)) + 1).sum()
    with dask.config.set(scheduler="threads", num_workers=threads):
        found = len(readers(made))
    assert found >= 4 * threads
    assert (found < 400) == (threads < 60)


@pytest.mark.parametrize(("most", "tasks"), [(1, 400), (2, 200), (5, 100), (64, 25)])
def test_no_more_go_together_than_one_allows(most: int, tasks: int) -> None:
    """In steps of a reduction, which take in four: two of them, or all."""
    z, _, _ = stored()
    made = (da.from_array(z, chunks=(ROWS, COLUMNS)) + 1).sum()
    options = {"rewrite.options": {"fuse-small": {"max-reads": most}}}
    with dask.config.set({"scheduler": "threads", "num_workers": 2, **options}):
        assert len(readers(made)) == tasks
        assert_same_as_stock(made)


def test_reads_do_not_wait_for_other_work() -> None:
    """Each of these is added to the sum of all before it."""
    z, _, _ = stored()
    x = da.from_array(z, chunks=(ROWS, COLUMNS))
    total = x[:ROWS]
    for i in range(1, 200):
        total = total + x[i * ROWS : (i + 1) * ROWS]
    with dask.config.set({"scheduler": "threads", "num_workers": 2, "rewrite.reassociate": False}):
        assert len(readers(total)) >= 8
        assert_same_as_stock(total)


def test_tasks_that_read_keep_their_mark() -> None:
    z, _, _ = stored()
    made = (da.from_array(z, chunks=(ROWS, COLUMNS)) + 1).sum()
    with dask.config.set(scheduler="threads", num_workers=2):
        assert all(node.data_producer for node in readers(made))


def unknown(block: Any) -> Any:
    """Nobody knows how long this takes."""
    return block * 2


class Lazy:
    """Nobody knows what this reads."""

    shape, dtype, ndim = (400, 4), np.dtype("f8"), 2

    def __getitem__(self, index: Any) -> Any:
        return np.arange(1600.0).reshape(400, 4)[index]


@pytest.mark.parametrize(
    "make",
    [
        lambda: da.from_array(stored()[0], chunks=(ROWS, COLUMNS)).map_blocks(unknown, dtype="f8"),
        lambda: da.from_array(Lazy(), chunks=(1, 4)),
        lambda: da.from_array(stored(40, 1000)[0], chunks=(1000, COLUMNS)),
    ],
    ids=["unknown work", "unknown source", "large reads"],
)
def test_declines(make: Any) -> None:
    made = make()
    with dask.config.set(scheduler="threads", num_workers=1):
        before = loads(stock_tasks_of(made.sum()), getter)
        assert len(readers(made.sum())) == before > 0
        assert_same_as_stock(made.sum())


def test_what_is_asked_for_or_used_twice_stays() -> None:
    z, _, counter = stored()
    x = da.from_array(z, chunks=(ROWS, COLUMNS)) + 1
    with switched_on(scheduler="threads", num_workers=2):
        counter.clear()
        found = dask.compute(x, x.sum())
        assert counter["get"] == 400
        with dask.annotate(priority=1):
            y = x.sum()
        assert len(readers(y)) == 400 or len(readers(x.sum())) < 400
    assert_same(found[1], x.sum().compute())


@pytest.mark.parametrize("dtype", ["i1", "f4", "c16"])
def test_other_numbers(dtype: str) -> None:
    z, _, _ = stored(dtype=dtype)
    x = da.from_array(z, chunks=(ROWS, COLUMNS))
    with dask.config.set(scheduler="threads", num_workers=2):
        assert_same_as_stock(x.sum(), (x * 2).mean(axis=0), x.prod(axis=1)[:7])


def test_names_are_not_those_of_other_tasks() -> None:
    """What a scheduler gets under one name waits for one thing, whoever optimized."""
    z, _, _ = stored()
    lon = da.arange(64, chunks=8)
    made = (da.from_array(z, chunks=(ROWS, COLUMNS)) + 1).sum(), (lon[:, None] * lon[None]).sum()
    others = [dict(made[0].dask), dict(made[1].dask), stock_tasks_of(made[0]), stock_tasks_of(made[1])]
    with switched_on(scheduler="threads", num_workers=2):
        ours = tasks_of(*made)
    for theirs in others:
        for key in ours.keys() & theirs.keys() - {key for one in made for key in one.__dask_keys__()}:
            waits_for = getattr(theirs[key], "dependencies", frozenset())
            assert ours[key].dependencies == waits_for or loads({0: theirs[key]}, getter), key


def test_tiny_blocks_that_are_made_out_of_nothing() -> None:
    x = da.random.default_rng(1).random((160, 160), chunks=8)
    with dask.config.set(scheduler="threads", num_workers=2):
        for made in (x.sum(), x.max(axis=0), (x + 1).std(axis=1)):
            with switched_on():
                assert len(tasks_of(made)) < 400 / 2
            assert_same_as_stock(made)
        unknown = x.map_blocks(lambda block: block * 2).sum()
        with switched_on():
            assert len(tasks_of(unknown)) >= 400  # what they take is not known
        large = da.random.default_rng(1).random((640, 1280), chunks=(64, 160)).sum()
        with switched_on():
            assert len(tasks_of(large)) >= 80


def test_tiny_blocks_that_others_use_stay() -> None:
    x = da.random.default_rng(1).random((160, 160), chunks=8)
    assert_same_as_stock(x.sum(), x)
    assert_same_as_stock(x.max(), x.T[:9], x - x.min())
