"""What a forecast looks at, and how often: time for each task."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef, _identity_cast
from dask.graph_manipulation import chunks

import dask_rewrite
from dask_rewrite.analysis.evaluate import Evaluator
from dask_rewrite.analysis.facts import Fact
from dask_rewrite.analysis.knowledge.stored import taken
from dask_rewrite.analysis.memory import blocks
from dask_rewrite.analysis.memory.calls import calls_of, reaches_out
from dask_rewrite.analysis.memory.sizes import SMALL
from dask_rewrite.graph.batches import batch
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.nodes import call_with_dict
from dask_rewrite.graph.program import operation, straight_line


def test_calls_are_looked_through_only_where_something_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = blocks.calls_of
    monkeypatch.setattr(blocks, "calls_of", lambda node: seen.append(node) or real(node))
    x = da.random.default_rng(1).random((80, 80), chunks=10)
    dask_rewrite.forecast((x + x.T).sum(), threads=2)
    assert not seen


def test_rows_of_a_batch_that_are_given_the_same_are_evaluated_once() -> None:
    called: list[Task] = []

    class Counting(Evaluator):
        def call(self, task: Task, env: Any) -> Any:
            called.append(task)
            return super().call(task, env)

    block = Fact((3, 4), np.dtype("f8"))
    body = Task(None, operator.add, TaskRef("x0"), TaskRef("x1"))
    made = batch("y", body.__call__, [TaskRef("x"), [1] * 500 + [2] * 500], 1000)
    found = Counting().of(made, {"x": [block] * 1000})
    assert len(found) == 1000
    assert set(found) == {block}
    assert sum(task is body for task in called) == 2


def test_what_dask_fused_before_reads_too(tmp_path: Any) -> None:
    zarr = pytest.importorskip("zarr")
    store = zarr.create_array(str(tmp_path / "x.zarr"), shape=(40, 50), chunks=(10, 50), dtype="f8")
    (fused,) = dask.optimize(da.from_array(store, chunks=(10, 50)) + 1)
    found = dask_rewrite.forecast(fused.sum(), threads=2)
    assert found.before.read == found.after.read == 40 * 50 * 8


def test_so_does_what_a_template_is_given() -> None:
    read = Task("inner", da.core.getter, TaskRef("x"), (slice(3),))
    fused = Task.fuse(read, Task("y", operator.neg, TaskRef("inner")))
    graph, *others = fused.args
    names = {f"x{i}": value for i, value in enumerate(others)}
    body = Task(None, fused.func, TaskRef("graph"), *map(TaskRef, names))
    call = Task("y", body.__call__, Task(None, dict, graph=graph, **names))
    functions = [each.func for each in blocks.calls_of(call)]
    assert da.core.getter in functions
    assert reaches_out(call, ByIdentity[bool]())


def test_lists_own_what_is_made_for_them_and_what_stands_in_them() -> None:
    made = Task(None, np.ones, 10_000)
    nodes = {
        "x": Task("x", np.ones, 500),
        "list": Task("list", _identity_cast, made, np.zeros(1000), TaskRef("x"), typ=list),
    }
    assert blocks.Results(nodes.get, lambda key: None).of("list").owned == 88_000


@pytest.mark.parametrize("key", ["finalize-x", "other"])
def test_what_a_program_makes_of_an_answer_weighs_what_it_is_made_of(key: str) -> None:
    """As where xarray makes an object of it; of any other result of an unknown function nothing is known."""
    steps = [("a", operation(operator.neg, (TaskRef("x"),)))]
    steps.append(("b", operation(operator.call, (TaskRef("how"), TaskRef("a")))))
    calls = straight_line(steps, {"x": "x0", "how": "x1"})
    made = call_with_dict(key, calls, {"x0": TaskRef("x"), "x1": [].append}, frozenset("x"), False)
    nodes = {"x": Task("x", np.ones, (3, 4)), key: made}
    known = blocks.Results(nodes.get, lambda _: None)
    assert known.of("x").nbytes == 96
    assert known.of(key).nbytes == (96 if key == "finalize-x" else None)


def test_a_gate_weighs_next_to_nothing_also_where_it_is_called_as_a_template() -> None:
    body = Task(None, chunks.checkpoint, TaskRef("x0"))
    nodes = {
        "x": Task("x", np.ones, (3, 4)),
        "y": operation(body.__call__, (operation(dict, (), {"x0": TaskRef("x")}),)),
    }
    assert blocks.Results(nodes.get, lambda _: None).of("y").nbytes == SMALL


class Sink:
    """What takes blocks and keeps none."""

    shape = (3840, 3840)

    def __setitem__(self, index: Any, block: np.ndarray) -> None:
        pass


@pytest.mark.once
@pytest.mark.parametrize("most", [None, 1])
def test_what_stores_many_blocks_or_makes_them_first_gives_nothing(most: int | None) -> None:
    x = da.map_blocks(lambda: np.ones((64, 64)), chunks=((64,) * 60,) * 2, dtype=float, meta=np.empty((0, 0)))
    stored = da.store([x, x.map_blocks(lambda b: b + 1, dtype=float)], [Sink(), Sink()], compute=False)
    options = {} if most is None else {"coalesce": {"max-unknown": most}}
    with dask.config.set({"rewrite.options": options}):
        found = dask_rewrite.forecast(stored, threads=2)
    assert found.after.peak <= found.before.peak < 2**20
    assert found.after.written == found.before.written == 2 * 3840 * 3840 * 8


@pytest.mark.parametrize("names", [("mean",), ("mean", "max"), ("mean", "max", "std")])
def test_reads_of_array_likes_count_what_they_take(names: tuple[str, ...]) -> None:
    """Of what a task makes of them nothing can be told: partial results weigh less, or more."""

    class Source:
        shape, dtype, ndim = (480, 48, 64), np.dtype("f8"), 3

        def __getitem__(self, index: Any) -> np.ndarray:
            return np.ones([part.stop - part.start for part in index])

    x = da.from_array(Source(), chunks=(2, -1, -1))
    found = dask_rewrite.forecast(*[getattr(x, name)(axis=0) for name in names], threads=2)
    assert found.before.read == found.after.read == x.nbytes


def test_what_is_stated_of_a_source_says_what_is_read_of_it() -> None:
    zeros = np.zeros((6, 4), "i4")
    assert taken(zeros, (slice(1, 5), None, 0)) == 16
    assert taken(zeros, (..., [0, 2])) == 48
    assert taken(zeros, (slice(None), 0, 0)) is None
    assert taken(zeros, "name") is None
    for mask in ([True, False, True], np.zeros(zeros.shape, bool), True):
        assert taken(zeros, mask) is None
    assert taken(zeros, ([0, 1], [0, 1])) is None
    assert taken(zeros[:0], [0]) == 0
    assert taken(zeros.astype(object), slice(2)) is None
    assert taken([1, 2], slice(2)) is None


def test_files_that_a_program_is_given_are_read_in_its_steps() -> None:
    file = DataNode("x", "a file")
    read = operation(da.core.getter, (TaskRef("x0"), TaskRef("x1")))
    steps = [("v", read), ("w", operation(operator.neg, (TaskRef("v"),)))]
    funcs = straight_line(steps, {"x0": "x0", "x1": "x1"})
    made = call_with_dict("y", funcs, {"x0": file, "x1": (slice(2),)}, frozenset(), False)
    calls = [call for call in calls_of(made) if call.func is da.core.getter]
    assert [call.args for call in calls] == [(file, (slice(2),))]


def test_the_answer_of_one_block_that_nobody_knows_is_counted() -> None:
    """It is made in one task with the block, under a name that is new in each graph: it weighed nothing."""

    def load(block_info: Any = None) -> Any:
        return np.ones(block_info[None]["chunk-shape"])

    x = da.map_blocks(load, chunks=((300,), (100,)), dtype=float)
    labelled = pytest.importorskip("xarray").DataArray(x, dims=("a", "b"))
    for asked, nbytes in [(x, x.nbytes), (labelled + 1, x.nbytes), (labelled.mean("a"), 800)]:
        found = dask_rewrite.forecast(asked, threads=2)
        assert found.after.tasks == 1
        assert found.after.peak == found.after.least == nbytes
    limit = {"rewrite.memory-limit": x.nbytes // 2, "rewrite.on-memory": "raise"}
    with dask.config.set(limit, array_optimize=dask_rewrite.optimize):
        with pytest.raises(dask_rewrite.MemoryLimitError, match="What would help"):
            x.compute()
        assert labelled.mean("a").compute().values.tolist() == [1.0] * 100
