"""How files are cut into chunks, and which of these a read touches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise, product
from math import prod

from dask_rewrite.passes.demand.boxes import Box, size


def touched(box: Box, chunks: Sequence[int]) -> int:
    """How many chunks a box touches.

    >>> touched(((0, 150), (50, 100)), (100, 100))
    2
    """
    return prod([-(-b // n) - a // n for (a, b), n in zip(box, chunks)])


def distinct(boxes: Iterable[Box], chunks: Sequence[int]) -> int:
    """How many chunks are touched by at least one of the boxes.

    >>> distinct([((0, 150),), ((150, 300),)], (100,))
    3
    """
    found: set[tuple[int, ...]] = set()
    for box in set(boxes):
        found.update(product(*[range(a // n, -(-b // n)) for (a, b), n in zip(box, chunks)]))
    return len(found)


def cuts(
    boxes: Sequence[Box], chunks: Sequence[int], shape: Sequence[int], apart: Collection[int] = ()
) -> list[list[int]]:
    """Where to cut each axis, so that a chunk that lies in two boxes stands alone, and no chunk is cut.

    The axes ``apart`` are cut where boxes end, and chunks with them.

    >>> cuts([((20, 150),), ((150, 300),)], (100,), (300,))
    [[20, 100, 200, 300]]
    """
    found = []
    for axis, (chunk, length) in enumerate(zip(chunks, shape)):
        ends = {end for box in boxes for end in box[axis]}
        if axis in apart:
            found.append(sorted(ends))
            continue
        places = {end // chunk * chunk for end in ends} | {-(-end // chunk) * chunk for end in ends}
        first, last = min(ends), min(max(ends), length)  # nobody needs what lies outside
        found.append(sorted({min(max(place, first), last) for place in places}))
    return found


def runs(box: Box, chunks: Sequence[int], most: int) -> list[Box]:
    """A box in runs of whole chunks, each of at most so many elements or one chunk, along the first axes.

    >>> runs(((20, 450), (0, 10)), (100, 10), 2000)
    [((20, 200), (0, 10)), ((200, 400), (0, 10)), ((400, 450), (0, 10))]
    >>> len(runs(((0, 200), (0, 30)), (100, 10), 1000))
    6
    """
    found: list[list[tuple[int, int]]] = []
    left = size(box)
    for (low, high), chunk in zip(box, chunks):
        step = max(1, most * (high - low) // (left * chunk)) * chunk
        step = step if left > most else high
        found.append(list(pairwise([low, *range(low // chunk * chunk + step, high, step), high])))
        left = left * min(step, high - low) // (high - low)
    return list(product(*found))
