"""Rows of one block and columns of another; what is done along one axis alone."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import einsumfuncs, routines
from demand_cases import Stored, gets, square

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand import Demand
from dask_rewrite.remarks import Remarks
from helpers import assert_same, stock, switched_on


@pytest.fixture(autouse=True)
def small_blocks_too() -> Any:
    """As the blocks of these tests are."""
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        yield


#: On (100, 100), stored in chunks of 10 and cut into blocks of 20: how many stored chunks are wanted.
PRODUCTS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "matmul, both": (lambda v: (v @ v)[:5, :3], 20),
    "matmul of itself": (lambda v: (v @ v.T)[:5, :5], 10),
    "matmul of constants": (lambda v: (v @ da.ones(100, chunks=20, dtype=v.dtype))[:5], 10),
    "matmul of stacks": (lambda v: (v.reshape(10, 10, 100) @ v.T[None])[0, :5, :3], 20),
    "tensordot": (lambda v: da.tensordot(v, v, axes=1)[:5, :3], 20),
    "tensordot, both axes": (
        lambda v: da.tensordot(v[:, :, None], v[:, None], ((0,), (0,)))[:5, 0, 0, :3],
        10,
    ),
    "einsum": (lambda v: da.einsum("ij,kj->ik", v, v)[:5, 41:43], 20),
    "einsum of three": (lambda v: da.einsum("ij,i,kj->jk", v, v[0], v)[:5, 41:43], 28),
    "dot": (lambda v: v.dot(v[:, 5])[:5], 20),
}

ALONG: dict[str, tuple[Callable[[Any], Any], int]] = {
    "largest": (lambda v: da.topk(v, 3, axis=0)[:, :3], 10),
    "smallest, in order": (lambda v: da.topk(v, -3, axis=1)[:3, ::-1][:, :2], 10),
    "median": (lambda v: da.median(v.rechunk((100, 20)), axis=0)[:3], 10),
    "nanmedian": (lambda v: da.nanmedian(v.rechunk((100, 20)), axis=0)[:3], 10),
    "gradient": (lambda v: da.gradient(v, axis=1)[:5, :25], 5),
}


def read(make: Callable[[Any], Any], dtype: str, **config: Any) -> tuple[tuple[int, Any], tuple[int, Any]]:
    """What is read, and what comes out: in stock, and here."""
    source = Stored(square(dtype), (10, 10))
    with stock():
        before = gets(make, source, (20, 20))
    with switched_on(**config):
        return before, gets(make, source, (20, 20))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", ["f8", "i4", "u1", "c16"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_products_need_rows_and_columns(name: str, dtype: str) -> None:
    make, wanted = PRODUCTS[name]
    (before, expected), (after, found) = read(make, dtype)
    assert after <= wanted <= before
    if dtype in ("f8", "c16"):  # BLAS adds in groups that depend on the shape
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)
    else:
        assert_same(found, expected)


@pytest.mark.parametrize("name", ["matmul, both", "matmul of itself", "tensordot", "einsum", "dot"])
def test_products_of_floats_shrink_only_where_sums_may_be_regrouped(name: str) -> None:
    make, wanted = PRODUCTS[name]
    (before, expected), (after, found) = read(make, "f8", **{"rewrite.reassociate": False})
    assert_same(found, expected)
    assert wanted < after <= before
    assert read(make, "i8", **{"rewrite.reassociate": False})[1][0] <= wanted


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("dtype", ["f8", "i4", "u1"])
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:All-NaN")
def test_what_is_done_along_one_axis_needs_all_of_that_axis(name: str, dtype: str) -> None:
    make, wanted = ALONG[name]
    (before, expected), (after, found) = read(make, dtype, **{"rewrite.reassociate": False})
    assert_same(found, expected)
    assert after <= wanted <= before


def operands(rng: np.random.Generator) -> tuple[Any, tuple[Any, ...], dict[str, Any], list[tuple[int, ...]]]:
    """A product, what it is given beside the two blocks, and their shapes."""
    n, m, k, batch = (int(i) for i in rng.integers(1, 6, 4))
    one, other = (n, k), (k, m)
    kind = rng.integers(5)
    if kind == 0:
        stacks = [(batch,), (1,), (), (2, batch), (2, 1)]
        shapes = [(*stacks[rng.integers(5)], *one), (*stacks[rng.integers(5)], *other)]
        return [np.matmul, operator.matmul, routines._matmul][rng.integers(3)], (), {}, shapes
    if kind == 1:
        shapes = [[one, (k,)][rng.integers(2)], [other, (k,)][rng.integers(2)]]
        return [np.dot, np.matmul][rng.integers(2)], (), {}, shapes
    if kind == 2:
        return np.tensordot, (int(rng.integers(3)),), {}, [(n, 3, 2), (3, 2, m)]
    if kind == 3:
        axes = [((2, 0), (0, 1)), ((0,), (-2,)), ((-1, 1), (0, 2))][rng.integers(3)]
        shapes = [(n, batch, k), (k, n, batch)]
        return routines._tensordot, (), {"axes": axes, "is_sparse": False}, shapes
    text = ["ij,jk->ik", "ij,jk->kij", "ij,jk->j", "ij,jk->k"][rng.integers(4)]
    kwargs = {"subscripts": text, "ncontract_inds": int(rng.integers(3)), "kernel_dtype": np.dtype("i8")}
    return einsumfuncs.chunk_einsum, (), kwargs, [one, other]


@pytest.mark.parametrize("seed", range(150))
def test_any_part_of_any_product(seed: int) -> None:
    rng = np.random.default_rng(seed)
    func, given, kwargs, shapes = operands(rng)
    blocks = [np.arange(1, 1 + np.prod(shape)).reshape(shape) ** 2 for shape in shapes]
    try:
        made = func(*blocks, *given, **kwargs)
    except ValueError:  # shapes that do not fit
        return
    index = tuple([slice(a := int(rng.integers(n)), int(rng.integers(a, n)) + 1) for n in made.shape])
    nodes: dict[Any, Any] = {(f"x{i}", 0): DataNode((f"x{i}", 0), b) for i, b in enumerate(blocks)}
    for i in range(2):
        nodes[f"y{i}", 0] = Task((f"y{i}", 0), np.add, TaskRef((f"x{i}", 0)), 0)
    nodes["p", 0] = Task(("p", 0), func, TaskRef(("y0", 0)), TaskRef(("y1", 0)), *given, **kwargs)
    nodes["z"] = Task("z", operator.getitem, TaskRef(("p", 0)), index)
    graph = Graph(nodes, ("z",))
    after = Demand(min_bytes=1, max_share=99).run(graph, Context(Remarks()))
    verify(after, thorough=True)
    assert_same(dask.get(after.nodes, "z"), made[index])
    if 2 * made[index].size < made.size:
        assert after is not graph
