"""``preflight`` weighs what can be pickled, and the tools underneath."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.delayed import delayed

from dask_rewrite.graph.culprit import culprit, parts
from dask_rewrite.graph.pickling import by_reference, pickled_size
from dask_rewrite.tools.preflight import PreflightReport, preflight
from tools.preflight_cases import LOCK, Model, closure_over, collection, default_of, generator, uses_global
from tools.test_report import Balanced

da = pytest.importorskip("dask.array")


class Refuses:
    def __reduce__(self):
        raise RuntimeError("I <b>stay</b> here")


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
    with pytest.raises(TypeError, match=r"expects dask collections .*, got int"):
        preflight(3)
    with pytest.raises(TypeError, match=r"got nothing|got a list without any"):
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
