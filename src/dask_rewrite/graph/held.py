"""Objects that many tasks share: themselves in this process, a private copy for each task elsewhere.

Tasks of a threaded scheduler share the objects that stand in the graph; each task of a cluster is sent
a copy of its own. Objects with state (a model with a scratch buffer, a random generator) show the
difference, so both must stay as it is when such an object becomes the value of a key.
"""

from __future__ import annotations

import io
import operator
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import cloudpickle
from dask._task_spec import DataNode, Task, TaskRef
from dask.tokenize import normalize_token


class Held:
    """A callable that gives the object; pickled, it becomes one that gives a new copy at each call.

    What it becomes is ``functools.partial(pickle.loads, payload)``: nothing of this package is needed
    where it is loaded. Nothing is pickled before that.

    Parameters
    ----------
    value : object
        What a call gives in this process.
    holes : sequence of sequences of objects
        Parts of the value that are left out when it is pickled. The copy gets them from ``buffers``, an
        iterator that gives the same nested sequences again and again; in this process it is not looked at.

    Examples
    --------
    >>> import pickle
    >>> from itertools import repeat
    >>> import numpy as np
    >>> table = np.arange(10_000)
    >>> held = Held({"table": table, "power": 2}, [[table]])
    >>> held()["table"] is table
    True
    >>> sent = pickle.dumps(held)
    >>> len(sent) < 500
    True
    >>> copy = pickle.loads(sent)(buffers=repeat([[table + 1]]))
    >>> copy["table"][0], copy["power"]
    (np.int64(1), 2)
    """

    __slots__ = ("holes", "value")

    def __init__(self, value: Any, holes: Sequence[Sequence[Any]] = ()) -> None:
        self.value = value
        self.holes = holes

    def __call__(self, buffers: Any = None) -> Any:
        return buffers.value if type(buffers) is Own else self.value

    def __reduce__(self) -> Any:
        return partial, (pickle.loads, _Payload(payload_of(self.value, self.holes)))

    def __dask_tokenize__(self) -> Any:
        return "Held", normalize_token(self.value)

    def __repr__(self) -> str:
        return f"<held {type(self.value).__name__}>"


class Own:
    """For calls of a `Held` that stands for several equal objects: the one to give in this process.

    Pickled, it is an empty tuple: no buffers.

    Examples
    --------
    >>> Held([1])(buffers=Own([2])), pickle.loads(pickle.dumps(Held([1])))(buffers=())
    ([2], [1])
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return tuple, ()

    def __dask_tokenize__(self) -> Any:
        return "Own", normalize_token(self.value)

    def __repr__(self) -> str:
        return f"<own {type(self.value).__name__}>"


class _Payload:
    """Bytes that are pickled as what they are, beside the stream where whoever pickles asks for that.

    Without it a heavy constant would be copied once more for each attempt at pickling what holds it.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return bytes, (pickle.PickleBuffer(self.data) if protocol >= 5 else self.data,)


def is_held(node: Any) -> bool:
    """Whether a node is data that is held for many tasks.

    Examples
    --------
    >>> from dask._task_spec import DataNode
    >>> is_held(DataNode("x", Held(1))), is_held(DataNode("x", 1)), is_held(None)
    (True, False, False)
    """
    return type(node) is DataNode and type(node.value) is Held


def unheld(node: Any, lookup: Callable[[Any], Any]) -> Any:
    """A task with the function that it is handed by a `Held`; anything else as it is.

    Parameters
    ----------
    node : object
        What may be a task.
    lookup : callable
        From a key to its node, or None.

    Examples
    --------
    >>> from dask._task_spec import DataNode
    >>> held = {"held": DataNode("held", Held(abs))}
    >>> task = Task("y", operator.call, Task(None, operator.call, TaskRef("held")), TaskRef("x"))
    >>> unheld(task, held.get)
    <Task 'y' abs(TaskRef('x'))>
    """
    if type(node) is not Task or node.func is not operator.call or not node.args:
        return node
    giving = node.args[0]
    if type(giving) is not Task or giving.func is not operator.call or not giving.args:
        return node
    held = giving.args[0]
    if isinstance(held, TaskRef):
        held = getattr(lookup(held.key), "value", None)
    if type(held) is not Held or not callable(held.value):
        return node
    return Task(node.key, held.value, *node.args[1:], **node.kwargs)


def payload_of(value: Any, holes: Sequence[Sequence[Any]] = ()) -> bytes:
    """The pickled value, without the parts in ``holes``."""
    if holes:
        file = io.BytesIO()
        try:
            _WithHoles(file, holes).dump(value)
            return file.getvalue()
        except Exception:
            pass  # as a whole: what a worker has in its buffers is then not looked at
    if "distributed" in sys.modules:  # its pickle knows more types
        from distributed.protocol.pickle import dumps

        whole: bytes = dumps(value)
    else:
        whole = cloudpickle.dumps(value)
    return whole


class _WithHoles(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle has no types
    """Writes the next of the buffers, and which part of it, in place of each hole."""

    def __init__(self, file: Any, holes: Sequence[Sequence[Any]]) -> None:
        super().__init__(file, protocol=5, buffer_callback=_stays_inside)
        self._places = {id(part): (i, j) for i, parts in enumerate(holes) for j, part in enumerate(parts)}

    def reducer_override(self, obj: Any) -> Any:
        place = self._places.get(id(obj))
        if place is None:
            return super().reducer_override(obj)
        return reduce, (operator.getitem, place, pickle.PickleBuffer(_HOLE))


_HOLE = bytearray()


def _stays_inside(buffer: pickle.PickleBuffer) -> bool:
    """Whether a buffer is written like all else: the memory of arrays is, holes are not."""
    return buffer.raw().obj is not _HOLE


def can_be_hole(value: Any) -> bool:
    """Whether pickle asks before it writes such an object; it does not for what is built in."""
    return type(value) not in _BUILT_IN


_BUILT_IN = frozenset(
    (str, bytes, bytearray, int, float, complex, bool, type(None), list, tuple, dict, set, frozenset)
)
