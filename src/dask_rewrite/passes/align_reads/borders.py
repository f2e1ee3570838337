"""Borders of reads that nobody sees, since all blocks along an axis are summed up: they go between chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from dask._task_spec import TaskRef
from dask.typing import Key

from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.names import fingerprint, layer_name, marked
from dask_rewrite.graph.nodes import renamed
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.align_reads.edit import Edit
from dask_rewrite.passes.align_reads.kinds import Visible
from dask_rewrite.passes.align_reads.reads import File
from dask_rewrite.passes.align_reads.seen import Seen
from dask_rewrite.passes.align_reads.totals import Borders
from dask_rewrite.passes.demand.boxes import Box
from dask_rewrite.passes.site import Site

#: On each axis the ranges of the blocks, and those that they get.
Moved = list[dict[tuple[int, int], tuple[int, int]]]


def with_moved_borders(
    file: File, site: Site, name: str, reassociate: bool, room: int
) -> tuple[Graph, list[Box]] | None:
    """The graph whose reads have borders between stored chunks along axes that are reduced, and their boxes.

    There are as many blocks as before. None where that is not legal, or no border moves.

    Parameters
    ----------
    file : File
        All reads of it are known.
    site : Site
        The graph.
    name : str
        Of the pass.
    reassociate : bool
        Whether floats may be summed in other groups.
    room : int
        By how many bytes the largest block may grow.
    """
    boxes = [*file.reads.values(), *file.inside.values()]
    grid = _grid(boxes)
    if grid is None:
        return None
    moved = [_between(ranges, chunk) for ranges, chunk in zip(grid, file.chunks)]
    if all(a == b for ranges in moved for a, b in ranges.items()):
        return None
    borders = Borders(file, site, [len(ranges) for ranges in grid], reassociate)
    try:
        borders.walk()
    except Visible:
        return None
    moved = [
        ranges if axis in borders.free else {ends: ends for ends in ranges}
        for axis, ranges in enumerate(moved)
    ]
    grown = _largest([list(ranges.values()) for ranges in moved]) - _largest(grid)
    if all(a == b for ranges in moved for a, b in ranges.items()):
        return None
    if grown * file.source.dtype.itemsize > room or not site.context.remarks.allow(name, file.key):
        return None
    there = [_moved(box, moved) for box in boxes]
    return _written(file, site, borders.seen, moved, name), there


def _grid(boxes: Sequence[Box]) -> list[list[tuple[int, int]]] | None:
    """The ranges of the boxes on each axis; None if the boxes are not all of a grid without gaps."""
    grid = [sorted(set(ranges)) for ranges in zip(*boxes)]
    if len(set(boxes)) != math.prod(map(len, grid)):
        return None
    return grid if all(a[1] == b[0] for ranges in grid for a, b in pairwise(ranges)) else None


def _between(ranges: Sequence[tuple[int, int]], chunk: int) -> dict[tuple[int, int], tuple[int, int]]:
    """As many ranges that end between chunks, of about the same size; unchanged if that cannot be.

    >>> _between([(0, 150), (150, 300), (300, 400)], 100)
    {(0, 150): (0, 100), (150, 300): (100, 300), (300, 400): (300, 400)}
    >>> _between([(0, 50), (50, 150)], 100)
    {(0, 50): (0, 100), (50, 150): (100, 150)}
    """
    first, last = ranges[0][0], ranges[-1][1]
    inner = range((first // chunk + 1) * chunk, last, chunk)
    count, parts = len(ranges), len(inner) + 1
    if count > parts or all(b % chunk == 0 for _, b in ranges[:-1]):
        return {each: each for each in ranges}
    ends = [first, *[inner[(2 * i * parts + count) // (2 * count) - 1] for i in range(1, count)], last]
    return dict(zip(ranges, pairwise(ends)))


def _moved(box: Box, moved: Moved) -> Box:
    return tuple([ranges[ends] for ranges, ends in zip(moved, box)])


def _largest(grid: Sequence[Sequence[tuple[int, int]]]) -> int:
    """Elements of the largest block."""
    return math.prod([max([b - a for a, b in ranges]) for ranges in grid])


def _written(file: File, site: Site, seen: Mapping[Key, Seen], moved: Moved, name: str) -> Graph:
    """The graph with reads of other boxes; what is made of these has other names, up to the totals."""
    graph = site.graph
    token = fingerprint([name, graph.origin.token, file.key, repr(moved)])
    new = {key: marked(key, token) for key, each in seen.items() if each is not None}
    refs = {key: TaskRef(name) for key, name in new.items()}
    edit = Edit(file, site, name)
    nodes: Nodes = {}
    annotations = dict(graph.annotations)
    for key, node in graph.nodes.items():
        here = new.get(key, key)
        box = file.reads.get(key) or file.inside.get(key)
        if box is not None:
            box = _moved(box, moved)
            node = edit.around(key, box, True) if key in file.inside else edit.read(here, box)
        made = with_values(node, refs)
        nodes[here] = made if here is key else renamed(made, here)
        if here is not key and key in annotations:
            annotations[here] = annotations[key]
    names = {layer_name(key): layer_name(here) for key, here in new.items()}
    before = graph.origin.elementwise
    origin = replace(graph.origin, elementwise=before.union([names[n] for n in names if n in before]))
    return replace(graph, annotations=annotations, origin=origin).with_nodes(nodes)
