"""``preflight`` names what cannot be pickled, and weighs what can."""

from __future__ import annotations

import functools
import operator
import pickle
import socket
import sys
import threading

import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_rewrite.graph.pickling import by_reference, pickled_size
from dask_rewrite.tools.culprit import culprit, parts
from dask_rewrite.tools.preflight import PreflightReport, preflight
from tools.test_report import Balanced

da = pytest.importorskip("dask.array")

LOCK = threading.Lock()


class Model:
    def __init__(self, size=10_000, **attributes):
        self.weights = np.arange(size, dtype=float)
        self.__dict__.update(attributes)

    def score(self, block, extra=None):
        return block


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


def generator():
    yield 1


def collection(tasks, key, layer="layer"):
    return Delayed(key, HighLevelGraph({layer: MaterializedLayer(tasks)}, {layer: set()}), layer=layer)


def only_problem(*collections) -> object:
    report = preflight(*collections)
    (problem,) = report.problems
    assert not report.ok
    for text in (repr(report), "".join(Balanced(report._repr_html_()).text)):
        assert problem.kind in text
        assert problem.error.split("\n")[0][:40] in text
    return problem


# -- what cannot be pickled ------------------------------------------------------------------------


def closure_over(value):
    return lambda block: (value, block)[1]


def default_of(value):
    def function(block, kept=value):
        return block

    return function


def keyword_default_of(value):
    def function(block, *, kept=value):
        return block

    return function


def nested_closure(value):
    def inner():
        return value

    return lambda block: (inner, block)[1]


def uses_global():
    # executed apart, so that it has globals of its own, as in a notebook
    space = {"LOCK": threading.Lock(), "__name__": "__main__"}
    exec("def function(block):\n    return [LOCK for _ in range(2)] and block", space)
    return space["function"]


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


# -- what is heavy ---------------------------------------------------------------------------------


def payload_of(report, kind):
    (payload,) = [payload for payload in report.payloads if payload.kind == kind]
    return payload


def test_payload_of_a_bound_method():
    model = Model()
    x = da.ones((10, 10), chunks=1).map_blocks(model.score, dtype=float, meta=np.ones((0, 0)))
    report = preflight(x)
    assert report.ok
    payload = payload_of(report, "Model")
    assert payload.value is model
    assert payload.tasks == 100
    assert 80_000 <= payload.nbytes < 81_000
    assert payload.total == 100 * payload.nbytes
    assert payload.where == "object of the bound method 'score'"
    assert report.payloads[0] is payload
    assert "1    100  Model" in repr(report)


@pytest.mark.parametrize(
    "task",
    [
        lambda key, heavy: Task(key, print, heavy),
        lambda key, heavy: Task(key, print, file=heavy),
        lambda key, heavy: Task(key, print, [heavy, heavy]),
        lambda key, heavy: Task(key, print, {"a": (1, heavy)}),
        lambda key, heavy: Task(key, print, List(TaskRef("x"), Task(None, print, heavy))),
        lambda key, heavy: Task(key, functools.partial(print, heavy)),
        lambda key, heavy: Task(key, functools.partial(functools.partial(print, end=heavy), 1)),
        lambda key, heavy: Task(key, closure_over(heavy), 1),
        lambda key, heavy: Task(key, default_of(heavy), 1),
        lambda key, heavy: Task(key, Task(None, print, heavy).__call__, {}),
        lambda key, heavy: DataNode(key, heavy),
    ],
)
def test_payload_is_found_wherever_it_is(task):
    heavy = np.arange(10_000)
    tasks = {key: task(key, heavy) for key in range(5)}
    tasks["x"] = DataNode("x", 1)
    tasks["top"] = Task("top", print, *map(TaskRef, [*range(5), "x"]))
    payload = payload_of(preflight(collection(tasks, "top")), "ndarray")
    assert payload.value is heavy
    assert payload.tasks == 5
    assert payload.nbytes == heavy.nbytes


def test_equal_objects_are_not_the_same_object():
    tasks = {key: Task(key, print, np.arange(1000)) for key in range(3)}
    tasks["top"] = Task("top", print, *map(TaskRef, range(3)))
    report = preflight(collection(tasks, "top"))
    assert [payload.tasks for payload in report.payloads] == [1, 1, 1]
    assert "3      3  ndarray" in repr(report)  # of one place: one line


def test_payloads_are_sorted_by_what_they_cost_in_all():
    once, often, small = bytes(50_000), bytes(10_000), bytes(100)
    tasks = {key: Task(key, print, often, small, 1, "text", None) for key in range(10)}
    tasks["top"] = Task("top", print, once, *map(TaskRef, range(10)))
    report = preflight(collection(tasks, "top"))
    assert [(payload.tasks, payload.value is often) for payload in report.payloads] == [
        (10, True),
        (1, False),
    ]


def test_large_arrays_are_weighed_without_being_copied():
    big = np.zeros(200_000_000, dtype="i1")  # untouched memory: a copy of it would be noticed
    view = big.reshape(2, -1)[:, ::2]
    report = preflight(collection({"a": Task("a", print, big, view)}, "a"))
    assert sorted(payload.nbytes for payload in report.payloads) == [100_000_000, 200_000_000]


def test_functions_that_are_imported_weigh_nothing():
    assert preflight(collection({"a": Task("a", np.add, 1, 2)}, "a")).payloads == []


def test_finalize_is_looked_at():
    xr = pytest.importorskip("xarray")
    array = xr.DataArray(da.ones((100, 100), chunks=5), dims=("a", "b"))
    dataset = array.to_dataset(name="v")
    report = preflight(dataset)
    assert report.ok
    (name,) = [name for name in report.layers if name.startswith("finalize of Dataset")]
    assert report.layers[name] > 1000
    assert payload_of(report, "Dataset").where.startswith("object of the bound method")


def test_shape():
    x = da.ones((8,), chunks=1)
    total = delayed(sum)(x.to_delayed().tolist())
    report = preflight(total)
    assert report.widest.size == 8
    assert report.widest.key == total.key
    assert report.deepest.size >= 1
    assert f"8 inputs, at {total.key!r}" in repr(report)


def test_layers_are_weighed():
    x = da.ones((8,), chunks=1) + 1
    report = preflight(x)
    assert set(x.__dask_graph__().layers) <= set(report.layers)
    assert all(size > 0 for size in report.layers.values())


def test_html_is_escaped():
    evil = "<script>alert(1)</script>"
    tasks = {evil: Task(evil, print, {evil: LOCK}, bytes(5000))}
    report = preflight(collection(tasks, evil, layer=evil))
    assert "<script" not in report._repr_html_()
    assert "".join(Balanced(report._repr_html_()).text).count(evil) >= 3


def test_dataframe_and_bag():
    db = pytest.importorskip("dask.bag")
    assert preflight(db.from_sequence(range(10), npartitions=2).map(abs)).ok
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame({"a": range(10)}), npartitions=2)
    assert preflight(frame.a.sum()).ok


def test_futures_pass():
    future = TaskRef("somewhere")
    assert preflight(collection({"a": Task("a", print, future)}, "a")).ok


def test_collections_are_left_alone():
    x = da.ones((8,), chunks=1) + 1
    layers = dict(x.__dask_graph__().layers)
    assert isinstance(preflight(x), PreflightReport)
    assert dict(x.__dask_graph__().layers) == layers


def test_wrong_use():
    with pytest.raises(TypeError, match="expected a dask collection, got int"):
        preflight(3)
    with pytest.raises(TypeError, match="needs at least one"):
        preflight()


# -- the tools underneath --------------------------------------------------------------------------


def test_size_is_that_of_a_pickle():
    for value in [1, "text" * 1000, list(range(1000)), {"a": bytes(5000)}, Model]:
        assert abs(pickled_size(value) - len(pickle.dumps(value, protocol=5))) <= 16


def test_size_of_what_cannot_be_pickled():
    with pytest.raises(TypeError, match="cannot pickle"):
        pickled_size(LOCK)


def test_culprit_of_what_is_fine():
    assert culprit([1, {"a": np.arange(3)}]) is None


def test_by_reference():
    assert by_reference(generator)
    assert by_reference(Model.score)
    assert not by_reference(closure_over(1))
    assert not by_reference(uses_global())


@pytest.mark.parametrize("value", [1, "a", b"b", None, 2.5, np, print, Refuses(), type(None)])
def test_parts_of_anything(value):
    list(parts(value))
