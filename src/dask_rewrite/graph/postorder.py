"""Tasks in about the order in which a scheduler runs them, without what finding its very order costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from dask._task_spec import GraphNode
from dask.typing import Key

T = TypeVar("T")


def postorder(
    ends: Iterable[T], needs: Callable[[T], Iterable[T]], place: Callable[[T], int], given: Iterable[T] = ()
) -> Iterator[T]:
    """All that one task needs, then the task, then the next; what is given already is left out.

    Examples
    --------
    >>> needs = {"y": ["b", "a"], "a": [], "b": ["c"], "c": []}
    >>> list(postorder(["y"], needs.__getitem__, "abcy".index))
    ['a', 'c', 'b', 'y']
    """
    done = set(given)
    stack = sorted(ends, key=place, reverse=True)
    while stack:
        task = stack[-1]
        missing = [] if task in done else [one for one in needs(task) if one not in done]
        if missing:
            stack += sorted(missing, key=place, reverse=True)
            continue
        stack.pop()
        if task not in done:
            done.add(task)
            yield task


def greedy_order(
    ends: Sequence[Key], nodes: Mapping[Key, GraphNode], users: Mapping[Key, Sequence[Key]]
) -> Iterator[Key]:
    """All that one task needs, then the task, as in :func:`postorder`; but what can be done is done first.

    Parameters
    ----------
    ends : sequence of Key
        What is asked for.
    nodes : mapping of Key to GraphNode
        The tasks; needs that are not among them are there already.
    users : mapping of Key to sequence of Key
        The tasks that need each task.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> nodes = {"z": Task("z", max, TaskRef("y"), TaskRef("b")), "y": Task("y", abs, TaskRef("a"))}
    >>> nodes |= {"a": Task("a", int), "b": Task("b", int, TaskRef("outside"))}
    >>> list(greedy_order(["z"], nodes, {"a": ["y"], "y": ["z"], "b": ["z"]}))
    ['a', 'y', 'b', 'z']
    """
    place = {key: i for i, key in enumerate(nodes)}
    left = {key: len(node.dependencies & nodes.keys()) for key, node in nodes.items()}
    opened: set[Key] = set()  # a cycle ends here instead of looping for ever
    done: set[Key] = set()
    stack = list(reversed(ends))
    while stack:
        key = stack.pop()
        if key in done or (left[key] and key in opened):
            continue
        if left[key]:
            opened.add(key)
            missing = [dep for dep in nodes[key].dependencies if dep in nodes and dep not in done]
            stack += [key, *sorted(missing, key=place.__getitem__, reverse=True)]
            continue
        done.add(key)
        yield key
        for user in reversed(users.get(key, ())):
            left[user] -= 1
            if not left[user]:
                stack.append(user)
