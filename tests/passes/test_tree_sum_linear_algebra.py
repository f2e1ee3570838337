"""Sums of products in linear algebra, and sums that stay in a row."""

from __future__ import annotations

import functools
import itertools
import operator

import dask
import dask.array as da
import numpy as np
import pytest
from dask.local import get_sync

from helpers import (
    assert_same_as_stock,
    checked,
    fan_in,
    functions_in,
    stock,
    stock_tasks_of,
    switched_on,
    tasks_of,
)
from passes.tree_sum_cases import (
    FOLDS,
    KEY,
    LINALG,
    added,
    folded,
    graph_of,
    many_blocks,
    rechunked,
    rewritten,
    system,
)


@pytest.mark.once
@many_blocks
@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra_waits_for_few_blocks(name: str) -> None:
    dask.config.set({"rewrite.disable": ["contract"]})  # it gathers blocks in its own way
    a, b = system()
    x = LINALG[name](a, rechunked(b))
    tasks, theirs = checked(x), stock_tasks_of(x)
    assert max(map(fan_in, tasks.values())) <= 8
    assert max(map(fan_in, theirs.values())) >= 12
    assert len(tasks) <= len(theirs)
    with stock():
        expected = x.compute()
    with switched_on():
        np.testing.assert_allclose(x.compute(), expected, rtol=1e-12, atol=1e-15)
    with dask.config.set({"rewrite.reassociate": False}):
        assert max(map(fan_in, checked(x).values())) <= 8
        assert_same_as_stock(x)


def test_products_that_come_one_after_the_other_are_added_up_as_they_come() -> None:
    """Cholesky's sums are regrouped nowhere, and hold fewer products."""
    a, _ = system()
    x = da.linalg.cholesky(a, lower=True)
    assert_same_as_stock(x)
    tasks = checked(x)
    sums = [task for key, task in tasks.items() if str(key[0]).startswith("tree-sum-")]
    assert sums
    assert any(np.dot in set(functions_in(task)) for task in sums)
    products = [key for key in tasks if "dot" in str(key[0])]
    assert len(products) < len([key for key in stock_tasks_of(x) if "dot" in str(key[0])]) / 2


def test_a_product_whose_factors_are_needed_by_nobody_else_stays_a_task() -> None:
    """Nested, it would hold blocks of a triangular matrix that could have gone."""
    a, b = system()
    x = da.linalg.solve_triangular(a, rechunked(b), lower=True)
    with dask.config.set({"rewrite.disable": ["fuse-small"]}):
        tasks = tasks_of(x)
    sums = [task for key, task in tasks.items() if str(key[0]).startswith("tree-sum-")]
    assert sums
    assert all(np.dot not in set(functions_in(task)) for task in sums)


@many_blocks
def test_small_products_of_large_factors_stay_tasks() -> None:
    a, b = system()
    x = da.linalg.solve(a, b[:, :1].rechunk((3, 1)))
    with dask.config.set({"rewrite.disable": ["fuse-small"]}):
        tasks = tasks_of(x)
    for key, task in tasks.items():
        if str(key[0]).startswith("tree-sum-") and np.dot in set(functions_in(task)):
            assert {dep[0].split("-")[0] for dep in task.dependencies} <= {"lu", "tree"}


# -- fires: in a row -----------------------------------------------------------------------


def test_without_reassociation_sums_go_on_where_the_one_before_stopped() -> None:
    terms = [np.array([10.0**i, -(0.1**i)]) for i in range(20)]
    graph = graph_of(folded(sum), terms)
    after = rewritten(graph, reassociate=False)
    low = added(after)
    assert len(low) == 3
    assert [key for key in after.nodes[KEY].dependencies if key[0] == "x"] == [("x", 19)]
    for one, other in itertools.pairwise(low):
        assert one.key in other.dependencies


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", ">f8"])
@pytest.mark.parametrize("name", ["sum", "reduce(add)", "reduce(mul)", "reduce(multiply)"])
def test_without_reassociation_every_bit_is_kept(name: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    terms = [(10 ** rng.uniform(-0.3, 0.3, (3, 2))).astype(dtype) for _ in range(40)]
    rewritten(graph_of(FOLDS[name], terms), reassociate=False)


def test_different_dtypes_in_a_row() -> None:
    """One int64 and fifteen int8: groups of int8 would wrap at 128."""
    terms = [np.full(2, 100, "i8"), *[np.full(2, 100, "i1") for _ in range(15)]]
    for order in (terms, terms[::-1]):
        for call in (folded(sum), folded(functools.reduce, operator.add)):
            rewritten(graph_of(call, order))
    assert (get_sync(rewritten(graph_of(folded(sum), terms)).nodes, KEY) == 1600).all()


def test_different_shapes_in_a_row() -> None:
    terms = [np.arange(3.0).reshape(3, 1), *[np.arange(4.0) + i for i in range(15)]]
    rewritten(graph_of(folded(sum), terms))


def test_unknown_blocks_are_reduced_in_a_row() -> None:
    """What the operator does is done in the same order, whatever the blocks are."""
    masked = [np.ma.array(np.arange(4.0) + i, mask=[i == 3, 0, i == 17, 0]) for i in range(20)]
    after = rewritten(graph_of(folded(functools.reduce, operator.add), masked))
    assert type(get_sync(after.nodes, KEY)) is np.ma.MaskedArray
    text = [np.array([str(i)], dtype=object) for i in range(20)]
    rewritten(graph_of(folded(functools.reduce, operator.add), text))
