"""From layers to tasks: culling, linear cost, aliases, legacy tuples, and all that layers may hold."""

from __future__ import annotations

import gc
from operator import add, mul
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from dask._expr import FinalizeCompute, HLGExpr
from dask._task_spec import Alias, DataNode, List, Task, TaskRef
from dask.base import collections_to_expr
from dask.blockwise import Blockwise, BlockwiseDepDict, blockwise
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.local import get_sync

import dask_rewrite
from helpers import (
    MAX_NESTING,
    add_one,
    assert_linear,
    assert_same,
    assert_same_as_stock,
    checked,
    counted,
    distinct,
    keys_of,
    leapfrog,
    leapfrog_by_hand,
    little_stack,
    nesting,
    rewrite_graph,
    rewritten,
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

    assert_linear(many_terms, (50, 100, 200))


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
# what arrives in layers


def test_legacy_tuples() -> None:
    dsk = {
        "a": 1,
        "b": (add, "a", 1),
        "c": [(mul, "b", 2), "a", ["b"]],
        "d": (sum, ["a", "b", (add, "a", "b")]),
        ("e", 0): (dict, [["x", "d"], ["y", (list, ["a"])]]),
    }
    tasks = rewrite_graph(dsk, ["c", "d", ("e", 0)])
    assert get_sync(tasks, ["c", "d", ("e", 0)]) == ([4, 1, [2]], 6, {"x": 6, "y": [1]})


def test_a_key_that_differs_from_the_nodes_own() -> None:
    dsk = {"a": Task("foreign", int, 5), "b": Task("b", add, TaskRef("a"), 1), "c": DataNode("other", 3)}
    tasks = rewrite_graph(dsk, ["b", "c", "a"])
    assert get_sync(tasks, ["a", "b", "c"]) == (5, 6, 3)


def test_a_layer_that_mixes_everything() -> None:
    array = np.arange(3)
    dsk = {
        ("x", 0): array,
        ("x", 1): DataNode(("x", 1), array + 1),
        ("x", 2): Task(("x", 2), np.negative, TaskRef(("x", 0))),
        ("x", 3): (np.add, ("x", 1), ("x", 2)),
        ("y", 0): ("x", 3),
        ("y", 1): Alias(("y", 1), ("x", 2)),
        ("y", 2): List(TaskRef(("x", 0)), 5),
        "text": "just text",
        "none": None,
    }
    keys = [("y", 0), ("y", 1), ("y", 2), "text", "none"]
    tasks = rewrite_graph(dsk, keys)
    result = get_sync(tasks, keys)
    assert_same(result[:2], (array + 1 - array, -array))
    assert_same(result[2:], ([array, 5], "just text", None))


def test_a_layer_of_foreign_names() -> None:
    # Overlap, shuffle and finalize layers hold keys that do not begin with the layer's name.
    inner = MaterializedLayer({("foreign", 0): Task(("foreign", 0), int, 4), "also": ("foreign", 0)})
    outer = MaterializedLayer({("out", 0): (add, "also", ("foreign", 0))})
    graph = HighLevelGraph({"inner": inner, "out": outer}, {"inner": set(), "out": {"inner"}})
    tasks = rewrite_graph(graph, [("out", 0)])
    assert get_sync(tasks, ("out", 0)) == 8


def test_wrong_layer_dependencies_cost_no_answer() -> None:
    x = distinct((4,), 2)
    y = x + 1
    graph = y.__dask_graph__()
    sloppy = HighLevelGraph(
        dict(graph.layers), {name: set(graph.layers) - {name} for name in [y.name]} | {x.name: set()}
    )
    tasks = rewrite_graph(sloppy, keys_of(y))
    assert_same(np.concatenate(get_sync(tasks, keys_of(y))), np.arange(4.0) + 1)


def test_a_plain_dict_is_a_graph() -> None:
    d = dask.delayed(add)(1, 2)
    low = type(d)(d.key, dict(d.__dask_graph__()))
    assert dask_rewrite.optimize(low).compute() == 3


@pytest.mark.parametrize("literal", ["a", 1, 1.0, ("x", 0), "abc"])
def test_literals_equal_to_keys_follow_dask(literal: Any) -> None:
    dsk = {literal: Task(literal, int, 37), "out": (add, literal, 5)}
    assert get_sync(rewrite_graph(dsk, ["out"]), "out") == 42


def test_literals_in_graphnodes_are_never_keys() -> None:
    dsk = {"a": Task("a", int, 41), "out": Task("out", lambda *args: args, "a", ("a",), TaskRef("a"))}
    assert get_sync(rewrite_graph(dsk, ["out"]), "out") == ("a", ("a",), 41)


def test_slices_and_other_odd_literals() -> None:
    marker = object()
    dsk = {
        "x": Task("x", list, "abcd"),
        "y": (lambda s, i, *rest: (s[i], *rest), "x", slice(1, 3), None, Ellipsis, {1, 2}, {"k": "x"}),
        "z": Task("z", lambda a, **kw: (a, kw), TaskRef("x"), key=marker, other=slice(None)),
    }
    tasks = rewrite_graph(dsk, ["y", "z"])
    y, z = get_sync(tasks, ["y", "z"])
    assert y[:4] == (["b", "c"], None, Ellipsis, {1, 2})
    assert z == (list("abcd"), {"key": marker, "other": slice(None)})


def test_keywords_that_are_keys() -> None:
    # A delayed keyword of map_blocks is a key that every block refers to.
    x = distinct((6,), 2)
    scale = dask.delayed(add)(1, 2)
    y = x.map_blocks(lambda b, scale: b * scale, scale=scale, dtype="f8")
    checked(y + 1)
    assert_same_as_stock(y + 1)


def test_an_array_keyword() -> None:
    x = distinct((6,), 2)
    y = x.map_blocks(lambda b, other: b * len(other), other=distinct((4,), 4), dtype="f8")
    assert_same_as_stock(y)


def test_contraction_with_and_without_concatenate() -> None:
    x, y = distinct((4, 6), 2), distinct((6, 4), 2)
    joined = da.blockwise(np.dot, "ik", x, "ij", y, "jk", concatenate=True, dtype="f8")
    listed = da.blockwise(
        lambda a, b: sum(np.dot(i, j) for i, j in zip(a, b, strict=True)),
        "ik", x, "ij", y, "jk", concatenate=None, dtype="f8",
    )  # fmt: skip
    for z in (joined, listed, joined + 1, listed.T * 2):
        checked(z)
        assert_same_as_stock(z)


@pytest.mark.parametrize("concatenate", [True, None])
def test_a_broadcast_contracted_index(concatenate: bool | None) -> None:
    # "j" is contracted, and the second argument has only one block along it, for both of the first.
    def dot(a: Any, b: Any) -> np.ndarray:
        a, b = (np.block(part) if isinstance(part, list) else part for part in (a, b))
        return np.array([np.sum(a) + np.sum(b) * np.size(b)])

    x, y = distinct((4, 6), (2, 3)), distinct((4, 1), (2, 1))
    z = da.blockwise(
        dot, "i", x, "ij", y, "ij", concatenate=concatenate, dtype="f8", align_arrays=False,
        adjust_chunks={"i": 1}, meta=np.empty(0),
    )  # fmt: skip
    checked(z * 2)
    assert_same_as_stock(z * 2)


@pytest.mark.parametrize("count", [3, (1, 1)])
def test_new_axes(count: Any) -> None:
    x = distinct((4,), 2)
    repeats = count if isinstance(count, int) else 1

    def widened(block: np.ndarray) -> np.ndarray:
        return block[:, None].repeat(repeats, 1)

    z = da.blockwise(widened, "ij", x, "i", new_axes={"j": count}, dtype="f8")
    for program in (z, z + 1, (z + 1).T * 2):
        checked(program)
        assert_same_as_stock(program)


def test_adjusted_chunks() -> None:
    x = distinct((6, 2), 2)
    z = da.blockwise(
        lambda b: b.repeat(2, 0), "ij", x, "ij", adjust_chunks={"i": lambda n: 2 * n}, dtype="f8"
    )
    checked(z * 2)
    assert_same_as_stock(z * 2)


def _io_layer(values: dict[Any, Any], produces_keys: bool = False) -> da.Array:
    dep = BlockwiseDepDict(values, produces_keys=produces_keys)
    layer = blockwise(
        lambda v: np.full(2, float(len(str(v)))), "io", "i", dep, "i", numblocks={}, concatenate=True
    )
    graph = HighLevelGraph({"io": layer}, {"io": set()})
    return da.Array(graph, "io", chunks=((2,) * len(values),), dtype="f8")


@pytest.mark.parametrize("value", ["shape", (2, 3), slice(0, 4), {"a": 1}, [1, 2], None, 5])
def test_io_dependencies_of_any_value(value: Any) -> None:
    x = _io_layer({(i,): value for i in range(3)})
    checked(x + 1)
    assert_same_as_stock(x + 1)


def test_subclasses_of_blockwise() -> None:
    class Mine(Blockwise):
        pass

    x = distinct((4,), 2)
    y = x + 1
    layer = y.__dask_graph__().layers[y.name]
    mine = Mine(
        layer.output, layer.output_indices, layer.task, layer.indices, layer.numblocks,
        concatenate=layer.concatenate, new_axes=layer.new_axes,
    )  # fmt: skip
    graph = HighLevelGraph({**y.__dask_graph__().layers, y.name: mine}, y.__dask_graph__().dependencies)
    z = da.Array(graph, y.name, y.chunks, dtype="f8") * 3
    checked(z)
    assert_same(dask_rewrite.optimize(z).compute(), (np.arange(4.0) + 1) * 3)


def test_a_repeated_reference_is_counted() -> None:
    # Nesting the producer of x * x would compute it twice.
    source, x = counted((4,), 2)
    y = x + 1
    source.reset()
    assert_same(dask_rewrite.optimize(y * y).compute(), (np.arange(4.0) + 1) ** 2)
    assert source.loads == 2


def test_the_graph_that_came_in_stays_as_it_is() -> None:
    x = (distinct((4,), 2) + 1).rechunk(4)
    graph = x.__dask_graph__()
    before = {key: repr(value) for key, value in dict(graph).items()}
    layers = dict(graph.layers)
    rewritten(x)
    assert graph.layers == layers
    assert {key: repr(value) for key, value in dict(graph).items()} == before


def test_a_task_that_needs_no_change_is_the_same_object() -> None:
    source = Task("a", dict, x=1)
    free = Task("b", list, TaskRef("a"))
    # "a" is an output, so that nothing can be fused
    tasks = rewrite_graph({"a": source, "b": free}, ["a", "b"])
    assert tasks["a"] is source
    assert tasks["b"] is free


def test_the_garbage_collector_comes_back() -> None:
    x = distinct((4,), 2) + 1
    assert gc.isenabled()
    rewritten(x)
    assert gc.isenabled()
    gc.disable()
    try:
        rewritten(x)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_garbage_collector_comes_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        assert not gc.isenabled()
        raise ArithmeticError

    monkeypatch.setattr("dask_rewrite.pipeline.run.Lowering", fail)
    with pytest.raises(ArithmeticError):
        rewritten(distinct((4,), 2) + 1)
    assert gc.isenabled()


# --------------------------------------------------------------------------------------
# what arrives nested too deep


def test_tuples_nested_five_thousand_deep() -> None:
    nested: Any = 0
    for _ in range(5_000):
        nested = (add_one, nested)
    with little_stack():
        tasks = rewrite_graph({"x": nested}, ["x"])
    assert get_sync(tasks, "x") == 5_000


def test_graphnodes_nested_three_thousand_deep() -> None:
    nested: Any = Task(None, int, 0)
    for _ in range(2_999):
        nested = Task(None, add_one, nested)
    nested = Task("x", add_one, nested)
    with little_stack():
        tasks = rewrite_graph({"x": nested}, ["x"])
    assert get_sync(tasks, "x") == 3_000


def test_lists_nested_deep() -> None:
    nested: Any = "y"
    for _ in range(200):
        nested = [nested]
    tasks = rewrite_graph({"y": (int, 3), "x": (len, nested)}, ["x"])
    assert get_sync(tasks, "x") == 1


def test_deep_tuples_keep_their_references() -> None:
    nested: Any = "seed"
    for i in range(300):
        nested = (add, nested, f"k{i % 7}")
    dsk = {"seed": 1, "x": nested, **{f"k{i}": (int, i) for i in range(7)}}
    assert get_sync(rewrite_graph(dsk, ["x"]), "x") == 1 + sum(i % 7 for i in range(300))


def test_incoming_subgraph_tasks_are_unnested() -> None:
    # Array → delayed → array builds them, one within the other, while the user's loop runs.
    from helpers import there_and_back

    x = there_and_back(100)
    assert max(map(nesting, tasks_of(x).values())) <= MAX_NESTING
    assert_same(dask_rewrite.optimize(x).compute(), np.arange(4.0) + 100)


# --------------------------------------------------------------------------------------
# rewrite it here, or leave it exactly as dask would have it


def _sent(*collections: Any) -> Any:
    with switched_on():
        return FinalizeCompute(collections_to_expr(list(collections))).optimize()


def _parts(expr: Any) -> list[HLGExpr]:
    return [part for part in expr.walk() if isinstance(part, HLGExpr)]


def _is_stock(expr: Any) -> bool:
    parts = _parts(expr)
    left = [part.low_level_optimizer is not None for part in parts]
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
