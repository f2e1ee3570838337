"""From layers to tasks: culling, linear cost, aliases, legacy tuples, and all that layers may hold."""

from __future__ import annotations

from operator import add
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from dask._expr import FinalizeCompute, HLGExpr
from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.base import collections_to_expr, dont_optimize
from dask.highlevelgraph import HighLevelGraph
from dask.local import get_sync

import dask_rewrite
from helpers import (
    add_one,
    assert_linear,
    assert_same,
    assert_same_as_stock,
    checked,
    distinct,
    keys_of,
    leapfrog,
    leapfrog_by_hand,
    little_stack,
    rewrite_graph,
    running_total,
    switched_on,
    tasks_of,
)

# --------------------------------------------------------------------------------------
# culling


def test_one_tile_of_a_mosaic() -> None:
    n = 60
    mosaic = da.concatenate([(da.zeros((n, 1), chunks=1) + i).rechunk((1, 1)) for i in range(n)], axis=1)
    tile = mosaic[3:4, 7:8]
    assert len(checked(tile)) <= 2
    assert_same(dask_rewrite.optimize(tile).compute(), np.full((1, 1), 7.0))


def test_a_corner_of_a_large_sum() -> None:
    x = distinct((40, 40), 1)
    corner = (x + x.T)[:2, :2]
    assert len(checked(corner)) <= 12
    assert_same_as_stock(corner)


def test_layers_that_no_output_needs_are_not_materialized() -> None:
    x = da.ones((300, 300), chunks=1)
    unused = x + 1
    y = distinct((2,), 1)
    graph = HighLevelGraph.merge(unused.__dask_graph__(), y.__dask_graph__())
    tasks = rewrite_graph(graph, keys_of(y))
    assert len(tasks) <= 3
    assert all("_cached_dict" not in vars(layer) for layer in unused.__dask_graph__().layers.values())


WORKLOADS = {
    "elementwise": lambda: (distinct((6, 6), 2) + 1) * 2 - 3,
    "transposed": lambda: distinct((6, 6), 2) + distinct((6, 6), 2).T,
    "standardized": lambda: (lambda y: (y - y.mean(0)) / y.std(0))(distinct((8, 6), 2)),
    "tensordot": lambda: (lambda y: da.tensordot(y, y, axes=((1,), (1,))))(distinct((6, 8), 2)),
    "matmul": lambda: (lambda y: y @ y.T)(distinct((6, 8), (2, 4))),
    "einsum": lambda: da.einsum("ij,kj->ik", distinct((4, 6), 2), distinct((4, 6), 2)),
    "rechunk": lambda: distinct((6, 6), 2).rechunk(3).rechunk((1, 6)),
    "roll": lambda: da.roll(distinct((8, 6), 2), 3, axis=0),
    "pad": lambda: da.pad(distinct((4, 6), 2), 2, mode="constant", constant_values=7.0),
    "overlap": lambda: distinct((8, 8), 4).map_overlap(lambda b: b * 2, depth=1, boundary="reflect"),
    "cumsum": lambda: da.cumsum(distinct((8, 6), 2), axis=0),
    "fancy": lambda: distinct((8, 6), 2)[[1, 5, 3]][:, [0, 4]],
    "mask": lambda: (lambda y: y[y > 11])(distinct((6, 6), 2)),
    "argmin": lambda: da.argmin(distinct((6, 6), 2), axis=1),
    "topk": lambda: da.topk(distinct((12,), 5), 3),
    "stack": lambda: da.stack([distinct((4,), 2), distinct((4,), 2) + 1]).sum(axis=0),
    "where": lambda: (lambda y: da.where(y > 5, y, -y))(distinct((4, 4), 2)),
    "svd": lambda: da.linalg.svd(distinct((8, 2), (4, 2)))[1],
    "lu": lambda: da.linalg.lu(distinct((4, 4), 2) + da.eye(4, chunks=2) * 20)[1],
    "setitem": lambda: _assigned(),
    "reshape": lambda: distinct((6, 4), (2, 4)).reshape(3, 2, 4).reshape(24),
    "broadcast": lambda: distinct((6, 4), 2) * distinct((4,), 2) + distinct((6, 1), 2),
    "random": lambda: da.random.default_rng(3).normal(size=(6, 6), chunks=2) + 1,
    "from_function": lambda: da.fromfunction(lambda i, j: i * 10 + j, shape=(6, 6), chunks=2, dtype="f8"),
    "block_info": lambda: distinct((6, 6), 2).map_blocks(
        lambda b, block_info=None: b + block_info[0]["chunk-location"][0], dtype="f8"
    ),
    "block_id": lambda: distinct((6, 6), 2).map_blocks(lambda b, block_id=None: b + block_id[1], dtype="f8"),
    "percentile": lambda: da.percentile(distinct((12,), 5), [10, 50]),
    "histogram": lambda: da.histogram(distinct((12,), 5), bins=4, range=(0, 12))[0],
    "unique": lambda: da.unique(distinct((12,), 5) // 3),
    "bincount": lambda: da.bincount(da.from_array(np.arange(9) % 4, chunks=3)),
    "apply_along": lambda: da.apply_along_axis(np.cumsum, 1, distinct((4, 6), 2)),
    "gufunc": lambda: da.apply_gufunc(
        lambda b: b.mean(-1), "(i)->()", distinct((4, 6), (2, 6)), output_dtypes="f8"
    ),
    "vindex": lambda: distinct((6, 6), 2).vindex[[0, 3, 5], [1, 1, 4]],
    "take": lambda: da.take(distinct((8, 3), 2), [7, 0, 3], axis=0),
    "coarsen": lambda: da.coarsen(np.sum, distinct((8, 8), 4), {0: 2, 1: 2}),
    "sliding": lambda: da.lib.stride_tricks.sliding_window_view(distinct((9,), 3), 3).sum(axis=-1),
    "store_delayed": lambda: dask.delayed(np.sum)(distinct((6, 6), 2)),
}


def _assigned() -> da.Array:
    x = distinct((6, 6), 2).copy()
    for i in range(6):
        x[i, i] = -1
    return x


@pytest.mark.parametrize("name", WORKLOADS)
def test_same_answer_and_a_sound_graph(name: str) -> None:
    x = WORKLOADS[name]()
    checked(x)
    assert_same_as_stock(x)


@pytest.mark.parametrize("name", WORKLOADS)
def test_optimizing_what_is_optimized_changes_little(name: str) -> None:
    x = WORKLOADS[name]()
    once = dask_rewrite.optimize(x)
    twice = dask_rewrite.optimize(once)
    assert len(tasks_of(once)) <= len(tasks_of(x))
    checked(twice)
    with dask.config.set(array_optimize=None):
        assert_same(twice.compute(), x.compute())


@pytest.mark.parametrize("name", ["elementwise", "standardized", "tensordot", "rechunk", "overlap", "svd"])
def test_never_more_tasks_than_stock(name: str) -> None:
    from helpers import stock_tasks_of

    x = WORKLOADS[name]()
    assert len(tasks_of(x)) <= len(stock_tasks_of(x))


# --------------------------------------------------------------------------------------
# linear cost, counted in lines of Python


def test_cost_grows_with_the_depth_of_a_chain_and_no_faster() -> None:
    assert_linear(running_total, (100, 200, 400))


def test_cost_grows_with_the_steps_of_a_recurrence_and_no_faster() -> None:
    assert_linear(leapfrog, (100, 200, 400))


def test_cost_grows_with_the_blocks_and_no_faster() -> None:
    def standardized(blocks: int) -> da.Array:
        y = da.ones((blocks, 4), chunks=1)
        return (y - y.mean(0)) / y.std(0)

    assert_linear(standardized, (50, 100, 200))


def test_cost_grows_with_the_terms_of_a_sum_and_no_faster() -> None:
    def many_terms(n: int) -> da.Array:
        return sum((distinct((4,), 2) + i for i in range(n)), start=distinct((4,), 2))

    assert_linear(many_terms, (200, 400, 800))


def test_cost_grows_with_the_steps_of_a_delayed_program_and_no_faster() -> None:
    def chain(n: int) -> Any:
        d = dask.delayed(1)
        for i in range(n):
            d = dask.delayed(add)(d, i)
        return d

    assert_linear(chain, (100, 200, 400))


def test_no_recursion_over_the_graph() -> None:
    x, y, z = leapfrog(1500), running_total(1500), sum(distinct((4,), 2) + i for i in range(400))
    with little_stack():
        for collection in (x, y, z):
            dask_rewrite.optimize(collection)
    assert_same(dask_rewrite.optimize(x).compute(), leapfrog_by_hand(1500))


# --------------------------------------------------------------------------------------
# aliases, and very long chains


def test_an_alias_chain_of_a_hundred_thousand() -> None:
    dsk: dict[Any, Any] = {0: DataNode(0, 7)}
    for i in range(1, 100_000):
        dsk[i] = Alias(i, i - 1)
    tasks = rewrite_graph(dsk, [99_999])
    assert len(tasks) <= 2
    assert get_sync(tasks, 99_999) == 7


def test_a_legacy_alias_chain_of_a_hundred_thousand() -> None:
    dsk: dict[Any, Any] = {"x-0": 7}
    dsk.update({f"x-{i}": f"x-{i - 1}" for i in range(1, 100_000)})
    tasks = rewrite_graph(dsk, ["x-99999"])
    assert len(tasks) <= 2
    assert get_sync(tasks, "x-99999") == 7


def test_a_chain_of_twenty_thousand_tasks() -> None:
    dsk: dict[Any, Any] = {0: Task(0, int, 0)}
    for i in range(1, 20_000):
        dsk[i] = Task(i, add, TaskRef(i - 1), 1)
    tasks = rewrite_graph(dsk, [19_999])
    assert get_sync(tasks, 19_999) == 19_999


def test_a_self_alias_is_dropped() -> None:
    dsk = {"a": Task("a", int, 3), "b": Alias("b", "a")}
    tasks = rewrite_graph(dsk, ["b", "a"])
    assert get_sync(tasks, ["a", "b"]) == (3, 3)
    assert not any(isinstance(node, Alias) and node.target == key for key, node in tasks.items())


def test_two_outputs_that_are_one_value() -> None:
    dsk = {"a": Task("a", list, (1, 2)), "b": Alias("b", "a"), "c": Alias("c", "b")}
    tasks = rewrite_graph(dsk, ["c", "b", "a"])
    assert get_sync(tasks, ["a", "b", "c"]) == ([1, 2],) * 3


def test_a_nested_alias_with_a_key_of_its_own() -> None:
    # The value of such an argument is its target's, whatever its own key says.
    dsk = {
        "a": Task("a", int, 3),
        "b": Alias("b", "a"),
        "c": Task("c", add, Alias("elsewhere", "b"), 1),
    }
    tasks = rewrite_graph(dsk, ["c"])
    assert get_sync(tasks, "c") == 4


def test_aliases_do_not_stand_between_tasks() -> None:
    parts = [distinct((2, 2), 1) for _ in range(10)]
    grown = parts[0]
    for part in parts[1:]:
        grown = da.concatenate([grown, part])
    tasks = checked(grown + 1)
    assert not any(isinstance(node, Alias) for node in tasks.values())
    assert_same_as_stock(grown + 1)


# --------------------------------------------------------------------------------------
# rewrite it here, or leave it exactly as dask would have it


def _sent(*collections: Any) -> Any:
    with switched_on():
        return FinalizeCompute(collections_to_expr(list(collections))).optimize()


def _parts(expr: Any) -> list[HLGExpr]:
    return [part for part in expr.walk() if isinstance(part, HLGExpr)]


def _is_stock(expr: Any) -> bool:
    parts = _parts(expr)
    # what was rewritten has an optimizer that does nothing
    left = [getattr(part.low_level_optimizer, "func", None) is not dont_optimize for part in parts]
    assert all(left) or not any(left), "never a third form"
    return any(left)


def test_small_graphs_are_lowered_here() -> None:
    assert not _is_stock(_sent((distinct((6, 6), 2) + 1).sum()))


@pytest.mark.parametrize("config", [{"rewrite.lower-limit": 10}, {"rewrite.lower-seconds": 0.0}])
def test_large_graphs_are_left_as_they_are(config: dict[str, Any]) -> None:
    # Fresh layers each: what is in a user's hand already costs nothing to send lowered.
    x = ((da.ones((40, 40), chunks=2) + 1) * 3).sum()
    with dask.config.set(config):
        expr = _sent(x)
        assert _is_stock(expr)
        assert x.dask.layers.items() <= _parts(expr)[0].hlg.layers.items()
        with switched_on():
            assert x.compute() == 9600
            assert_same(dask.compute(x, x * 2), (x.dtype.type(9600), x.dtype.type(19200)))
            assert dask_rewrite.optimize(x).compute() == 9600
            assert dask.optimize(x)[0].compute() == 9600


def test_each_kind_of_collection_gets_its_own_stock_optimizer() -> None:
    from dask.array.optimization import optimize as array_optimize
    from dask.bag.core import optimize as bag_optimize
    from dask.delayed import optimize as delayed_optimize

    work = dask.delayed(sum)([dask.delayed(abs)(-i) for i in range(5)])
    bag = db.from_sequence(range(9), npartitions=3).map(abs)
    with dask.config.set({"rewrite.lower-limit": 1}):
        for collection, expected in (
            (work, delayed_optimize),
            (bag, bag_optimize),
            (distinct((6, 6), 2) + 1, array_optimize),
        ):
            for part in _parts(_sent(collection)):
                assert part.low_level_optimizer == expected


def test_a_large_graph_is_rewritten_as_well() -> None:
    x = da.ones((150, 150), chunks=1).map_blocks(add_one)
    assert not _is_stock(_sent(x))


def test_results_are_the_same_left_or_rewritten() -> None:
    for name, build in WORKLOADS.items():
        with dask.config.set({"rewrite.lower-limit": 1}):
            try:
                assert_same_as_stock(build())
            except Exception as error:
                raise AssertionError(name) from error


def test_optimize_of_a_collection_works_left_or_rewritten() -> None:
    x = (distinct((8, 8), 2) + 1).T
    with dask.config.set({"rewrite.lower-limit": 1}):
        y = dask_rewrite.optimize(x)
        assert_same((y + 1).compute(), (np.arange(64.0).reshape(8, 8) + 1).T + 1)


def test_layers_that_carry_copies_of_others_leave_nothing_behind() -> None:
    x = da.from_array(np.arange(64.0).reshape(8, 8), chunks=4)
    x[x > 50] = 0
    x[0] = x[1][::-1]
    checked(x)
