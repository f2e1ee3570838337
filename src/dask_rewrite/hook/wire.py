"""How tasks are written down for another process: as columns, not one by one.

Tasks of one structure (function, nesting, which arguments are references, which are literals) are pickled as
one template and the columns of what differs in them. Builtins and dask's own classes make the tasks of it
again while it is unpickled, in the same order: nothing of this package is needed there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, compress, islice
from operator import is_not, itemgetter
from time import perf_counter
from timeit import timeit
from typing import Any, TypeAlias

from dask._task_spec import TaskRef
from dask.typing import Key

from dask_rewrite.graph.collector import collector_paused
from dask_rewrite.graph.nodes import key_of
from dask_rewrite.hook.wire_columns import Columns, signatures
from dask_rewrite.hook.wire_numbers import Call
from dask_rewrite.hook.wire_parts import Parts

Reduced: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]

#: Ends with an error, not with tasks missing, should a column ever be too short.
_paired = partial(zip, strict=True)
_first, _second = itemgetter(0), itemgetter(1)


class Packed:
    """Pickles as the columns of a mapping of tasks and unpickles as a plain dict.

    Parameters
    ----------
    tasks : mapping of Key to object
        Tasks under their keys. What is no task, or like no other, is pickled as it is.

    Examples
    --------
    >>> import pickle
    >>> from dask._task_spec import Task, TaskRef
    >>> tasks = {("y", i): Task(("y", i), abs, TaskRef(("x", i))) for i in range(1000)}
    >>> pickle.loads(pickle.dumps(Packed(tasks))) == tasks
    True
    >>> len(pickle.dumps(Packed(tasks))) < len(pickle.dumps(tasks)) / 50
    True
    """

    __slots__ = ("columns", "tasks")

    def __init__(self, tasks: Mapping[Key, Any]) -> None:
        self.tasks = tasks
        self.columns: Reduced | None = None

    def __reduce__(self) -> Reduced:
        if self.columns is None:  # pickling may be tried again
            try:
                with collector_paused():
                    self.columns = _columnar(self.tasks)
            except Exception:  # whatever the tasks are, they have to arrive
                self.columns = dict, (dict(self.tasks),)
        return self.columns


def _columnar(tasks: Mapping[Key, Any]) -> Reduced:
    keys, nodes = list(tasks), list(tasks.values())
    if not keys:
        return dict, ([],)
    columns = Columns(keys)
    parts = Parts(_names(keys, nodes))
    names = [columns.column(part) for part in parts.of(keys)]
    # Every part takes its keys from here: its next task is made when the next key is its own.
    turn = Call(iter, (columns.table,))
    made = [columns.nodes(part, turn) for part in parts.of(nodes)]
    if parts.rest:
        names.append(parts.left_over(keys))
        made.append(Call(map, (_second, Call(zip, (turn, columns.rest(parts.left_over(nodes)))))))
    here = Call(islice, (parts.merged(names), len(keys)))
    elsewhere = list(islice(columns.positions, len(keys), None))
    if elsewhere:
        here = Call(chain, (here, columns.items(elsewhere)))
    body = Call(islice, (parts.merged(made), len(keys)))
    loaded: dict[Key, Any] = {}
    steps = (
        _filled(columns.table, "extend", here),
        _filled(columns.refs, "extend", Call(map, (TaskRef, columns.table))),
        _filled(loaded, "update", Call(_paired, (Call(islice, (columns.table, len(keys))), body))),
    )
    return _first, ((loaded, *steps),)


def _names(keys: list[Key], nodes: list[Any]) -> list[Any]:
    """The structure of each node; None for what stands under a key that is not its own."""
    names = signatures(nodes)
    if None in names:
        own = [name is not None and node.key == key for name, key, node in zip(names, keys, nodes)]
        return [name if is_own else None for name, is_own in zip(names, own)]
    other = map(is_not, keys, map(key_of, nodes))
    for row in compress(range(len(keys)), other):
        if nodes[row].key != keys[row]:
            names[row] = None
    return names


def _filled(target: Any, method: str, items: Any) -> Call:
    """What calls a method of a container, while it is unpickled, with the collector of garbage at rest.

    Collecting while so many objects are made takes three times as long as making them. `timeit` rests it,
    and wakes it whatever happens; no other function of the standard library does.
    """
    action = Call(partial, (Call(getattr, (target, method)), items))
    return Call(timeit, (action, "pass", perf_counter, 1))
