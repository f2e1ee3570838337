"""Borders of reads that nobody sees, since all blocks along an axis are summed up: they go between chunks."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from itertools import pairwise, product
from typing import TypeAlias

from dask._task_spec import TaskRef
from dask.typing import Key

from dask_rewrite.graph.graph import Nodes
from dask_rewrite.graph.names import fingerprint, marked
from dask_rewrite.graph.nodes import renamed
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.align_reads.edit import Edit
from dask_rewrite.passes.align_reads.kinds import Visible
from dask_rewrite.passes.align_reads.reads import File
from dask_rewrite.passes.align_reads.seen import Seen
from dask_rewrite.passes.align_reads.totals import Borders
from dask_rewrite.passes.align_reads.worksite import Worksite
from dask_rewrite.passes.demand.boxes import Box

#: The beginning and the end of a block on one axis.
Ends: TypeAlias = tuple[int, int]
#: The boxes of the blocks, and those that they get.
Moved: TypeAlias = dict[Box, Box]


def move_borders(file: File, site: Worksite, name: str, reassociate: bool, room: int) -> list[Box] | None:
    """Reads get borders between stored chunks along axes that are reduced: the boxes of all of them.

    There are as many blocks as before. None where that is not legal, or no border moves.

    Parameters
    ----------
    file : File
        All reads of it are known.
    site : Worksite
        The graph, which is changed.
    name : str
        Of the pass.
    reassociate : bool
        Whether floats may be summed in other groups.
    room : int
        By how many bytes the largest block may grow.
    """
    boxes = [*file.reads.values(), *file.inside.values()]
    grid = _grid(boxes)
    if grid is None or _ends_between(grid, file.chunks):
        return None
    borders = Borders(file, site, [len(ranges) for ranges in grid], reassociate)
    try:
        borders.walk()
    except Visible:
        return None
    moved = _along(grid, file.chunks, borders.free)
    if len(borders.free) == len(grid) > 1:  # where all is summed up, nobody sees where a block lies either
        bands = _in_bands(grid, file.chunks)
        moved = min(moved, bands, key=lambda each: (file.decoded(each.values()), file.largest(each.values())))
    if all(a == b for a, b in moved.items()):
        return None
    grown = file.largest(moved.values()) - file.largest(boxes)
    if grown > room or not site.context.remarks.allow(name, file.key):
        return None
    _write(file, site, borders.seen, moved, name)
    return [moved[box] for box in boxes]


def _grid(boxes: Sequence[Box]) -> list[list[Ends]] | None:
    """The ranges of the boxes on each axis; None if the boxes are not all of a grid without gaps."""
    grid = [sorted(set(ranges)) for ranges in zip(*boxes)]
    if len(set(boxes)) != math.prod(map(len, grid)):
        return None
    return grid if all(a[1] == b[0] for ranges in grid for a, b in pairwise(ranges)) else None


def _ends_between(grid: Sequence[Sequence[Ends]], chunks: Sequence[int]) -> bool:
    """All borders lie between chunks already."""
    return all(b % chunk == 0 for ranges, chunk in zip(grid, chunks) for _, b in ranges[:-1])


def _along(grid: Sequence[Sequence[Ends]], chunks: Sequence[int], free: Container[int]) -> Moved:
    """The same grid with borders between chunks on the axes on which nobody sees them."""
    axes = []
    for axis, (ranges, chunk) in enumerate(zip(grid, chunks)):
        there: Sequence[Ends] = ranges
        if axis in free and not _ends_between([ranges], [chunk]):
            there = _evenly((ranges[0][0], ranges[-1][1]), chunk, len(ranges)) or ranges
        axes.append(there)
    return dict(zip(product(*grid), product(*axes)))


def _in_bands(grid: Sequence[Sequence[Ends]], chunks: Sequence[int]) -> Moved:
    """As many boxes of whole chunks, the largest as small as can be.

    The last axis but one is cut into bands, and each band into as many boxes as are left for it. Blocks of
    250 x 250 over chunks of 100 x 100 become 200 x 300, where a grid of as many has some of 300 x 300.
    """
    *leading, rows, columns = [(ranges[0][0], ranges[-1][1]) for ranges in grid]
    *others, height, width = chunks
    count = len(grid[-2]) * len(grid[-1])
    most, cells = _parts(rows, height), _parts(columns, width)
    fitting = [n for n in range(1, min(most, count) + 1) if -(-count // n) <= cells]
    if not fitting:
        return dict(zip(product(*grid), product(*grid)))
    # How many chunks the largest box has, and how far the bands are from what they were.
    bands = min(fitting, key=lambda n: (-(-most // n) * -(-cells // (count // n)), abs(n - len(grid[-2]))))
    plane = [
        (band, box)
        for i, band in enumerate(_evenly(rows, height, bands))
        for box in _evenly(columns, width, count // bands + (i < count % bands))
    ]
    before = list(_along(grid[:-2], others, range(len(leading))).items())
    return {
        (*there, *at): (*moved, *box)
        for there, moved in before
        for at, box in zip(product(*grid[-2:]), plane)
    }


def _parts(ends: Ends, chunk: int) -> int:
    """In how many chunks a range lies."""
    return -(-ends[1] // chunk) - ends[0] // chunk


def _evenly(ends: Ends, chunk: int, count: int) -> list[Ends]:
    """A range cut between chunks into parts of about the same size; none if there are fewer chunks.

    >>> _evenly((0, 400), 100, 3)
    [(0, 100), (100, 300), (300, 400)]
    >>> _evenly((0, 150), 100, 2)
    [(0, 100), (100, 150)]
    """
    first, last = ends
    parts = _parts(ends, chunk)
    if count > parts:
        return []
    inner = range((first // chunk + 1) * chunk, last, chunk)
    cuts = [inner[(2 * i * parts + count) // (2 * count) - 1] for i in range(1, count)]
    return list(pairwise([first, *cuts, last]))


def _write(file: File, site: Worksite, seen: Mapping[Key, Seen], moved: Moved, name: str) -> None:
    """Put in reads of other boxes; what is made of these has other names, up to the totals."""
    token = fingerprint([name, site.graph.origin.token, file.key, repr(moved)])
    new = {key: marked(key, token) for key, each in seen.items() if each is not None}
    refs = {key: TaskRef(name) for key, name in new.items()}
    edit = Edit(file, site, name, moved=True)
    made: Nodes = {}
    for key in seen:  # those that use what has another name among them
        node = site.graph.nodes[key]
        here = new.get(key, key)
        box = file.reads.get(key) or file.inside.get(key)
        if box is not None:
            box = moved[box]
            node = edit.around(key, box) if key in file.inside else edit.read(here, box)
        there = with_values(node, refs)
        made[here] = there if here is key else renamed(there, here)
    site.rename(new, made)
