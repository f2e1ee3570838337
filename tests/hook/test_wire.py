"""Tasks written as columns arrive task for task as they were sent."""

from __future__ import annotations

import gc
import math
import pickle
import random
from collections.abc import Callable
from functools import partial
from operator import add, getitem, mul
from typing import Any

import cloudpickle
import numpy as np
import pytest
import toolz
from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, Set, Task, TaskRef, Tuple
from distributed.protocol import dask_deserialize, dask_serialize, deserialize, serialize, to_serialize
from distributed.protocol.pickle import dumps
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_rewrite.hook.wire import Packed, _filled
from dask_rewrite.hook.wire_columns import Columns
from dask_rewrite.hook.wire_numbers import Call, integers


def form(value: Any) -> Any:
    """All that there is to a task, its nested tasks and its literals, to be compared with ``==``."""
    if isinstance(value, Task):
        return (
            *(type(value), value.key, form(value.func), [form(arg) for arg in value.args]),
            *(
                [(name, form(arg)) for name, arg in value.kwargs.items()],
                value.dependencies,
                value.data_producer,
            ),
        )
    if isinstance(value, Alias):
        return Alias, value.key, value.target, value.dependencies
    if isinstance(value, DataNode):
        return DataNode, value.key, value.typ, form(value.value), value.dependencies
    if isinstance(value, TaskRef):
        return type(value), form(value.key)
    if isinstance(value, partial):
        return partial, form(value.func), form(value.args), form(value.keywords)
    if hasattr(value, "__self__") and isinstance(value.__self__, GraphNode):
        return "bound", value.__name__, form(value.__self__)
    if isinstance(value, (list, tuple)):
        return type(value), [form(item) for item in value]
    if isinstance(value, dict):
        return type(value), [(form(key), form(item)) for key, item in value.items()]
    if isinstance(value, slice):
        return slice, form([value.start, value.stop, value.step])
    if isinstance(value, float):
        return float, repr(value), math.copysign(1, value)
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype, value.shape, value.tolist()
    return type(value), value


def through_distributed(value: Any) -> Any:
    return deserialize(*serialize(to_serialize(value)))


class Refused:
    """What pickle refuses and distributed has a way for, as it has for the files of h5py."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


@dask_serialize.register(Refused)
def _written(value: Refused) -> tuple[dict[str, Any], list[Any]]:
    return {}, []


@dask_deserialize.register(Refused)
def _read(header: Any, frames: Any) -> Refused:
    return Refused()


def beside_what_pickle_refuses(value: Any) -> Any:
    found, refused = pickle.loads(dumps((value, Refused())))
    assert type(refused) is Refused
    return found


WAYS: list[Callable[[Any], Any]] = [
    lambda value: pickle.loads(pickle.dumps(value)),
    lambda value: pickle.loads(pickle.dumps(value, protocol=5)),
    lambda value: cloudpickle.loads(cloudpickle.dumps(value)),
    through_distributed,
    beside_what_pickle_refuses,
]


def assert_arrives(tasks: dict[Any, Any], columnar: bool = True) -> dict[Any, Any]:
    """Sent in every way, the mapping comes back the same; the one that plain pickle sent is returned."""
    wanted = [(form(key), form(task)) for key, task in tasks.items()]
    if columnar:  # not as it would be sent if something had failed
        assert type(Packed(tasks).__reduce__()[1][0]) in (tuple, list)
    loaded = [way(Packed(tasks)) for way in WAYS]
    for found in loaded:
        assert type(found) is dict
        assert [(form(key), form(task)) for key, task in found.items()] == wanted
    return loaded[0]


def table(*nodes: Any) -> dict[Any, Any]:
    return {node.key: node for node in nodes}


def ref(*key: Any) -> TaskRef:
    return TaskRef(key if len(key) > 1 else key[0])


def user(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


ROWS = range(40)
TEMPLATE = Task("t", add, Task(None, mul, ref("x0"), 2), ref("x1"))
CALL = TEMPLATE.__call__
STEPS = [Task("s1", dict, Task(None, mul, ref("x0"), 2)).__call__, Task("s2", add, ref("x0"), 1).__call__]
ARRAY = np.arange(5)
SHARED = [1, 2]

FORMS: dict[str, Callable[[int], GraphNode]] = {
    "one reference": lambda i: Task(("y", i), abs, ref("x", i)),
    "elsewhere": lambda i: Task(("y", i), abs, ref(f"far-{i % 3}")),
    "same reference": lambda i: Task(("y", i), abs, ref("x", 0)),
    "nested": lambda i: Task(("y", i), add, Task(None, mul, ref("x", i), 2), ref("m", i % 4)),
    "nested and shared": lambda i: Task(("y", i), add, NESTED[i // 4], i),
    "nested with a key": lambda i: Task(("y", i), add, Task(("inner", i), mul, ref("x", i), 2), 1),
    "nested, all equal": lambda i: Task(("y", i), add, Task(None, mul, ref("x"), 2), 1),
    "called template": lambda i: Task(("y", i), CALL, Task(None, dict, x0=ref("x", i), x1=ref("m", i % 4))),
    "program": lambda i: Task(("y", i), toolz.pipe, Task(None, dict, x0=ref("x", i)), *STEPS),
    "mixed arguments": lambda i: Task(("y", i), user, ref("x", i) if i % 3 else Task(None, abs, ref("x", i))),
    "constant keywords": lambda i: Task(("y", i), user, ref("x", i), axis=(0, 1), keepdims=True),
    "keywords": lambda i: Task(("y", i), user, ref("x", i), out=None, axis=i, b=Task(None, abs, ref("z", i))),
    "odd keywords": lambda i: Task(("y", i), user, **{"func": i, "self": 1, "not a name": ref("x", i)}),
    "producer": lambda i: Task(("y", i), user, i, _data_producer=True),
    "producer with keywords": lambda i: Task(("y", i), user, i, a=i, _data_producer=True),
    "some producers": lambda i: Task(("y", i), user, i, _data_producer=i % 2 == 0),
    "no arguments": lambda i: Task(("y", i), user),
    "list": lambda i: Task(("y", i), sum, List(ref("x", i), ref("x", i + 1), Task(None, abs, ref("x", i)))),
    "lists of many lengths": lambda i: Task(("y", i), sum, List(*[ref("x", j) for j in range(i % 7)])),
    "empty lists": lambda i: Task(("y", i), sum, List()),
    "list of a list": lambda i: Task(("y", i), sum, listed(List, [i, i])),
    "nested lists": lambda i: Task(("y", i), user, List(List(ref("x", i)), List(ref("x", i), ref("z", i)))),
    "tuple node": lambda i: Task(("y", i), user, Tuple(ref("x", i), i)),
    "set node": lambda i: Task(("y", i), user, Set(ref("x", i), 1)),
    "dict node": lambda i: Task(("y", i), user, Dict({"a": ref("x", i), "b": i})),
    "alias": lambda i: Alias(("y", i), ("x", i)),
    "data": lambda i: DataNode(("y", i), i * 0.5),
    "data of all kinds": lambda i: DataNode(("y", i), [None, True, "text", (i, [i]), {i: i}, b"raw"][i % 6]),
    "slices": lambda i: Task(("y", i), getitem, ref("x", i), (slice(i, i + 9), slice(None), i, None, ...)),
    "numbers and truth": lambda i: Task(("y", i), user, [True, 1, 1.0, 1 + 0j, np.int64(1)][i % 5]),
    "truth": lambda i: Task(("y", i), user, i % 3 == 0, True),
    "floats": lambda i: Task(("y", i), user, [0.0, -0.0, float("nan"), float("inf"), 0.1 * i][i % 5]),
    "equal floats": lambda i: Task(("y", i), user, float("1.5"), float("nan"), float("-0.0")),
    "large integers": lambda i: Task(("y", i), user, 2**70 + i, -(2**63) + i, 2**63 + i, 2**32 * i),
    "texts": lambda i: Task(("y", i), user, f"text-{i % 3}", f"text-{i}", "always"),
    "lists as literals": lambda i: Task(("y", i), user, [i, [i]], [], SHARED, [1, 2]),
    "tuples as literals": lambda i: Task(("y", i), user, (), (1, 2), (i, (i, "a")), (0,) * (i % 3)),
    "arrays": lambda i: Task(("y", i), user, np.arange(i), ARRAY, ARRAY.dtype),
    "small arrays": lambda i: Task(("y", i), user, np.arange(i, i + 4.0), np.ones((1, 2, 0))),
    "zero-dimensional arrays": lambda i: Task(("y", i), user, np.array(i), np.array(str(i))),
    "arrays of two types": lambda i: Task(("y", i), user, np.array([i], "i4" if i % 5 else "f8")),
    "arrays of objects": lambda i: Task(("y", i), user, np.array([i, None])),
    "partials": lambda i: Task(("y", i), partial(user, 1, axis=i), ref("x", i)),
    "one partial": lambda i: Task(("y", i), PARTIAL, ref("x", i)),
    "many templates": lambda i: Task(("y", i), Task("t", add, ref("x0"), i).__call__, Task(None, dict, x0=i)),
    "inner graphs": lambda i: Task(("y", i), user, {"a": Task("a", add, ref("x0"), i)}, "a"),
    "text keys": lambda i: Task(f"y-{i}", abs, ref(f"x-{i}")),
    "several names": lambda i: Task((f"y-{i % 3}", i), abs, ref(f"x-{i % 5}", i, 0)),
    "keys of all kinds": lambda i: Task([("y", i), f"y-{i}", ("y", f"a{i}"), ("y", ("z", i))][i % 4], abs, i),
    "negative places": lambda i: Task(("y", -i, 1000 * i), abs, ref("y", i - 1000, -1)),
}  # fmt: skip
PARTIAL = partial(user, 1, axis=2)
NESTED = [Task(None, mul, ref("x", i), 2) for i in ROWS]


def listed(kind: type[List], *args: Any) -> List:
    """A container whose constructor would have taken the arguments for its items."""
    made = kind(0, *args)
    made.args = args
    return made


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


def test_regular_blocks_cost_almost_nothing() -> None:
    def bytes_of(n: int) -> int:
        cells = [(i, j) for i in range(n) for j in range(n)]
        tasks = {
            ("y", i, j): Task(("y", i, j), add, Task(None, mul, ref("x", i, j), ref("m", j)), ref("x", j, i))
            for i, j in cells
        }
        tasks |= {("x", i, j): Task(("x", i, j), user, (i, j)) for i, j in cells}
        return len(pickle.dumps(Packed(tasks)))

    assert bytes_of(60) < 8_000
    assert bytes_of(120) < 2.2 * bytes_of(60)


def test_irregular_blocks_take_few_bytes() -> None:
    count = 5000
    places = random.Random(1).sample(range(100_000), count)
    tasks = {("y", i // 300, i % 300): FORMS["nested"](i) for i in places}
    for key, task in tasks.items():
        task.key = key
    tasks |= {("x", i): Task(("x", i), user, i) for i in random.Random(2).sample(places, count)}
    assert len(pickle.dumps(Packed(tasks))) < 12 * len(tasks)
    assert_arrives(tasks)


PATTERNS = [
    [5] * 9,
    list(range(3, 90, 4)),
    list(range(9, -9, -1)),
    [i for i in range(6) for _ in range(4)],
    [i for _ in range(6) for i in range(4)],
    [i for i in range(5) for _ in range(3)] * 4,
    [i * 150 + j for j in range(10) for i in range(10)],
    [i * 150 + j for j in range(10) for i in range(10)][:-3],
    [0, 1, 0, 0, 1],
    [2**62, -(2**62), 5],
    [2**63, 2**80],
    [300, 301, 305, 299] * 3,
    [1, 2],
    [1],
]


@pytest.mark.parametrize("cells", PATTERNS)
def test_integers_of_a_pattern(cells: list[int]) -> None:
    assert_column(cells)


@given(
    st.lists(st.integers(-3, 3) | st.integers(), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_integers(base: list[int], each: int, times: int) -> None:
    assert_column([cell for cell in base for _ in range(each)] * times)


def assert_column(cells: list[int]) -> None:
    found = pickle.loads(pickle.dumps(integers(cells)))
    assert [cell for cell, _ in zip(found, cells)] == cells


LITERALS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 3),
    st.floats(),
    st.text(max_size=3),
    st.tuples(st.integers(0, 9), st.integers(0, 2)),
    st.builds(slice, st.integers(0, 9), st.none() | st.integers(0, 9)),
    st.lists(st.integers(0, 3), max_size=3),
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[Any, Any]:
    """Rows of few structures, in any order, with whatever literals."""
    rng = draw(st.randoms(use_true_random=False))
    names = ["a", "b", "c"]
    shared = [Task(None, mul, ref("a", i), 2) for i in range(3)]
    literals = draw(st.lists(LITERALS, min_size=1, max_size=4))

    def argument(depth: int) -> Callable[[int], Any]:
        kind = rng.randrange(7 if depth else 4)
        if kind == 0:
            name, step = rng.choice(names), rng.choice([1, 1, -1, 7])
            return lambda i: ref(name, i * step)
        if kind == 1:
            return lambda i: rng.choice(literals)
        if kind == 2:
            return lambda i: i
        if kind == 3:
            return lambda i: rng.choice(shared)
        inner = [argument(depth - 1) for _ in range(rng.randrange(3))]
        if kind == 4:
            return lambda i: List(0, *[make(i) for make in inner])
        if kind == 5:
            return lambda i: Task(None, dict, **{f"x{j}": make(i) for j, make in enumerate(inner)})
        return lambda i: Task(None, user, *[make(i) for make in inner])

    tasks: list[GraphNode] = []
    for name in names:
        arguments = [argument(2) for _ in range(rng.randrange(3))]
        options = {"axis": argument(1)} if rng.randrange(2) else {}
        producer = rng.randrange(4) == 0
        for i in range(rng.choice([1, 5, 20])):
            args = [make(i) for make in arguments]
            named = {key: make(i) for key, make in options.items()}
            tasks.append(Task((name, i), user, *args, _data_producer=producer, **named))
    if rng.randrange(2):
        rng.shuffle(tasks)
    return table(*tasks)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_random_graphs(tasks: dict[Any, Any]) -> None:
    assert_arrives(tasks)


SCRIPT = """
import hashlib, pickle, sys
sys.path.insert(0, "tests")
from dask_rewrite.hook.wire import Packed, _filled
from hook.test_wire import FORMS, ROWS
for name, make in FORMS.items():
    if name != "inner graphs":
        nodes = [make(i) for i in ROWS] + [make(i) for i in range(41, 43)]
        tasks = Packed({node.key: node for node in nodes})
        print(name, hashlib.sha1(pickle.dumps(tasks)).hexdigest())
"""


def test_the_same_bytes_whatever_the_hash_seed(python: Callable[..., str]) -> None:
    runs = [python(SCRIPT, PYTHONHASHSEED=seed).splitlines() for seed in ("1", "2")]
    assert runs[0] == runs[1]
    assert len(runs[0]) == len(FORMS) - 1


LOAD = """
import pickle, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "dask_rewrite":
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import dask
with open(sys.argv[1], "rb") as file:
    tasks = pickle.load(file)
assert not [name for name in sys.modules if name.startswith("dask_rewrite")]
print(type(tasks).__name__, sum(dask.get(tasks, [("y", i) for i in range(40)])))
"""


def test_loads_and_computes_without_this_package(tmp_path: Any, python: Callable[..., str]) -> None:
    tasks = {("x", i): Task(("x", i), add, i, 1) for i in ROWS}
    tasks |= table(*map(FORMS["called template"], ROWS))
    tasks |= {("m", i): Task(("m", i), sum, List(ref("x", i), i)) for i in range(4)}
    path = tmp_path / "tasks.pickle"
    path.write_bytes(pickle.dumps(Packed(tasks)))
    found = python(LOAD, str(path))
    wanted = sum((i + 1) * 2 + 2 * (i % 4) + 1 for i in ROWS)
    assert found.split() == ["dict", str(wanted)]


def test_futures_arrive(client: Any) -> None:
    futures = client.scatter(list(range(40)))
    tasks: dict[Any, Any] = {("y", i): Task(("y", i), add, future, 1) for i, future in enumerate(futures)}
    tasks |= {("z", i): Task(("z", i), sum, List(ref("y", i), future)) for i, future in enumerate(futures)}
    tasks |= {future.key: future for future in futures[:9]}
    found = assert_arrives(tasks)
    assert {type(found["y", i].args[0]) for i in ROWS} == {type(futures[0])}
    assert client.get(found, [("z", i) for i in ROWS]) == [2 * i + 1 for i in ROWS]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_garbage_is_left_as_it_was(enabled: bool) -> None:
    tasks = table(*map(FORMS["nested"], ROWS))
    data = pickle.dumps(Packed(tasks))
    (gc.enable if enabled else gc.disable)()
    try:
        assert list(pickle.loads(data)) == list(tasks)
        assert gc.isenabled() is enabled
        with pytest.raises(ZeroDivisionError):
            pickle.loads(pickle.dumps(_filled([], "extend", Call(map, (divmod, [1], [0])))))
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
