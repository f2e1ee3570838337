"""Mosaics: blocks that are put together from rectangles of other blocks and of constants.

A task that only moves data (a slice, a concatenation, a transposition, a pad) makes a block each of whose
elements is an element of some source, or a constant. Written down as rectangles, such tasks compose, so
that a chain of any length has one normal form. This is the pure algebra: it knows shapes and coordinates,
but neither tasks nor graphs nor dtypes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

#: (offset, step, axis of the result): the position in the source is ``offset + step * coordinate``, where
#: the coordinate is that in the result; the axis is -1, and the step 0, where one position was picked.
Axis: TypeAlias = tuple[int, int, int]
Shape: TypeAlias = tuple[int, ...]


_ONLY_SLICES = {slice}


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


@dataclass(frozen=True, slots=True)
class Mosaic:
    """A block as rectangles that cover it exactly; rectangles without elements are left out.

    Examples
    --------
    >>> x = whole("x", (4, 6))
    >>> cut(x, (slice(1, 3), 5)).pieces
    (Piece(at=(0,), shape=(2,), source='x', axes=((1, 1, 0), (5, 0, -1))),)
    >>> halves = [cut(x, slice(0, 2)), cut(x, slice(2, 4))]
    >>> joined(halves, axis=0) == x
    True
    """

    shape: Shape
    pieces: tuple[Piece, ...]
    _index: list[Any] = field(default_factory=list, compare=False, repr=False)

    @property
    def parts(self) -> int:
        """How many pieces come from sources."""
        return sum([type(piece.source) is not Fill for piece in self.pieces])

    def near(self, low: Sequence[int], high: Sequence[int]) -> Iterable[Piece]:
        """The pieces that may overlap a box; finds them fast among many."""
        pieces = self.pieces
        if len(pieces) <= 8:
            return pieces
        if not self._index:
            starts = [set(at) for at in zip(*[piece.at for piece in pieces])]
            axis = max(range(len(starts)), key=lambda i: len(starts[i]))
            ordered = sorted(pieces, key=lambda piece: piece.at[axis])
            widest = max(piece.shape[axis] for piece in pieces)
            self._index.extend((axis, widest, [piece.at[axis] for piece in ordered], ordered))
        axis, widest, at, ordered = self._index
        found: list[Piece] = ordered[bisect_left(at, low[axis] - widest + 1) : bisect_left(at, high[axis])]
        return found


def sources_in(mosaic: Mosaic, axes: Sequence[Axis], shape: Shape) -> int:
    """From how many pieces a view of a mosaic is put together, constants left out; looks, makes nothing.

    Examples
    --------
    >>> both = joined([whole("x", (2,)), whole("y", (2,))], axis=0)
    >>> shape, axes = selection(slice(0, 1), both.shape)
    >>> sources_in(both, axes, shape)
    1
    """
    ends = [_ends(Piece((0,) * len(shape), shape, None, ()), axis) for axis in axes]
    low, high = [min(pair) for pair in ends], [max(pair) + 1 for pair in ends]
    count = 0
    for piece in mosaic.near(low, high):
        if type(piece.source) is not Fill:
            for a, n, b, h in zip(piece.at, piece.shape, low, high):
                if a >= h or a + n <= b:
                    break
            else:
                count += 1
    return count


def whole(source: Hashable, shape: Shape) -> Mosaic:
    """The block that is a source as it stands."""
    if 0 in shape:
        return Mosaic(shape, ())
    axes = tuple([(0, 1, i) for i in range(len(shape))])
    return Mosaic(shape, (Piece((0,) * len(shape), shape, source, axes),))


def constant(value: np.generic, shape: Shape) -> Mosaic:
    """The block that holds one value everywhere.

    >>> constant(np.int64(7), (2, 3)).pieces
    (Piece(at=(0, 0), shape=(2, 3), source=Fill(7), axes=()),)
    """
    return Mosaic(shape, () if 0 in shape else (Piece((0,) * len(shape), shape, Fill(value), ()),))


def cut(mosaic: Mosaic, index: Any) -> Mosaic | None:
    """``mosaic[index]`` for integers, slices, None and Ellipsis; None for all else, and for what raises.

    >>> cut(whole("x", (4,)), slice(None, None, -1)).pieces
    (Piece(at=(0,), shape=(4,), source='x', axes=((3, -1, 0),)),)
    >>> cut(whole("x", (4,)), [0, 1]) is None
    True
    """
    found = selection(index, mosaic.shape)
    if found is None:
        return None
    shape, axes = found
    if 0 in shape:
        return Mosaic(shape, ())
    view = Piece((0,) * len(shape), shape, None, axes)
    if len(mosaic.pieces) == 1:
        piece = mosaic.pieces[0]
        return Mosaic(shape, (Piece(view.at, shape, piece.source, _through(piece, axes)),))
    return Mosaic(shape, tuple(merged(seen_through(view, mosaic), len(shape))))


def selection(index: Any, shape: Shape) -> tuple[Shape, tuple[Axis, ...]] | None:
    """The shape of ``block[index]``, and where its elements lie in the block; None if that is not plain."""
    items = index if type(index) is tuple else (index,)
    if len(items) == len(shape) and set(map(type, items)) == _ONLY_SLICES:
        return _slices(items, shape)
    given = sum(item is not None and item is not Ellipsis for item in items)
    if given > len(shape) or sum(item is Ellipsis for item in items) > 1:
        return None
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    sizes: list[int] = []
    axes: list[Axis] = []
    for item in items:
        if item is None:
            sizes.append(1)
        elif item is Ellipsis:
            for size in shape[len(axes) : len(axes) + len(shape) - given]:
                axes.append((0, 1, len(sizes)))
                sizes.append(size)
        elif type(item) is slice:
            try:
                start, stop, step = item.indices(shape[len(axes)])
            except (TypeError, ValueError):
                return None
            count = len(range(start, stop, step))
            axes.append((start, step if count > 1 else 1, len(sizes)))
            sizes.append(count)
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            size = shape[len(axes)]
            if not -size <= item < size:
                return None
            axes.append((int(item) % size, 0, -1))
        else:
            return None
    return tuple(sizes), tuple(axes)


def _slices(items: Sequence[slice], shape: Shape) -> tuple[Shape, tuple[Axis, ...]] | None:
    """The same for one slice per axis, which is what most indices are."""
    sizes, axes = [], []
    for i, item in enumerate(items):
        try:
            start, stop, step = item.indices(shape[i])
        except (TypeError, ValueError):
            return None
        count = stop - start if step == 1 else len(range(start, stop, step))
        axes.append((start, step if count > 1 else 1, i))
        sizes.append(count if count > 0 else 0)
    return tuple(sizes), tuple(axes)


def transposed(mosaic: Mosaic, order: Sequence[int]) -> Mosaic:
    """``numpy.transpose(mosaic, order)``.

    >>> transposed(whole("x", (2, 3)), (1, 0)).pieces
    (Piece(at=(0, 0), shape=(3, 2), source='x', axes=((0, 1, 1), (0, 1, 0))),)
    """
    place = {axis: i for i, axis in enumerate(order)}
    place[-1] = -1
    pieces = [
        Piece(
            tuple([p.at[i] for i in order]),
            tuple([p.shape[i] for i in order]),
            p.source,
            tuple([(start, step, place[along]) for start, step, along in p.axes]),
        )
        for p in mosaic.pieces
    ]
    return Mosaic(tuple([mosaic.shape[i] for i in order]), tuple(pieces))


def joined(mosaics: Sequence[Mosaic], axis: int) -> Mosaic | None:
    """The mosaics one after the other along an axis; None if they do not fit.

    >>> joined([whole("x", (2, 3)), whole("y", (2, 4))], axis=0) is None
    True
    """
    if len(mosaics) == 1:
        return mosaics[0]
    first = mosaics[0].shape
    across = first[:axis] + first[axis + 1 :]
    pieces: list[Piece] = []
    end = 0
    for mosaic in mosaics:
        shape = mosaic.shape
        if len(shape) != len(first) or shape[:axis] + shape[axis + 1 :] != across:
            return None
        pieces.extend(mosaic.pieces if not end else [moved(piece, axis, end) for piece in mosaic.pieces])
        end += shape[axis]
    return Mosaic((*first[:axis], end, *first[axis + 1 :]), tuple(merged(pieces, len(first))))


def moved(piece: Piece, axis: int, by: int) -> Piece:
    """The piece, further along an axis of the result."""
    at = (*piece.at[:axis], piece.at[axis] + by, *piece.at[axis + 1 :])
    axes = tuple([(o - s * by, s, a) if a == axis else (o, s, a) for o, s, a in piece.axes])
    return Piece(at, piece.shape, piece.source, axes)


def padded(mosaic: Mosaic, widths: Sequence[tuple[int, int]], value: np.generic) -> Mosaic:
    """``numpy.pad(mosaic, widths, constant_values=value)``.

    >>> padded(whole("x", (2,)), [(1, 0)], np.int64(0)).pieces[0]
    Piece(at=(0,), shape=(1,), source=Fill(0), axes=())
    """
    for axis, (before, after) in enumerate(widths):
        shape = mosaic.shape
        around = [
            constant(value, (*shape[:axis], width, *shape[axis + 1 :])) if width else None
            for width in (before, after)
        ]
        parts = [part for part in (around[0], mosaic, around[1]) if part is not None]
        found = joined(parts, axis)
        assert found is not None
        mosaic = found
    return mosaic


def composed(mosaic: Mosaic, form: Callable[[Any], Mosaic | None]) -> Mosaic:
    """The mosaic with sources replaced by their own mosaics, where ``form`` knows one.

    >>> half = cut(whole("x", (4,)), slice(2, 4))
    >>> composed(whole("half", (2,)), {"half": half}.get) == half
    True
    """
    pieces: list[Piece] = []
    for piece in mosaic.pieces:
        source = piece.source
        inner = None if type(source) is Fill else form(source)
        if inner is None:
            pieces.append(piece)
        else:
            pieces.extend(seen_through(piece, inner))
    return Mosaic(mosaic.shape, tuple(merged(pieces, len(mosaic.shape))))


def seen_through(piece: Piece, inner: Mosaic) -> Iterable[Piece]:
    """The pieces of a source that a piece shows, in the coordinates of the piece's result."""
    pieces, axes = inner.pieces, piece.axes
    if len(pieces) == 1:  # it covers the whole source
        return [Piece(piece.at, piece.shape, pieces[0].source, _through(pieces[0], axes))]
    ends = [_ends(piece, axis) for axis in axes]
    low, high = [min(pair) for pair in ends], [max(pair) + 1 for pair in ends]
    found = []
    for part in inner.near(low, high):
        first, last = list(piece.at), [a + n for a, n in zip(piece.at, piece.shape)]
        for (offset, step, along), start, size in zip(axes, part.at, part.shape):
            # keep the coordinates c with  begin <= step * c < begin + size
            begin = start - offset
            if along < 0:
                if not begin <= 0 < begin + size:
                    break
                continue
            if step > 0:
                a, b = -(-begin // step), -(-(begin + size) // step)
            else:
                a, b = (begin + size) // step + 1, begin // step + 1
            first[along], last[along] = max(first[along], a), min(last[along], b)
            if first[along] >= last[along]:
                break
        else:
            shape = tuple([b - a for a, b in zip(first, last)])
            found.append(Piece(tuple(first), shape, part.source, _through(part, axes)))
    return found


def _through(part: Piece, outer: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Where a part's elements lie in its source, by the coordinates of what shows it."""
    axes = []
    for offset, step, along in part.axes:
        if along >= 0:
            start, stride, along = outer[along]
            offset, step = offset + step * start, step * stride
        axes.append((offset, step, along))
    return tuple(axes)


def _ends(piece: Piece, axis: Axis) -> tuple[int, int]:
    offset, step, along = axis
    if along < 0:
        return offset, offset
    first = offset + step * piece.at[along]
    return first, first + step * (piece.shape[along] - 1)


def merged(pieces: Iterable[Piece], ndim: int) -> list[Piece]:
    """Neighbours that continue each other become one piece; in the order of their corners."""
    pieces = list(pieces)
    if len(pieces) < 2:
        return pieces
    pieces = [_normal(piece) for piece in pieces]
    for axis in reversed(range(ndim)):
        lines: dict[Any, list[Piece]] = {}
        after = axis + 1
        for piece in pieces:
            at, shape, source, axes = piece
            line = (source, axes, at[:axis], at[after:], shape[:axis], shape[after:])
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
    pieces.sort(key=lambda piece: piece.at)
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
