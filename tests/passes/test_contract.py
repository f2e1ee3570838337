"""Products summed over a long axis are accumulated slab by slab."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from dask.array.routines import _tensordot
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.program import operation
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.contract import Contract
from dask_rewrite.passes.contract.accumulate import Partial
from dask_rewrite.pipeline.run import rewrite_tasks
from dask_rewrite.pipeline.trace import Trace
from helpers import assert_same, keys_of, stock, switched_on
from passes.contract_cases import (
    PRODUCTS,
    Held,
    assert_close,
    blocks,
    count_reads,
    gates_of,
    lowered,
    reasons,
    run,
)

pytestmark = pytest.mark.usefixtures("tiny_products")


# --------------------------------------------------------------------------------------
# fires


def test_fires() -> None:
    graph = lowered(PRODUCTS["matmul"](blocks()))
    after, remarks = run(graph)
    assert remarks.counts["contract", "applied"] == 1
    (remark,) = remarks
    assert "16 blocks, 24 terms each: one chain a block" in remark.reason
    assert "predicted peak" in remark.reason
    assert gates_of(after)
    chain = [key for key in after.nodes if str(key[0]).startswith("contract-") and len(key) == 4]
    steps = len({key[3] for key in chain})
    assert len(chain) == 16 * steps
    for key in chain:
        assert ({(key[0], key[1], key[2], key[3] - 1)} <= after.nodes[key].dependencies) == (key[3] > 0)


@pytest.mark.parametrize("name", [name for name in PRODUCTS if name != "vector"])
def test_recognizes(name: str) -> None:
    x = blocks(3 if name == "three dimensions" else 4)
    y = PRODUCTS[name](x)
    _, remarks = run(lowered(y))
    assert remarks.counts["contract", "applied"], reasons(remarks)
    with switched_on():
        actual = y.compute()
    with stock():
        assert_close([actual], [y.compute()])


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_one_product(threads: int) -> None:
    x = da.random.default_rng(0).random((4, 320), chunks=4)
    y = da.random.default_rng(1).random((320, 4), chunks=4)
    peaks = []
    with dask.config.set(num_workers=threads, scheduler="threads" if threads > 1 else "sync"):
        for product in (x.dot(y), x.dot(x.T)):
            after, remarks = run(lowered(product))
            assert ("one chain" if threads == 1 else f"{threads} chains") in str(next(iter(remarks)))
            assert not any(str(key[0]).startswith("random") for key in after.nodes)
        for context in (stock, switched_on):
            with context(), Held() as held:
                x.dot(x.T).compute()
            peaks.append(held.peak)
    if threads < 8:  # how eight threads take turns on fewer processors is anybody's guess
        assert peaks[1] <= peaks[0]


def test_products_are_never_kept() -> None:
    after, _ = run(lowered(PRODUCTS["tensordot"](blocks(4, 24))))
    assert not any(getattr(node, "func", None) is _tensordot for node in after.nodes.values())
    accumulators = [key for key in after.nodes if str(key[0]).startswith("contract-") and len(key) == 4]
    assert len(accumulators) == 16 * (24 // 4 - 1)  # four terms a step, the last step in the result


def test_transposed_views_become_part_of_the_products() -> None:
    graph = lowered(PRODUCTS["dot"](blocks()))
    after, _ = run(graph)
    assert not any(getattr(node, "func", None) is np.transpose for node in after.nodes.values())


def test_partial_chains_when_there_are_fewer_sums_than_threads() -> None:
    x, v = blocks(2, 24), blocks(1, 24)
    with dask.config.set(num_workers=8):
        graph = lowered(x.dot(x.T))
        after, remarks = run(graph)
        assert "2 chains a block" in str(next(iter(remarks)))
        assert {key[2] for key in after.nodes if len(key) == 4 and "gate" not in key[0]} == {0, 1}
        run(lowered(v.dot(v.T)))


def test_many_chains_are_added_up_in_a_tree() -> None:
    x = blocks(2, 400)
    with dask.config.set(num_workers=64):
        after, remarks = run(lowered(x.dot(x.T)))
        assert "16 chains a block" in str(next(iter(remarks)))
        assert all(len(after.nodes[key].dependencies) <= 8 for key in after.outputs)


def test_several_contractions_of_one_array() -> None:
    x = blocks()
    y = blocks(2)
    after, remarks = run(lowered(x @ x.T, x @ y.T))
    assert remarks.counts["contract", "applied"] == 1  # all of them advance together
    assert "24 blocks" in str(next(iter(remarks)))
    assert gates_of(after)


def test_a_product_of_products() -> None:
    x = blocks(3, 9)
    run(lowered((x @ x.T) @ x))
    run(lowered((x @ x.T) @ (x @ x.T)))


# --------------------------------------------------------------------------------------
# equivalent


@given(
    name=st.sampled_from(sorted(PRODUCTS.keys() - {"normal equations"})),
    rows=st.integers(1, 4),
    columns=st.integers(1, 9),
    dtype=st.sampled_from(["f4", "f8", "c16", "i1", "i8", "u2"]),
    last=st.integers(0, 1),
    threads=st.sampled_from([1, 2, 8]),
)
def test_equivalent(name: str, rows: int, columns: int, dtype: str, last: int, threads: int) -> None:
    x = blocks(rows, columns, 2, dtype, 2 * last)
    if 0 in x.shape:
        return
    y = PRODUCTS[name](x)
    with dask.config.set(num_workers=threads):
        with switched_on():
            actual = y.compute(scheduler="sync")
        with stock():
            expected = y.compute(scheduler="sync")
    assert type(actual) is type(expected)
    assert actual.dtype == expected.dtype
    if actual.dtype.kind in "iu":
        assert_same(actual, expected)
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-4)


# --------------------------------------------------------------------------------------
# pays


@pytest.fixture
def file(tmp_path: Path) -> Any:
    h5py = pytest.importorskip("h5py")
    values = np.arange(80.0 * 800).reshape(80, 800) % 17
    with h5py.File(tmp_path / "x.h5", "w") as made:
        made.create_dataset("x", data=values, chunks=(20, 20))
    with h5py.File(tmp_path / "x.h5", "r") as opened:
        yield opened["x"]


@pytest.mark.parametrize("name", ["dot", "matmul", "tensordot", "einsum", "total", "two axes"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_every_block_is_read_once_and_few_are_held(
    name: str, threads: int, file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = PRODUCTS[name](da.from_array(file, chunks=20))
    reads = count_reads(monkeypatch)
    with dask.config.set(num_workers=threads), switched_on(), Held() as held:
        y.compute()
    assert len(reads) == 160
    block = 20 * 20 * 8
    assert held.peak <= 2.5 * (16 + 2 * 4) * block


def test_from_file_to_file(file: Any, tmp_path: Path) -> None:
    import h5py

    x = da.from_array(file, chunks=20)
    with h5py.File(tmp_path / "y.h5", "w") as made:
        target = made.create_dataset("y", shape=(80, 80), chunks=(20, 20), dtype="f8")
        with switched_on(), Held() as held:
            da.store(x.dot(x.T), target)
        np.testing.assert_array_equal(target[:], file[:] @ file[:].T)
    assert held.peak <= 160 * 20 * 20 * 8 / 3


@pytest.mark.filterwarnings("ignore:Increasing number of chunks")
def test_many_small_blocks_hold_no_more_than_with_dask() -> None:
    x = da.random.default_rng(0).random((60, 60), chunks=5)
    peaks = []
    for context in (stock, switched_on):
        with context(scheduler="sync"), Held() as held:
            (x @ x.T).compute()
        peaks.append(held.peak)
    assert peaks[1] <= peaks[0]


def test_looking_costs_little_where_there_is_nothing() -> None:
    nodes: dict[Any, Any] = {("x", i): DataNode(("x", i), i) for i in range(100)}
    nodes |= {("y", i): Task(("y", i), abs, TaskRef(("x", i))) for i in range(100)}
    graph = Graph(nodes, tuple(nodes))
    assert Contract(min_bytes=1).run(graph, Context()) is graph


def test_the_plan_is_explained() -> None:
    trace = Trace()
    y = PRODUCTS["dot"](blocks())
    rewrite_tasks(y.dask, keys_of(y), trace=trace)
    (remark,) = [remark for remark in trace.remarks if remark.rule == "contract"]
    assert remark.kind == "applied"
    assert "instead of" in remark.reason


# --------------------------------------------------------------------------------------
# long sums in few digits


def error(x: da.Array, value: Any) -> float:
    """How far ``value`` is from ``x @ x.T``, in the norm, where this is computed in more digits."""
    wide = np.asarray(x).astype(np.result_type(x.dtype, "f8"))
    exact = wide @ wide.T
    return float(np.linalg.norm(value - exact) / np.linalg.norm(exact))


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "dtype", "mean"), [("dot", "f4", 0.0), ("matmul", "c8", 0.0), ("einsum", "f4", 0.5)]
)
def test_long_sums_in_single_precision_lose_no_digits(name: str, dtype: str, mean: float) -> None:
    values = np.random.default_rng(0).standard_normal((8, 2000)) / 4 + mean
    x = da.from_array(values.astype(dtype), chunks=4) + np.zeros((), dtype)
    y = PRODUCTS[name](x)
    assert any(r.rule == "contract" and r.kind == "applied" for r in dask_rewrite.explain(y).remarks)
    with dask.config.set(scheduler="sync"):
        mine = error(x, dask_rewrite.optimize(y).compute())
        with stock():
            theirs = error(x, y.compute())
    assert mine <= 2 * theirs


@pytest.mark.parametrize("steps", [1, 2, 7, 16, 17, 60])
@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_partial_sums_take_in_every_step_once(steps: int, levels: int) -> None:
    kept: list[Any] = []

    def keep(value: Any) -> Any:
        kept.append(value)
        return value

    sums = Partial(lambda one, other: operation(operator.add, (one, other)), steps, levels)
    held = 0
    for step in range(steps):
        value = sums.begin(Task(None, np.int64, step), [])
        sofar = sums.end(step, value, keep)
        held = max(held, sum(each is not None for each in sums.held))
    assert sofar() == sum(range(steps))
    assert len(kept) == steps
    assert held <= levels
