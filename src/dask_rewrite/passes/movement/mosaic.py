"""Mosaics: blocks that are put together from rectangles of other blocks and of constants.

A task that only moves data (a slice, a concatenation, a transposition, a pad) makes a block each of whose
elements is an element of some source, or a constant. Written down as rectangles, such tasks compose, so
that a chain of any length has one normal form. This is the pure algebra: it knows shapes and coordinates,
but neither tasks nor graphs nor dtypes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from dask_rewrite.passes.movement.pieces import Axis, Fill, Piece, Shape, merged, moved, seen_axes, selection


class Mosaic:
    """A block as rectangles that cover it exactly; rectangles without elements are left out.

    Parameters
    ----------
    shape : tuple of int
        The shape of the block.
    pieces : tuple of Piece
        In the order of their corners, unless they were not compared yet.

    Examples
    --------
    >>> x = whole("x", (4, 6))
    >>> cut(x, (slice(1, 3), 5)).pieces
    (Piece(at=(0,), shape=(2,), source='x', axes=((1, 1, 0), (5, 0, -1))),)
    >>> halves = [cut(x, slice(0, 2)), cut(x, slice(2, 4))]
    >>> joined(halves, axis=0) == x
    True
    """

    __slots__ = ("_index", "_parts", "_pieces", "pattern", "shape")

    def __init__(self, shape: Shape, pieces: tuple[Piece, ...] | None) -> None:
        self.shape = shape
        self._pieces = pieces  # None: to be made of the pattern, if anybody asks
        self._index: Any = None
        self._parts = -1  # not counted yet
        self.pattern: Any = None  # what it has in common with others: see the module ``likeness``

    def __eq__(self, other: object) -> bool:
        return type(other) is Mosaic and self.shape == other.shape and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash((self.shape, self.pieces))

    def __repr__(self) -> str:
        return f"Mosaic({self.shape}, {self.pieces})"

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The rectangles."""
        if self._pieces is None:
            pattern, sources = self.pattern
            self._pieces = pattern.pieces_of(sources)
        return self._pieces

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return len(self.pieces if self.pattern is None else self.pattern[0].pieces)

    @property
    def sources(self) -> tuple[Any, ...]:
        """The blocks that it is made of, each once."""
        if self.pattern is not None:
            made_of: tuple[Any, ...] = self.pattern[1]
            return made_of
        return tuple(dict.fromkeys([each.source for each in self.pieces if type(each.source) is not Fill]))

    @property
    def parts(self) -> int:
        """How many pieces come from sources."""
        if self._parts < 0:
            self._parts = sum([type(piece.source) is not Fill for piece in self.pieces])
        return self._parts

    def near(self, low: Sequence[int], high: Sequence[int]) -> Sequence[Piece]:
        """The pieces that may overlap a box; finds them fast among many."""
        pieces = self.pieces
        if len(pieces) <= 8:
            return pieces
        if self._index is None:
            starts = [set(at) for at in zip(*[piece.at for piece in pieces])]
            axis = max(range(len(starts)), key=lambda i: len(starts[i]))
            ordered = sorted(pieces, key=lambda piece: piece.at[axis])
            widest = max([piece.shape[axis] for piece in pieces])
            # in a single row, those that may overlap are those that do
            row = len(starts[axis]) == len(pieces)
            self._index = (axis, 0 if row else widest, [piece.at[axis] for piece in ordered], ordered)
        axis, widest, at, ordered = self._index
        first = bisect_left(at, low[axis] - widest + 1) if widest else bisect_right(at, low[axis]) - 1
        found: list[Piece] = ordered[first : bisect_left(at, high[axis])]
        return found


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
        return Mosaic(shape, (Piece(view.at, shape, piece.source, seen_axes(piece, axes)),))
    return Mosaic(shape, tuple(merged(seen_through(view, mosaic), len(shape))))


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


def seen_through(piece: Piece, inner: Mosaic) -> Iterator[Piece]:
    """The pieces of a source that a piece shows, in the coordinates of the piece's result."""
    pieces, axes = inner.pieces, piece.axes
    if len(pieces) == 1:  # it covers the whole source
        yield Piece(piece.at, piece.shape, pieces[0].source, seen_axes(pieces[0], axes))
        return
    ends = [_ends(piece, axis) for axis in axes]
    low, high = [min(pair) for pair in ends], [max(pair) + 1 for pair in ends]
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
            yield Piece(tuple(first), shape, part.source, seen_axes(part, axes))


def _ends(piece: Piece, axis: Axis) -> tuple[int, int]:
    offset, step, along = axis
    if along < 0:
        return offset, offset
    first = offset + step * piece.at[along]
    return first, first + step * (piece.shape[along] - 1)
