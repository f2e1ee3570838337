"""Tasks in about the order in which a scheduler runs them, without what finding its very order costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

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
