"""The cheapest task for a mosaic: a constant, a slice, a pad, or one concatenation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array import chunk
from dask.array.core import concatenate_shaped
from dask.typing import Key

from dask_rewrite.graph.nodes import NO_DEPS, NO_KWARGS, list_of, make_task
from dask_rewrite.graph.program import operation
from dask_rewrite.passes.movement.mosaic import Mosaic, cut
from dask_rewrite.passes.movement.moves import DType, is_plain
from dask_rewrite.passes.movement.pieces import Fill, Piece

#: Blocks up to this many bytes are joined row by row, which copies twice but calls less.
SMALL = 65_536

#: A slice that leaves out one part in so many of a block is no task of its own.
NEARLY = 16


@dataclass(slots=True)
class Emitter:
    """Writes mosaics as tasks.

    Parameters
    ----------
    shape_of : callable
        From the key of a source to its shape.
    reference : callable
        From a piece to the expression that its source is taken from, and the shape of that: a reference
        to the source and ``None``, or a reference to a task that has already cut the piece out.
    ordered : callable
        Whether a source is known to lie in memory in C order.
    indexes : dict
        Filled in with the indexes that take pieces out of blocks, by where these lie: many are equal.
    """

    shape_of: Callable[[Key], tuple[int, ...]]
    reference: Callable[[Piece], TaskRef | None]
    ordered: Callable[[Key], bool]
    indexes: dict[Any, tuple[Any, ...]]

    def expression(self, mosaic: Mosaic, dtype: DType) -> Task | None:
        """A task without a key for a block that is joined or padded: its memory is its own, in C order."""
        pieces = mosaic.pieces
        if not pieces or (len(pieces) == 1 and type(pieces[0].source) is Fill):
            return filled(mosaic.shape, pieces[0].source.value if pieces else None, dtype)
        ordered = all(
            self.ordered(piece.source) and is_straight(piece)
            for piece in pieces
            if type(piece.source) is not Fill
        )
        if ordered and is_plain(dtype) and (framed := frame(mosaic)) is not None:
            inside, widths, value = framed
            alone = len(inside.pieces) == 1
            body = self.view(inside.pieces[0]) if alone else self._joined(inside, dtype, True)
            if body is not None:
                args = (body, widths)
                return operation(np.pad, args, {"mode": "constant", "constant_values": value})
        return self._joined(mosaic, dtype, ordered)

    def _joined(self, mosaic: Mosaic, dtype: DType, ordered: bool) -> Task | None:
        cells = grid(mosaic)
        if cells is None:
            return None
        shape, pieces = cells
        parts = [
            filled(piece.shape, piece.source.value, dtype) if type(piece.source) is Fill else self.view(piece)
            for piece in pieces
        ]
        cut_axes = [axis for axis, count in enumerate(shape) if count > 1]
        plain = ordered and is_plain(dtype)
        small = dtype.itemsize * prod(mosaic.shape) <= SMALL
        if plain and (len(cut_axes) == 1 or (small and cut_axes)):
            for axis in reversed(cut_axes):
                count = shape[axis]
                rows = [parts[i : i + count] for i in range(0, len(parts), count)]
                parts = [operation(np.concatenate, (list_of(row),), {"axis": axis}) for row in rows]
            task: Task = parts[0]
            return task
        return operation(concatenate_shaped, (list_of(parts), shape))  # one list, not one for each row

    def view(self, piece: Piece) -> Any:
        """The piece as an expression over its source: a reference, or a slice of it."""
        done = self.reference(piece)
        if done is not None:
            return done
        ref, shape = TaskRef(piece.source), self.shape_of(piece.source)
        place = (piece.at, piece.shape, piece.axes, shape)
        if (index := self.indexes.get(place)) is not None:
            return make_task(None, operator.getitem, (ref, index), NO_KWARGS, frozenset((piece.source,)))
        made = sliced(ref, piece, shape)
        if type(made) is Task and made.args[0] is ref:
            self.indexes[place] = made.args[1]
        return made


def nested(parts: list[Any], shape: Sequence[int]) -> Any:
    """Lists of lists, as dask joins blocks, of parts that run along the last axis first."""
    for count in reversed(shape):
        parts = [list_of(parts[i : i + count]) for i in range(0, len(parts), count)]
    return parts[0]


def sliced(ref: Any, piece: Piece, shape: Sequence[int], func: Any = operator.getitem) -> Any:
    """A piece as basic slicing of its source, and a transposition where its axes are turned."""
    along = [axis for _, _, axis in piece.axes if axis >= 0]
    index = index_of(piece, shape)
    straight = is_straight(piece)
    if straight and len(along) == len(shape) == len(index) and is_whole(piece, shape):
        return ref
    if straight:
        return operation(func, (ref, index))
    task = operation(func, (ref, tuple([item for item in index if item is not None])))
    place = {axis: i for i, axis in enumerate(along)}
    task = operation(np.transpose, (task,), {"axes": tuple([place[axis] for axis in sorted(along)])})
    if len(along) < len(piece.shape):
        new = tuple([slice(None) if axis in place else None for axis in range(len(piece.shape))])
        task = operation(operator.getitem, (task, new))
    return task


def is_whole(piece: Piece, shape: Sequence[int]) -> bool:
    """Whether a piece shows all of its source, as it stands."""
    return (
        len(piece.shape) == len(shape)
        and piece.shape == tuple(shape)
        and all(
            step == 1 and along == i and offset == -piece.at[i]
            for i, (offset, step, along) in enumerate(piece.axes)
        )
    )


def is_nearly_whole(piece: Piece, shape: Sequence[int]) -> bool:
    """A slice would be another copy of the block, and as much to send.

    Examples
    --------
    >>> is_nearly_whole(Piece((0,), (15,), "x", ((1, 1, 0),)), (16,))
    True
    >>> is_nearly_whole(Piece((0,), (14,), "x", ((1, 1, 0),)), (16,))
    False
    """
    return NEARLY * prod(piece.shape) >= (NEARLY - 1) * prod(shape)


def cut_out(prefix: str, source: Any, index: tuple[Any, ...]) -> Task:
    """A slice of a block as a task of its own, so that only the slice is held, and travels."""
    place = source[1:] if type(source) is tuple else ()
    short = ",".join([f"{i.start}:{i.stop}:{i.step}" if type(i) is slice else str(i) for i in index])
    args = (TaskRef(source), index)
    return make_task((prefix, *place, short), chunk.getitem, args, NO_KWARGS, frozenset((source,)))


def index_of(piece: Piece, shape: Sequence[int]) -> tuple[Any, ...]:
    """The index that takes a piece out of its source, axes in the order of the source.

    Whole axes are taken as such, which is right for any length.
    """
    index: list[Any] = []
    nearest = 0
    straight = is_straight(piece)
    for (offset, step, along), size in zip(piece.axes, shape, strict=True):
        if along < 0:
            index.append(offset)
            continue
        if straight:
            index.extend([None] * (along - nearest))
            nearest = along + 1
        start, count = offset + step * piece.at[along], piece.shape[along]
        if start == 0 and step == 1 and count == size:
            index.append(slice(None))
            continue
        stop: int | None = start + step * (count - 1) + (1 if step > 0 else -1)
        index.append(slice(start, None if stop is not None and stop < 0 else stop, step))
    if straight:
        index.extend([None] * (len(piece.shape) - nearest))
    return tuple(index)


def is_straight(piece: Piece) -> bool:
    """Whether a piece shows the axes of its source in their order."""
    along = [axis for _, _, axis in piece.axes if axis >= 0]
    return along == sorted(along)


def filled(shape: tuple[int, ...], value: np.generic | None, dtype: DType) -> Task:
    """A task that makes a constant block, of a dtype that is known.

    >>> filled((2,), np.float64(0), np.dtype("f8"))()
    array([0., 0.])
    """
    assert isinstance(dtype, np.dtype)
    zero = value is None or (dtype.kind in "biufc" and not any(value.tobytes()))
    if zero:
        return make_task(None, np.zeros, (shape, dtype), NO_KWARGS, NO_DEPS)
    return make_task(None, np.full, (shape, value, dtype), NO_KWARGS, NO_DEPS)


def frame(mosaic: Mosaic) -> tuple[Mosaic, tuple[tuple[int, int], ...], np.generic] | None:
    """A mosaic as a smaller one with one constant around it: (inside, widths, constant)."""
    sources = [piece for piece in mosaic.pieces if type(piece.source) is not Fill]
    fills = [piece for piece in mosaic.pieces if type(piece.source) is Fill]
    if not sources or not fills:
        return None
    low = [min(column) for column in zip(*[piece.at for piece in sources])]
    high = [
        max(column) for column in zip(*[[a + n for a, n in zip(piece.at, piece.shape)] for piece in sources])
    ]
    outside: set[Fill] = {
        p.source for p in fills if any(a < b or a + n > c for a, n, b, c in zip(p.at, p.shape, low, high))
    }
    if len(outside) != 1:
        return None
    inside = cut(mosaic, tuple([slice(lo, hi) for lo, hi in zip(low, high)]))
    assert inside is not None
    widths = tuple([(lo, size - hi) for lo, hi, size in zip(low, high, mosaic.shape)])
    (value,) = outside
    return inside, widths, value.value


def grid(mosaic: Mosaic) -> tuple[tuple[int, ...], list[Piece]] | None:
    """The pieces in rows and columns, cut where they have to be; None where that makes far more of them."""
    ndim = len(mosaic.shape)
    starts = [sorted({piece.at[axis] for piece in mosaic.pieces}) for axis in range(ndim)]
    shape = tuple([len(column) for column in starts])
    count = prod(shape)
    if count > max(16, 2 * len(mosaic.pieces)):
        return None
    if count == len(mosaic.pieces):
        return shape, sorted(mosaic.pieces, key=lambda piece: piece.at)
    ends = [[*column[1:], size] for column, size in zip(starts, mosaic.shape)]
    cells = []
    for piece in mosaic.pieces:
        spans = [
            [(a, b) for a, b in zip(s, e) if at <= a < at + n]
            for s, e, at, n in zip(starts, ends, piece.at, piece.shape)
        ]
        corners: list[tuple[tuple[int, int], ...]] = [()]
        for span in spans:
            corners = [(*corner, ab) for corner in corners for ab in span]
        for corner in corners:
            at, size = tuple([a for a, _ in corner]), tuple([b - a for a, b in corner])
            cells.append(Piece(at, size, piece.source, piece.axes))
    return shape, sorted(cells, key=lambda piece: piece.at)
