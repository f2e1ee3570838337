"""Never the reason that a computation fails: fallback, verification, and what is left alone."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, Task, TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.local import get_sync

import dask_rewrite
import dask_rewrite.pipeline.run as pipeline
from dask_rewrite import RewriteWarning
from dask_rewrite.pipeline import selection
from helpers import (
    assert_same,
    distinct,
    keys_of,
    leapfrog,
    leapfrog_by_hand,
    rewrite_graph,
    switched_on,
    tasks_of,
)
from passes_on_trial import installed

pytestmark = pytest.mark.usefixtures("verified_at_each_pass")
VALUE = (np.arange(16.0).reshape(4, 4) + 1).T.sum(axis=0)


def program() -> da.Array:
    return (distinct((4, 4), 2) + 1).T.sum(axis=0)


# --------------------------------------------------------------------------------------
# a pass that fails


def broken(how: str) -> Any:
    """A pass that does one thing wrong."""

    class Broken:
        name = "broken"

        def run(self, graph: Any, context: Any) -> Any:
            if how == "raises":
                raise ZeroDivisionError("the pass is broken")
            if how == "recurses":
                return self.run(graph, context)
            nodes = dict(graph.nodes)
            output = graph.outputs[0]
            inner = [key for key in nodes if key not in graph.outputs]
            if how == "loses an output":
                del nodes[output]
            elif how == "dangles":
                del nodes[inner[0]]
            elif how == "misnames":
                node = nodes[output]
                nodes[output] = Task("another", dict, TaskRef(next(iter(node.dependencies))))
            elif how == "cycles":
                nodes[output] = Alias(output, "loop")
                nodes["loop"] = Alias("loop", output)
            elif how == "no node":
                nodes[output] = (sum, [1, 2])
            elif how == "nests":
                deep: Any = TaskRef(inner[0])
                for _ in range(500):
                    deep = Task(None, abs, deep)
                nodes[output] = Task(output, abs, deep)
            elif how == "returns nothing":
                return None
            elif how == "changes in place":
                graph.nodes.clear()
                raise ValueError("after it has broken the graph")
            return type(graph)(nodes, graph.outputs, dict(graph.annotations))

    return Broken


WRONG = [
    "raises",
    "recurses",
    "loses an output",
    "dangles",
    "misnames",
    "cycles",
    "no node",
    "nests",
    "returns nothing",
]


@pytest.mark.parametrize("how", WRONG)
def test_a_failing_pass_is_dropped_with_one_warning(how: str) -> None:
    with installed(broken(how)), dask.config.set({"rewrite.on-error": "warn"}):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with switched_on():
                assert_same(program().compute(), VALUE)
        ours = [str(w.message) for w in seen if issubclass(w.category, RewriteWarning)]
        assert len(ours) == 1
        assert "broken" in ours[0]


@pytest.mark.parametrize("how", WRONG)
def test_a_failing_pass_raises_when_asked_to(how: str) -> None:
    with installed(broken(how)), switched_on(), pytest.raises(Exception) as error:
        program().compute()
    assert not isinstance(error.value, Warning)


def test_a_pass_that_ruins_the_graph_it_was_given() -> None:
    # Passes do not change their input. One that does loses the gain, but never the answer.
    with (
        installed(broken("changes in place")),
        dask.config.set({"rewrite.on-error": "warn"}),
        pytest.warns(RewriteWarning),
        switched_on(),
    ):
        assert_same(program().compute(), VALUE)


def test_the_graph_before_the_failing_pass_is_kept() -> None:
    with (
        installed(broken("dangles")),
        dask.config.set({"rewrite.on-error": "warn"}),
        pytest.warns(RewriteWarning, match="broken"),
    ):
        tasks = tasks_of(leapfrog(300))
    assert len(tasks) <= 8, "what the other passes gained is kept"
    assert_same(np.concatenate(get_sync(tasks, keys_of(leapfrog(300)))), leapfrog_by_hand(300))


@pytest.mark.parametrize("verify", ["end", "each", "rule"])
def test_verification_catches_it_whenever_it_runs(verify: str) -> None:
    with (
        installed(broken("dangles")),
        dask.config.set({"rewrite.on-error": "warn", "rewrite.verify": verify}),
        pytest.warns(RewriteWarning),
        switched_on(),
    ):
        assert_same(program().compute(), VALUE)


def test_verification_can_be_switched_off() -> None:
    with dask.config.set({"rewrite.verify": "off"}), switched_on():
        assert_same(program().compute(), VALUE)


@pytest.mark.parametrize("name", [name for name in selection.PASSES if name not in ("cull", "lower")])
def test_any_pass_can_be_left_out(name: str) -> None:
    with dask.config.set({"rewrite.disable": [name]}), switched_on():
        assert_same(program().compute(), VALUE)
        assert_same(leapfrog(50).compute(), leapfrog_by_hand(50))


def test_a_failure_is_a_remark_and_a_count() -> None:
    with (
        installed(broken("raises")),
        dask.config.set({"rewrite.on-error": "warn"}),
        pytest.warns(RewriteWarning),
    ):
        report = dask_rewrite.explain(program())
    failed = [remark for remark in report.remarks if remark.kind == "failed"]
    assert [remark.rule for remark in failed] == ["broken"]
    assert report.counts["broken", "failed"] == 1
    assert "broken" in failed[0].reason or "ZeroDivisionError" in failed[0].reason


def test_lowering_that_fails_falls_back_to_dasks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise ArithmeticError("lowering is broken")

    monkeypatch.setattr(pipeline, "Lowering", fail)
    with (
        dask.config.set({"rewrite.on-error": "warn"}),
        switched_on(),
        pytest.warns(RewriteWarning, match="lowering is broken"),
    ):
        assert_same(program().compute(), VALUE)


def test_arrays_that_do_not_fit_together_are_dasks_to_tell() -> None:
    x, y = da.ones((6, 6), chunks=3), da.ones((6, 6), chunks=2)
    z = da.blockwise(np.add, "ij", x, "ij", y, "ij", dtype=float, align_arrays=False).sum()
    with switched_on(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="do not align"):
            z.compute()


def test_a_keyboard_interrupt_is_not_swallowed() -> None:
    class Interrupted:
        name = "interrupted"

        def run(self, graph: Any, context: Any) -> Any:
            raise KeyboardInterrupt

    with (
        installed(Interrupted),
        dask.config.set({"rewrite.on-error": "warn"}),
        switched_on(),
        pytest.raises(KeyboardInterrupt),
    ):
        program().compute()


# --------------------------------------------------------------------------------------
# errors stay the user's


class Unhappy(Exception):
    pass


def unhappy(block: np.ndarray) -> np.ndarray:
    raise Unhappy("as the user wrote it")


@pytest.mark.parametrize("depth", [0, 1, 40])
def test_a_task_that_raises_raises_the_same(depth: int) -> None:
    x = distinct((4,), 2).map_blocks(unhappy, dtype="f8", meta=np.empty(0))
    for _ in range(depth):
        x = x * 2 + 1
    with switched_on(), pytest.raises(Unhappy, match="as the user wrote it"):
        x.compute()


def test_a_missing_key_raises_as_in_stock() -> None:
    graph = HighLevelGraph({"x": MaterializedLayer({"x": (abs, -1)})}, {"x": set()})
    with dask.config.set({"rewrite.on-error": "warn"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", RewriteWarning)
        with pytest.raises(KeyError):
            get_sync(dict(dask_rewrite.optimize(graph, ["y"])), "y")


def test_an_error_under_raise_is_the_passes_own() -> None:
    with installed(broken("raises")), switched_on(), pytest.raises(ZeroDivisionError):
        program().compute()


# --------------------------------------------------------------------------------------
# persisted data and futures


def test_a_persisted_collection_goes_through_untouched() -> None:
    persisted = (distinct((4, 4), 2) + 1).persist()
    z = dask_rewrite.optimize(persisted + 1)
    del persisted
    assert_same(z.compute(), np.arange(16.0).reshape(4, 4) + 2)


def test_persisted_blocks_are_not_copied_or_pickled() -> None:
    class NoPickle(np.ndarray):
        def __reduce__(self) -> Any:
            raise AssertionError("a persisted block was pickled")

    block = np.arange(4.0).view(NoPickle)
    x = da.from_array(block, chunks=2, asarray=False)
    with switched_on():
        persisted = x.persist()
        result = (persisted + 1).compute()
    assert_same(np.asarray(result), np.arange(4.0) + 1)


def test_nothing_of_the_users_is_kept() -> None:
    class Block(np.ndarray):
        pass

    def held(use: Any) -> Any:
        block = np.arange(4.0).view(Block)
        x = da.from_array(block, chunks=4, asarray=False, name=False)
        y = x.map_blocks(lambda b, other: b + other.sum(), other=block, dtype="f8", meta=np.empty(0))
        use(y)
        return weakref.ref(block)

    def optimized(y: da.Array) -> None:
        dask_rewrite.optimize(y * 2).compute()

    def explained(y: da.Array) -> None:
        dask_rewrite.explain(y * 2, nbytes=True)

    def computed(y: da.Array) -> None:
        with switched_on():
            (y * 2).compute()
            dask.compute(y, y.sum())
            y.persist()

    for use in (optimized, explained, computed):
        reference = held(use)
        gc.collect()
        assert reference() is None, use.__name__


def test_coroutine_tasks_are_not_touched() -> None:
    async def wait(x: int) -> int:
        return x + 1

    dsk = {
        "a": Task("a", int, 1),
        "b": Task("b", wait, TaskRef("a")),
        "c": Task("c", abs, TaskRef("b")),
    }
    tasks = rewrite_graph(dsk, ["c"])
    assert tasks["b"].is_coro


def test_tasks_that_forbid_fusion_are_not_touched() -> None:
    class Barrier(Task):
        @property
        def block_fusion(self) -> bool:
            return True

    barrier = Barrier("b", len, TaskRef("a"))
    dsk = {"a": Task("a", list, (1, 2)), "b": barrier, "c": Task("c", abs, TaskRef("b"))}
    graph = HighLevelGraph({"x": MaterializedLayer(dsk)}, {"x": set()})
    tasks = rewrite_graph(graph, ["c"])
    assert tasks["b"] is barrier or (type(tasks["b"]) is Barrier and tasks["b"].dependencies == {"a"})
    assert get_sync(tasks, "c") == 2


def test_a_generator_inside_a_task_stays_inside() -> None:
    dsk = {"a": Task("a", list, Task(None, iter, Task(None, range, 3))), "b": Task("b", sum, TaskRef("a"))}
    tasks = rewrite_graph(dsk, ["b", "a"])
    assert get_sync(tasks, ["a", "b"]) == ([0, 1, 2], 3)
    from dask.multiprocessing import get as get_processes

    assert get_processes(tasks, ["b"], num_workers=1) == (3,)
