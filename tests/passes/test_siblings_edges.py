"""The edges that neighbours take from a block are copied by one task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task

import dask_rewrite
from helpers import assert_same_as_stock, functions_in, switched_on, tasks_of
from passes.siblings_cases import BLOCKS, SIDE, blocks


def cube(block_id: Any = None) -> Any:
    return np.arange(32.0**3).reshape(32, 32, 32) + 1e5 * sum(block_id)


def smooth(block: Any) -> Any:
    """Nobody knows this."""
    return (block + np.roll(block, 1, 0) + np.roll(block, -1, -1)) / 3


def over(x: Any, depth: Any = 1, boundary: Any = "reflect") -> Any:
    return x.map_overlap(smooth, depth=depth, boundary=boundary, dtype=x.dtype)


def edges(*x: Any) -> list[Task]:
    """The tasks that give edges together."""
    with dask.config.set(num_workers=2, scheduler="threads"):
        return [task for key, task in tasks_of(*x).items() if "siblings-getitem" in str(key)]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: over(x, boundary="none"),
    "reflect": lambda x: over(x, 2).sum(axis=0),
    "periodic": lambda x: over(x, 3, "periodic").max(),
    "nearest": lambda x: over(x, {0: 1, 1: 2}, "nearest").mean(axis=1),
    "constant": lambda x: over(x, 1, 0).T,
    "steps": lambda x: over(over(over(x))).std(),
    "with the block": lambda x: over(x) - x.mean(axis=0),
    "differences": lambda x: abs(da.diff(x, axis=0)).max() + abs(da.diff(x, axis=1)).max(),
    "a stencil of slices": lambda x: (x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, 2:]).max(),
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equivalent(name: str) -> None:
    with dask.config.set(num_workers=2, scheduler="threads"):
        assert_same_as_stock(PROGRAMS[name](blocks()))


@pytest.mark.parametrize("name", ["reflect", "periodic", "steps"])
def test_fires(name: str) -> None:
    y = PROGRAMS[name](blocks())
    found = edges(y)
    assert len(found) >= BLOCKS**2
    assert all(map(_copies, found))
    with dask.config.set(num_workers=2, scheduler="threads"):
        steps = 3 if name == "steps" else 1
        assert len(tasks_of(y)) < (2 * steps + 2) * BLOCKS**2  # edges and work of each step, and loads


def _copies(task: Task) -> bool:
    return any(getattr(each, "__name__", "") == "copy" for each in functions_in(task))


STENCILS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "a difference": lambda x: (abs(x[1:] - x[:-1]).sum(),),
    "two of them": lambda x: (abs(da.diff(x, axis=0)).max(axis=0), abs(da.diff(x, axis=1)).sum(axis=1)),
    "a lag, and the block": lambda x: ((x[:-3] * x[3:]).mean(), x.std(axis=0)),
    "another kind of work after it": lambda x: ((x[2:] - x[:-2]).sum(axis=1).map_blocks(smooth_row).max(),),
}


def smooth_row(block: Any) -> Any:
    return block + np.roll(block, 1)


@pytest.mark.parametrize("name", list(STENCILS))
def test_what_takes_slices_of_one_block_is_done_with_it(name: str) -> None:
    """A difference is as large as the block: only what is made of it is small."""
    side = 12
    with dask.config.set(num_workers=2, scheduler="threads"):
        assert_same_as_stock(*STENCILS[name](blocks(side)))
    with switched_on():
        forecast = dask_rewrite.forecast(*STENCILS[name](blocks(side)), threads=2)
    assert forecast.after.peak < side * SIDE * SIDE * 8  # of those at the ends, which have one edge or two
    assert forecast.after.tasks < 4 * side * side < forecast.before.tasks / 3


def test_steps_that_others_need_are_not_taken_in() -> None:
    x = blocks()
    away = x[1:] - x[:-1]
    for y in ((away, away.sum()), (away.sum(), away.map_blocks(smooth).sum()), ((away * away.T.T).sum(),)):
        with dask.config.set(num_workers=2, scheduler="threads"):
            assert_same_as_stock(*y)


def test_cubes() -> None:
    x = da.map_blocks(cube, chunks=((32,) * 4,) * 3, dtype="f8", meta=np.empty((0, 0, 0)))
    with dask.config.set({"rewrite.options": {"siblings": {"max-tasks": 6}}}):
        assert len(edges(over(x, {0: 1, 1: 0, 2: 0}).sum())) >= 32
        assert_same_as_stock(over(x, {0: 1, 1: 0, 2: 0}).sum(), over(x, 1).max(axis=(0, 2)))


def test_blocks_are_let_go_of() -> None:
    """Two rows of blocks are held, as without, and edges, which are copies."""
    side = 12
    y = over(blocks(side)).sum()
    with switched_on():
        forecast = dask_rewrite.forecast(y, threads=2)
    assert forecast.after.peak < 3 * side * (SIDE * SIDE + 4 * SIDE) * 8
    assert forecast.after.tasks < 4 * side * side < forecast.before.tasks / 2


@pytest.mark.parametrize(
    "y",
    [
        over(blocks(), 10).sum(),  # more than an eighth of a block
        over(blocks().rechunk(50)).sum(),  # batches are made of these
        da.concatenate([blocks()[::2], blocks()[:, 1::2].T]).sum(axis=0),  # halves
    ],
    ids=["wide", "tiny", "halves"],
)
def test_declines(y: Any) -> None:
    assert not edges(y)


def test_blocks_that_are_asked_for_and_those_in_memory() -> None:
    x, memory = blocks(), da.from_array(np.arange(360_000.0).reshape(600, 600), chunks=SIDE)
    with dask.config.set(num_workers=2, scheduler="threads"):
        assert_same_as_stock(x, over(x).sum())
        assert_same_as_stock(over(memory).max(axis=0), memory + 1)
    assert len(edges(over(memory).max(axis=0))) == len(edges(over(x).max(axis=0))) == BLOCKS**2


@pytest.mark.parametrize(("rows", "joined"), [(10, True), (11, False)])
def test_many_edges_are_not_sent_to_everybody(rows: int, joined: bool) -> None:
    """Each row may be needed elsewhere: all users together are sent no more than the block weighs."""
    x = blocks(4)
    row = [[x[SIDE * i + k : SIDE * i + k + 1] for i in range(4)] for k in range(rows)]
    y = [(each[i] - each[i - 1]).map_blocks(smooth).sum() for each in row for i in range(4)]
    assert bool(edges(*y)) == joined
    with dask.config.set(num_workers=1, scheduler="threads"):
        assert_same_as_stock(*y)


def test_all_edges_of_a_block_or_none() -> None:
    """Wide ones stay tasks, and take as long: narrow ones beside them would only wait differently."""
    x = blocks(12)
    both = over(x, {0: 10, 1: 10}) - over(x, 1)
    assert not edges(both.sum())
    with dask.config.set(num_workers=2, scheduler="threads"):
        assert_same_as_stock(both.sum())


def test_a_block_is_not_held_for_a_slice_of_another() -> None:
    """A task that takes slices of two blocks takes neither in: one would wait for the other."""

    def months(block_id: Any = None) -> Any:
        return np.arange(46_080.0).reshape(60, 24, 32) + sum(block_id)

    chunks = ((60,) * 6, (24,) * 2, (32,) * 2)
    x = da.map_blocks(months, chunks=chunks, dtype="f8", meta=np.empty((0, 0, 0)))
    north, south, middle = x[:, 2:, 1:-1], x[:, :-2, 1:-1], x[:, 1:-1, 1:-1]
    y = (north + south + x[:, 1:-1, 2:] + x[:, 1:-1, :-2] - 4 * middle).std(axis=0)
    with dask.config.set(num_workers=2, scheduler="threads", array_optimize=dask_rewrite.optimize):
        found = dask_rewrite.forecast(y, threads=2)
        assert found.after.peak <= found.before.peak
        assert_same_as_stock(y)


class Tagged(np.ndarray):
    """A kind of array that dask does not know."""


@pytest.mark.parametrize("kind", ["masked", "object", "structured", "tagged", "strings"])
def test_other_blocks(kind: str) -> None:
    def turned(block: Any) -> Any:
        if kind == "masked":
            return np.ma.masked_less(block, 0)
        if kind == "object":
            return block.astype(object)
        if kind == "structured":
            return np.stack([block, -block], -1).view([("a", "f8"), ("b", "f8")])[..., 0]
        return block.view(Tagged) if kind == "tagged" else (block * 100).astype("i4").astype("U6")

    x = blocks(4).map_blocks(turned)
    rolled = x.map_overlap(np.roll, depth=1, boundary="periodic", shift=1, axis=0)
    with dask.config.set(num_workers=1, scheduler="threads"):
        assert len(edges(rolled)) == 16
        assert_same_as_stock(rolled, over(x, {0: 1, 1: 0}, "none") if kind in ("masked", "tagged") else x[0])
