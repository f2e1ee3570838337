"""One test per trap: ways in which a rewriting optimizer goes wrong, each of which once did."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import warnings
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from dask._expr import FinalizeCompute
from dask._task_spec import Task, TaskRef
from dask.array.optimization import optimize as stock_array
from dask.base import collections_to_expr
from dask.graph_manipulation import bind, clone, wait_on
from dask.local import get_sync

import dask_rewrite
from helpers import (
    MAX_NESTING,
    add_one,
    assert_same,
    assert_same_as_stock,
    checked,
    distinct,
    keys_of,
    nesting,
    rewrite_graph,
    switched_on,
    tasks_of,
)

VALUE = np.arange(16.0).reshape(4, 4)


def test_trap_01_results_come_back_in_the_order_asked_for() -> None:
    with switched_on():
        x = distinct((4, 4), 2)
        assert_same(dask.compute(x, dask.delayed(5), x + 1), (VALUE, 5, VALUE + 1))
        assert_same(dask.compute(dask.delayed(5), x, dask.delayed(6), x + 1), (5, VALUE, 6, VALUE + 1))
        b = db.from_sequence([1, 2], npartitions=2)
        assert_same(dask.compute(x, b, x + 1, scheduler="sync"), (VALUE, [1, 2], VALUE + 1))
        y, d, z = dask.persist(x, dask.delayed(5), x + 1)
        assert_same((y.compute(), d.compute(), z.compute()), (VALUE, 5, VALUE + 1))
    assert hash(dask_rewrite.optimize) == hash(stock_array)
    assert dask_rewrite.optimize == stock_array


def test_trap_02_functions_that_write_in_place() -> None:
    def add_one_in_place(block: np.ndarray) -> np.ndarray:
        block += 1
        return block

    x = da.eye(8, chunks=2).map_blocks(add_one_in_place, dtype="f8", meta=np.empty((0, 0)))
    assert_same(dask_rewrite.optimize(x).compute(), np.eye(8) + 1)
    r = distinct((8,), 4) + 0
    z = r.rechunk(2).rechunk(4).map_blocks(add_one_in_place, dtype="f8", meta=np.empty(0))
    assert_same(dask_rewrite.optimize(z - r).compute(), np.ones(8))
    # One source, aliased twice: neither consumer may see what the other has written.
    a, b = x.rechunk(8), x.rechunk(8).map_blocks(add_one_in_place, dtype="f8", meta=np.empty((0, 0)))
    with switched_on():
        first, second = dask.compute(a + 0, b)
    assert_same(second, np.eye(8) + 2)
    assert first.shape == (8, 8)


def test_trap_04_two_impure_tasks_stay_two() -> None:
    generator = np.random.default_rng()

    def draw() -> float:
        return float(generator.random())

    dsk = {
        "a": (abs, (draw,)),
        "b": (abs, (draw,)),
        "c": Task("c", abs, Task(None, draw)),
        "d": Task("d", abs, Task(None, draw)),
    }
    results = get_sync(rewrite_graph(dsk, list(dsk)), list(dsk))
    assert len(set(results)) == 4
    nested: list[Any] = []
    for _ in range(2):
        value: Any = (draw,)
        for _ in range(100):
            value = (abs, value)
        nested.append(value)
    deep = {"a": nested[0], "b": nested[1]}
    assert len(set(get_sync(rewrite_graph(deep, ["a", "b"]), ["a", "b"]))) == 2


def test_trap_04_no_object_of_the_user_is_asked_for_a_token() -> None:
    class Shy:
        built = False

        def __dask_tokenize__(self) -> Any:
            if self.built:
                raise AssertionError("tokenized")
            return "shy"

        def __call__(self, block: np.ndarray) -> np.ndarray:
            return block + 1

    x = distinct((4,), 2).map_blocks(Shy(), dtype="f8", meta=np.empty(0), name="shy") * 2
    Shy.built = True
    assert_same(dask_rewrite.optimize(x).compute(), (np.arange(4.0) + 1) * 2)


def test_trap_04_names_differ_where_tasks_differ() -> None:
    # Names by role alone ("const-0") would give the second submission the first one's value.
    x = distinct((8,), 2)
    one = tasks_of((x * 2 + 1).rechunk(4) - 3)
    other = tasks_of((x * 2 + 2).rechunk(4) - 3)
    for key in set(one) & set(other):
        assert repr(one[key]) == repr(other[key])


def test_trap_08_optimize_then_go_on_working() -> None:
    x = distinct((4, 4), 2)
    y = dask_rewrite.optimize(x)
    assert_same((y + 1).compute(), VALUE + 1)
    assert_same(clone(y).compute(), VALUE)
    assert_same(bind(y, x).compute(), VALUE)
    assert_same(wait_on(y).compute(), VALUE)
    assert_same(dask.compute(y, dask_rewrite.optimize(2 * x)), (VALUE, 2 * VALUE))
    xr = pytest.importorskip("xarray")
    array = dask_rewrite.optimize(xr.DataArray(x + 1))
    assert_same((array * 2).compute().values, (VALUE + 1) * 2)


def test_trap_09_annotations_that_survive_do_not_merge_to_anywhere() -> None:
    x = distinct((4,), 2)
    with dask.annotate(workers=["a"]):
        y = x + 1
    with dask.annotate(workers=["b"]):
        z = y * 2
    with switched_on():
        found = FinalizeCompute(collections_to_expr([z])).optimize().__dask_annotations__()["workers"]
    assert [] not in found.values()
    assert sorted(set(map(tuple, found.values()))) == [("a",), ("b",)]


def test_trap_09_priorities_are_computed_from_the_original_keys() -> None:
    x = distinct((4,), 2)
    with dask.annotate(priority=lambda key: key[1] * 10):
        y = x + 1
    with switched_on():
        expr = FinalizeCompute(collections_to_expr([(y * 2).sum()])).optimize()
        priorities = expr.__dask_annotations__()["priority"]
    assert {0, 10} <= set(priorities.values())


@pytest.mark.parametrize("disabled", [[], ["coalesce"]])
def test_trap_11_no_size_loses_the_depth_bound(disabled: list[str]) -> None:
    x = y = da.ones((101, 101), chunks=1).map_blocks(add_one)
    for _ in range(60):
        x, y = y, (x + y) * 0.5
    with switched_on(**{"rewrite.disable": disabled}):
        sent = pickle.loads(cloudpickle.dumps(FinalizeCompute(collections_to_expr([x])).optimize()))
    # This is what the scheduler does with it.
    tasks = dict(sent.__dask_graph__())
    assert (len(tasks) > 10_000) == bool(disabled)
    assert max(map(nesting, tasks.values())) <= MAX_NESTING
    for task in list(tasks.values())[:20]:
        pickle.loads(cloudpickle.dumps(task))


def test_trap_12_generators_do_not_become_values_of_their_own() -> None:
    from dask.multiprocessing import get as get_processes

    value: Any = Task(None, iter, Task(None, range, 5))
    for _ in range(60):
        value = Task(None, iter, value)
    dsk = {"a": Task("a", list, value), "b": Task("b", sum, TaskRef("a"))}
    tasks = rewrite_graph(dsk, ["b"])
    assert get_sync(tasks, "b") == 10
    shallow = {"a": (list, (iter, (range, 5))), "b": (sum, "a")}
    assert get_processes(rewrite_graph(shallow, ["a", "b"]), ["b"], num_workers=1) == (10,)


def test_trap_12_bags_of_lazy_steps_on_processes() -> None:
    b = db.from_sequence(range(20), npartitions=4)
    b = b.map(lambda i: i * 2).filter(lambda i: i % 3 == 0).map(lambda i: i + 1)
    with switched_on():
        assert b.compute(scheduler="processes", num_workers=2) == [1, 7, 13, 19, 25, 31, 37]
        assert b.map_partitions(lambda part: (i for i in part)).sum().compute(scheduler="sync") == 133


def test_trap_12_coroutines_stay_coroutines() -> None:
    async def wait(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    tasks = rewrite_graph({"a": Task("a", int, 1), "b": Task("b", wait, TaskRef("a"))}, ["b"])
    assert tasks["b"].is_coro
    assert inspect.iscoroutinefunction(tasks["b"].func)


def test_trap_13_a_custom_collection_keeps_its_fields() -> None:
    from hook.test_finalize import Forgetful

    with switched_on():
        result = Forgetful(distinct((4,), 2), "m/s").compute(scheduler="sync")
    assert_same(result, (np.arange(4.0), "m/s"))


def test_trap_16_argument_order_is_not_worse_than_dasks() -> None:
    from lowering.test_fusion import test_nested_evaluation_holds_no_more_than_it_must

    test_nested_evaluation_holds_no_more_than_it_must()


def test_trap_17_diamonds_get_no_keys_of_their_own() -> None:
    x = da.from_array(np.linspace(0, 1, 20), chunks=1)
    for _ in range(30):
        x = (x + 1) * (x - 1) * 0.1
    assert len(checked(x)) <= 41
    assert_same_as_stock(x)


def test_trap_18_nothing_of_the_users_is_pickled_or_hashed() -> None:
    class Heavy(np.ndarray):
        def __reduce__(self) -> Any:
            raise AssertionError("pickled")

        __reduce_ex__ = __reduce__

        def tobytes(self, *args: Any, **kwargs: Any) -> bytes:
            raise AssertionError("copied")

    values = np.zeros((2_000, 500)).view(Heavy)
    x = da.from_array(values, chunks=(100, 500), name="heavy", asarray=False)
    with switched_on():
        assert float(np.asarray(x[:1, :1].compute())[0, 0]) == 0.0
        assert float((x + 1).sum().compute()) == 1_000_000.0


def test_trap_18_side_effects_of_reduce_do_not_happen() -> None:
    class Model:
        def __reduce__(self) -> Any:
            raise AssertionError("pickled")

        def predict(self, block: np.ndarray) -> np.ndarray:
            return block * 2

    model = Model()
    x = distinct((8,), 2).map_blocks(model.predict, dtype="f8", meta=np.empty(0), name="model")
    y = x.map_blocks(lambda b, m: m.predict(b), m=model, dtype="f8", meta=np.empty(0), name="again")
    with switched_on():
        assert_same((y + 1).compute(), np.arange(8.0) * 4 + 1)


def test_trap_19_lowering_has_a_budget_of_time() -> None:
    x = da.ones((120, 120), chunks=1)
    y = (x + x.T).sum()
    with dask.config.set({"rewrite.lower-seconds": 0.0}), switched_on():
        sent = cloudpickle.dumps(FinalizeCompute(collections_to_expr([y])).optimize())
        assert len(sent) < 400_000  # lowered: three megabytes
        assert_same((x + x.T)[:3, :3].compute(), np.full((3, 3), 2.0))


def test_trap_20_nothing_is_silently_off() -> None:
    with dask.config.set({"array.query-planning": True}):
        with pytest.warns(dask_rewrite.RewriteWarning, match="query-planning"):
            dask_rewrite.enable()
        dask_rewrite.disable()
    dask_rewrite.enable()
    dask.config.refresh()
    assert dask.config.get("array_optimize") is dask_rewrite.optimize
    dask_rewrite.disable()
    calls = []

    def mine(dsk: Any, keys: Any, **kwargs: Any) -> Any:
        calls.append(keys)
        return dsk

    with dask.config.set(array_optimize=mine), warnings.catch_warnings():
        warnings.simplefilter("ignore", dask_rewrite.RewriteWarning)
        dask_rewrite.enable()
        assert_same((distinct((4,), 2) + 1).compute(), np.arange(4.0) + 1)
        assert calls
        dask_rewrite.disable()


def test_trap_20_the_shared_rewrite_is_really_shared(rewrites: Any) -> None:
    x = distinct((4,), 2) + 1
    a, b = dask_rewrite.optimize(x, x.sum())
    assert len(rewrites) == 1
    shared = set(dict(a.__dask_graph__())) & set(dict(b.__dask_graph__()))
    assert set(keys_of(x)) <= shared
