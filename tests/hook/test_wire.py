"""Tasks written as columns arrive task for task as they were sent."""

from __future__ import annotations

import pickle
import random
from operator import add
from typing import Any

import cloudpickle
import numpy as np
import pytest
from dask._task_spec import Dict, List, Set, Task, TaskRef, Tuple
from distributed.protocol.pickle import dumps

from dask_rewrite.hook.task_layer import TaskLayer
from dask_rewrite.hook.wire import Packed
from dask_rewrite.hook.wire_columns import Columns
from hook.wire_cases import (
    CALL,
    FORMS,
    NESTED,
    ROWS,
    assert_arrives,
    ref,
    table,
    through_distributed,
    user,
)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("count", [1, 7, 8, 40])
def test_each_form(name: str, count: int) -> None:
    assert_arrives(table(*map(FORMS[name], range(count))))


def test_all_forms_together() -> None:
    tasks = {}
    for name, make in FORMS.items():
        for i in ROWS:
            node = make(i)
            node.key = (name, i)
            tasks[name, i] = node
    items = list(tasks.items())
    assert_arrives(tasks)
    random.Random(0).shuffle(items)
    assert_arrives(dict(items))


def test_nothing() -> None:
    assert_arrives({})


def test_what_is_no_task_of_dask() -> None:
    class Special(Task):
        __slots__ = ()

    tasks: dict[Any, Any] = {("y", i): FORMS["nested"](i) for i in ROWS}
    tasks |= {("legacy", i): (abs, ("x", i)) for i in ROWS}
    tasks |= {("value", i): i for i in ROWS}
    tasks["odd"] = Task("another key", abs, 1)
    assert_arrives(tasks)
    tasks |= {("special", i): Special(("special", i), abs, i) for i in ROWS}
    found = cloudpickle.loads(cloudpickle.dumps(Packed(tasks)))
    assert list(found) == list(tasks)
    assert type(found["special", 3]).__name__ == "Special"


def test_a_template_and_a_nested_task_stay_shared() -> None:
    tasks = table(*map(FORMS["called template"], ROWS))
    tasks |= {("n", i): Task(("n", i), add, NESTED[i // 4], CALL) for i in ROWS}
    found = assert_arrives(tasks)
    assert len({id(found["y", i].func.__self__) for i in ROWS} | {id(found["n", 0].args[1].__self__)}) == 1
    assert len({id(found["n", i].args[0]) for i in ROWS}) == 10


def test_shared_lists_stay_shared_and_others_do_not() -> None:
    found = assert_arrives(table(*map(FORMS["lists as literals"], ROWS)))
    shared, own = zip(*[found["y", i].args[2:] for i in ROWS])
    assert len(set(map(id, shared))) == 1
    assert len(set(map(id, own))) == len(ROWS)


def test_small_arrays_keep_their_memory_order_and_whether_they_may_be_written_into() -> None:
    def arrays(i: int) -> list[np.ndarray[Any, Any]]:
        fixed = np.arange(6.0) + i
        fixed.flags.writeable = False
        return [np.arange(6) + i, fixed, np.asfortranarray(np.full((2, 3), i)), np.ma.array([i], mask=[True])]

    tasks = {("y", i): Task(("y", i), user, *arrays(i)) for i in range(600)}
    assert_arrives(tasks)
    found = cloudpickle.loads(cloudpickle.dumps(Packed(tasks)))
    for i in (0, 1, 255, 256, 599):
        for sent, got in zip(tasks["y", i].args, found["y", i].args):
            assert type(sent) is type(got)
            assert (sent.flags.writeable, sent.flags.f_contiguous) == (
                got.flags.writeable,
                got.flags.f_contiguous,
            )
    found["y", 0].args[0][:] = -1
    assert found["y", 1].args[0].tolist() == [1, 2, 3, 4, 5, 6]
    one = np.arange(3)
    shared = {("y", i): Task(("y", i), user, one if i < 9 else np.arange(3) + i) for i in range(20)}
    found = assert_arrives(shared)
    assert len({id(found["y", i].args[0]) for i in range(9)}) == 1


def test_in_this_process_nothing_is_copied() -> None:
    tasks = table(*map(FORMS["nested"], ROWS))
    assert Packed(tasks).tasks is tasks


def test_functions_of_a_script_go_once_for_each_template() -> None:
    functions = [lambda x, k=k: x + k for k in range(3)]

    def calls(count: int) -> dict[Any, Any]:
        return {("y", i): Task(("y", i), functions[i % 3], ref("x", i)) for i in range(count)}

    tasks = calls(600)
    found = cloudpickle.loads(cloudpickle.dumps(Packed(tasks)))
    assert [found["y", i].func(10) for i in range(6)] == [10, 11, 12, 10, 11, 12]
    assert len({id(task.func) for task in found.values()}) == 3
    assert len(cloudpickle.dumps(Packed(calls(6000)))) < len(cloudpickle.dumps(Packed(tasks))) + 200
    assert list(through_distributed(Packed(tasks))) == list(tasks)


@pytest.mark.parametrize("broken", [RecursionError, KeyError])
def test_plain_pickle_where_columns_fail(monkeypatch: pytest.MonkeyPatch, broken: type[Exception]) -> None:
    def fail(*args: Any) -> Any:
        raise broken("on purpose")

    monkeypatch.setattr(Columns, "nodes", fail)
    assert_arrives(table(*map(FORMS["nested"], ROWS)), columnar=False)


def test_deep_nesting() -> None:
    def nested(i: int, depth: int) -> Any:
        node: Any = ref("x", i)
        for _ in range(depth):
            node = Task(None, add, node, 1)
        return node

    for depth in (32, 60):
        assert_arrives({("y", i): Task(("y", i), add, nested(i, depth), i) for i in ROWS})


@pytest.mark.parametrize("container", [List, Tuple, Set])
@pytest.mark.parametrize(
    "items",
    [
        [1] * 9,
        range(12),
        [TaskRef("b")] * 9,
        [None, 1, "x", 2.5, TaskRef("q"), (1, 2), slice(1, 2), b"x", 3],
        [(i, TaskRef("q")) for i in range(10)],
    ],
    ids=["one number", "numbers", "one reference", "of many kinds", "tuples"],
)
def test_one_container_of_many_items(container: Any, items: Any) -> None:
    assert_arrives({"y": Task("y", len, container(*items))})
    assert_arrives({"y": Task("y", max, *items), "z": Task("z", max, *items, key=len, _data_producer=True)})


def test_one_mapping_of_many_items() -> None:
    assert_arrives({"y": Task("y", len, Dict({f"k{i}": ref("x", i) for i in range(20)}))})


def test_wide_lists_in_each_other() -> None:
    node = gathered = List(*[ref("x", j) for j in range(9)])
    for i in range(120):
        node = List(node, *[ref("x", j) for j in range(9)]) if i < 119 else List(node, gathered)
    assert_arrives({"y": Task("y", len, node), "z": Task("z", len, gathered)})


class Looked(dict[Any, Any]):
    """Tasks that count how often all of them are looked at."""

    times = 0

    def __iter__(self) -> Any:
        self.times += 1
        return super().__iter__()


def test_columns_are_made_once_however_often_pickling_is_tried() -> None:
    """Distributed tries three times where a function is pickled by value."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def one_more(x): return x + 1", namespace)
    tasks = Looked({("y", i): Task(("y", i), namespace["one_more"], i) for i in range(20)})
    layer = TaskLayer(tasks)
    sent = dumps(layer)
    assert layer.begun > 1
    assert tasks.times == 1
    assert layer.packed is None  # kept no longer than it takes
    arrived = pickle.loads(sent)
    assert [task() for task in arrived.mapping.values()] == list(range(1, 21))
    tasks["y", 20] = Task(("y", 20), abs, -1)
    assert len(pickle.loads(dumps(layer)).mapping) == 21
    assert tasks.times == 2


class Refuses:
    """Cannot be pickled until it is told so."""

    ready = False

    def __reduce__(self) -> Any:
        if not self.ready:
            raise TypeError("not yet")
        return abs, (-1,)


@pytest.mark.parametrize("pickled", [pickle.dumps, dumps])
def test_what_changes_after_pickling_failed_is_sent_as_it_is_then(pickled: Any, caplog: Any) -> None:
    last, blocks, lists = Refuses(), [np.zeros(2) for _ in ROWS], [[0, 0] for _ in ROWS]
    tasks: dict[Any, Any] = {("y", i): Task(("y", i), add, block, 1) for i, block in enumerate(blocks)}
    tasks |= {("z", i): Task(("z", i), add, items, [1]) for i, items in enumerate(lists)}
    layer = TaskLayer(tasks | {"last": Task("last", add, last, 1)})
    with pytest.raises(TypeError, match="not yet"):
        pickled(layer)
    for block, items in zip(blocks, lists):
        block[:], items[:] = 5, [5, 5]
    last.ready = True
    arrived = pickle.loads(pickled(layer)).mapping
    assert arrived["y", 3]().tolist() == [6, 6]
    assert arrived["z", 3]() == [5, 5, 1]
