"""Operands are held where bits depend on it: NumPy writes into those that nobody else holds."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from dask.delayed import delayed

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nodes import call_with_dict
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.hold_operands import HoldOperands

LARGE = 200  # 200 x 200 complex numbers are more than the 256 kB from which on NumPy writes into factors


def _numbers(seed: int, dtype: str = "c16", n: int = 2 * LARGE) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.random((n, n)) + 1j * rng.random((n, n))).astype(dtype)


@pytest.fixture(params=["c16", "c8"])
def pair(request: pytest.FixtureRequest) -> list[Any]:
    chunks = LARGE if request.param == "c16" else 2 * LARGE
    return [da.from_array(_numbers(seed, request.param), chunks=chunks) for seed in (0, 1)]


PROGRAMS: dict[str, Any] = {
    "conj": lambda a, s: a * s.conj(),
    "sum": lambda a, s: a * (s + 1),
    "ufunc": lambda a, s: a * da.exp(s),
    "two levels": lambda a, s: a * (s * (a + 1).conj()),
    "chain": lambda a, s: (a * ((((s + 1) * 2) - 1).conj() + 3)) ** 2,
    "twice": lambda a, s: da.stack([a * (s + 1), s * (a + 1)]),
    "coarsened": lambda a, s: da.coarsen(np.mean, a * s.conj(), {0: 4}),
    "unknown": lambda a, s: (a * s.conj()).map_blocks(np.angle, dtype="f8"),
    "of unknown": lambda a, s: a.map_blocks(np.copy) * s.map_blocks(lambda block: block + 1),
    "columns": lambda a, s: (a * s.conj()).sum(axis=0),
    "overlap": lambda a, s: da.map_overlap(lambda b: b, a * s.conj(), depth=1, boundary="none"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_have_the_bits_of_dask(name: str, pair: list[Any]) -> None:
    expected = PROGRAMS[name](*pair).compute(scheduler="sync")
    with dask_rewrite.enable(), dask.config.set({"rewrite.reassociate": False}):
        found = PROGRAMS[name](*pair).compute(scheduler="sync")
    assert found.tobytes() == expected.tobytes()


def test_products_of_delayed_values_have_the_bits_of_dask() -> None:
    def program() -> Any:
        load = delayed(_numbers)
        return load(0) * (load(1) + 1)

    expected = program().compute(scheduler="sync")
    with dask_rewrite.enable():
        found = program().compute(scheduler="sync")
    assert found.tobytes() == expected.tobytes()


def test_products_of_real_numbers_are_left() -> None:
    x = da.from_array(np.arange(64.0).reshape(8, 8), chunks=4)
    with dask_rewrite.enable():
        (y,) = dask.optimize(x * (x + 1))
    assert reduce not in [getattr(node, "func", None) for node in dict(y.dask).values()]


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", ">c16"])
@pytest.mark.parametrize("name", ["steps", "unary", "powers"])
def test_results_are_in_the_byte_order_that_dask_gives_them(dtype: str, name: str) -> None:
    x = da.from_array(np.arange(90_000).reshape(300, 300).astype(dtype), chunks=300)
    x = x.map_blocks(np.copy)
    made = {"steps": (x * 2 + 1) * 3, "unary": abs(-x), "powers": np.positive(x) ** 2 - x.map_blocks(np.copy)}
    expected = made[name].compute(scheduler="sync")
    with dask_rewrite.enable():
        found = made[name].compute(scheduler="sync")
    assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())


def _in_order(order: str, block_info: Any = None) -> Any:
    (first, *_), shape = block_info[None]["chunk-location"], block_info[None]["chunk-shape"]
    return np.asarray(np.random.default_rng(first).random(shape), order=order)  # type: ignore[call-overload] # any str


@pytest.mark.parametrize("orders", ["FC", "CF", "FF"])
def test_what_is_not_regrouped_lies_in_memory_as_with_dask(orders: str) -> None:
    def program() -> Any:
        x, y = (da.map_blocks(_in_order, order, chunks=((250, 250), (250,)), dtype="f8") for order in orders)
        return [
            ((x + 2) * y).sum(axis=0),
            (x - (y / 3)).std(),
            (x * 2 + y).map_blocks(np.ravel, "K", drop_axis=1),
        ]

    expected = dask.compute(*program(), scheduler="sync")
    with dask_rewrite.enable(), dask.config.set({"rewrite.reassociate": False}):
        found = dask.compute(*program(), scheduler="sync")
    assert [value.tobytes() for value in found] == [value.tobytes() for value in expected]


def _product(first: Any, second: Any) -> Task:
    return Task("y", operator.mul, first, second)


def test_only_operands_that_are_made_inside_are_held() -> None:
    inner = Task(None, operator.neg, TaskRef("b"))
    for task in (
        _product(TaskRef("a"), TaskRef("b")),
        _product(TaskRef("a"), DataNode(None, 2j)),
        Task("y", np.multiply, TaskRef("a"), inner),
        Task("y", operator.matmul, TaskRef("a"), inner),
    ):
        graph = Graph({"y": task, "a": DataNode("a", 1j), "b": DataNode("b", 2j)}, ("y",))
        assert HoldOperands().run(graph, Context()) is graph


def test_templates_are_written_once() -> None:
    body = Task(None, operator.mul, TaskRef("x0"), Task(None, operator.neg, TaskRef("x1")))
    nodes: dict[Any, Any] = {"a": DataNode("a", 1j), "b": DataNode("b", 2j)}
    for key in ("y", "z"):
        inputs = {"x0": TaskRef("a"), "x1": TaskRef("b")}
        nodes[key] = call_with_dict(key, (body.__call__,), inputs, frozenset("ab"), False)
    made = HoldOperands().run(Graph(nodes, ("y", "z")), Context()).nodes
    assert made["y"].func is made["z"].func is not nodes["y"].func
    assert made["y"]({"a": 1j, "b": 2j}) == nodes["y"]({"a": 1j, "b": 2j})
