"""What a task does, in the names of the functions that it calls."""

from __future__ import annotations

import operator
from itertools import chain, repeat
from typing import Any

from dask._task_spec import List, Task, _identity_cast
from dask.utils import funcname, ndeepmap
from toolz import functoolz, identity, pipe

from dask_rewrite.graph.templates import is_template

#: Functions that only hold a task together.
_PLUMBING = frozenset(
    [pipe, identity, _identity_cast, operator.call, dict, list, tuple, map, ndeepmap, zip, chain, repeat]
)

#: How dask calls functions that ask where their block stands (``block_id``, ``block_info``).
_WITH_PLACES = "_pass_extra_kwargs"


def functions_of(node: Any) -> list[str]:
    """The functions of a task in the order in which they run, however it is nested.

    Examples
    --------
    >>> from dask._task_spec import TaskRef
    >>> functions_of(Task("y", operator.add, Task(None, operator.neg, TaskRef("x")), 1))
    ['neg', 'add']
    """
    names: list[str] = []
    stack: list[Any] = [node]
    while stack:  # of nodes, and of names whose arguments are done
        found = stack.pop()
        if type(found) is str:
            names.append(found)
        elif isinstance(found, Task):
            if name := step_name(found):
                stack.append(name)
            inner = [*found.args, *found.kwargs.values(), *([found.func] if is_template(found.func) else [])]
            stack += [_task_in(value) for value in reversed(inner) if _task_in(value) is not None]
    return names


def step_name(task: Task) -> str:
    """The name of the function that a task calls; empty where that only holds other tasks together."""
    func = task.func
    if isinstance(task, List) or is_template(func):
        return ""
    if getattr(func, "__name__", "") == _WITH_PLACES and task.args and callable(task.args[0]):
        func = task.args[0]
    if isinstance(func, functoolz.Compose):
        return "|".join(map(funcname, (func.first, *func.funcs)))
    try:
        return "" if func in _PLUMBING else str(funcname(func))
    except TypeError:  # a callable that has no hash
        return str(funcname(func))


def _task_in(value: Any) -> Task | None:
    """A task among the arguments of another: itself, or the body of a template or of a step of a program."""
    if isinstance(value, Task):
        return value
    return value.__self__ if is_template(value) else None
