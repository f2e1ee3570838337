"""Neighbouring reads of a task, as one read of which each is a slice."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.typing import Key
from toolz import groupby

from dask_rewrite.analysis.facts import Facts
from dask_rewrite.analysis.knowledge.loading import FILES, Source
from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.names import layer_name
from dask_rewrite.graph.nodes import under
from dask_rewrite.graph.program import operation, shape_of
from dask_rewrite.graph.substitute import replaced
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.boxes import Box, inside, lengths, size
from dask_rewrite.passes.merge_reads.reads import Read, Reads, read_of
from dask_rewrite.passes.site import Site

#: Tasks of a layer that are looked at, to see whether they read more than once.
_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class MergeReads:
    """``f([getter(z, 0:50), getter(z, 50:100)])`` → ``y = getter(z, 0:100)``, ``f([y[0:50], y[50:100]])``.

    Tiny reads that went into one task lie next to each other, and each call costs more than what it reads:
    Zarr fetches the chunks of one call at the same time, and those of several one after the other. Legal for
    files whose slices are known to be NumPy arrays in C order, where the task needs nothing but one file and
    reads plain slices of it; what a read gave lies in memory as it did.

    Parameters
    ----------
    max_bytes : int
        Bytes of all reads of a task: they are held until it ends.
    """

    name: ClassVar[str] = "merge-reads"
    max_bytes: int = 1_048_576

    def run(self, graph: Graph, context: Context) -> Graph:
        site = Site(graph, context)
        texts: dict[Any, Task] = {}
        changed: Nodes = {}
        for file, source in _files(graph, site.facts):
            reads = Reads(file, source)
            for keys in groupby(layer_name, site.consumers(file)).values():
                sample = keys[:: len(keys) // _BLOCKS | 1]
                if any(len(reads.of(graph.nodes[key])) > 1 for key in sample):
                    changed.update(self._merged(keys, graph, reads, context, texts))
        if not changed:
            return graph
        count = len(changed)
        context.remarks.applied(self.name, None, f"tasks that read neighbours at once: {count}", count)
        return graph.with_nodes({key: changed.get(key, node) for key, node in graph.nodes.items()})

    def _merged(
        self, keys: Sequence[Key], graph: Graph, reads: Reads, context: Context, texts: dict[Any, Task]
    ) -> Iterator[tuple[Key, Task]]:
        for key in keys:
            found = reads.of(graph.nodes[key])
            boxes = merged([each.box for each in found])
            small = sum(map(size, boxes)) * reads.itemsize <= self.max_bytes
            if len(boxes) < len(found) and small and (places := _places(found, boxes)):
                if context.remarks.allow(self.name, key):
                    yield key, _written(graph.nodes[key], found, boxes, places, texts)


def _files(graph: Graph, facts: Facts) -> Iterator[tuple[Key, Source]]:
    """The files of a graph of whose slices all is known."""
    for key, node in graph.nodes.items():
        if type(node) is DataNode and type(node.value).__name__ in FILES:
            source = facts.value(key)
            if type(source) is Source and source.in_order:
                yield key, source


def _places(reads: Sequence[Read], boxes: Sequence[Box]) -> list[int]:
    """Which box each read is a part of; nothing where parts overlap: somebody may write into one of them."""
    places = [next(i for i, box in enumerate(boxes) if _holds(box, read.box)) for read in reads]
    parts = sum([size(read.box) for read in reads])
    return places if parts == sum([size(boxes[i]) for i in set(places)]) else []


def _written(
    task: Any, reads: Sequence[Read], boxes: Sequence[Box], places: Sequence[int], texts: dict[Any, Task]
) -> Task:
    """A task over fewer reads; ``texts`` keeps what others do with theirs."""
    getter, file = reads[0].getter, reads[0].file
    inputs = {f"x{number}": read_of(getter, file, box) for number, box in enumerate(boxes)}
    instead = {
        id(read.node): read.over(_part(TaskRef(f"x{number}"), read.box, boxes[number]))
        for read, number in zip(reads, places)
    }
    body = replaced(task, instead)
    text = texts.setdefault(shape_of(body)[0], body)
    call = operation(text.__call__, (operation(dict, (), inputs),))
    return under(task.key, call, task.data_producer)


def merged(boxes: Sequence[Box]) -> list[Box]:
    """Boxes that lie next to each other as fewer ones that are just as large together.

    >>> merged([((0, 2), (0, 3)), ((2, 4), (0, 3)), ((0, 4), (3, 5)), ((9, 10), (0, 3))])
    [((0, 4), (0, 5)), ((9, 10), (0, 3))]
    """
    found = sorted(set(boxes))
    for axis in range(len(found[0]) if found else 0):
        rows: dict[Any, list[Box]] = groupby(partial(_across, axis), found)
        found = []
        for row in rows.values():
            joined = [row[0]]
            for box in row[1:]:  # in order, as all of them are
                (low, end), (start, stop) = joined[-1][axis], box[axis]
                if end == start:
                    joined[-1] = (*box[:axis], (low, stop), *box[axis + 1 :])
                else:
                    joined.append(box)
            found += joined
    return sorted(found)


def _across(axis: int, box: Box) -> Box:
    return (*box[:axis], *box[axis + 1 :])


def _holds(read: Box, box: Box) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(read, box))


def _part(read: TaskRef, box: Box, whole: Box) -> Any:
    """A box of what was read, as a read of it alone would lie in memory."""
    index = inside(box, whole)
    return read if index is None else part_at(read, index, is_in_order(box, whole))


def part_at(read: TaskRef, index: Any, in_order: bool) -> Task:
    """A part of what was read; copied if it does not lie in one piece."""
    part = operation(operator.getitem, (read, index))
    return part if in_order else operation(np.array, (part,), {"order": "C"})


def is_in_order(box: Box, whole: Box) -> bool:
    """Whether a box lies in one piece in a block in C order.

    >>> is_in_order(((2, 4), (0, 3)), ((0, 6), (0, 3))), is_in_order(((0, 2), (0, 2)), ((0, 2), (0, 3)))
    (True, False)
    """
    cut = max([i for i, (one, other) in enumerate(zip(box, whole)) if one != other], default=0)
    return set(lengths(box)[:cut]) <= {1}
