"""What tasks of unknown size take: what they give is probably as large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dask._task_spec import Alias, DataNode, NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.memory.sizes import nbytes_of
from dask_rewrite.graph.templates import frame_of, opened

#: Of data that stand in a graph, as in bags, smaller ones are paths and settings: they tell nothing of what
#: is made of them.
TELLING = 1024


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


def target_of(node: Any) -> Key | None:
    """The key that a reference in a task stands for, in new tasks or in those that were tuples."""
    if isinstance(node, TaskRef):
        return node.key
    return node.target if type(node) is Alias else None


def most_inside(node: Any, size_of: Callable[[Any], int | None]) -> int:
    """The most bytes that a step in a task gives, or data that stand in it."""
    found, stack = 0, [node]
    while stack:
        args = getattr(stack.pop(), "args", ())
        steps = [arg for arg in args if type(arg) is Task]
        found = max([found, *[size_of(step) or 0 for step in steps], *map(nbytes_of_data, args)])
        stack += steps
    return found


def nbytes_of_data(arg: Any) -> int:
    """Bytes of data that stand in a task; 0 for what is none, and what tells nothing.

    Examples
    --------
    >>> nbytes_of_data(DataNode(None, bytes(2000))), nbytes_of_data(DataNode(None, "a path"))
    (2000, 0)
    """
    nbytes = nbytes_of(arg.value) if type(arg) is DataNode else 0
    return nbytes if nbytes >= TELLING else 0


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
        if (target := target_of(each)) is not None:
            keys.add(target)
            continue
        for arg in (*getattr(each, "args", ()), *getattr(each, "kwargs", {}).values()):
            most = max(most, nbytes_of_data(arg))
            if isinstance(arg, NestedContainer):  # the largest of its elements
                stack.append(arg)
            elif isinstance(arg, TaskRef | Alias | Task):
                if (nbytes := size_of(arg)) is not None:
                    most = max(most, nbytes)
                else:
                    stack.append(arg)
    return Taken(most, frozenset(keys))
