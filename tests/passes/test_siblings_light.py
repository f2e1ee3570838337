"""Small results of one block, even of two tasks, are made when the block is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import _shuffle

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.siblings.slices import Slices
from dask_rewrite.passes.site import Site
from dask_rewrite.remarks import Remarks
from helpers import assert_same_as_stock, switched_on, tasks_of
from passes.siblings_cases import BLOCKS, MADE, SIDE, blocks


def twice(block: Any) -> Any:
    return block * 2


def together(*x: Any) -> int:
    """Tasks that give small results of one block together, on two threads."""
    with dask.config.set(num_workers=2, scheduler="threads"):
        return sum("siblings" in str(key) for key in tasks_of(*x))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "two axes": lambda x: (x.mean(axis=0), x.std(axis=1)),
    "a whole and an axis": lambda x: (x.sum(), x.max(axis=0), x.argmin(axis=1)),
    "the block goes on": lambda x: (((x - x.mean(axis=0)) / x.std(axis=0)).max(), x.min(axis=1)),
    "between two extremes": lambda x: (((x - x.min()) / (x.max() - x.min())).map_blocks(twice).sum(axis=0),),
    "pairs of blocks": lambda x: ((x + x.T).max(axis=1), (x + x.T).argmax(axis=1)),
    "after a user's step": lambda x: (x.map_blocks(twice).std(axis=0), x.map_blocks(twice).any(axis=1)),
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_fires(name: str) -> None:
    x = PROGRAMS[name](blocks())
    assert together(*x) >= BLOCKS
    with dask.config.set(num_workers=2, scheduler="threads"):
        assert_same_as_stock(*PROGRAMS[name](blocks()))


def test_blocks_are_made_once_and_let_go_of() -> None:
    two = PROGRAMS["two axes"](blocks())
    MADE.clear()
    with switched_on(), dask.config.set(num_workers=2, scheduler="threads"):
        dask.compute(*two)
        forecast = dask_rewrite.forecast(*two, threads=2)
    assert set(MADE.values()) == {1}
    assert len(MADE) == BLOCKS**2
    assert forecast.after.tasks < BLOCKS**2 * 2
    assert forecast.after.peak < SIDE * SIDE * 8 < forecast.before.peak


DECLINED: dict[str, Callable[[Any], Any]] = {
    "results as large as blocks": lambda x: (x + 1, x * 2),
    "functions that nobody knows": lambda x: tuple(
        x.map_blocks(lambda block, axis=axis: block.sum(axis=axis, keepdims=True), chunks=(1, SIDE)).sum()
        for axis in (0, 1)
    ),
    "blocks of which batches are made": lambda x: (x.rechunk(50).mean(axis=0), x.rechunk(50).std(axis=1)),
    "too few blocks for all threads": lambda x: (x[:SIDE, :SIDE].mean(axis=0), x[:SIDE, :SIDE].std(axis=1)),
    "a view, which would hold its block": lambda x: (
        x.map_blocks(np.diagonal, chunks=(SIDE,), drop_axis=1).sum(),
        x.map_blocks(np.max, axis=1, chunks=(SIDE,), drop_axis=1),
    ),
    "what follows would be part of each": lambda x: (
        x[:, :SIDE].sum(axis=1).map_blocks(twice),
        x[:, :SIDE].std(axis=1).map_blocks(twice),
        x[:, :SIDE].map_blocks(twice),
    ),
    "slices": lambda x: (x[1::SIDE], x[::SIDE]),
    "sizes that nobody knows": lambda x: (x[x[:, 0] > 0].mean(axis=0), x[x[:, 0] > 0].std(axis=1)),
}


@pytest.mark.parametrize("name", list(DECLINED))
def test_declines(name: str) -> None:
    assert together(*DECLINED[name](blocks())) == 0


def test_slices_of_a_block_let_go_of_it() -> None:
    """Each sum takes edges of three other blocks: these are not held until it has all of them."""
    x = da.roll(blocks(12) + 1, 7, 0)
    y = (x * x[::-1]).mean(axis=0)
    with switched_on():
        held = dask_rewrite.forecast(y, threads=2)
    with dask.config.set({"rewrite.disable": ["siblings"]}), switched_on():
        apart = dask_rewrite.forecast(y, threads=2)
    assert held.after.tasks <= apart.after.tasks


@pytest.mark.parametrize(("blocks_of_it", "joined"), [(40, True), (60, False)])
def test_results_of_other_sizes_are_not_held_for_one_another(blocks_of_it: int, joined: bool) -> None:
    """Sums of 320 kB are let go of early, the least values of blocks at the end: 16 MB may wait for these."""
    x = da.map_blocks(row, chunks=((17,) * blocks_of_it, (40_000,)), dtype="f8", meta=np.empty((0, 0)))
    least = x.map_blocks(np.min, keepdims=True, chunks=((1,) * blocks_of_it, (1,)))
    y = x.sum(axis=0), least.sum()
    with dask.config.set({"rewrite.disable": ["stream"]}):
        assert (together(*y) > 0) == joined


def row(block_id: Any = None) -> Any:
    return np.full((17, 40_000), float(sum(block_id)))


def test_a_huge_block_is_worked_on_side_by_side() -> None:
    """What one task does does not run side by side, and small blocks do not make up for that."""
    x = da.map_blocks(row, chunks=((17,), (40_000,)), dtype="f8", meta=np.empty((0, 0)))
    huge, many = (x.std(axis=1).sum(), x.max(axis=0).sum()), PROGRAMS["two axes"](blocks())
    assert together(*many, *huge) == together(*many) == BLOCKS**2


def test_what_results_weigh_is_known_where_the_maker_carries_data() -> None:
    table = np.arange(640_000.0).reshape(800, 800)

    def cut(block_id: Any = None) -> Any:
        return table[block_id[0] : block_id[0] + SIDE, block_id[1] : block_id[1] + SIDE].copy()

    x = da.map_blocks(cut, chunks=((SIDE,) * 8,) * 2, dtype="f8", meta=np.empty((0, 0)))
    with dask.config.set({"rewrite.memory-limit": "500 MB", "num_workers": 2, "scheduler": "threads"}):
        assert_same_as_stock(x.sum(axis=0), x.std(axis=1))  # no warning that it cannot be told


@pytest.mark.parametrize("kind", ["nan", "masked", "object", "structured", "f4"])
def test_other_blocks(kind: str) -> None:
    values: Any = np.arange(4.0 * SIDE * SIDE).reshape(2 * SIDE, 2 * SIDE) - 7
    if kind == "nan":
        values[::5] = np.nan
        values[1::5] = -0.0
    elif kind == "masked":
        values = np.ma.masked_less(values, 500)
    elif kind == "object":
        values = values.astype(object)
    elif kind == "structured":
        values = np.stack([values, -values], -1).view([("a", "f8"), ("b", "f8")])[..., 0]
    else:
        values = values.astype(kind)
    x = da.from_array(values, chunks=SIDE).map_blocks(np.copy)
    x = x["a"] if kind == "structured" else x
    with dask.config.set(num_workers=1, scheduler="threads"):
        assert_same_as_stock(x.sum(axis=0), x.max(axis=1), x.min())


def test_errors_come_through() -> None:
    x = blocks().astype(object)
    x = x.map_blocks(lambda block: np.where(block > 0, block, None))
    with switched_on(), pytest.raises(TypeError):
        dask.compute(x.sum(axis=0), x.max(axis=1), scheduler="threads")


@pytest.mark.parametrize(("shape", "joined"), [((100, 100), False), ((20, 500), True)])
def test_what_is_used_at_once_is_not_held_for_what_waits(shape: tuple[int, int], joined: bool) -> None:
    """Columns are used one by one; with a part of a mean they would stay as long as that does."""
    x = da.map_blocks(sized, shape, chunks=((shape[0],) * 12, shape[1]), dtype="f8", meta=np.empty((0, 0)))
    columns = [x[:, [at]].mean(axis=1) for at in (1, 22, 43, 64)]
    y = (10 * da.log10(da.stack(columns, axis=-1)), x.mean(axis=0))
    assert (together(*y) > 0) == joined
    assert_same_as_stock(*y)


def sized(shape: tuple[int, int], block_id: Any = None) -> Any:
    return np.arange(1.0, shape[0] * shape[1] + 1).reshape(shape) + 1e6 * sum(block_id)


@pytest.mark.parametrize(("blocks_of", "most"), [(1, 8), (8, 8), (9, 8), (12, 11), (12, 12)])
def test_rows_picked_of_a_block_count_as_parts_of_it(blocks_of: int, most: int) -> None:
    """Twelve picks of rows, of one block or several."""
    nodes: dict[Any, Any] = {("x", i): Task(("x", i), np.ones, (4, 4)) for i in range(blocks_of)}
    for i in range(12):
        nodes["rows", i] = DataNode(("rows", i), [i % 3, 3])
        refs = TaskRef(("x", i % blocks_of)), TaskRef(("rows", i))
        nodes["pick", i] = Task(("pick", i), _shuffle._getitem, *refs, 0)
    graph = Graph(nodes, tuple(nodes))
    slices = Slices(Site(graph, Context(Remarks())), nodes)
    assert slices.are_of_more([("pick", i) for i in range(12)], most) == (blocks_of > most)
