"""Slices of blocks of which nothing is known, composed where that is right for any length."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

from dask._task_spec import GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.movement.moves import GETITEMS

#: ``start:stop:step`` along one axis, steps of 1 or -1. Forwards, a negative start counts from the end,
#: and then there is no stop; backwards, it is a stretch from one of the two ends.
Range: TypeAlias = tuple[int, int | None, int]

FULL: Range = (0, None, 1)


class View(NamedTuple):
    """A block is a plain slice of another one; axes that are not listed are whole."""

    source: Key
    ranges: tuple[Range, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The index that takes it out of its source."""
        return tuple([slice(None) if r == FULL else slice(*r) for r in self.ranges])


def view_of(task: Task) -> View | None:
    """The view that a task takes of a block; None if it is not a slice of steps of one.

    Examples
    --------
    >>> import operator
    >>> view_of(Task("y", operator.getitem, TaskRef("x"), (slice(None), slice(-2, None))))
    View(source='x', ranges=((0, None, 1), (-2, None, 1)))
    """
    if id(task.func) not in GETITEMS or len(task.args) != 2 or task.kwargs:
        return None
    ref, index = task.args
    index = literal(index)
    if type(ref) is not TaskRef or isinstance(index, GraphNode):
        return None
    ranges = []
    for item in index if type(index) is tuple else (index,):
        found = _range(item) if type(item) is slice else None
        if found is None:
            return None
        ranges.append(found)
    return View(ref.key, tuple(ranges))


def _is_end(end: Any) -> bool:
    return end is None or type(end) is int


def _range(item: slice) -> Range | None:
    start, stop, step = item.start, item.stop, item.step
    if start is None and stop is None and step is None:
        return FULL
    if not (_is_end(start) and _is_end(stop) and _is_end(step)):
        return None
    if step == -1 and start is not None:
        if start >= 0 and (stop is None or 0 <= stop < start):
            if stop is not None and stop != start - 1:
                return None
            return (start, stop, -1) if start and stop is None else (start, start + 1, 1)
        if start == -1 and stop is not None and stop < start:
            return (-1, None, 1) if stop == -2 else (-1, stop, -1)
        return None
    if step not in (None, 1) or (stop is not None and stop < 0):
        return None
    start = start or 0
    return None if start < 0 and stop is not None else (start, stop, 1)


def _most(given: Range) -> int | None:
    """How many elements a range can have at most; None: any number."""
    start, stop, step = given
    if step == -1:
        return start + 1 if stop is None else start - stop
    if start < 0:
        return -start
    return None if stop is None else max(stop - start, 0)


def seen_through(outer: View, inner: View) -> View | None:
    """The view through a view, straight from the source; None where that depends on the length.

    >>> seen_through(View("y", ((1, 3, 1),)), View("x", ((4, 6, 1),)))
    View(source='x', ranges=((5, 6, 1),))
    >>> seen_through(View("y", ((0, 1, 1),)), View("x", ((-3, None, 1),))) is None
    True
    """
    ranges = []
    for a, b in zip_longest(inner.ranges, outer.ranges, fillvalue=FULL):
        both = a if b is FULL else b if a is FULL else _through(a, b)
        if both is None:
            return None
        ranges.append(both)
    return View(inner.source, tuple(ranges))


def _through(inner: Range, outer: Range) -> Range | None:
    if outer == FULL:
        return inner
    if inner == FULL:
        return outer
    (a, b, step), (c, d, stride) = inner, outer
    if stride < 0:
        return None
    most = _most(inner)
    if most is not None and ((c < 0 and -c >= most) or (c == 0 and d is not None and d >= most)):
        return inner  # all of it, however much there is
    if step < 0 or ((c < 0) != (a < 0) and a != 0):
        return None
    if a < 0:
        return max(a, c), None, 1
    if c < 0:
        return None
    ends = [end for end in (b, None if d is None else a + d) if end is not None]
    return a + c, max(a + c, min(ends)) if ends else None, 1


def within(part: View, other: View) -> tuple[slice, ...] | None:
    """The index that takes one view out of another one of the same source; None if that is not certain.

    >>> within(View("x", ((0, 1, 1), (-1, None, 1))), View("x", (FULL, (-1, None, 1))))
    (slice(0, 1, 1), slice(None, None, None))
    """
    index: list[Any] = []
    for a, b in zip_longest(part.ranges, other.ranges, fillvalue=FULL):
        if b == FULL:
            index.append(slice(None) if a == FULL else slice(*a))
        elif a == b:
            index.append(slice(None))
        else:
            return None
    return tuple(index)
