"""What tasks of unknown size take: what they give is probably as large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dask._task_spec import Alias, NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.templates import frame_of, opened


class Taken(NamedTuple):
    """What a step takes.

    Parameters
    ----------
    nbytes : int
        Bytes of the largest of what has a known size.
    keys : frozenset of Key
        Tasks of unknown size.
    """

    nbytes: int
    keys: frozenset[Key]


def most_inside(node: Any, size_of: Callable[[Any], int | None]) -> int:
    """The most bytes that a step in a task gives."""
    found, stack = 0, [node]
    while stack:
        steps = [arg for arg in getattr(stack.pop(), "args", ()) if type(arg) is Task]
        found = max([found, *[size_of(step) or 0 for step in steps]])
        stack += steps
    return found


def taken_by(node: Any, size_of: Callable[[Any], int | None]) -> Taken | None:
    """What the last step of a task takes; steps of unknown size are looked through.

    None for programs, whose steps share what they make.

    Parameters
    ----------
    node : GraphNode
        The task.
    size_of : callable
        From an expression to its bytes, or None.

    Examples
    --------
    >>> part = Task(None, max, TaskRef("whole"))
    >>> taken_by(Task("y", min, part, TaskRef("z")), lambda node: 10 if node is part else None)
    Taken(nbytes=10, keys=frozenset({'z'}))
    """
    if frame_of(node) is not None and (node := opened(node)) is None:
        return None
    most, keys, stack = 0, set[Key](), [node]
    while stack:
        each = stack.pop()
        if type(each) is Alias:
            keys.add(each.target)
            continue
        for arg in (*getattr(each, "args", ()), *getattr(each, "kwargs", {}).values()):
            if isinstance(arg, NestedContainer):  # the largest of its elements
                stack.append(arg)
            elif isinstance(arg, TaskRef | Alias | Task):
                if (nbytes := size_of(arg)) is not None:
                    most = max(most, nbytes)
                elif isinstance(arg, TaskRef):
                    keys.add(arg.key)
                else:
                    stack.append(arg)
    return Taken(most, frozenset(keys))
