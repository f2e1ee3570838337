"""How deep tasks are nested, and which tasks stand inside of others. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from types import MethodType
from typing import Any

from dask._task_spec import Task, _execute_subgraph

#: Tasks nested deeper than this are refused. Passes keep to about half of it; pickle and the
#: interpreter give up at three times it.
NESTING_LIMIT = 64

_get_func = attrgetter("func")
_get_args = attrgetter("args")
_get_kwargs = attrgetter("kwargs")


def check_depth(node: object, limit: int) -> bool:
    """Whether at most ``limit`` tasks are nested in ``node``, itself included. It looks no deeper than that.

    >>> from dask._task_spec import Task, TaskRef
    >>> check_depth(Task("a", abs, Task(None, abs, TaskRef("x"))), 1)
    False
    """
    return nesting(node, limit) <= limit


def nesting(node: object, limit: int = 100_000) -> int:
    """How many tasks are nested in ``node``, itself included; ``limit + 1`` stands for more than ``limit``.

    >>> from dask._task_spec import List, Task, TaskRef
    >>> nesting(Task("a", sum, List(Task(None, abs, TaskRef("x")), TaskRef("y"))))
    3
    """
    depth = 0
    level = tasks_in([node])
    while level and depth <= limit:
        depth += 1
        level = nested_in(level)
    return depth


def tasks_in(items: Sequence[Any]) -> Sequence[Task]:
    """Those of the items that are tasks."""
    kinds = set(map(type, items))
    tasks = {kind for kind in kinds if issubclass(kind, Task)}
    if tasks == kinds:
        return items
    return [item for item in items if type(item) in tasks] if tasks else []


def nested_in(tasks: Sequence[Task]) -> Sequence[Task]:
    """The tasks directly inside of ``tasks``.

    Tasks hide in arguments, as the object of a bound method (``template.__call__``), and in the inner
    graph of dask's own fused tasks.
    """
    arguments = list(chain.from_iterable(map(_get_args, tasks)))
    arguments += chain.from_iterable(map(dict.values, filter(None, map(_get_kwargs, tasks))))
    kinds = set(map(type, arguments))
    nested = {kind for kind in kinds if issubclass(kind, Task)}
    found: list[Task] = []
    if nested == kinds:
        found = arguments
    elif nested:
        found = [item for item in arguments if type(item) in nested]
    if MethodType in kinds:
        found += _owners([item for item in arguments if type(item) is MethodType])
    if MethodType in set(map(type, map(_get_func, tasks))):
        found += _owners(list(map(_get_func, tasks)))
    if dict in kinds:
        for task in tasks:
            if task.func is _execute_subgraph:
                found += tasks_in(list(task.args[0].values()))
    # Nested tasks are a graph too, and shared parts must not multiply from level to level.
    return _unique(found) if len(found) > len(tasks) else found


def _owners(functions: list[Any]) -> Sequence[Task]:
    """The tasks whose bound methods are among these functions; many blocks share a few."""
    return tasks_in(_unique([f.__self__ for f in _unique(functions) if type(f) is MethodType]))


def _unique(items: list[Any]) -> list[Any]:
    """Each object once, told apart by identity: to compare or hash tasks would tokenize them."""
    return list(dict(zip(map(id, items), items, strict=True)).values())


__all__ = ["NESTING_LIMIT", "check_depth", "nested_in", "nesting", "tasks_in"]
