"""Lists in the arguments of tasks, in both of the ways in which dask writes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from dask._task_spec import List, Task, TaskRef, _identity_cast
from dask.typing import Key

_LISTS, _REFERENCES = frozenset([List]), frozenset([TaskRef])


def parts_of(node: Any) -> tuple[Any, ...] | None:
    """What a list in a task holds, None if it is no list."""
    is_list = type(node) is List or (
        type(node) is Task and node.func is _identity_cast and node.kwargs == {"typ": list}
    )
    return tuple(node.args) if is_list else None


def terms_of(task: Task) -> list[Key] | None:
    """The keys in the (nested) list that a combining task is called with; None if there is anything else.

    Examples
    --------
    >>> terms_of(Task("s", sum, List(List(TaskRef("x"), TaskRef("y")))))
    ['x', 'y']
    """
    if len(task.args) != 1 or task.kwargs or type(task.args[0]) is TaskRef:
        return None
    level: Sequence[Any] = task.args
    while (kinds := set(map(type, level))) == _LISTS:  # as most are: of one depth
        level = list(chain.from_iterable([each.args for each in level]))
    if kinds == _REFERENCES:
        return [ref.key for ref in level]
    found: list[Key] = []
    stack: list[Any] = list(level)
    stack.reverse()
    while stack:
        here = stack.pop()
        if type(here) is TaskRef:
            found.append(here.key)
        elif (inside := parts_of(here)) is not None:
            stack.extend(reversed(inside))
        else:
            return None
    return found
