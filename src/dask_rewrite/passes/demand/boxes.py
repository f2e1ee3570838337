"""Boxes: which part of a block is wanted, as a range for each axis, in steps or not."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any, TypeAlias

from dask_rewrite.analysis.knowledge import Fact

#: First and last position (exclusive), and the step where that is more than one.
Range: TypeAlias = tuple[int, ...]
#: A range for each axis.
Box: TypeAlias = tuple[Range, ...]
Shape: TypeAlias = tuple[int, ...]


def stepped(low: int, last: int, step: int) -> Range:
    """The range from a first position to a last one.

    >>> stepped(3, 9, 3), stepped(3, 9, 1), stepped(3, 3, 7)
    ((3, 10, 3), (3, 10), (3, 4))
    """
    return (low, last + 1) if step == 1 or low == last else (low, last + 1, step)


def step_of(positions: Range) -> int:
    """How far neighbours in a range are apart."""
    return positions[2] if len(positions) == 3 else 1


def length(positions: Range) -> int:
    """How many positions a range has.

    >>> length((3, 10, 3)), length((3, 10))
    (3, 7)
    """
    return (positions[1] - positions[0] + step_of(positions) - 1) // step_of(positions)


def between(positions: Range, start: int, stop: int) -> Range | None:
    """The positions of a range from a start to a stop, counted from there; None if there is none.

    >>> between((3, 10, 3), 4, 8), between((3, 10, 3), 7, 9), between((2, 9), 4, 8)
    ((2, 3), None, (0, 4))
    """
    step = step_of(positions)
    low, high = max(positions[0], start), min(positions[1], stop)
    low += (positions[0] - low) % step
    if low >= high:
        return None
    return stepped(low - start, high - 1 - (high - 1 - low) % step - start, step)


def whole(shape: Sequence[int]) -> Box:
    """The box that is all of a block.

    >>> whole((2, 3))
    ((0, 2), (0, 3))
    """
    return tuple([(0, n) for n in shape])


def hull(one: Box, other: Box) -> Box:
    """The smallest box that holds both.

    >>> hull(((0, 2),), ((5, 6),))
    ((0, 6),)
    >>> hull(((0, 9, 4),), ((14, 15),))
    ((0, 15, 2),)
    """
    return one if one == other else tuple(map(_joined, one, other))


def _joined(one: Range, other: Range) -> Range:
    if one == other:
        return one
    low, high = min(one[0], other[0]), max(one[1], other[1])
    step = gcd(_period(one), _period(other), one[0] - other[0])
    return stepped(low, high - 1, step) if step > 1 else (low, high)


def _period(positions: Range) -> int:
    """The step of a range; of a single position, which is in any, 0."""
    return 0 if positions[1] - positions[0] == 1 else step_of(positions)


def widen(wanted: dict[Any, Box | None], name: Any, box: Box | None) -> None:
    """Take in what is wanted of something, beside what was wanted before; None is all of it."""
    if name in wanted:
        before = wanted[name]
        box = None if box is None or before is None else hull(before, box)
    wanted[name] = box


def lengths(box: Box) -> Shape:
    """The shape of a box.

    >>> lengths(((1, 3), (0, 5)))
    (2, 5)
    """
    return tuple(map(length, box))


def size(box: Box) -> int:
    """How many elements a box has."""
    return prod(lengths(box))


def index_of(box: Box) -> tuple[slice, ...]:
    """The index that takes a box out of a whole.

    >>> index_of(((3, 5), (0, 2)))
    (slice(3, 5, None), slice(0, 2, None))
    """
    return tuple([slice(*positions) for positions in box])


def inside(box: Box, outer: Box) -> tuple[slice, ...] | None:
    """The index that takes a box out of a block that holds just ``outer``; None if it is all of that.

    >>> inside(((3, 5),), ((2, 6),))
    (slice(1, 3, None),)
    >>> inside(((2, 6),), ((2, 6),)) is None
    True
    """
    return None if box == outer else index_of(seen_from(outer, box))


def seen_from(outer: Box, box: Box) -> Box:
    """A box, counted in what another one holds, of which it is a part.

    >>> seen_from(((2, 6), (0, 9, 2)), ((3, 5), (2, 7, 4)))
    ((1, 3), (1, 4, 2))
    """
    return tuple(map(_seen_from, outer, box))


def _seen_from(outer: Range, positions: Range) -> Range:
    first, step = outer[0], step_of(outer)
    low, last = (positions[0] - first) // step, (positions[1] - 1 - first) // step
    return stepped(low, last, step_of(positions) // step)


def shape_of(value: Any) -> Shape | None:
    """The shape of a block by its abstract value; of a dict of blocks, that of their common axes.

    >>> import numpy as np
    >>> shape_of({"n": Fact((2, 1), np.dtype("i8")), "M": Fact((2, 1, 3), np.dtype("f8"))})
    (2, 1)
    """
    if type(value) is Fact:
        return None if value.scalar else value.shape
    if type(value) is not dict or not value:
        return None
    shapes = [each.shape for each in value.values() if type(each) is Fact]
    if len(shapes) < len(value):
        return None
    first = min(shapes, key=len)
    return first if all(shape[: len(first)] == first for shape in shapes) else None
