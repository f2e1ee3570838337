"""What is decided for many tasks at once is what would have been decided for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_rewrite.lowering import aggregates
from dask_rewrite.passes import fuse_small
from dask_rewrite.passes.movement import isolated
from helpers import assert_same_as_stock, distinct, rewrite_graph, tasks_of


def user(block: Any) -> Any:
    return block * 2 + 1


def load(block_info: Any = None) -> Any:
    i, j = block_info[None]["chunk-location"]
    return np.arange(4.0).reshape(2, 2) + 10 * i + j


def described(tasks: dict[Any, Any]) -> list[Any]:
    return [(key, repr(task), sorted(map(str, task.dependencies))) for key, task in tasks.items()]


def unknown(blocks: int = 6) -> da.Array:
    return da.map_blocks(load, chunks=((2,) * blocks,) * 2, dtype=float, meta=np.empty((0, 0)))


HALOS: dict[str, Callable[[], Any]] = {
    "one": lambda: unknown().map_overlap(user, depth=1),
    "three": lambda: (
        unknown().map_overlap(user, depth=1).map_overlap(user, depth=1).map_overlap(user, depth=1)
    ),
    "a window": lambda: unknown().map_overlap(user, depth=1)[3:7, 4:9],
    "of known blocks": lambda: distinct((12, 12), 2).map_overlap(user, depth=1),
    "periodic, so that a block is its own neighbour": lambda: unknown(2).map_overlap(
        user, depth=1, boundary="periodic"
    ),
    "reflected": lambda: unknown().map_overlap(user, depth=1, boundary="reflect"),
    "sliced before": lambda: unknown()[1:9, 1:9].map_overlap(user, depth=1),
    "concatenated": lambda: da.concatenate([unknown()[:3], unknown().map_blocks(user)[2:]]).map_overlap(
        user, depth=1
    ),
    "rolled": lambda: da.roll(unknown(), 3, axis=0).map_overlap(user, depth=1),
}


@pytest.mark.parametrize("name", HALOS)
def test_halos_of_unknown_blocks_are_left_as_reading_them_would(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a slice with its block to itself may stay a task, if there is still one
    monkeypatch.setattr(fuse_small._Absorbing, "_lets_go", lambda self, task, gathered: False)
    x = HALOS[name]()
    quick = tasks_of(x)
    assert_same_as_stock(x)
    monkeypatch.setattr(isolated, "_joins", lambda *_: [])
    assert sorted(described(quick)) == sorted(described(tasks_of(x)))


def total(blocks: Any, *more: Any) -> Any:
    return np.asarray(blocks, dtype=object).sum() if not more else (blocks, more)


KEYS = [("x", i, j) for i in range(6) for j in range(6)]
FLAT: dict[Any, Any] = {key: i for i, key in enumerate(KEYS)}
#: What twenty rows hold; not all of them can be done at once.
LISTS: dict[str, Callable[[int], Any]] = {
    "keys": lambda i: [("x", i % 6, j) for j in range(6)],
    "ragged": lambda i: [("x", i % 6, j) for j in range(1 + i % 6)],
    "two levels": lambda i: [[("x", k, j) for j in range(3)] for k in range(1 + i % 2)],
    "uneven levels": lambda i: [("x", 0, 0), [("x", 1, i % 6)]],
    "empty lists": lambda i: [[("x", i % 6, 0)], []],
    "nothing": lambda i: [],
    "numbers that are NumPy's": lambda i: [("x", np.int64(i % 6), 0)],
    "numbers of the other kind": lambda i: [("x", float(i % 6), True)],
    "no keys": lambda i: [("x", i, 99), ("x", i % 6, 0)],
    "negative": lambda i: [("x", -1, 0)],
    "other names": lambda i: [("x", i % 6, 0), ("y", 0)],
    "literals": lambda i: [("x", i % 6, 0), i],
    "tasks": lambda i: [(user, ("x", i % 6, 0))],
    "keys that cannot be hashed": lambda i: [("x", [i], 0)],
    "twice": lambda i: [("x", i % 6, 0), ("x", i % 6, 0)],
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("blockwise", [False, True])
def test_rows_of_lists_are_converted_as_one_by_one(
    name: str, blockwise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = (distinct((6, 6), 1) + 1).rechunk(1) if blockwise else None
    first = "x" if x is None else x.name
    rows: dict[Any, Any] = {}
    for i in range(20):
        rows["row", i] = (total, _renamed(LISTS[name](i), first))
    rows["all"] = (list, [("row", i) for i in range(20)])
    if x is None:
        graph = HighLevelGraph(
            {"x": MaterializedLayer(FLAT), "row": MaterializedLayer(rows)}, {"x": set(), "row": {"x"}}
        )
    else:
        layers = {**x.dask.layers, "row": MaterializedLayer(rows)}
        graph = HighLevelGraph(layers, {**x.dask.dependencies, "row": {x.name}})
    quick = rewrite_graph(graph, ["all"], check=False)
    monkeypatch.setattr(aggregates, "FEWEST", 10**9)
    assert described(quick) == described(rewrite_graph(graph, ["all"], check=False))
    assert list(quick) == list(rewrite_graph(graph, ["all"], check=False))


def _renamed(value: Any, first: str) -> Any:
    if type(value) is list:
        return [_renamed(each, first) for each in value]
    if type(value) is tuple and value[0] == "x":
        return (first, *value[1:])
    return tuple(map(_renamed, value, [first] * len(value))) if type(value) is tuple else value


def test_reductions_of_many_blocks() -> None:
    x = distinct((24, 24), 2)
    assert_same_as_stock(x.sum(), x.mean(axis=0), (x + 1).max(axis=1), x.argmax(axis=0), da.cumsum(x, axis=0))
    y = unknown(12)
    assert_same_as_stock((y + 1).mean(axis=0), (y.map_blocks(user) ** 2).mean(), y.std())


def test_annotated_reductions_keep_their_annotations() -> None:
    with dask.annotate(priority=3):
        x = distinct((24, 24), 2).sum()
    assert_same_as_stock(x)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_unknown_functions_inside_of_known_ones_stay_apart(depth: int) -> None:
    def impure() -> Any:
        return next(counter)

    counter = iter(range(1000))
    body: Any = Task(None, impure)
    for _ in range(depth):
        body = Task(None, np.add, body, 1)
    tasks = {("x", i): Task(("x", i), np.negative, body) for i in range(20)}
    tasks["all"] = Task("all", lambda *parts: sorted(parts), *[task.ref() for task in tasks.values()])
    found = rewrite_graph(tasks, ["all"])
    assert dask.get(found, "all") == [-depth - i for i in reversed(range(20))]
