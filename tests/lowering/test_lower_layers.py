"""What arrives in layers, of whatever kind and however deep, is lowered."""

from __future__ import annotations

import gc
from operator import add, mul, neg
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, List, Task, TaskRef
from dask.blockwise import Blockwise, BlockwiseDepDict, blockwise
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.local import get_sync

import dask_rewrite
from helpers import (
    MAX_NESTING,
    add_one,
    assert_same,
    assert_same_as_stock,
    checked,
    counted,
    distinct,
    keys_of,
    little_stack,
    nesting,
    rewrite_graph,
    rewritten,
    tasks_of,
)

# --------------------------------------------------------------------------------------
# culling


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


def test_functions_are_told_where_their_block_lies_in_plain_integers() -> None:
    told: list[Any] = []

    def load(block_id: Any = None) -> np.ndarray:
        told.extend(block_id)
        return np.full((1, 3), block_id[1])

    x = da.map_blocks(load, chunks=((1,), (3, 3)), dtype=int, meta=np.empty((0, 0), int))
    picked = x.vindex[[0, 0], [1, 4]]  # which writes keys with NumPy's integers
    for y in (picked, picked.sum(), picked + 1):
        told.clear()
        assert_same_as_stock(y)
        assert set(map(type, told)) == {int}


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


def _and_name(value: Any, *names: Any, more: Any = None) -> Any:
    return value, names, more


def test_values_in_deep_tasks_that_equal_keys_are_values() -> None:
    """In tasks that are nodes only references refer; in tuples each key does."""
    deep: Any = TaskRef("a")
    for _ in range(200):
        deep = Task(None, neg, deep)
    tasks: dict[Any, Any] = {
        "a": Task("a", abs, -1),
        ("b", 0): Task(("b", 0), abs, -2),
        "y": Task("y", _and_name, deep, "a", ["a", ("b", 0)], ("b", 0), more=["a"]),
    }
    expected = (1, ("a", ["a", ("b", 0)], ("b", 0)), ["a"])
    assert get_sync(rewrite_graph(tasks, ["y"]), "y") == get_sync(tasks, "y") == expected
