"""Blocks that lie alike on stored chunks are cut alike, and what is done to all of them is looked at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
import zarr
from dask._task_spec import DataNode, Task, TaskRef
from dask.array.core import getter
from dask.local import get_sync
from toolz import pipe

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.align_reads import AlignReads, edit, texts, totals
from dask_rewrite.passes.align_reads.reads import File
from dask_rewrite.passes.context import Context
from dask_rewrite.pipeline.run import rewrite_tasks
from helpers import switched_on


def stored(blocks: int) -> tuple[np.ndarray, Any]:
    """Chunks of 4 x 4 below so many blocks of 6 x 6."""
    size = 6 * blocks
    data = np.arange(size * size).reshape(size, size) % 9973
    source = zarr.create_array(zarr.storage.MemoryStore(), shape=data.shape, chunks=(4, 4), dtype=data.dtype)
    source[...] = data
    return data, source


def twice(block: np.ndarray) -> np.ndarray:
    return block * 2


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "summed up": lambda x: x.sum(),
    "used twice, and summed up": lambda x: da.where(x > 50, x, -x).sum(),
    "seen": lambda x: x.map_blocks(twice, dtype=x.dtype),
    "rows are summed up": lambda x: (x + 1).sum(axis=1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tasks_are_opened_once_for_all_that_do_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = 0
    found = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal opened
            opened += 1
            return real(*args)

        return call

    for module, called in (totals, "steps_of"), (edit, "steps_of"), (texts, "program_task"):
        monkeypatch.setattr(module, called, counted(getattr(module, called)))
    for blocks in 16, 32:
        made = PROGRAMS[name](da.from_array(stored(blocks)[1], chunks=6))
        opened = 0
        rewrite_tasks(made.dask, made.__dask_keys__())
        found.append(opened)
    assert 0 < found[1] <= 2 * found[0] < 80  # four times the blocks, twice the rows


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("blocks", [1, 2, 5, 9])
def test_blocks_are_their_own(name: str, blocks: int) -> None:
    data, source = stored(blocks)
    made = PROGRAMS[name](da.from_array(source, chunks=6))
    expected = PROGRAMS[name](da.from_array(data, chunks=6)).compute(scheduler="sync")
    with switched_on():
        np.testing.assert_array_equal(made.compute(scheduler="sync"), expected)


def test_an_index_that_two_reads_share_stays_the_other_ones() -> None:
    data, source = stored(4)
    nodes: dict[Any, Any] = {"f": DataNode("f", source), "g": DataNode("g", data * 10)}
    for i in range(0, 24, 6):
        index = (slice(i, i + 6), slice(0, 24))
        parts = [Task(None, getter, TaskRef(name), index) for name in "fg"]
        nodes["y", i] = Task(("y", i), np.add, *parts)
    graph = Graph(nodes, tuple(("y", i) for i in range(0, 24, 6)))
    context = Context()
    made = AlignReads().run(graph, context)
    assert made is not graph
    assert any(key[0] not in ("y", "f", "g") for key in made.nodes)  # chunks that lie in two blocks

    got = get_sync(dict(made.nodes), list(made.outputs))
    np.testing.assert_array_equal(np.concatenate(got), data * 11)


@pytest.mark.parametrize("twice", [False, True])
def test_an_index_may_stand_in_a_node_of_its_own(twice: bool) -> None:
    """What `dask.optimize` gave back is optimized again: programs that hold such nodes are alike, or read."""
    data, source = stored(4)
    nodes: dict[Any, Any] = {"f": DataNode("f", source), "g": DataNode("g", data * 10)}
    rows = {("y", i): DataNode(None, (slice(i, i + 6), slice(0, 24))) for i in range(0, 24, 6)}
    for key, index in rows.items():
        read = Task(None, getter, TaskRef("f"), index)
        other = Task(None, getter, TaskRef("g"), index) if twice else 1
        nodes[key] = Task(key, np.add, read, other)
    made = AlignReads().run(Graph(nodes, tuple(rows)), Context())
    assert any(key[0] not in ("y", "f", "g") for key in made.nodes)  # chunks that lie in two blocks
    got = get_sync(dict(made.nodes), list(rows))
    np.testing.assert_array_equal(np.concatenate(got), data * 11 if twice else data + 1)


def test_what_was_hoisted_is_optimized_again() -> None:
    data = np.arange(35, dtype="u1").reshape(5, 7)
    x = da.from_zarr(zarr.array(data, chunks=(4, 3)))
    y = da.concatenate([x, x[::-1]])[1:]
    parts = [dask.delayed(lambda block: [block])(part) for part in x.to_delayed().ravel().tolist()[:4]]
    bag = db.from_delayed(parts)
    hoist = {"rewrite.options": {"hoist": {"min-bytes": 1, "min-saved": 1}}, "rewrite.on-error": "raise"}
    with switched_on(**hoist):
        found, blocks = dask.compute(*dask.optimize(y, bag), scheduler="sync")
    np.testing.assert_array_equal(found, np.concatenate([data, data[::-1]])[1:])
    for block, part in zip(blocks, (data[:4, :3], data[:4, 3:6], data[:4, 6:], data[4:, :3])):
        np.testing.assert_array_equal(block, part)


def test_a_block_that_is_treated_otherwise_is_seen() -> None:
    data, source = stored(4)
    x = da.from_array(source, chunks=6)
    made = da.concatenate([x[:6] * 2, x[6:] * 3]).sum()
    with switched_on():
        assert made.compute(scheduler="sync") == (data[:6] * 2).sum() + (data[6:] * 3).sum()


class Model:
    def twice(self, block: Any) -> Any:
        return block * 2

    def thrice(self, block: Any) -> Any:
        return block * 3


def test_two_methods_of_one_object_are_two_functions() -> None:
    data, source = stored(8)
    model = Model()
    rows = {("y", i): (slice(i, i + 6), slice(0, 48)) for i in range(0, 48, 6)}
    nodes: dict[Any, Any] = {"f": DataNode("f", source)}
    for key, index in rows.items():
        work = model.twice if key[1] < 24 else model.thrice
        nodes[key] = Task(key, work, Task(None, getter, TaskRef("f"), index))
    graph = Graph(nodes, tuple(rows))
    made = AlignReads().run(graph, Context())
    assert made is not graph
    got = get_sync(dict(made.nodes), list(rows))
    np.testing.assert_array_equal(np.concatenate(got), np.concatenate([data[:24] * 2, data[24:] * 3]))


@pytest.mark.parametrize("by_name", [False, True])
def test_locks_that_programs_are_given_are_not_taken_for_one(by_name: bool) -> None:
    names = {name: TaskRef(name) for name in ("file", "index", "lock")}
    read = Task(None, getter, *list(names.values())[:2], *([] if by_name else [False, names["lock"]]))
    read = Task(None, getter, names["file"], names["index"], lock=names["lock"]) if by_name else read
    first = Task(None, dict, block=read)
    last = Task(None, np.add, TaskRef("block"), TaskRef("block"))
    file = File("f", stored(4)[1], (4, 4))
    for lock in TaskRef("one"), TaskRef("other"), threading.Lock():
        given = Task(None, dict, file=TaskRef("f"), index=(slice(0, 6), slice(0, 6)), lock=lock)
        learnt = file.learn("y", Task("y", pipe, given, first.__call__, last.__call__))
        assert learnt is (type(lock) is not TaskRef)
    other = Task(None, dict, file=TaskRef("f"), index=(slice(0, 6), slice(0, 6)), lock=threading.Lock())
    assert not file.learn("z", Task("z", pipe, other, first.__call__, last.__call__))
