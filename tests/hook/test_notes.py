"""Exceptions tell which step raised, and how to compute without the optimizer."""

from __future__ import annotations

import operator
import pickle
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.threaded
import numpy as np
import pytest
import toolz
from dask._task_spec import Task, TaskRef
from dask.callbacks import Callback
from dask.diagnostics import ProgressBar

import dask_rewrite
from dask_rewrite.graph.labels import functions_of
from dask_rewrite.graph.pickling import pickled_size
from dask_rewrite.hook.notes import complain, origin
from dask_rewrite.scheduler import as_if
from helpers import counted

LOCK = threading.Lock()


class BadBlock(ValueError):
    """An exception with an argument that must survive."""

    def __init__(self, which: int) -> None:
        super().__init__(which)
        self.which = which


class Sealed(ValueError):
    def add_note(self, note: str) -> None:
        raise AttributeError("no notes")


def scale(block: np.ndarray) -> np.ndarray:
    return block * 2


def fails(block: np.ndarray) -> np.ndarray:
    if (block == 20).any():
        raise BadBlock(20)
    return block


def program(step: Any = fails) -> da.Array:
    _, x = counted((8, 8), 4)
    return (x.map_blocks(scale).map_blocks(step, dtype="f8", meta=np.empty((0, 0))) + 1).sum()


def failure(x: Any, **kwargs: Any) -> BaseException:
    with pytest.raises(Exception) as caught:
        x.compute(**kwargs)
    return caught.value


def notes(error: BaseException) -> list[str]:
    """Those of this package; Python 3.14 notes what was being pickled, too."""
    return [note for note in getattr(error, "__notes__", ()) if note.startswith("dask_rewrite: ")]


# -- while computing -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_the_step_that_raised_is_named(on: None, scheduler: str) -> None:
    error = failure(program(), scheduler=scheduler)
    assert isinstance(error, BadBlock)
    (note,) = notes(error)
    assert note.startswith("dask_rewrite: raised by 'fails' in the task (")
    assert "-> scale -> fails -> add -> sum" in note
    assert "rewrite.enabled" in note
    assert note in "".join(traceback.format_exception(error))


def located(block: Any, block_info: Any = None) -> Any:
    if block_info[0]["chunk-location"] == (1, 1):
        raise RuntimeError("a bad block")
    return block


def test_functions_that_ask_for_their_place_are_named(on: None) -> None:
    x = da.ones((40, 40), chunks=20).map_blocks(located, dtype="f8") + 1
    with pytest.raises(RuntimeError, match="a bad block") as caught:
        x.sum().compute(scheduler="sync")
    (note,) = caught.value.__notes__
    assert "raised by 'located'" in note
    assert "_pass_extra_kwargs" not in note


def test_type_message_and_pickling_stay(on: None) -> None:
    error = failure(program())
    assert type(error) is BadBlock
    assert (str(error), error.args) == ("20", (20,))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.which, notes(again)) == (BadBlock, 20, notes(error))


def test_one_note_however_often_it_is_raised(on: None) -> None:
    once = ValueError("the same object each time")

    def again(block: Any) -> Any:
        raise once

    x = program(again)
    assert failure(x) is once
    failure(x)
    assert len(notes(once)) == 1


def test_the_note_is_about_the_outer_computation(on: None) -> None:
    def computes(block: Any) -> Any:
        return fails(dask.delayed(fails)(np.array([20])).compute(scheduler="sync"))

    (note,) = notes(failure(program(computes)))
    assert "raised by 'computes'" in note


def test_a_function_that_is_not_python(on: None) -> None:
    x = da.from_delayed(dask.delayed(operator.truediv)(1, dask.delayed(int)("0")), (), float)
    with dask.config.set({"optimization.fuse.delayed": True}):
        (note,) = notes(failure(x))
    assert "raised by 'truediv'" in note


def test_a_step_of_a_template_that_is_hoisted(on: None) -> None:
    heavy = np.arange(100_000.0)

    def looks_up(block: Any) -> Any:
        return fails(block + heavy[0])

    _, x = counted((8, 8), 1)
    y = x.map_blocks(scale).map_blocks(looks_up, dtype="f8", meta=np.empty((0, 0))) + 1
    (note,) = notes(failure(y))
    assert "raised by 'looks_up' in the task" in note
    assert "scale -> looks_up -> add" in note


def test_exceptions_that_take_no_notes(on: None) -> None:
    def seals(block: Any) -> Any:
        raise Sealed("closed")

    assert notes(failure(program(seals))) == []


def test_single_tasks_need_no_note(on: None) -> None:
    error = failure(dask.delayed(fails)(np.array([20])))
    assert isinstance(error, BadBlock)
    assert notes(error) == []


def test_nothing_where_the_optimizer_is_off() -> None:
    assert notes(failure(program())) == []
    with dask_rewrite.enable():
        assert notes(failure(program()))
    dask_rewrite.disable()
    assert not Callback.active
    assert notes(failure(program())) == []


def test_what_is_left_to_dask_gets_no_note(on: None) -> None:
    with dask.config.set({"rewrite.lower-limit": 1}):
        assert notes(failure(program())) == []


def test_nothing_after_it_was_switched_off_again() -> None:
    with dask_rewrite.enable():
        failure(program())
        assert len(Callback.active) == 1
    assert not Callback.active
    nested = dask.delayed(sum)([dask.delayed(fails)(np.array([20]))])
    assert notes(failure(program())) == []
    assert notes(failure(nested)) == []
    with pytest.raises(BadBlock) as caught:  # dask nests such tasks itself
        dask.threaded.get({"y": (sum, [(fails, np.array([20]))])}, "y")
    assert notes(caught.value) == []


def test_of_collections_that_were_rewritten_explicitly() -> None:
    _, x = counted((8, 8), 1)
    y = x.map_blocks(scale).map_blocks(fails, dtype="f8", meta=np.empty((0, 0)))
    y = dask_rewrite.optimize(((y + 1) * 2 - 3) * y)
    (note,) = notes(failure(y, optimize_graph=False))
    assert "raised by" in note


def test_computations_in_threads_and_inside_of_each_other(on: None) -> None:
    def computes(block: Any) -> Any:
        return program(scale).compute(scheduler="sync") + block

    def repeated(n: int) -> int:
        x = program(computes)
        for _ in range(n):
            x.compute(scheduler="threads")
        return n

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(repeated, [2] * 3)) == [2] * 3
    assert notes(failure(program()))


def test_beside_other_callbacks(on: None, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar():
        error = failure(program())
    assert notes(error)
    assert "Completed" in capsys.readouterr().out


# -- while sending ---------------------------------------------------------------------------------


def guarded(block: Any) -> Any:
    with LOCK:
        return block


def closure() -> Any:
    lock = threading.Lock()

    def locked(block: Any) -> Any:
        with lock:
            return block

    return locked


def sent(x: Any) -> bytes:
    """As distributed does it; see `distributed.protocol.pickle.dumps`."""
    from dask._expr import FinalizeCompute
    from dask.base import collections_to_expr
    from distributed.protocol.pickle import dumps

    return dumps(FinalizeCompute(collections_to_expr([x])).optimize())


def test_what_cannot_be_sent_is_named(on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributed.protocol.pickle.logger.exception", lambda *args: None)
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock' object") as caught:
        sent(program(closure()))
    (note,) = notes(caught.value)
    assert "cannot be sent: " in note
    assert "closure variable 'lock' of function locked is a _thread.lock" in note
    assert "rewrite.enabled" in note


@pytest.mark.parametrize("step", [scale, lambda block: block + 1])
def test_what_can_be_sent_is_sent(on: None, step: Any) -> None:
    x = program(step)
    for _ in range(3):
        data = sent(x)
        assert b"dask_rewrite" not in data
        assert len(pickle.loads(data).__dask_graph__()) == len(dask_rewrite.optimize(x).dask)


def test_a_layer_that_is_pickled_often(on: None) -> None:
    for layer in dask_rewrite.optimize(program(lambda block: block)).dask.layers.values():
        for _ in range(4):
            with suppress(AttributeError, pickle.PicklingError):
                pickle.dumps(layer)
            assert dict(cloudpickle.loads(cloudpickle.dumps(layer))).keys() == dict(layer).keys()


def test_little_is_tried_again() -> None:
    class Heavy:
        pickled = 0

        def __reduce__(self) -> Any:
            Heavy.pickled += 1
            return Heavy, ()

    many = {("x", i): Task(("x", i), operator.add, Heavy(), i) for i in range(100)}
    complain(many)
    assert Heavy.pickled == 1


def test_functions_of_the_main_module_are_sent_by_value(python: Any) -> None:
    """By reference they would pickle, but nobody else could load them."""
    python(
        """
        import threading, distributed
        from dask_rewrite.graph.pickling import pickled_size
        lock = threading.Lock()
        def guarded(x):
            with lock:
                return x
        try:
            pickled_size(guarded)
        except TypeError:
            pass
        else:
            raise AssertionError
        """
    )
    assert pickled_size(guarded) > 0


# -- labels and origins ----------------------------------------------------------------------------


def test_functions_of_tasks() -> None:
    inner = Task(None, operator.neg, TaskRef("x"))
    assert functions_of(Task("y", operator.add, inner, inner)) == ["neg", "neg", "add"]
    template = Task(None, operator.add, TaskRef("a"), 1)
    called = Task("z", template.__call__, Task(None, dict, a=inner))
    assert functions_of(called) == ["neg", "add"]
    composed = Task("c", toolz.compose(abs, operator.neg), TaskRef("x"))
    assert functions_of(composed) == ["neg|abs"]
    assert functions_of(TaskRef("x")) == functions_of(3) == []


def test_the_origin_of_what_nobody_raised() -> None:
    assert str(origin(ValueError())) == "raised"


def test_explain_error(on: None) -> None:
    x = program()
    report = dask_rewrite.explain_error(failure(x), x)
    assert report.origin.step == "fails"
    assert report.origin.steps[1:] == ("scale", "fails", "add", "sum")
    (layer,) = report.layers
    assert layer.startswith("fails-")
    assert f"in the layer {layer!r}" in repr(report)
    assert "rewrite.enabled" in repr(report)
    assert not report.elsewhere
    alone = dask_rewrite.explain_error(failure(x))
    assert (alone.layers, alone.elsewhere) == ((), False)
    other = dask_rewrite.explain_error(failure(x), da.ones(4, chunks=2))
    assert (other.layers, other.elsewhere) == ((), True)
    assert "give those that were computed" in repr(other)


def test_explain_error_of_a_killed_worker(on: None) -> None:
    class KilledWorker(Exception):
        def __init__(self, task: Any) -> None:
            self.task = task

    x = counted((8, 8), 4)[1]
    y = (x - x.mean()).map_blocks(fails, dtype="f8", meta=np.empty((0, 0))).sum()
    with dask.config.set(as_if(2, 3)):
        graph = dict(dask.base.collections_to_expr([y]).optimize().__dask_graph__())
    key = next(key for key, task in graph.items() if "fails" in functions_of(task))
    for workers, same in ((3, True), (2, False)):  # there is one less afterwards
        with dask.config.set(as_if(2, workers)):
            graph = dask.base.collections_to_expr([y]).optimize().__dask_graph__()
            report = dask_rewrite.explain_error(KilledWorker(key), y)
        assert (key in graph) is same
        assert report.origin.key == key
        assert "fails" in report.origin.steps
        assert any(layer.startswith("fails-") for layer in report.layers)


def test_what_is_no_exception_is_named() -> None:
    with pytest.raises(TypeError, match=r"explain_error\(error\): expected an exception, got None"):
        dask_rewrite.explain_error(None)  # type: ignore[arg-type] # the wrong type is what is tried
