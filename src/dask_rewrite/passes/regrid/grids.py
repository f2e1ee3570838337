"""Grids: where the blocks of an array end along each axis, and which of these borders to keep."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from dask_rewrite.analysis.declared import Assumed
from dask_rewrite.analysis.facts import Fact

#: Along each axis the sizes of the blocks.
Extents: TypeAlias = tuple[tuple[int, ...], ...]
#: Along each axis the numbers of the blocks at which a new group starts, and the number of blocks.
Edges: TypeAlias = tuple[tuple[int, ...], ...]


def extents_along(
    name: Any, counts: Sequence[int], of: Callable[[Any], Fact | Assumed | None]
) -> Extents | None:
    """The sizes of the blocks as the first row of blocks along each axis has them.

    None if that row has gaps, or nothing is known of one of its blocks.
    """
    first = (name, *(0 for _ in counts))
    found = []
    for axis, count in enumerate(counts):
        sizes = []
        for i in range(count):
            fact = of((*first[: axis + 1], i, *first[axis + 2 :]))
            if fact is None or len(fact.shape) != len(counts) or 0 in fact.shape:
                return None
            sizes.append(fact.shape[axis])
        found.append(tuple(sizes))
    return tuple(found)


def is_crumbled(extents: Extents | None) -> bool:
    """Along some axis there are blocks of less than half of the size of others, other than the last.

    Examples
    --------
    >>> is_crumbled(((1, 98, 2, 98, 1),)), is_crumbled(((100, 100, 30),)), is_crumbled(((28, 31, 30),))
    (True, False, False)
    """
    return extents is not None and any(_crumbs(sizes) for sizes in extents)


def _crumbs(sizes: Sequence[int]) -> bool:
    return len(sizes) > 2 and 2 * min(sizes[:-1]) < max(sizes)


def coarse_edges(extents: Extents, shape: Sequence[int], slack: int) -> Edges:
    """Which borders to keep, for blocks of about a shape; axes that did not crumble keep all.

    Examples
    --------
    >>> coarse_edges(((1, 98, 2, 98, 2, 98, 1), (5, 5)), (100, 10), 25)
    ((0, 2, 4, 7), (0, 1, 2))
    """
    return tuple(
        [
            _kept(sizes, limit, slack) if _crumbs(sizes) else tuple(range(len(sizes) + 1))
            for sizes, limit in zip(extents, shape)
        ]
    )


def _kept(sizes: Sequence[int], limit: int, slack: int) -> tuple[int, ...]:
    """The borders that lie next to those of an even grid."""
    borders = [0, *accumulate(sizes)]
    total = borders[-1]
    most = limit * (100 + slack) // 100
    pieces = max(1, -(-total // most))
    pieces = max(pieces, (2 * total + limit) // (2 * limit))
    while pieces < len(sizes):
        kept = sorted({_nearest(borders, total * i // pieces) for i in range(pieces + 1)})
        if all(borders[b] - borders[a] <= most or b == a + 1 for a, b in pairwise(kept)):
            return tuple(kept)
        pieces += max(1, pieces // 8)
    return tuple(range(len(borders)))


def _nearest(borders: Sequence[int], wanted: int) -> int:
    after = bisect_left(borders, wanted)
    if after and wanted - borders[after - 1] <= borders[after] - wanted:
        return after - 1
    return after
