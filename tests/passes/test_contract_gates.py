"""Gates: loads of products wait for their turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode
from dask.graph_manipulation import chunks

import dask_rewrite
from dask_rewrite.graph.gates import first_argument
from dask_rewrite.graph.names import unmarked
from dask_rewrite.passes.base import Missed
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.contract import Contract, cost_model
from dask_rewrite.passes.contract.cost_model import Block, Plan, Sizes, make_plan
from dask_rewrite.passes.contract.gates import Gates
from dask_rewrite.pipeline.run import rewrite_tasks
from dask_rewrite.scheduler import Machine, as_if, machine
from helpers import keys_of, stock, switched_on
from passes.contract_cases import (
    PRODUCTS,
    Held,
    blocks,
    count_reads,
    gates_of,
    lowered,
    reasons,
    run,
)

pytestmark = pytest.mark.usefixtures("tiny_products")


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
    before = lowered(PRODUCTS["matmul"](blocks()))
    after, _ = run(before)
    gated = [node for node in after.nodes.values() if getattr(node, "func", None) is chunks.bind]
    assert gated
    assert all(node.data_producer for node in gated)
    names, known = {node.key[0] for node in gated}, {key[0] for key in before.nodes if type(key) is tuple}
    assert names.isdisjoint(known)
    assert set(map(unmarked, known)).issuperset(map(unmarked, names))  # those of their blocks, marked


@pytest.mark.parametrize(("threads", "workers"), [(2, 2), (4, 2), (4, 4), (32, 4)])
@pytest.mark.parametrize(("accumulator", "width"), [(2_000_000, 3), (250_000, 1)])
def test_gates_on_a_cluster_leave_loads_for_all_threads(
    accumulator: int, width: int, threads: int, workers: int
) -> None:
    """Steps of one slab are two steps apart; those of several bring enough loads by themselves."""
    blocks_ = [Block(2_000_000, k, k, True) for k in range(80) for _ in range(4)]
    plan = make_plan(Sizes(16, 80, accumulator, blocks_), Machine(threads, workers, 0), 2**40)
    assert isinstance(plan, Plan)
    assert (plan.width, plan.lockstep) == (width, False)
    assert plan.look * plan.width * 4 * plan.chains >= 2 * threads
    assert plan.look >= 2 or (width > 1 and plan.every == 1)


def test_reads_run_ahead_by_twice_the_threads() -> None:
    blocks_ = [Block(2_000_000, k, k, True) for k in range(80) for _ in range(4)]
    for threads in (1, 2, 8, 16):
        plan = make_plan(Sizes(16, 80, 2_000_000, blocks_), Machine(threads, 1, 0), 2**40)
        assert isinstance(plan, Plan)
        assert (plan.look - 1) * 4 * plan.width >= 2 * threads


@pytest.mark.parametrize(("side", "width"), [(4, 1), (7, 1), (8, 2), (16, 4), (64, 4)])
def test_steps_take_in_more_slabs_where_all_sums_are_large_beside_them(side: int, width: int) -> None:
    blocks_ = [Block(2_000_000, k, k, True) for k in range(64) for _ in range(side)]
    plan = make_plan(Sizes(side * side, 64, 2_000_000, blocks_, kept=True), Machine(2, 1, 0), 2**40)
    assert isinstance(plan, Plan)
    assert plan.width == width
    assert plan.peak <= 1.6 * side * side * 2_000_000 + 40_000_000
    tight = make_plan(Sizes(side * side, 64, 2_000_000, blocks_, kept=True), Machine(2, 1, 0), plan.peak - 1)
    assert isinstance(tight, Plan)
    assert tight.width == 1


@pytest.mark.filterwarnings("ignore:Increasing number of chunks")
@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize(
    ("side", "length", "width", "tasks"),
    [(12, 4, 3, 800), (12, 80, 3, 800), (6, 80, 1, 400)],
    ids=["small blocks", "large sums", "large slabs"],
)
def test_several_slabs_a_step_give_the_same(
    side: int, length: int, width: int, tasks: int, loose: bool
) -> None:
    """Slabs of 12 blocks of 51 kB are too large for the rule of small blocks, not for that of large sums."""
    shape = length * side, length * side
    x = da.from_array(np.arange(float(np.prod(shape))).reshape(shape), chunks=length)
    x = x.map_blocks(lambda block: block + 1, dtype=float) if loose else x + 1
    with switched_on(num_workers=2, **{"rewrite.options": {"contract": {"min-bytes": 1}}}):
        report = dask_rewrite.explain(x.dot(x.T))
        found = [each.reason for each in report.remarks if each.rule == "contract"]
        assert f"{width} terms a step" in found[0]
        assert report.after.tasks < tasks
        actual = x.dot(x.T).compute(scheduler="threads")
    np.testing.assert_array_equal(actual, x.dot(x.T).compute(scheduler="sync"))


@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize(("rows", "width"), [(4, 3), (2, 1)])
def test_several_slabs_a_step_give_the_same_on_a_cluster(
    rows: int, width: int, loose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three quarters of sixteen sums weigh as much as three slabs; of four sums, as much as one."""
    monkeypatch.setattr(cost_model, "SMALL_CLUSTER", 0)
    monkeypatch.setattr(cost_model, "GATES_CLUSTER", 0)
    x = blocks(rows)
    x = x.map_blocks(lambda block: block + 1, dtype=float) if loose else x + 1
    with stock():
        expected = x.dot(x.T).compute(scheduler="sync")
    options = {"rewrite.options": {"contract": {"min-bytes": 1}}}
    with switched_on(**options, **as_if(1, 2)):
        report = dask_rewrite.explain(x.dot(x.T))
        found = [each.reason for each in report.remarks if each.rule == "contract"]
        assert f"{width} terms a step, loads at most" in found[0]
        (optimized,) = dask.optimize(x.dot(x.T))
    with stock():
        actual = optimized.compute(scheduler="sync")
    np.testing.assert_array_equal(actual, expected)


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
# pays


@pytest.fixture
def file(tmp_path: Path) -> Any:
    h5py = pytest.importorskip("h5py")
    values = np.arange(80.0 * 800).reshape(80, 800) % 17
    with h5py.File(tmp_path / "x.h5", "w") as made:
        made.create_dataset("x", data=values, chunks=(20, 20))
    with h5py.File(tmp_path / "x.h5", "r") as opened:
        yield opened["x"]


# --------------------------------------------------------------------------------------
# arrays in memory


def waiting_arrays(y: da.Array) -> int:
    """How many arrays of the graph wait for a gate."""
    after, _ = run(lowered(y))
    found = [node for node in after.nodes.values() if getattr(node, "func", None) is chunks.bind]
    arrays = [node for node in found if type(first_argument(node)) is DataNode]
    assert all(node.data_producer for node in arrays)
    return len(arrays)


def test_arrays_that_travel_with_the_graph_wait_as_loads_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_rewrite.passes.contract.cost_model.GATES_CLUSTER", 0)
    values = (np.arange(40 * 640) % 17.0).reshape(40, 640)
    x = da.from_array(values, chunks=10)
    for y, right in (
        (x @ x.T, values @ values.T),
        ((x - 3) @ (x * 2).T, (values - 3) @ (values * 2).T),
    ):
        assert not waiting_arrays(y)  # in this process they are held anyway
        with switched_on(**as_if(1, 2)):
            assert waiting_arrays(y) > 100
            np.testing.assert_array_equal(y.compute(scheduler="sync"), right)
    with switched_on(**as_if(1, 2)):
        y = (x - x.sum()) @ x.T  # which needs all of them at once
        assert not waiting_arrays(y)
        np.testing.assert_array_equal(y.compute(scheduler="sync"), (values - values.sum()) @ values.T)


@pytest.mark.once
def test_what_a_cluster_holds_does_not_hang_on_the_source(python: Callable[..., str]) -> None:
    """On average of several orders: dask's own, and with it the peak, hangs on the hashes of strings."""
    script = """
        import dask.array as da
        import numpy as np

        import dask_rewrite

        values = np.arange(1200 * 12000.0).reshape(1200, 12000)
        numbers = da.random.default_rng(0).random(values.shape, chunks=400)
        for x in (da.from_array(values, chunks=400), numbers):
            print(dask_rewrite.forecast(x @ x.T, threads=1, workers=2).after.peak)
    """
    held = [list(map(int, python(script, PYTHONHASHSEED=seed).split())) for seed in "1234"]
    stored, random = map(sum, zip(*held, strict=True))
    assert stored < 1.2 * random
