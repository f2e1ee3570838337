"""Tiny tasks of neighbouring blocks go into one, where a graph has very many of them."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from dask_rewrite.graph.batches import tasks_of
from dask_rewrite.graph.graph import depths_of
from dask_rewrite.passes import coalesce, waiting
from dask_rewrite.passes.coalesce.groups import groups
from dask_rewrite.passes.coalesce.tiles import tile_edges, tiled
from dask_rewrite.pipeline.selection import TASK_PASSES
from helpers import ON, assert_same_as_stock, checked, functions_in

EAGER = {"rewrite.options": {"coalesce": {"min-tasks": 1}}, "scheduler": "sync"}


@pytest.fixture
def eager() -> Any:
    """Graphs of any size; on one thread, so that four tasks of a layer are enough."""
    with dask.config.set(EAGER):
        yield


def source(n: int, m: int = 2) -> da.Array:
    """Blocks of two by two, all different."""
    return da.from_array(np.arange(n * m * 4.0).reshape(2 * n, 2 * m), chunks=2, inline_array=True)


def whole(x: da.Array) -> da.Array:
    """In one block, so that nobody asks for the blocks of ``x``, as in ``x.compute()``."""
    return x.rechunk(-1)


def batches(*collections: Any) -> list[Any]:
    return [task for task in checked(*collections).values() if tasks_of(task) is not None]


def rows(*collections: Any) -> list[int]:
    return sorted(len(tasks_of(each) or ()) for each in batches(*collections))


def unknown(block: np.ndarray) -> np.ndarray:
    return block * 3 - 1


def test_neighbours_become_one(eager: None) -> None:
    x = da.random.default_rng(3).random((64, 64), chunks=4)
    y = whole(x + x.T)
    with dask.config.set({"rewrite.disable": ["coalesce"]}):
        assert len(checked(y)) > 256
    assert len(checked(y)) < 40
    assert_same_as_stock(y)


def test_transposed_tiles_are_whole_batches(eager: None) -> None:
    """Tiles with equal edges: each task takes what it needs from two others."""
    x = da.random.default_rng(3).random((32, 32), chunks=2)
    tasks = [task for task in batches(whole(x + x.T)) if task._dependencies]
    assert tasks
    assert all(len(task._dependencies) <= 2 for task in tasks)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x - x.mean(axis=0)) / x.std(axis=0),
        lambda x: (x + 1).sum(axis=1),
        lambda x: x.map_overlap(np.sin, depth=1, boundary="periodic"),
        lambda x: x.cumsum(axis=0),
        lambda x: da.roll(x, 3, axis=0) - x,
        lambda x: x[::3, 1:].rechunk((3, 5)),
        lambda x: da.concatenate([x, x[:2]]).max(axis=0),
        lambda x: da.where(x > 50, x, -x).argmax(axis=1),
        lambda x: x.map_blocks(unknown).T.reshape(-1),
        lambda x: da.stack([x, x * 2]).mean(axis=0).astype("f4"),
    ],
)
def test_answers_are_those_of_stock(eager: None, program: Any) -> None:
    for x in (source(12, 12), da.random.default_rng(1).integers(0, 99, (24, 24), chunks=2), source(40, 1)):
        assert_same_as_stock(program(x))
        assert_same_as_stock(whole(program(x)))


def test_several_outputs_keep_their_blocks(eager: None) -> None:
    x = source(16, 16)
    y, z = x * 2, (x * 2).sum()
    assert_same_as_stock(y, z)
    with dask.config.set(ON):
        kept = dask.persist(y)[0]
    np.testing.assert_array_equal(kept.compute(), y.compute())
    assert set(map(tuple, kept.dask)) >= set(y.__dask_keys__()[0])


def test_blocks_that_depend_on_others_of_their_array_stay_apart(eager: None) -> None:
    """A batch never waits for itself: only blocks of equal depth go together."""
    x = da.cumsum(da.ones(64, chunks=1), axis=0, method="sequential")
    assert_same_as_stock(x.sum(), whole(x))


def test_masked_and_object_and_structured_blocks(eager: None) -> None:
    plain = np.arange(256.0).reshape(32, 8)
    record = np.zeros((32, 8), dtype=[("a", "i4"), ("b", "f8")])
    record["a"] = np.arange(256).reshape(32, 8)
    for values in (np.ma.masked_equal(plain, 5), plain.astype(object), record):
        x = da.from_array(values, chunks=1, asarray=False)
        assert_same_as_stock(whole(da.concatenate([x, x]).T))


@pytest.mark.parametrize(("threads", "most"), [(1, 64), (8, 8), (64, 1)])
def test_tasks_are_left_for_all_threads(threads: int, most: int) -> None:
    x = da.random.default_rng(0).random(512, chunks=2).sum()  # without its own reduction: 256 blocks
    how = {"scheduler": "threads", "num_workers": threads, "rewrite.disable": ["fuse-small", "stream"]}
    with dask.config.set({**EAGER, **how}):
        found = rows(x)
    assert max(found, default=1) == most


@pytest.mark.once
@pytest.mark.parametrize(("blocks", "together"), [(2047, 1), (2048, 2), (20_000, 16)])
def test_unknown_functions_leave_a_thousand_tasks(blocks: int, together: int) -> None:
    """They may be slow, however small what they make is."""
    x = da.ones(blocks, chunks=1).map_blocks(unknown)
    with dask.config.set({**EAGER, "rewrite.disable": ["stream", "share", "inline-sources"]}):
        graph = checked(x.sum())
    found = [rows for task in graph.values() if (rows := tasks_of(task))]
    sizes = [len(rows) for rows in found if unknown in functions_in(rows[0])]
    assert max(sizes, default=1) == together


def test_the_option_leaves_unknown_functions_alone() -> None:
    x = whole(da.ones(4096, chunks=1).map_blocks(unknown))
    for most, together in ((16, [4]), (3, [2]), (1, [])):
        with dask.config.set(
            {**EAGER, "rewrite.options": {"coalesce": {"min-tasks": 1, "max-unknown": most}}}
        ):
            assert sorted(set(rows(x))) == together


@pytest.mark.parametrize(("nbytes", "fires"), [(65_536, True), (65_544, False)])
def test_only_small_blocks_go_together(eager: None, nbytes: int, fires: bool) -> None:
    n = nbytes // 8
    x = da.random.default_rng(0).random(64 * n, chunks=n)
    assert bool(batches(whole(np.sqrt(da.roll(x, n) + x)))) == fires


def test_no_task_gives_more_than_a_megabyte(eager: None) -> None:
    x = da.random.default_rng(0).random((512, 4096), chunks=(1, 4096))
    assert max(rows(whole(np.sqrt(da.roll(x, 1, axis=0) + x)))) == 2**20 // (4096 * 8)


@pytest.mark.parametrize(("blocks", "fires"), [(63, False), (64, True)])
def test_small_layers_are_not_looked_at(eager: None, blocks: int, fires: bool) -> None:
    x = da.random.default_rng(0).random(2 * blocks, chunks=2)
    assert bool(batches(whole(np.sqrt(da.roll(x, 2) + x)))) == fires


@pytest.mark.parametrize(("least", "fires"), [(1, True), (10_000, False)])
def test_small_graphs_stay_as_they_are(least: int, fires: bool) -> None:
    x = source(20, 20)
    with dask.config.set({**EAGER, "rewrite.options": {"coalesce": {"min-tasks": least}}}):
        assert bool(batches(whole(x + x.T))) == fires


@pytest.mark.once
@pytest.mark.parametrize(("side", "fires"), [(31, False), (33, True)])
def test_two_thousand_tasks_are_enough_where_nobody_says_otherwise(side: int, fires: bool) -> None:
    x = da.random.default_rng(0).random((2 * side, 2 * side), chunks=2)
    y = whole(np.sqrt(x) + x.T)
    with dask.config.set(scheduler="sync"):
        assert bool(batches(y)) == fires
        assert_same_as_stock(y)


def test_inputs_that_are_large_do_not_wait_for_each_other(eager: None) -> None:
    """Sums of large blocks are small, and made one by one."""
    x = da.random.default_rng(0).random((64 * 128, 128), chunks=128)
    with dask.config.set({"rewrite.disable": ["fuse-small", "fuse-chains", "fuse-blockwise", "stream"]}):
        found = batches(x.sum(), x.max())
    assert not [dep for each in found for dep in each._dependencies if "random" in str(dep)]


@pytest.mark.once
@pytest.mark.parametrize(("held", "sure"), [(waiting.HELD, False), (4 * waiting.HELD, True)])
def test_pieces_of_different_blocks_do_not_wait_for_each_other(
    eager: None, monkeypatch: pytest.MonkeyPatch, held: int, sure: bool
) -> None:
    """Anomalies of what is cut out of large blocks, group by group: columns are worked through one by one.

    Groups are about as far from each other as may be held: names of tasks say what goes together by default.
    """
    monkeypatch.setattr(waiting, "HELD", held)
    x = da.random.default_rng(0).random((512, 96, 96), chunks=(64, 48, 48)).rechunk((1, 48, 48))
    means = da.stack([x[i::32].mean(axis=0) for i in range(32)])
    y = (x - da.concatenate([means] * 16)).std(axis=0)
    assert batches(y) or not sure
    found = dask_rewrite.forecast(y, threads=1)
    assert found.after.peak <= 1.1 * found.before.peak  # it was 2.8 times as much
    assert_same_as_stock(y)


def corner(block: np.ndarray) -> np.ndarray:
    return block[:2, :2].copy()


@pytest.mark.parametrize(("size", "fires"), [(128, True), (4, False)])
def test_small_results_of_large_blocks_go_together(eager: None, size: int, fires: bool) -> None:
    x = da.random.default_rng(0).random((64 * size, size), chunks=size)
    small = x.map_blocks(corner, chunks=(2, 2))
    options = {"coalesce": {"min-tasks": 1, "max-unknown": 4, "max-bytes": 64}}
    off = ["fuse-small", "fuse-chains", "fuse-blockwise", "stream", "demand"]
    with dask.config.set({"rewrite.disable": off, "rewrite.options": options}):
        found = batches(whole(small.map_blocks(unknown) + small))
    assert bool(found) == fires


def test_annotated_tasks_are_tried_one_by_one(eager: None) -> None:
    """A task of many would be tried again as often as one is."""
    failed: set[int] = set()

    def once(block: np.ndarray) -> np.ndarray:
        if int(block[0]) not in failed:
            failed.add(int(block[0]))
            raise OSError("once")
        return block

    x = da.arange(40, chunks=1)
    with dask.annotate(retries=1):
        y = x.map_blocks(once, dtype=x.dtype)
    assert not [each for each in batches(whole(y + 1), y.sum()) if "once" in str(each.key)]


def test_optimized_collections_keep_their_blocks(eager: None) -> None:
    """Others may hold blocks of the same names."""
    x = source(16, 16)
    y = dask_rewrite.optimize(x + x.T)
    assert_same_as_stock(y, y.sum())
    with dask.config.set(ON):
        z, w = dask.optimize(x + x.T, x)
    np.testing.assert_array_equal(z.compute(), (x + x.T).compute())
    assert not [task for task in dict(w.dask).values() if tasks_of(task) is not None]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_single_batches_can_be_left_out(eager: None, limit: int) -> None:
    x = whole(source(20, 20) + source(20, 20).T)
    others = [name for name in TASK_PASSES if name != "coalesce"]
    with dask.config.set({"rewrite.bisect-limit": limit, "rewrite.disable": others}):
        assert len(batches(x)) <= limit
        assert_same_as_stock(x)


def test_delayed_tasks_stay_as_they_are(eager: None) -> None:
    parts = [dask.delayed(operator.neg)(i) for i in range(40)]
    assert not batches(dask.delayed(sum)(parts))


def test_the_error_of_one_block_comes_through(eager: None) -> None:
    def divided(block: np.ndarray) -> np.ndarray:
        if block[0] == 5:
            raise ZeroDivisionError("five")
        return block

    x = da.arange(4096, chunks=1).map_blocks(divided, dtype=int)
    with dask.config.set(ON), pytest.raises(ZeroDivisionError, match="five"):
        x.sum().compute()


def test_a_forecast_sees_what_batches_hold(eager: None) -> None:
    x = da.random.default_rng(0).random((64, 64), chunks=4)
    found = dask_rewrite.forecast(whole(x + x.T), threads=2)
    assert found.after.peak is not None
    assert found.after.peak >= 64 * 64 * 8


def test_the_same_graph_gives_the_same_batches(eager: None) -> None:
    x = source(20, 20)
    assert list(checked(whole(x + x.T))) == list(checked(whole(x + x.T)))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("method", "fewer"), [("sequential", 4), ("blelloch", 1)])
def test_cumulative_sums(eager: None, axis: int, method: str, fewer: int) -> None:
    """What dask carries from block to block stands in the same layer as what it gives."""
    x = source(16, 16)
    sums = x.cumsum(axis=axis, method=method)
    products = (x % 3 + 1).cumprod(axis=axis, method=method)
    assert_same_as_stock(sums.max(axis=1 - axis), products[-1], whole(sums - products))
    assert_same_as_stock(sums[:, 5:], da.nancumsum(whole(sums), axis=axis))
    assert fewer * len(checked(whole(sums))) < len(sums.dask)


@pytest.mark.once
def test_positions_of_blocks_do_not_keep_them_apart() -> None:
    x = da.arange(4096, chunks=1).reshape(64, 64).map_blocks(unknown)
    with dask.config.set({**EAGER, "rewrite.disable": ["share", "inline-sources"]}):
        assert max(rows(x.argmax(axis=0))) >= 4
        assert_same_as_stock(x.argmax(axis=0), x.argmin())


def test_tiles_fit_into_each_other() -> None:
    grid = [(0, i, j) for i in range(12) for j in range(12)]
    assert tile_edges(grid, 64) == (1, 8, 8)
    assert tile_edges(grid, 8) == (1, 4, 2)
    assert tile_edges([(0, i) for i in range(5)], 64) == (1, 8)
    assert sum(map(len, tiled(grid, (1, 8, 8)))) == 144


def in_groups(blocks: int, groups: int) -> da.Array:
    """As a climatology without flox: a layer of a few blocks for each group."""
    x = source(blocks * groups, 1)
    step = 2 * blocks
    parts = [unknown(x[i * step : (i + 1) * step]).sum(axis=1) for i in range(groups)]
    return whole(da.stack(parts))


@pytest.mark.parametrize(("blocks", "groups", "most"), [(2, 40, 16), (8, 64, 64), (2, 31, 1), (31, 2, 1)])
def test_small_layers_of_one_kind_go_together(eager: None, blocks: int, groups: int, most: int) -> None:
    """Where they have 64 blocks in all, and four tasks are left."""
    y = in_groups(blocks, groups)
    with dask.config.set({"rewrite.disable": ["fuse-small", "fuse-chains", "siblings", "crumbs"]}):
        found = [each for each in batches(y) if str(each.key[0]).startswith("sum")]
        assert max([len(tasks_of(each) or ()) for each in found], default=1) == most
        assert_same_as_stock(y)


@pytest.mark.once
@pytest.mark.parametrize(("blocks", "together"), [(20, 1), (21, 2)])
def test_small_layers_of_unknown_functions_leave_a_thousand_tasks(
    eager: None, blocks: int, together: int
) -> None:
    """As those of one array do: 100 layers of 20 blocks are fewer than twice 1,024."""
    x = source(100 * blocks, 1)
    step = 2 * blocks
    parts = [x[i * step : (i + 1) * step].map_blocks(unknown).sum(axis=1) for i in range(100)]
    y = whole(da.stack(parts))
    with dask.config.set({"rewrite.disable": ["fuse-small", "fuse-chains", "siblings"]}):
        found = [rows for task in checked(y).values() if (rows := tasks_of(task))]
        sizes = [len(rows) for rows in found if unknown in functions_in(rows[0])]
        assert max(sizes, default=1) == together
        assert_same_as_stock(y)


def test_small_layers_of_different_blocks_stay_apart(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other sizes or another depth."""
    found: list[tuple[Any, list[Any]]] = []

    def noted(graph: Any, context: Any, weights: Any) -> Any:
        for levels, most in groups(graph, context, weights):
            found.append((graph, levels))
            yield levels, most

    monkeypatch.setattr(coalesce, "groups", noted)
    alike = [np.cos(da.roll(source(4, 1), n, 0)) for n in range(20)]
    larger = [np.cos(da.roll(source(4, 2).rechunk((2, 4)), n, 0)) for n in range(20)]
    deeper = [np.cos(da.roll(np.sin(da.roll(x, 1, 1)), 3, 0)) for x in alike]
    made = [whole(da.stack(parts)) for parts in (alike, larger, deeper)]
    with dask.config.set({"rewrite.disable": ["fuse-small", "siblings", "movement"]}):
        checked(*made)
        several = [(graph, levels) for graph, levels in found if len(levels) > 1]
        assert len(several) > 1
        for graph, levels in several:
            depths = depths_of(graph.nodes)
            assert len({depths[key] for level in levels for key in level}) == 1
            values = dask.get({**graph.nodes}, [level[0] for level in levels])
            assert len({value.nbytes for value in values}) == 1
        assert_same_as_stock(*made)
