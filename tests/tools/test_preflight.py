"""``preflight`` names what cannot be pickled, and weighs what can."""

from __future__ import annotations

import functools
import operator
import socket
import sys
import threading

import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_rewrite.tools.preflight import preflight
from tools.preflight_cases import LOCK, Model, closure_over, collection, default_of, generator, uses_global
from tools.test_report import Balanced

da = pytest.importorskip("dask.array")


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner


class Refuses:
    def __reduce__(self):
        raise RuntimeError("I <b>stay</b> here")


class Hides:
    """Its lock does not travel, so it must not be blamed."""

    def __init__(self):
        self.lock = threading.Lock()
        self.value = 1

    def __getstate__(self):
        return {"value": self.value}

    def __setstate__(self, state):
        self.__init__()


def only_problem(*collections) -> object:
    report = preflight(*collections)
    (problem,) = report.problems
    assert not report.ok
    for text in (repr(report), "".join(Balanced(report._repr_html_()).text)):
        assert problem.kind in text
        assert problem.error.split("\n")[0][:40] in text
    return problem


def keyword_default_of(value):
    def function(block, *, kept=value):
        return block

    return function


def nested_closure(value):
    def inner():
        return value

    return lambda block: (inner, block)[1]


FUNCTIONS = {
    "closure": (closure_over, "closure variable 'value' of function <lambda>"),
    "default": (default_of, "default of function function"),
    "keyword default": (keyword_default_of, "default of 'kept' of function function"),
    "nested closure": (nested_closure, "closure variable 'value' of function inner"),
    "partial argument": (
        lambda value: functools.partial(operator.is_, value),
        "argument 0 of a partial",
    ),
    "partial keyword": (
        lambda value: functools.partial(print, file=value),
        "keyword 'file' of a partial",
    ),
    "partial of a partial": (
        lambda value: functools.partial(functools.partial(print, end=""), file=value),
        "keyword 'file' of a partial",
    ),
    "bound method": (lambda value: Model(lock=value).score, "attribute 'lock' of Model"),
    "slots": (lambda value: functools.partial(print, Slotted(value)), "attribute 'inner' of Slotted"),
    "nested containers": (
        lambda value: functools.partial(print, {"a": [1, ({"deep": value},)]}),
        "item 'deep'",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("make", [threading.Lock, generator], ids=["lock", "generator"])
def test_names_the_part_at_fault(name, make):
    build, place = FUNCTIONS[name]
    function = build(make())
    tasks = {"a": Task("a", function, TaskRef("b")), "b": DataNode("b", 1)}
    problem = only_problem(collection(tasks, "a"))
    assert problem.layer == "layer"
    assert problem.key == "a"
    assert problem.kind in {"_thread.lock", "generator"}
    assert problem.error == f"cannot pickle '{problem.kind}' object"
    assert problem.path[-1] == place
    assert problem.tasks == 1


def test_names_a_global_variable():
    problem = only_problem(collection({"a": Task("a", uses_global(), 1)}, "a"))
    assert problem.path[-1] == "global variable 'LOCK' of function function"


@pytest.mark.parametrize(
    ("task", "path"),
    [
        (Task("a", print, LOCK), ("argument 0",)),
        (Task("a", print, 1, [2, LOCK]), ("argument 1", "element 1")),
        (Task("a", print, file=LOCK), ("keyword argument 'file'",)),
        (Task("a", print, Task(None, print, LOCK)), ("argument 0", "argument 0")),
        (Task("a", print, List(1, LOCK)), ("argument 0", "argument 1")),
        (DataNode("a", {"k": LOCK}), ("value", "item 'k'")),
        (
            DataNode("a", {1: {2: {3: [(LOCK,)]}}}),
            ("value", "item 1", "item 2", "item 3", "element 0", "element 0"),
        ),
        (DataNode("a", LOCK), ("value",)),
    ],
)
def test_names_the_argument_at_fault(task, path):
    problem = only_problem(collection({"a": task}, "a"))
    assert problem.path == path
    assert problem.kind == "_thread.lock"


def test_an_object_that_refuses_is_itself_at_fault():
    problem = only_problem(collection({"a": Task("a", print, Refuses())}, "a"))
    assert problem.kind == "test_preflight.Refuses"
    assert problem.error == "I <b>stay</b> here"


def test_what_does_not_travel_is_not_blamed():
    assert preflight(collection({"a": Task("a", print, Hides())}, "a")).ok
    both = Hides()
    problem = only_problem(collection({"a": Task("a", print, [both, LOCK])}, "a"))
    assert problem.path == ("argument 0", "element 1")


def test_problem_in_many_tasks_is_told_once():
    x = da.ones((20, 20), chunks=1)
    lock = threading.Lock()
    y = x.map_blocks(lambda block: (lock, block)[1], dtype=float, meta=np.ones((0, 0)))
    problem = only_problem(y.sum())
    assert problem.tasks == 400
    assert problem.key[1:] == (0, 0)
    assert problem.layer == problem.key[0]
    assert problem.path == ("function <lambda>", "closure variable 'lock' of function <lambda>")


def test_different_problems_are_told_apart():
    first = collection({"a": Task("a", print, LOCK)}, "a", "one")
    second = collection({"b": Task("b", closure_over(generator()), 1)}, "b", "two")
    report = preflight(first, second)
    assert [(problem.layer, problem.kind) for problem in report.problems] == [
        ("one", "_thread.lock"),
        ("two", "generator"),
    ]


def test_only_what_is_needed_is_looked_at():
    x = da.from_delayed(delayed(LOCK), (1,), dtype=float)
    y = da.concatenate([x, da.ones(3, chunks=3)])
    assert not preflight(y).ok
    assert preflight(y[1:]).ok


def test_old_style_tasks():
    layer = MaterializedLayer({"a": (print, (operator.add, "b", 1), [LOCK]), "b": 1})
    problem = only_problem(Delayed("a", HighLevelGraph({"layer": layer}, {"layer": set()}), layer="layer"))
    assert problem.kind == "_thread.lock"
    assert problem.key == "a"


def test_locks_of_dask_are_fine():
    from dask.utils import SerializableLock

    assert preflight(collection({"a": Task("a", print, SerializableLock())}, "a")).ok


def test_recursive_structures_end():
    ring: list[object] = [LOCK]
    ring.append(ring)
    ring.reverse()
    problem = only_problem(collection({"a": Task("a", print, ring)}, "a"))
    assert problem.kind == "_thread.lock"


def test_problem_far_down_is_bounded():
    value: object = LOCK
    for _ in range(200):
        value = [value]
    problem = only_problem(collection({"a": DataNode("a", value)}, "a"))
    assert len(problem.path) == 40


def test_task_nested_too_deep():
    task = Task(None, operator.neg, TaskRef("x"))
    for _ in range(3000):
        task = Task(None, operator.neg, task)
    tasks = {"deep": Task("deep", operator.neg, task), "x": DataNode("x", 1)}
    report = preflight(collection(tasks, "deep"))
    assert not report.ok
    assert report.deepest.size == 3002
    assert report.deepest.key == "deep"
    assert "3,002 tasks (too deep to be safe), at 'deep'" in repr(report)
    if sys.version_info < (3, 12):  # later ones have a deeper stack for pickle, but not for running it
        (problem,) = report.problems
        assert problem.key == "deep"
        assert "nested 3,002 deep" in problem.error


def test_sockets_and_modules():
    with socket.socket() as connection:
        problem = only_problem(collection({"a": Task("a", print, connection)}, "a"))
    assert problem.kind == "socket.socket"
    assert preflight(collection({"a": Task("a", print, operator, np, int)}, "a")).ok


def test_class_defined_in_a_function():
    class Local:
        lock = threading.Lock()

    problem = only_problem(collection({"a": Task("a", print, Local)}, "a"))
    assert problem.path[-1] == "class attribute 'lock'"
