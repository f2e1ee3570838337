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
from dask.callbacks import Callback
from dask.graph_manipulation import chunks
from dask.highlevelgraph import HighLevelGraph
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import is_acyclic, verify
from dask_rewrite.passes.base import Missed
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.contract import Contract
from dask_rewrite.passes.contract.accumulate import Partial
from dask_rewrite.passes.contract.cost_model import Block, Plan, Sizes, make_plan
from dask_rewrite.passes.contract.gates import Gates
from dask_rewrite.passes.contract.trees import Tree, find_trees
from dask_rewrite.passes.site import Site
from dask_rewrite.pipeline.run import rewrite_tasks
from dask_rewrite.pipeline.trace import Trace
from dask_rewrite.remarks import Remarks
from dask_rewrite.scheduler import Machine, machine
from helpers import Source, assert_same, keys_of, stock, switched_on

BEFORE = ["cull", "fuse-blockwise", "lower", "fuse-slices"]


@pytest.fixture(autouse=True)
def two_threads() -> Any:
    tiny = {"rewrite.options": {"contract": {"min-bytes": 1}}}  # as the blocks of these tests are
    with dask.config.set({"scheduler": "threads", "num_workers": 2, **tiny}):
        yield


def blocks(rows: int = 4, columns: int = 24, side: int = 4, dtype: Any = "f8", last: int = 0) -> da.Array:
    """Blocks that are computed, of values that all differ; the last of each row may be smaller."""
    shape = (rows * side, columns * side - last)
    values = np.arange(shape[0] * shape[1]).reshape(shape) % 251
    return da.from_array(values.astype(dtype), chunks=side) + np.ones((), dtype)


def lowered(*collections: Any) -> Graph:
    """The graph as the pass gets it."""
    graph = HighLevelGraph.merge(*[collection.__dask_graph__() for collection in collections])
    with dask.config.set({"rewrite.passes": BEFORE}):
        found = rewrite_tasks(graph, [key for c in collections for key in keys_of(c)])
    assert found is not None
    return found


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    after = Contract(**{"min_bytes": 1, **options}).run(graph, Context(remarks, Options.current()))
    verify(after, thorough=True)
    assert is_acyclic(after.nodes)
    assert_close(dask.get(after.nodes, list(graph.outputs)), dask.get(graph.nodes, list(graph.outputs)))
    return after, remarks


def assert_close(actual: Any, expected: Any) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5 if one.dtype.itemsize == 4 else 1e-12)


def reasons(remarks: Remarks) -> str:
    return "; ".join(remark.reason for remark in remarks if remark.kind == "missed")


def gates_of(graph: Graph) -> list[Any]:
    return [key for key, node in graph.nodes.items() if getattr(node, "func", None) is chunks.checkpoint]


class Held(Callback):
    """The most bytes of distinct buffers in a local scheduler's hands at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker: Any) -> None:
        owners = {}
        for value in list(state["cache"].values()):
            if isinstance(value, np.ndarray):
                while isinstance(value.base, np.ndarray):
                    value = value.base
                owners[id(value)] = value.nbytes
        self.peak = max(self.peak, sum(owners.values()))


PRODUCTS = {
    "dot": lambda x: x.dot(x.T),
    "matmul": lambda x: x @ x.T,
    "tensordot": lambda x: da.tensordot(x, x, axes=((1,), (1,))),
    "einsum": lambda x: da.einsum("ik,jk->ij", x, x),
    "cov": lambda x: da.cov(x),
    "centred": lambda x: (x - 3).dot((x - 3).T),
    "cast": lambda x: x.astype("c16").dot(x.astype("c16").T),
    "scaled": lambda x: (x @ x.T) / 7,
    "total": lambda x: (x @ x.T).sum(),
    "two axes": lambda x: (lambda y: da.tensordot(y, y, axes=((1, 2), (1, 2))))(
        x.reshape(x.shape[0], x.shape[1] // 2, 2)
    ),
    "three dimensions": lambda x: (lambda y: y @ y.transpose(0, 2, 1))(da.stack([x, x + 1])),
    "elementwise": lambda x: (x[:, None, :] * x[None, :, :]).sum(axis=2),
    "vector": lambda x: x @ da.arange(x.shape[1], chunks=4, dtype=float),
    "kept axis": lambda x: (x[:, None, :] * x[None, :, :]).sum(axis=2, keepdims=True),
    "columns": lambda x: da.einsum("ki,kj->ij", x.T, x.T),
    "normal equations": lambda x: da.linalg.solve(x @ x.T + 100 * da.eye(x.shape[0], chunks=4), x[:, 0]),
}


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


# --------------------------------------------------------------------------------------
# gates


def test_loads_that_others_need_are_not_gated() -> None:
    """The mean needs all blocks: a gate on one of them would wait for itself."""
    x = blocks()
    centred = x - x.mean()
    y = centred @ centred.T
    after, _ = run(lowered(y))
    for key in gates_of(after):
        assert "mean" not in str(key)
    with switched_on():
        np.testing.assert_allclose(y.compute(), (lambda v: v @ v.T)(x.compute() - x.compute().mean()))


def test_a_cycle_is_never_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gates, "before_load", lambda self, term: 3)  # the first step's loads as well
    after, remarks = run(lowered(PRODUCTS["matmul"](blocks())))
    assert not gates_of(after)
    assert "cycle" in reasons(remarks)


def test_gated_loads_keep_their_place_in_the_queue_of_roots() -> None:
    after, _ = run(lowered(PRODUCTS["matmul"](blocks())))
    gated = [node for node in after.nodes.values() if getattr(node, "func", None) is chunks.bind]
    assert gated
    assert all(node.data_producer for node in gated)
    assert all(str(node.key[0]).startswith("contract-load-") for node in gated)


def test_gates_on_a_cluster_have_two_steps() -> None:
    blocks_ = [Block(2_000_000, k, k, True) for k in range(80) for _ in range(4)]
    plan = make_plan(Sizes(16, 80, 2_000_000, blocks_), Machine(4, 2, 0), 2**40)
    assert isinstance(plan, Plan)
    assert not plan.lockstep
    assert plan.look >= 2


def test_reads_run_ahead_by_twice_the_threads() -> None:
    blocks_ = [Block(2_000_000, k, k, True) for k in range(80) for _ in range(4)]
    for threads in (1, 2, 8, 16):
        plan = make_plan(Sizes(16, 80, 2_000_000, blocks_), Machine(threads, 1, 0), 2**40)
        assert isinstance(plan, Plan)
        assert (plan.look - 1) * 4 * plan.width >= 2 * threads


def test_the_memory_limit_is_kept_where_that_is_possible() -> None:
    blocks_ = [Block(2_000_000, k, k, True) for k in range(80) for _ in range(4)]
    sizes = Sizes(16, 80, 2_000_000, blocks_)
    free = make_plan(sizes, Machine(8, 1, 0), 2**40)
    bound = make_plan(sizes, Machine(8, 1, 0), 60_000_000)
    assert isinstance(free, Plan)
    assert isinstance(bound, Plan)
    assert bound.peak <= 60_000_000 < free.peak
    assert bound.look < free.look


def test_the_memory_limit_is_read() -> None:
    graph = lowered(PRODUCTS["matmul"](blocks()))
    with dask.config.set({"num_workers": 8, "rewrite.contraction.memory-limit": "2 kB"}):
        _, remarks = run(graph)
    assert "loads at most 1 steps ahead" in str(next(iter(remarks)))
    for wrong in ("much", True, [1], -5):
        with (
            dask.config.set({"rewrite.contraction.memory-limit": wrong}),
            pytest.raises(ValueError, match=r"contraction\.memory-limit"),
        ):
            rewrite_tasks(blocks().dask, keys_of(blocks()))


def test_blocks_are_read_twice_only_to_keep_the_limit(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean needs every block before the first product: held until then, or read again."""
    x = da.from_array(file, chunks=20)
    centred = x - x.mean(axis=1, keepdims=True)
    y = (centred @ centred.T) / x.shape[1]
    right = np.cov(file[:], bias=True)
    reads = count_reads(monkeypatch)
    found = []
    for limit in (None, "160 kB"):
        reads.clear()
        with dask.config.set({"rewrite.contraction.memory-limit": limit}), switched_on(), Held() as held:
            np.testing.assert_allclose(y.compute(), right)
        found.append((len(reads), held.peak))
    block = 20 * 20 * 8
    assert found[0][0] == 160
    assert 160 < found[1][0] <= 320
    assert found[1][1] <= 2.5 * (16 + 2 * 4) * block < found[0][1]


def test_what_cannot_be_repeated_is_not() -> None:
    x = da.random.random((16, 96), chunks=4)
    centred = x - x.mean(axis=1, keepdims=True)
    with dask.config.set({"rewrite.contraction.memory-limit": "1 kB"}):
        after = Contract(min_bytes=1).run(lowered(centred @ centred.T), Context())
    loads = [key for key in after.nodes if "random" in str(key[0])]
    assert len(loads) == 96


def test_nothing_to_gain() -> None:
    few = [Block(8, k, k, True) for k in range(4) for _ in range(2)]
    assert isinstance(make_plan(Sizes(4, 4, 8_000_000, few), Machine(4, 1, 0), 2**40), Missed)


def test_the_machine() -> None:
    with dask.config.set(scheduler="sync"):
        assert machine().threads == 1
    with dask.config.set(scheduler="threads", num_workers=7):
        assert machine()[:2] == (7, 1)
        assert machine().configured
    with dask.config.set(num_workers=None):
        assert not machine().configured


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


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every read of more than one element of an HDF5 dataset, from now on."""
    import h5py

    reads: list[Any] = []
    plain = h5py.Dataset.__getitem__

    def counting(self: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        found = plain(self, index, *args, **kwargs)
        if np.size(found) > 1:
            reads.append(index)
        return found

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counting)
    return reads


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


@pytest.mark.parametrize(
    ("name", "dtype", "mean"), [("dot", "f4", 0.0), ("matmul", "c8", 0.0), ("einsum", "f4", 0.5)]
)
def test_long_sums_in_single_precision_lose_no_digits(name: str, dtype: str, mean: float) -> None:
    values = np.random.default_rng(0).standard_normal((12, 2000)) / 4 + mean
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

    sums = Partial(operator.add, steps, levels)
    held = 0
    for step in range(steps):
        value = sums.begin(Task(None, np.int64, step), [])
        sofar = sums.end(step, value, keep)
        held = max(held, sum(each is not None for each in sums.held))
    assert sofar() == sum(range(steps))
    assert len(kept) == steps
    assert held <= levels
