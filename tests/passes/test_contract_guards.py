"""Which products are left as they are, and what accumulating must not break."""

from __future__ import annotations

from collections import Counter
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef

from dask_rewrite.passes.context import Context
from dask_rewrite.passes.contract import Contract, trees
from dask_rewrite.passes.contract.trees import Tree, find_trees
from dask_rewrite.passes.site import Site
from dask_rewrite.remarks import Remarks
from dask_rewrite.scheduler import Machine
from helpers import Source, assert_same, distinct, stock, switched_on
from passes.contract_cases import (
    PRODUCTS,
    blocks,
    lowered,
    reasons,
    run,
)

pytestmark = pytest.mark.usefixtures("tiny_products")


# --------------------------------------------------------------------------------------
# declines


def declined(*collections: Any, **options: Any) -> str:
    graph = lowered(*collections)
    after, remarks = run(graph, **options)
    assert after is graph
    return reasons(remarks)


def test_without_regrouping() -> None:
    assert "reassociate" in declined(PRODUCTS["matmul"](blocks()), reassociate=False)
    x = blocks(dtype="i8")
    _, remarks = run(lowered(x @ x.T), reassociate=False)  # exact in any order
    assert remarks.counts["contract", "applied"]


@pytest.mark.parametrize("name", PRODUCTS)
def test_bit_for_bit_without_regrouping(name: str) -> None:
    y = PRODUCTS[name](blocks(2, 12) / 7)
    with dask.config.set({"rewrite.reassociate": False}), switched_on():
        actual = y.compute()
    with stock():
        assert_same(actual, y.compute())


def test_unknown_blocks() -> None:
    x = da.from_array(Source(np.arange(16.0 * 48).reshape(16, 48)), chunks=4)
    assert "not known to be NumPy arrays" in declined(x @ x.T)
    assert "not known" in declined((lambda y: y @ y.T)(blocks().map_blocks(lambda block: block)))


@pytest.mark.parametrize("dtype", ["f2", "g", "O", "m8[s]"])
def test_other_dtypes(dtype: str) -> None:
    values = np.arange(8 * 24).reshape(8, 24) % 7
    x = da.from_array(values.astype(dtype), chunks=4)
    x = x + x
    y = (x[:, None, :] * 2 + x[None, :, :] * 0).sum(axis=2) if dtype == "m8[s]" else x.dot(x.T)
    graph = lowered(y)
    after = Contract(min_bytes=1).run(graph, Context())
    assert after is graph


def test_masked_and_sparse_blocks() -> None:
    masked = da.ma.masked_greater(blocks(2, 12), 100)
    assert declined((masked[:, None, :] * masked[None, :, :]).sum(axis=2))
    sparse = pytest.importorskip("sparse")
    x = blocks(2, 12).map_blocks(sparse.COO)
    graph = lowered(da.tensordot(x, x, axes=((1,), (1,))))
    remarks = Remarks()
    assert Contract(min_bytes=1).run(graph, Context(remarks)) is graph


def test_small_ones() -> None:
    assert "not worth it" in declined(PRODUCTS["matmul"](blocks(2, 8)), min_bytes=16_384)


@pytest.mark.parametrize(("columns", "worth"), [(16, True), (32, False)])
def test_small_ones_by_the_thousand(columns: int, worth: bool) -> None:
    """So much has to be at stake for each 256 products: a task of its own costs the scheduler memory, too."""
    x = blocks(4, columns)  # 256 and 512 products; 10,240 and 18,432 bytes
    _, remarks = run(lowered(x @ x.T), min_bytes=10_000)
    assert bool(remarks.counts["contract", "applied"]) is worth


def test_users_of_a_block_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are needed by two sums of each block: to look through all of them would be quadratic."""
    looks = Counter[str]()
    before = trees.identity_of
    monkeypatch.setattr(trees, "identity_of", lambda func: looks.update(["one"]) or before(func))
    rows = 40
    weights, x = blocks(1, 2)[0], blocks(rows, 2)
    y = [(x * weights).sum(axis=1), (x * (weights + 1)).sum(axis=1)]
    run(lowered(*y))
    assert looks["one"] < 12 * rows


def test_constants_that_are_only_added_up() -> None:
    """Equal blocks and equal partial sums become one task; to accumulate them would hide that."""
    x = da.concatenate([da.ones((4, 4), chunks=4), da.zeros((4, 40), chunks=4)], axis=1).rechunk(4)
    graph = lowered((x + x[:, ::-1]).sum(axis=0))
    assert Contract(min_bytes=1).run(graph, Context()) is graph


def test_the_same_graph_whatever_the_hash_seed(python: Any) -> None:
    script = """
        import dask.array as da
        from dask_rewrite.pipeline.run import rewrite_tasks
        x = da.arange(96 * 16, chunks=96 * 16).reshape(96, 16).rechunk(4)
        y = ((x - x.sum(axis=0)).T @ (x - x.sum(axis=0)))
        g = rewrite_tasks(y.dask, y.__dask_keys__())
        print(hash(None) * 0, [(k, sorted(map(str, n.dependencies))) for k, n in g.nodes.items()])
    """
    one, other = (
        python(script, DASK_REWRITE__OPTIONS="{'contract': {'min-bytes': 1}}", PYTHONHASHSEED=str(seed))
        for seed in range(2)
    )
    assert "contract-" in one
    assert one == other


def test_plain_sums_are_not_looked_at() -> None:
    for y in (blocks().sum(), blocks().sum(axis=0), blocks().mean(axis=1), blocks() - blocks().sum(axis=0)):
        graph = lowered(y)
        remarks = Remarks()
        assert Contract(min_bytes=1).run(graph, Context(remarks)) is graph
        assert not len(remarks)


@pytest.mark.parametrize("there", [Machine(2, 2, 0), Machine(2, 1, 0, configured=False)])
def test_one_product_where_there_may_be_more_threads(there: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_rewrite.passes.context.machine", lambda: there)
    assert "no block" in declined(blocks(1, 80).dot(blocks(80, 1)))


def test_a_term_that_others_need() -> None:
    graph = lowered(PRODUCTS["matmul"](blocks()))
    sums = next(t for t in find_trees(Site(graph, Context())) if isinstance(t, Tree))
    graph.nodes["also"] = Task("also", np.negative, TaskRef(sums.leaves[3]))
    graph.outputs += ("also",)
    _, remarks = run(graph)
    assert "other users" in reasons(remarks)


def test_an_output_among_the_terms() -> None:
    graph = lowered(PRODUCTS["matmul"](blocks()))
    sums = next(t for t in find_trees(Site(graph, Context())) if isinstance(t, Tree))
    graph.outputs += (sums.leaves[0], sums.inner[0])
    after, _ = run(graph)
    assert sums.leaves[0] in after.nodes


def test_unequal_annotations() -> None:
    graph = lowered(PRODUCTS["matmul"](blocks()))
    sums = next(t for t in find_trees(Site(graph, Context())) if isinstance(t, Tree))
    graph.annotations = {sums.leaves[0]: {"priority": 3}}
    after, remarks = run(graph)
    assert "annotations differ" in reasons(remarks)
    assert sums.leaves[0] in after.nodes


def test_equal_annotations_are_kept() -> None:
    graph = lowered(PRODUCTS["matmul"](blocks()))
    graph.annotations = {key: {"priority": 3} for key, node in graph.nodes.items() if type(node) is Task}
    after, _ = run(graph)
    for key, node in after.nodes.items():
        if type(node) is Task and "gate" not in str(key[0]):
            assert after.annotations[key] == {"priority": 3}, key
    assert after.annotations.keys() <= after.nodes.keys()


# --------------------------------------------------------------------------------------
# guards


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8", "?"])
@pytest.mark.parametrize("name", ["dot", "matmul", "tensordot", "einsum", "elementwise"])
def test_integers_come_out_exactly(name: str, dtype: str) -> None:
    values = np.arange(8 * 24).reshape(8, 24) % (2 if dtype == "?" else 101)
    x = da.from_array(values.astype(dtype), chunks=4)
    x = x & x  # computed, and of the same dtype
    y = PRODUCTS[name](x)
    with switched_on():
        actual = y.compute()
    with stock():
        assert_same(actual, y.compute())


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("name", ["dot", "matmul", "tensordot", "einsum", "elementwise"])
def test_floats_are_accumulated_in_the_dtype_of_the_sum(name: str, dtype: str) -> None:
    x = blocks(3, 10, dtype=dtype)
    y = PRODUCTS[name](x)
    _, remarks = run(lowered(y))
    assert remarks.counts["contract", "applied"], reasons(remarks)
    with switched_on():
        actual = y.compute()
    assert actual.dtype == y.dtype == dtype
    with stock():
        np.testing.assert_allclose(actual, y.compute(), rtol=1e-5)


def test_a_sum_of_another_dtype_than_its_terms() -> None:
    x = blocks(dtype="f4")
    y = (x[:, None, :] * x[None, :, :]).sum(axis=2, dtype="f8")
    _, remarks = run(lowered(y))
    assert remarks.counts["contract", "applied"]
    with switched_on():
        assert y.compute().dtype == "f8"


@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_and_infinity_stay_where_they_are() -> None:
    values = np.arange(16.0 * 48).reshape(16, 48)
    values[3, 17], values[8, 5], values[8, 40], values[12, 2] = np.nan, np.inf, -np.inf, np.inf
    x = da.from_array(values, chunks=4) + 0
    for name in ("dot", "matmul", "einsum"):
        y = PRODUCTS[name](x)
        with switched_on(), np.errstate(invalid="ignore"):
            actual = y.compute()
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(actual, values @ values.T)


@pytest.mark.parametrize("last", [1, 3])
def test_odd_last_chunks(last: int) -> None:
    for name in ("dot", "matmul", "tensordot", "einsum", "columns"):
        y = PRODUCTS[name](blocks(3, 12, last=last))
        run(lowered(y))
    x = blocks(3, 12)[:-last]
    run(lowered(x @ x.T))


def test_empty_and_zero_dimensional() -> None:
    x = blocks(3, 12)
    run(lowered(x[:0] @ x[:0].T))
    run(lowered(da.vdot(x, x)))
    run(lowered((x * x).sum()))


def test_nothing_below_is_rewritten_twice() -> None:
    y = PRODUCTS["matmul"](blocks())
    after, _ = run(lowered(y))
    again, _ = run(after)
    assert again is after


def test_names_are_the_same_every_time_and_follow_the_plan() -> None:
    y = PRODUCTS["matmul"](blocks(2))
    first, second = (set(run(lowered(y))[0].nodes) for _ in range(2))
    assert first == second
    with dask.config.set(num_workers=8):
        third = set(run(lowered(y))[0].nodes)
    shared = {key for key in first & third if str(key[0]).startswith("contract")}
    assert not shared


def test_the_bisect_limit_counts_contractions() -> None:
    x, y = blocks(), blocks(2, 9)
    graph = lowered(x @ x.T, y @ y.T)
    remarks = Remarks(1)
    Contract(min_bytes=1).run(graph, Context(remarks))
    assert remarks.counts["contract", "applied"] == 1


@pytest.mark.parametrize("together", [False, True])
def test_small_weights_do_not_link_sums(together: bool) -> None:
    """To go through all of them together would hold a slab of each."""
    x = distinct((6, 32, 8), (1, 2, 8)) + 1
    w = da.from_array(np.arange(1.0, 33), chunks=2) + 1  # 16 bytes beside 128
    if together:
        w = w[:, None] * np.ones(8)  # as large as the blocks
    sums = da.einsum("tyx,yx->t", x, w) if together else da.einsum("tyx,y->tx", x, w)
    _, remarks = run(lowered(sums))
    assert ("6 blocks" in " ".join(remark.reason for remark in remarks)) is together


def test_sums_that_wait_for_each_other_stay() -> None:
    """The next step of a descent needs the last one: no gate can go through both of them."""
    x, w = blocks(24, 1), da.zeros(4, chunks=4)
    for _ in range(3):
        w = w - 0.1 * (x.T @ (x @ w - 1))
    graph = lowered(w)
    after, remarks = run(graph)
    assert "wait for others" in reasons(remarks)
    assert after is graph
