"""Grids of blocks: what most joins are, read at once instead of axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any

from dask._task_spec import TaskRef

from dask_rewrite.passes.movement.mosaic import Mosaic
from dask_rewrite.passes.movement.pieces import Piece, placed

if TYPE_CHECKING:
    from dask_rewrite.passes.movement.read import Reader

#: Stands for a join of another kind.
NOT_TILED = object()


def tiled(refs: Sequence[Any], shape: Sequence[int], reader: Reader) -> Any:
    """The mosaic, with its dtype, of a grid of pieces of sources that are all different.

    Parameters
    ----------
    refs : sequence
        What is joined, the last axis first.
    shape : sequence of int
        How many blocks there are along each axis.
    reader : Reader
        What is known of the blocks.

    Returns
    -------
    Block, None or NOT_TILED
        None if a block is not known.
    """
    leaves, of, referred = reader.leaves, reader.facts.of, reader.referred
    tiles: list[tuple[tuple[int, ...], Any, Any]] = []  # shape, and a key or a piece
    dtype = None
    for ref in refs:
        if type(ref) is not TaskRef:
            return NOT_TILED
        key = ref.key
        fact = None if key in leaves else of(key)
        if fact is not None and fact.fill is None and not fact.scalar and 0 not in fact.shape:
            tiles.append((fact.shape, key, None))
            referred.append(key)
            made = fact.dtype
        else:
            found = reader.reference(key)
            if found is None:
                return None  # nobody can tell
            if len(found[0].pieces) != 1:
                return NOT_TILED
            tiles.append((found[0].shape, found[0].pieces[0].source, found[0].pieces[0]))
            made = found[1]
        if made is not dtype:
            if dtype is not None and made != dtype:
                return NOT_TILED
            dtype = made
    ndim = len(shape)
    stride = len(tiles)
    starts, sizes = [], []
    for axis, count in enumerate(shape):
        line = tiles[: stride : stride // count]
        stride //= count
        lengths = [size[axis] for size, _, _ in line if len(size) == ndim]
        sizes.append(lengths)
        starts.append([0, *accumulate(lengths)])
    corners = product(*[ends[:-1] for ends in starts])
    pieces = []
    for (size, source, piece), expected, at in zip(tiles, product(*sizes), corners):
        if size != expected:
            return NOT_TILED
        if piece is None:
            pieces.append(Piece(at, size, source, tuple([(-a, 1, i) for i, a in enumerate(at)])))
        else:
            pieces.append(placed(piece, at))
    if len({piece.source for piece in pieces}) < len(pieces) or len(pieces) < len(tiles):
        return NOT_TILED
    return Mosaic(tuple([ends[-1] for ends in starts]), tuple(pieces)), dtype
