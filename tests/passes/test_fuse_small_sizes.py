"""How large blocks are decides what goes into the tasks that use it."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.array import chunk

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.regrid.write import JOIN
from helpers import assert_same_as_stock, distinct, switched_on, tasks_of
from passes.test_fuse_small import run


@pytest.mark.parametrize(("side", "stays"), [(64, True), (8, False)])
def test_steps_of_reductions_that_take_in_much_stay_tasks(side: int, stays: bool) -> None:
    """What they take in is let go of as soon as it is there, and dask's order sees where."""
    x = distinct((64, side, side), (1, -1, -1))
    v = distinct((64, side, side), (1, -1, -1)) + 1
    both = (x * v).mean(axis=0), (v / (x + 1)).mean(axis=0)
    with dask.config.set({"rewrite.disable": ["stream"]}):
        steps = [key for key in tasks_of(*both) if "combine" in str(key)]
        assert (len(steps) == 2 * (16 + 4)) is stays
        found = dask_rewrite.forecast(*both, threads=1, workers=2)
    assert not stays or found.after.peak <= 1.25 * found.before.peak


def slices_of_a_large_block(others: int) -> Graph:
    nodes: dict[Any, Any] = {"x": DataNode("x", np.arange(40_000.0).reshape(400, 100))}
    for i in range(6):
        nodes["s", i] = Task(("s", i), operator.getitem, TaskRef("x"), (i, slice(None)))
    nodes["half"] = Task("half", sum, List(*[TaskRef(("s", i)) for i in range(3)]))
    more = [TaskRef(("s", i)) for i in range(3, 6)]
    for i in range(others):
        nodes["o", i] = DataNode(("o", i), np.ones(100))
        more.append(TaskRef(("o", i)))
    nodes["all"] = Task("all", sum, List(TaskRef("half"), *more))
    return Graph(nodes, ("all",))


def test_small_slices_of_a_large_block_go_into_who_waits_for_that_alone() -> None:
    after, _ = run(slices_of_a_large_block(0))
    assert set(after.nodes) == {"x", "all"}


def test_a_large_block_is_not_held_for_other_work() -> None:
    after, _ = run(slices_of_a_large_block(1))
    assert set(after.nodes) == {"x", "half", *[("s", i) for i in range(3, 6)], ("o", 0), "all"}
    assert after.nodes["half"].dependencies == {"x"}


def test_means_of_small_blocks_go_into_one_task() -> None:
    x = distinct((64, 64), 8)
    y = (x - x.mean(axis=0))[:3, :3]
    assert len(tasks_of(y)) <= 9
    assert_same_as_stock(y)


@pytest.mark.parametrize(("mean", "steps"), [(da.mean, 2), (da.nanmean, 2), (da.nanmean, 1)])
def test_what_is_gathered_does_not_hold_what_it_was_made_of(mean: Any, steps: int) -> None:
    """A mean is half as large as the sums of two blocks, or as the sums and counts of one."""
    x = da.random.default_rng(1).random((4000 * steps, 64), chunks=(4000, 16))
    y = mean(x, axis=0)
    with switched_on(), dask.config.set({"rewrite.disable": ["stream"]}):
        sent = dask.base.collections_to_expr((y,)).finalize_compute().optimize().__dask_graph__()
        (gathering,) = [node for key, node in sent.items() if type(key) is str]
        assert dask_rewrite.forecast(y, threads=1).after.floor <= 2 * y.nbytes
    assert len(gathering.dependencies) == 4
    assert_same_as_stock(y)


def sums_of_sources(size: int, pieces: int = 3, func: Any = np.sum, shared: bool = False) -> set[Any]:
    """Which steps go into the task that gathers them, each of a block that is made out of nothing."""
    nodes: dict[Any, Any] = {}
    for i in range(pieces):
        nodes["x", i] = Task(("x", i), np.ones, size)
        nodes["s", i] = Task(("s", i), func, TaskRef(("x", i)))
        if shared:
            nodes["also", i] = Task(("also", i), str, TaskRef(("x", i)))
    nodes["all"] = Task("all", sum, List(*[TaskRef(("s", i)) for i in range(pieces)]))
    after, _ = run(Graph(nodes, ("all", *[key for key in nodes if key[0] == "also"])))
    return nodes.keys() - after.nodes.keys()


def test_what_makes_less_of_a_block_of_its_own_lets_it_go() -> None:
    """They would be one task with the block anyway, and the blocks would wait for each other."""
    assert not sums_of_sources(8)
    assert sums_of_sources(8, pieces=1) == {("s", 0)}  # waits for nothing else
    assert len(sums_of_sources(8, func=operator.neg)) == 3  # to hold these is no less
    assert len(sums_of_sources(2)) == 0
    assert len(sums_of_sources(1)) == 3


@pytest.mark.parametrize(("size", "stays"), [(4097, True), (4096, False)])
def test_what_makes_less_of_a_block_that_others_need_lets_it_go_if_it_is_not_small(
    size: int, stays: bool
) -> None:
    assert len(sums_of_sources(size, shared=True)) == (0 if stays else 3)


@pytest.mark.parametrize(
    ("others", "needed", "copied"), [(True, 100_000, True), (False, 200_000, True), (False, 100_000, False)]
)
def test_what_regrid_joins_is_copied_for_its_user_unless_more_is_held_for_it(
    others: bool, needed: int, copied: bool
) -> None:
    """It is made of two blocks of 800 kB, which others hold as well or not."""
    nodes: dict[Any, Any] = {("x", i): Task(("x", i), np.ones, 100_000) for i in range(2)}
    kept = [("keeps", i) for i in range(2)] if others else []
    nodes.update({key: Task(key, np.sum, TaskRef(("x", key[1]))) for key in kept})
    join = (f"{JOIN}0", 0)
    parts = [Task(None, chunk.getitem, TaskRef(("x", i)), (slice(needed // 2),)) for i in range(2)]
    nodes[join] = Task(join, np.concatenate, List(*parts))
    nodes["y", 0] = Task(("y", 0), operator.neg, TaskRef(join))
    after, _ = run(Graph(nodes, (("y", 0), *kept)))
    assert (join not in after.nodes) is copied


def loaded(blocks: int, rows: int) -> da.Array:
    """Blocks of 128 columns, one below the other, by a function that nobody knows."""

    def load(block_info: Any = None) -> Any:
        first = block_info[None]["array-location"][0][0]
        return np.arange(float(rows * 128)).reshape(rows, 128) % 89 + first

    return da.map_blocks(load, chunks=((rows,) * blocks, 128), dtype=float, meta=np.empty((0, 0)))


@pytest.mark.parametrize(("rows", "tasks"), [(1024, 9), (1025, 11)])
@pytest.mark.parametrize("corner", [np.s_[:3, :3], np.s_[-3:, 5:7]])
def test_what_begins_a_reduction_goes_where_its_block_is_taken_up_to_a_megabyte(
    corner: Any, rows: int, tasks: int
) -> None:
    """The task that takes the end of the reduction takes that block as well: it is held anyway."""
    x = loaded(8, rows)
    y = (x - x.mean(axis=0))[corner]
    with dask.config.set({"rewrite.disable": ["hoist"]}):
        found = tasks_of(y)
    assert len(found) == tasks
    assert max([len(node.dependencies) for node in found.values()]) == 8
    assert_same_as_stock(y)


def test_blocks_of_many_ends_of_one_reduction_are_reduced_beside_each_other() -> None:
    x = loaded(8, 96)
    for y in ((x - x.mean(axis=0))[95:97], (x - x.mean(axis=0))[:, :3]):
        assert len([key for key in tasks_of(y) if "mean_chunk" in str(key)]) == 8
        assert_same_as_stock(y)


def test_a_block_that_its_user_may_write_into_is_reduced_before() -> None:
    def overwrites(block: Any, mean: Any) -> Any:
        block -= 7
        return block + mean

    x = loaded(8, 96)
    for y in (
        da.map_blocks(overwrites, x, x.mean(axis=0, keepdims=True), dtype=float)[:3],
        (x.map_blocks(lambda block: np.negative(block, out=block), dtype=float) - x.mean(axis=0))[:3],
    ):
        assert len([key for key in tasks_of(y) if "mean_chunk" in str(key)]) == 8
        assert_same_as_stock(y)
