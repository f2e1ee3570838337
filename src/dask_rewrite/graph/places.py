"""Arrays that several tasks write their blocks into, each its own part."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from dask._task_spec import Alias, GraphNode, Task, TaskRef
from dask.typing import Key
from dask.utils import apply
from toolz import compose, excepts

from dask_rewrite.graph.gates import ungated
from dask_rewrite.graph.names import is_finalize
from dask_rewrite.graph.nodes import NO_DEPS, NO_KWARGS, list_of, make_task
from dask_rewrite.graph.program import operation

#: An index of an array: a slice for each axis.
Index: TypeAlias = tuple[slice, ...]


class Empty(NamedTuple):
    """An array that is still to be made."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes that it will have."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


class Room:
    """Gives arrays by their numbers, or parts of them; each is the same one at each call in this process.

    Pickled, it becomes a function that gives another array at each call, and None for a part: who writes
    there in another process makes an array of its own, since what it writes would not be known here.

    Examples
    --------
    >>> import pickle
    >>> room = Room([Empty((2,), np.dtype("i8"))])
    >>> room(0) is room(0), room(0, (slice(1),)).base is room(0)
    (True, True)
    >>> other = pickle.loads(pickle.dumps(room))
    >>> other(0).shape, other(0, (slice(1),))
    ((2,), None)
    """

    __slots__ = ("_arrays", "_empty", "_lock")

    def __init__(self, empty: Sequence[Empty]) -> None:
        self._empty = empty
        self._arrays: list[Any] = [None] * len(empty)
        self._lock = Lock()

    def __call__(self, number: int, index: Index | None = None) -> Any:
        with self._lock:
            if self._arrays[number] is None:
                self._arrays[number] = np.empty(*self._empty[number])
        whole = self._arrays[number]
        return whole if index is None else whole[index]

    def __reduce__(self) -> Any:
        return excepts, (TypeError, _new_arrays(self._empty))


class NewRoom:
    """Makes a `Room` at each call, so that a graph that is computed twice writes into other arrays.

    Parameters
    ----------
    empty : sequence of Empty
        The arrays.

    Examples
    --------
    >>> import pickle
    >>> new = NewRoom([Empty((2,), np.dtype("i8"))])
    >>> new()(0) is new()(0), pickle.loads(pickle.dumps(new))()(0).shape
    (False, (2,))
    """

    __slots__ = ("empty",)

    def __init__(self, empty: Sequence[Empty]) -> None:
        self.empty = empty

    def __call__(self) -> Room:
        return Room(self.empty)

    def __reduce__(self) -> Any:
        return partial, (excepts, TypeError, _new_arrays(self.empty))

    def __dask_tokenize__(self) -> Any:
        return "NewRoom", [(shape, str(dtype)) for shape, dtype in self.empty]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum([each.nbytes for each in self.empty])


def _new_arrays(empty: Sequence[Empty]) -> Callable[[int], Any]:
    """An array for a number, out of what any process has; a TypeError for a part of one."""
    shapes = list(map(tuple, empty))
    made: Callable[[int], Any] = compose(partial(apply, np.empty), shapes.__getitem__)
    return made


def new_room(key: Key, empty: Sequence[Empty]) -> Task:
    """The task that makes room for arrays."""
    return make_task(key, NewRoom(empty), (), NO_KWARGS, NO_DEPS)


def array_of(room: Key, number: int) -> Task:
    """One of the arrays, as an expression.

    >>> array_of("room", 0)({"room": Room([Empty((2,), np.dtype("i8"))])}).shape
    (2,)
    """
    return make_task(None, operator.call, (TaskRef(room), number), NO_KWARGS, frozenset([room]))


def part_of(room: Key, number: int, index: Index) -> Task:
    """A part of one of the arrays, as an expression."""
    return make_task(None, operator.call, (TaskRef(room), number, index), NO_KWARGS, frozenset([room]))


def placed(key: Key | None, block: Any, part: Task, producer: bool = False) -> Task:
    """A task that writes a block into a part of an array, and gives that part.

    Examples
    --------
    >>> room = Room([Empty((3,), np.dtype("i8"))])
    >>> task = placed("x", Task(None, np.arange, 2), part_of("room", 0, (slice(1, 3),)))
    >>> task({"room": room}), room(0)[1:]
    (array([0, 1]), array([0, 1]))
    """
    held = list_of([block])
    needs = held._dependencies | part._dependencies
    return make_task(key, np.concatenate, (held, 0, part), NO_KWARGS, needs, producer)


def all_placed(key: Key | None, blocks: Any, parts: Sequence[Task], producer: bool = False) -> Task:
    """The same for an expression that gives several blocks; it gives a list of the parts.

    Examples
    --------
    >>> room = Room([Empty((3,), np.dtype("i8"))])
    >>> parts = [part_of("room", 0, (slice(1),)), part_of("room", 0, (slice(1, 3),))]
    >>> task = all_placed("x", Task(None, list, (np.zeros(1, int), np.ones(2, int))), parts)
    >>> task({"room": room}), room(0)
    ([array([0]), array([1, 1])], array([0, 1, 1]))
    """
    columns = operation(zip, (blocks,)), operation(repeat, (0,)), list_of(parts)
    made = operation(list, (operation(map, (np.concatenate, *columns)),))
    return make_task(key, made.func, made.args, made.kwargs, made._dependencies, producer)


def room_of(node: Any) -> NewRoom | None:
    """What a task makes room for; None if it does something else."""
    func = getattr(ungated(node), "func", None)
    return func if type(func) is NewRoom else None


def unplaced(node: Any) -> tuple[Any, Key] | None:
    """What a task of :func:`placed` or :func:`all_placed` writes, and the key of the room; None otherwise.

    Examples
    --------
    >>> unplaced(placed("x", TaskRef("y"), part_of("room", 0, (slice(1, 3),))))
    (TaskRef('y'), 'room')
    >>> unplaced(all_placed("x", TaskRef("y"), [part_of("room", 0, (slice(1, 3),))]))
    (TaskRef('y'), 'room')
    >>> unplaced(Task("x", list, TaskRef("y"))) is None
    True
    """
    found = _placed(node)
    return None if found is None else (found[0], found[1][0].args[0].key)


def arrays_written(node: Any) -> list[int] | None:
    """The numbers of the arrays that such a task writes into; None for anything else.

    >>> arrays_written(placed("x", TaskRef("y"), part_of("room", 3, (slice(1),))))
    [3]
    """
    found = _placed(node)
    return None if found is None else [part.args[1] for part in found[1]]


def _placed(node: Any) -> tuple[Any, Sequence[Task]] | None:
    """What a task writes into an array, and the parts that it writes it into."""
    if type(node) is not Task or not node.args:
        return None
    if node.func is list and type(node.args[0]) is Task and node.args[0].func is map:
        func, *columns = node.args[0].args
        if func is not np.concatenate or len(columns) != 3:
            return None
        blocks, parts = columns[0].args[0], columns[2].args
    elif node.func is np.concatenate and len(node.args) == 3:
        blocks, parts = node.args[0].args[0], [node.args[2]]
    else:
        return None
    part = parts[0]
    if type(part) is not Task or part.func is not operator.call or type(part.args[0]) is not TaskRef:
        return None
    return blocks, parts


def only_made(node: Any) -> Any:
    """What makes the block that a task writes into an array; anything else as it is.

    >>> only_made(placed("x", TaskRef("y"), part_of("room", 0, (slice(1, 3),)))).target
    'y'
    """
    if (found := unplaced(node)) is None:
        return node
    return Alias(node.key, found[0].key) if isinstance(found[0], TaskRef) else found[0]


def room_shown(node: Any, lookup: Callable[[Key], GraphNode | None]) -> Key | None:
    """The room whose memory a task gives: it writes into it, or is the last who needs it; None otherwise."""
    if (found := unplaced(ungated(node))) is not None:
        return found[1]
    if type(node) is Task and is_finalize(node.key):
        return next((dep for dep in node.dependencies if room_of(lookup(dep)) is not None), None)
    return None
