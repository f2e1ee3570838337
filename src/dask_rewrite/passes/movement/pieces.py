"""The rectangles of mosaics, and what an index takes out of a block: see the module ``mosaic``."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from types import EllipsisType, NoneType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

#: (offset, step, axis of the result): the position in the source is ``offset + step * coordinate``, where
#: the coordinate is that in the result; the axis is -1, and the step 0, where one position was picked.
Axis: TypeAlias = tuple[int, int, int]
Shape: TypeAlias = tuple[int, ...]


class Fill:
    """A constant, compared by its dtype and bits: -0.0 is not 0.0, and a nan equals itself.

    Examples
    --------
    >>> Fill(np.float64("nan")) == Fill(np.float64("nan")), Fill(np.float64(0)) == Fill(np.float64(-0.0))
    (True, False)
    """

    __slots__ = ("_bits", "_hash", "value")

    def __init__(self, value: np.generic) -> None:
        self.value = value
        self._bits = (value.dtype, value.tobytes())
        self._hash = hash(self._bits)

    def __eq__(self, other: object) -> bool:
        return type(other) is Fill and other._bits == self._bits

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Fill({self.value})"


class Piece(NamedTuple):
    """A rectangle of the result, and where its elements come from."""

    at: Shape  # its first corner in the result
    shape: Shape
    source: Any  # a key, or a Fill
    axes: tuple[Axis, ...]  # one per axis of the source; empty for a Fill


_corner = itemgetter(0)


def moved(piece: Piece, axis: int, by: int) -> Piece:
    """The piece, further along an axis of the result."""
    at, shape, source, axes = piece
    at = (*at[:axis], at[axis] + by, *at[axis + 1 :])
    axes = tuple([each if each[2] != axis else (each[0] - each[1] * by, each[1], axis) for each in axes])
    return Piece(at, shape, source, axes)


def placed(piece: Piece, at: Shape) -> Piece:
    """The piece that is all of a block, with that block's corner somewhere else in the result."""
    axes = tuple([(o - s * at[a], s, a) if a >= 0 and at[a] else (o, s, a) for o, s, a in piece.axes])
    return Piece(at, piece.shape, piece.source, axes)


def seen_axes(part: Piece, outer: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Where a part's elements lie in its source, by the coordinates of what shows it."""
    axes = []
    for offset, step, along in part.axes:
        if along >= 0:
            start, stride, along = outer[along]
            offset, step = offset + step * start, step * stride
        axes.append((offset, step, along))
    return tuple(axes)


def merged(pieces: Iterable[Piece], ndim: int) -> list[Piece]:
    """Neighbours that continue each other become one piece; in the order of their corners."""
    pieces = list(pieces)
    if len(pieces) < 2:
        return pieces
    if len({piece[2] for piece in pieces}) == len(pieces):  # what has other sources does not go together
        pieces.sort(key=_corner)
        return pieces
    pieces = [_normal(piece) for piece in pieces]
    for axis in reversed(range(ndim)):
        lines: dict[Any, list[Piece]] = {}
        after = axis + 1
        for piece in pieces:
            at, shape, source, axes = piece
            line: tuple[Any, ...] = (source, axes, at[:axis], at[after:], shape[:axis], shape[after:])
            if axes and all(along != axis for _, _, along in axes):
                line = (*line, at[axis])  # the same elements again, which no slice can show
            lines.setdefault(line, []).append(piece)
        if len(lines) == len(pieces):
            continue
        pieces = []
        for row in lines.values():
            if len(row) > 1:
                row.sort(key=lambda piece: piece.at[axis])
            at, shape, source, axes = row[0]
            start, end = at[axis], at[axis] + shape[axis]
            for following in (*row[1:], None):
                if following is not None and following.at[axis] == end:
                    end += following.shape[axis]
                    continue
                size = (*shape[:axis], end - start, *shape[after:])
                pieces.append(Piece((*at[:axis], start, *at[after:]), size, source, axes))
                if following is not None:
                    start, end = following.at[axis], following.at[axis] + following.shape[axis]
    pieces.sort(key=_corner)
    return pieces


def _normal(piece: Piece) -> Piece:
    """Where a piece is one element wide any step would do: the step is one."""
    shape = piece.shape
    if 1 not in shape or all(step == 1 or along < 0 or shape[along] > 1 for _, step, along in piece.axes):
        return piece
    at = piece.at
    axes = tuple(
        [(o + (s - 1) * at[a], 1, a) if a >= 0 and shape[a] == 1 else (o, s, a) for o, s, a in piece.axes]
    )
    return Piece(at, shape, piece.source, axes)


def selection(index: Any, shape: Shape) -> tuple[Shape, tuple[Axis, ...]] | None:
    """The shape of ``block[index]``, and where its elements lie in the block; None if that is not plain."""
    items = index if type(index) is tuple else (index,)
    kinds = list(map(type, items))
    ellipses = kinds.count(EllipsisType)
    given = len(items) - kinds.count(NoneType) - ellipses
    if given > len(shape) or ellipses > 1:
        return None
    if not ellipses and given < len(shape):
        items = (*items, Ellipsis)
    sizes: list[int] = []
    axes: list[Axis] = []
    for item in items:
        if type(item) is slice:
            try:
                start, stop, step = item.indices(shape[len(axes)])
            except (TypeError, ValueError):
                return None
            count = len(range(start, stop, step))
            axes.append((start, step if count > 1 else 1, len(sizes)))
            sizes.append(count)
        elif item is None:
            sizes.append(1)
        elif item is Ellipsis:
            for size in shape[len(axes) : len(axes) + len(shape) - given]:
                axes.append((0, 1, len(sizes)))
                sizes.append(size)
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            size = shape[len(axes)]
            if not -size <= item < size:
                return None
            axes.append((int(item) % size, 0, -1))
        else:
            return None
    return tuple(sizes), tuple(axes)


def lies_within(index: tuple[Any, ...], shape: Shape) -> bool:
    """No slice goes beyond the end, as none of dask's does."""
    items = [item for item in index if item is not None]
    if any(item is Ellipsis for item in items):  # which no array is to be compared with
        return all(type(item) is slice and item == slice(None) for item in items if item is not Ellipsis)
    for item, size in zip(items, shape):
        if type(item) is slice and max(item.start or 0, item.stop or 0) > size:
            return False
    return True
