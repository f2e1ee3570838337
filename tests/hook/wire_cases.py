"""Tasks of every form, and the ways in which they are sent."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import partial
from operator import add, getitem, mul
from typing import Any

import cloudpickle
import numpy as np
import toolz
from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, Set, Task, TaskRef, Tuple
from distributed.protocol import dask_deserialize, dask_serialize, deserialize, serialize, to_serialize
from distributed.protocol.pickle import dumps

from dask_rewrite.hook.wire import Packed


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
    "programs of their own": lambda i: Task(
        *(("y", i), toolz.pipe, Task(None, dict, x0=ref("x", i))),
        *(Task(None, dict, x0=Task(None, getitem, ref("x0"), (slice(i, 2 * i), 3))).__call__, *STEPS),
    ),
    "steps of all kinds": lambda i: Task(("y", i), user, *(step.__call__ for step in _steps(i))),
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


def _steps(i: int) -> list[GraphNode]:
    """Some shared, some with keys of their own, some that load data, and containers."""
    load = Task(("step", i // 2), user, i // 2, _data_producer=i % 4 < 2)
    return [load, NESTED[i % 3], [TEMPLATE, List(ref("x", i), i), DataNode(("d", i), i)][i % 3]]


PARTIAL = partial(user, 1, axis=2)


NESTED = [Task(None, mul, ref("x", i), 2) for i in ROWS]


def listed(kind: type[List], *args: Any) -> List:
    """A container whose constructor would have taken the arguments for its items."""
    made = kind(0, *args)
    made.args = args
    return made
