"""Parts of large blocks, and the tasks that take them."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef
from dask.array import chunk

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.siblings import Siblings
from dask_rewrite.remarks import Remarks
from helpers import assert_same, assert_same_as_stock, stock_tasks_of, switched_on, tasks_of

#: Rows of a block of 5.1 MB.
ROWS, WIDTH = 64, 10_000


def block(name: str, rows: int = ROWS) -> Task:
    numbers = Task(None, chunk.arange, 0, rows * WIDTH, 1, rows * WIDTH, np.dtype("f8"))
    return Task((name, 0), np.reshape, numbers, (rows, WIDTH))


def row(name: str, of: str, i: int, width: int = WIDTH) -> Task:
    return Task((name, i), chunk.getitem, TaskRef((of, 0)), (slice(i, i + 1), slice(0, width)))


def ref(name: str, i: int = 0) -> TaskRef:
    return TaskRef((name, i))


def summed(key: Any, inner: Any) -> Task:
    return Task(key, chunk.sum, inner, axis=1, keepdims=True)


def run(tasks: Sequence[Task], wanted: str, **options: Any) -> Counter[str]:
    """Tasks by their names, of what is left of a graph; answers are the same."""
    graph = Graph({task.key: task for task in tasks}, tuple(t.key for t in tasks if t.key[0] in wanted))
    with dask.config.set(num_workers=2, scheduler="threads"):
        after = Siblings(**options).run(graph, Context(Remarks()))
    verify(after, thorough=True)
    assert_same(dask.get(after.nodes, list(graph.outputs)), dask.get(graph.nodes, list(graph.outputs)))
    return Counter(str(key[0]).partition("-")[0] for key in after.nodes)


@pytest.mark.parametrize(("rows", "alone"), [(1, True), (30, False)])
def test_it_does_not_travel_to_another(rows: int, alone: bool) -> None:
    """Each row, and a block of 0.1 or of 2.4 MB: to the latter rows are sent."""
    tasks = [block("x"), Task(("m", 0), operator.getitem, block("n", rows), slice(None))]
    for i in range(ROWS):
        tasks += [row("s", "x", i), Task(("z", i), np.add, ref("s", i), ref("m"))]
    assert run(tasks, "z")["s"] == (0 if alone else ROWS)


def test_nor_to_one_of_a_size_that_nobody_knows() -> None:
    tasks = [block("x"), Task(("m", 0), lambda: np.arange(float(WIDTH)))]
    for i in range(ROWS):
        tasks += [row("s", "x", i), Task(("z", i), np.add, ref("s", i), ref("m"))]
    assert run(tasks, "z")["s"] == ROWS


@pytest.mark.parametrize(("width", "taken"), [(WIDTH, True), (WIDTH // 2, False)])
def test_it_is_not_held_for_half_of_it(width: int, taken: bool) -> None:
    """Dask copies what is half of a block, and lets go of the rest."""
    tasks = [block("x"), Task(("m", 0), chunk.arange, 0, width, 1, width, np.dtype("f8"))]
    for i in range(ROWS):
        tasks += [row("s", "x", i, width), Task(("z", i), np.add, ref("s", i), ref("m"))]
    assert run(tasks, "z")["s"] == (0 if taken else ROWS)


@pytest.mark.parametrize("light", [True, False])
def test_what_its_slices_leave_is_one_task_if_it_is_light(light: bool) -> None:
    """Rows less something else, or sums of these."""
    tasks = [block("x"), Task(("m", 0), chunk.arange, 0, WIDTH, 1, WIDTH, np.dtype("f8"))]
    for i in range(ROWS):
        less = Task(("y", i), np.subtract, ref("s", i), ref("m"))
        work = summed(("y", i), less) if light else less
        tasks += [row("s", "x", i), work, Task(("z", i), np.add, ref("y", i), i)]
    left = run(tasks, "z", max_bytes=1_000_000)
    assert (left["s"], left["siblings"], left["y"]) == ((0, 8, 0) if light else (0, 0, ROWS))


@pytest.mark.parametrize("sliced", [True, False])
def test_two_large_blocks_stay_where_they_are(sliced: bool) -> None:
    tasks = [block("x"), block("w")]
    for i in range(ROWS):
        less = Task(None, np.subtract, ref("s", i), ref("t", i) if sliced else ref("w"))
        tasks += [row("s", "x", i), summed(("y", i), less), Task(("z", i), np.add, ref("y", i), i)]
        tasks += [row("t", "w", i)] if sliced else []
    left = run(tasks, "z")
    assert (left["s"], left["y"]) == (ROWS, ROWS)


def test_reductions_of_all_of_it_go_together_beside_those_of_slices() -> None:
    kinds: tuple[Callable[..., Any], ...] = (chunk.sum, chunk.max, chunk.min)
    tasks = [Task(("m", 0), chunk.arange, 0, WIDTH, 1, WIDTH, np.dtype("f8"))]
    for b in "abcdefgh":
        tasks.append(block(f"x{b}"))
        for i in range(ROWS):
            less = Task(None, np.subtract, ref(f"s{b}", i), ref("m"))
            tasks += [row(f"s{b}", f"x{b}", i), summed((f"y{b}", i), less)]
            tasks.append(Task((b, i), np.add, ref(f"y{b}", i), i))
        for j, func in enumerate(kinds):
            less = Task(None, np.subtract, ref(f"x{b}"), ref("m"))
            tasks.append(Task((f"v{b}", j), func, less, axis=1, keepdims=True))
            after = chr((ord(b) - ord("a") + 1) % 8 + ord("a"))
            tasks.append(Task((b, ROWS + j), np.add, ref(f"v{b}", j), ref(f"v{after}", j)))
    left = run(tasks, "abcdefgh")
    assert left["siblings"] == 16  # one of slices and one of whole blocks, of each
    assert not [name for name in left if name[0] in "svy" and name != "siblings"]


def load(block_info: Any = None) -> Any:
    """A block of a function that nobody knows."""
    shape = block_info[None]["chunk-shape"]
    return np.arange(np.prod(shape), dtype="f8").reshape(shape) + sum(block_info[None]["chunk-location"])


@pytest.mark.parametrize("rows", [64, 4096])
def test_equivalent(rows: int) -> None:
    """Blocks of 0.1 and 8.4 MB in 64 parts each, less a mean: no part is a task of its own."""
    x = da.map_blocks(load, chunks=((rows,) * 4, (256,)), dtype=float, meta=np.empty((0, 0)))
    y = abs(x.rechunk((rows // 64, 256)) - x.mean(axis=0))
    assert len(tasks_of(y)) < 4 * 64 + 16 < len(stock_tasks_of(y)) / 2
    assert_same_as_stock(y)


def test_no_more_is_held_than_by_dask() -> None:
    """Half of blocks of 4.8 MB less their mean."""
    x = da.map_blocks(load, chunks=((1,) * 20, (12,), (50_000,)), dtype=float, meta=np.empty((0, 0, 0)))
    y = abs(x[:, :6].rechunk((1, 1, 50_000)) - x.mean(axis=(0, 1))).max(axis=0)
    with switched_on(scheduler="threads", num_workers=2):
        found = dask_rewrite.forecast(y, threads=2)
    assert found.after.peak < 1.2 * found.before.peak
