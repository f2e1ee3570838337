"""Neighbouring blocks: a grid of blocks cut into tiles of equal edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any


def tile_edges(
    coordinates: Sequence[tuple[int, ...]], most: int, limits: Sequence[int] = ()
) -> tuple[int, ...]:
    """How many arrays a tile goes through, and blocks along each axis: powers of two, as equal as can be.

    Powers of two let the tiles of arrays with different numbers of blocks fit into each other, and equal
    edges those of an array and of its transpose. Blocks of several arrays come together only where
    all those of one are too few.

    Parameters
    ----------
    coordinates : sequence of tuple of int
        Where the blocks stand: the number of the array, and the place in it.
    most : int
        Blocks of a tile at most.
    limits : sequence of int, optional
        Blocks of a tile along each axis at most.

    Examples
    --------
    >>> tile_edges([(0, i, j) for i in range(10) for j in range(3)], 32)
    (1, 8, 4)
    >>> tile_edges([(n, i) for n in range(10) for i in range(3)], 32)
    (8, 4)
    >>> tile_edges([(0, i, j) for i in range(10) for j in range(10)], 32, [1, 10, 2])
    (1, 8, 2)
    """
    extents = [len(set(axis)) for axis in zip(*coordinates)]
    edges = [1] * len(extents)
    size = 1
    while 2 * size <= most:
        long = [2 * edge > limit for edge, limit in zip(edges, limits or [most] * len(edges))]
        room = [axis for axis, extent in enumerate(extents) if edges[axis] < extent and not long[axis]]
        if not room:
            break
        edges[min(room, key=lambda axis: (axis == 0, edges[axis]))] *= 2
        size *= 2
    return tuple(edges)


def tiled(coordinates: Sequence[tuple[int, ...]], edges: tuple[int, ...]) -> list[list[int]]:
    """Which of the blocks lie in one tile, for each tile.

    >>> tiled([(0, 0), (0, 1), (0, 2), (1, 1)], (2, 2))
    [[0, 1, 3], [2]]
    """
    tiles: defaultdict[Any, list[int]] = defaultdict(list)
    axes = [[place // edge for place in axis] for axis, edge in zip(zip(*coordinates), edges)]
    for row, tile in enumerate(zip(*axes)):
        tiles[tile].append(row)
    return list(tiles.values())
