"""Boxes: which part of a block is wanted, as a range for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

from dask_rewrite.analysis.knowledge import Fact

#: First and last position (exclusive) on each axis.
Box: TypeAlias = tuple[tuple[int, int], ...]
Shape: TypeAlias = tuple[int, ...]


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
    """
    if one == other:
        return one
    return tuple([(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other)])


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
    return tuple([b - a for a, b in box])


def size(box: Box) -> int:
    """How many elements a box has."""
    return prod(lengths(box))


def index_of(box: Box) -> tuple[slice, ...]:
    """The index that takes a box out of a whole.

    >>> index_of(((3, 5), (0, 2)))
    (slice(3, 5, None), slice(0, 2, None))
    """
    return tuple([slice(a, b) for a, b in box])


def inside(box: Box, outer: Box) -> tuple[slice, ...] | None:
    """The index that takes a box out of a block that holds just ``outer``; None if it is all of that.

    >>> inside(((3, 5),), ((2, 6),))
    (slice(1, 3, None),)
    >>> inside(((2, 6),), ((2, 6),)) is None
    True
    """
    return None if box == outer else index_of(seen_from(outer, box))


def seen_from(outer: Box, box: Box) -> Box:
    """A box, counted from where another one begins.

    >>> seen_from(((2, 6),), ((3, 5),))
    ((1, 3),)
    """
    return tuple([(a - c, b - c) for (a, b), (c, _) in zip(box, outer)])


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
