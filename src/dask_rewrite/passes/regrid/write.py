"""Coarse blocks, and what they are put together from."""

from __future__ import annotations

import operator
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import List, Task, TaskRef
from dask.array import chunk
from dask.array.core import concatenate3
from dask.typing import Key

from dask_rewrite.analysis.declared import Symbol
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import compound, fingerprint, layer_name, mark
from dask_rewrite.graph.nodes import NO_KWARGS, make_task, under
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.movement.emit import Emitter, cut_out, index_of, is_nearly_whole, is_straight, nested
from dask_rewrite.passes.movement.mosaic import Mosaic
from dask_rewrite.passes.movement.pieces import Fill, Piece, merged
from dask_rewrite.passes.regrid.arrays import Argument, Whole
from dask_rewrite.passes.regrid.grids import Edges
from dask_rewrite.passes.regrid.views import Shape, Source, View, Views

#: Along each axis, the numbers of the first block of a group and of the first one after it.
Group = tuple[tuple[int, int], ...]
#: Names of the blocks that are put together begin so.
JOIN = "regrid-join-"
#: Bytes from which a block is large.
LARGE = 65_536


class Coarse:
    """Writes one array on a coarse grid.

    Parameters
    ----------
    whole : Whole
        The array.
    edges : Edges
        The borders that stay.
    size : tuple of int
        The shape that the coarse blocks were to have.
    graph : Graph
        The graph that it stands in.
    views : Views
        What is known of blocks.
    """

    def __init__(self, whole: Whole, edges: Edges, size: Shape, graph: Graph, views: Views) -> None:
        self._whole = whole
        self._edges = edges
        self._size = size
        self._views = views
        name = whole.array.name
        self._token = fingerprint([graph.origin.token, name, edges])
        self._name = mark(compound(["regrid"], str(name)), self._token)
        self._borders = [[0, *accumulate(sizes)] for sizes in whole.extents]
        self._origin = graph.origin.token
        self._emitter = Emitter(self._shape, self._reference, lambda key: False, {})
        self.nodes: dict[Key, Task] = {}
        self._made: list[tuple[Key, Shape, dict[Key, View]]] = []  # coarse blocks and their parts

    def write(self) -> bool:
        """All tasks; false if one of them would be put together from far too many pieces."""
        ranges = [list(pairwise(along)) for along in self._edges]
        for place in product(*[range(len(along)) for along in ranges]):
            group = tuple([along[i] for along, i in zip(ranges, place)])
            if any(b - a > 1 for a, b in group) and not self._block(place, group):
                return False
        return True

    def gathered(self, task: Task, used: list[Key]) -> Task | None:
        """A task that joins all blocks of the array, of the coarse ones instead; None if it does not."""
        array = self._whole.array
        if used != [(array.name, *place) for place in self._whole.places()]:
            return None
        ranges = [list(enumerate(pairwise(along))) for along in self._edges]
        refs = []
        for cell in product(*ranges):
            place, group = zip(*cell)
            coarse = any(b - a > 1 for a, b in group)
            refs.append(TaskRef((self._name, *place) if coarse else (array.name, *[a for a, _ in group])))
        blocks = nested(refs, [len(along) for along in ranges])
        return under(task.key, operation(task.func, (blocks,)), task._data_producer)

    def learn(self, in_order: bool) -> None:
        """From now on the blocks are parts of the coarse ones, which lie in order or may not."""
        for coarse, shape, parts in self._made:
            self._views.learn(coarse, Source(shape, self._whole.dtype, in_order, self._size), parts)
        chunks = [
            tuple([borders[b] - borders[a] for a, b in pairwise(along)])
            for borders, along in zip(self._borders, self._edges)
        ]
        self._views.tell(self._name, tuple(chunks), self._whole.dtype)

    def _block(self, place: Shape, group: Group) -> bool:
        whole = self._whole
        values: dict[Key, Any] = {}
        for number, (key, argument) in enumerate(whole.arguments.items()):
            found = self._argument(number, argument, place, group)
            if found is None:
                return False
            values[key] = found
        body = with_values(whole.task, values)
        coarse: Key = (self._name, *place)
        producer = whole.task._data_producer
        self.nodes[coarse] = under(coarse, body, producer)
        shape = tuple([along[b] - along[a] for along, (a, b) in zip(self._borders, group)])
        name = whole.array.name
        parts: dict[Key, View] = {}
        rows = [
            [(i, along[i] - along[a], along[i + 1] - along[i]) for i in range(a, b)]
            for along, (a, b) in zip(self._borders, group)
        ]
        for row in product(*rows):
            at, start, size = zip(*row)
            parts[(name, *at)] = View(coarse, start, size)
        self._made.append((coarse, shape, parts))
        return True

    def _argument(self, number: int, argument: Argument, place: Shape, group: Group) -> TaskRef | None:
        """A reference to the argument's blocks of a group, joined."""
        ranges = [range(*group[axis]) for axis in argument.axes]
        if all(len(along) == 1 for along in ranges):
            block = argument.keys.get(tuple([along[0] for along in ranges]))
            if block is not None:
                return TaskRef(block)
        join: Key = (f"{JOIN}{self._token}", number, *[place[axis] for axis in argument.axes])
        if join not in self.nodes:
            mosaic = self._mosaic(argument, ranges, group)
            (piece, *others) = mosaic.pieces
            if not others and type(piece.source) is not Fill and piece.shape == self._shape(piece.source):
                return TaskRef(piece.source)
            body = self._emitter.expression(mosaic, argument.dtype)
            if body is None:
                return None
            self.nodes[join] = under(join, body)
        return TaskRef(join)

    def _mosaic(self, argument: Argument, ranges: list[range], group: Group) -> Mosaic:
        """The argument's blocks of a group: those that lie side by side in their source are one piece."""
        views = argument.views
        first = views[tuple([along[0] for along in ranges])].shape
        before = len(group) - len(first)
        shape = list(first)
        for axis, (a, b) in zip(argument.axes, [group[axis] for axis in argument.axes]):
            shape[axis - before] = self._borders[axis][b] - self._borders[axis][a]
        places: list[tuple[int, ...]] = [(0,)] * len(first)  # where the blocks begin, along each axis
        for axis, along in zip(argument.axes, ranges):
            borders = self._borders[axis]
            places[axis - before] = tuple([borders[i] - borders[along[0]] for i in along])
        corners: dict[Any, list[tuple[Shape, View]]] = {}
        for at, index in zip(product(*places), product(*ranges)):
            view = views[index]
            if type(view.source) is Fill:
                corners.setdefault(view.source, []).append((at, view))
            else:
                shift = tuple(map(operator.sub, view.start, at))
                corners.setdefault((view.source, shift), []).append((at, view))
        pieces: list[Piece] = []
        for parts in corners.values():
            pieces += _one_piece(parts) or merged([_piece(*part) for part in parts], len(first))
        return Mosaic(tuple(shape), tuple(sorted(pieces, key=lambda piece: piece.at)))

    def _reference(self, piece: Piece) -> TaskRef | None:
        """The task that cuts a small piece out of a large block."""
        source: Any = piece.source
        block = self._views.source(source)
        small = prod(block.shape) * block.dtype.itemsize < LARGE
        if small or not is_straight(piece) or is_nearly_whole(piece, block.shape):
            return None
        token = fingerprint([self._origin, layer_name(source)])
        task = cut_out(f"regrid-cut-{token}", source, index_of(piece, block.shape))
        return TaskRef(self.nodes.setdefault(task.key, task).key)

    def _shape(self, key: Key) -> Shape:
        return self._views.source(key).shape


def _piece(at: Shape, view: View) -> Piece:
    if type(view.source) is Fill:
        return Piece(at, view.shape, view.source, ())
    axes = tuple([(start - a, 1, i) for i, (start, a) in enumerate(zip(view.start, at))])
    return Piece(at, view.shape, view.source, axes)


def _one_piece(parts: list[tuple[Shape, View]]) -> list[Piece]:
    """The parts of one source, which lie in it as they lie here, if together they are one rectangle."""
    low = tuple(map(min, zip(*[at for at, _ in parts])))
    high = tuple(map(max, zip(*[tuple(map(operator.add, at, view.shape)) for at, view in parts])))
    shape = tuple(map(operator.sub, high, low))
    if sum([prod(view.shape) for _, view in parts]) != prod(shape):
        return []
    corner = min(parts)[1]
    return [_piece(low, View(corner.source, corner.start, shape))]


def part_of(key: Key, view: View, source: Source) -> Task:
    """A block as a copy of a part of a coarse one: it lay in memory of its own."""
    index = tuple([slice(start, start + size, 1) for start, size in zip(view.start, view.shape)])
    deps = frozenset([view.source])
    args = (TaskRef(view.source), index)
    if 2 * prod(view.shape) <= prod(source.shape):
        return make_task(key, chunk.getitem, args, NO_KWARGS, deps)  # which copies
    part = operation(chunk.getitem, args)
    if type(source.dtype) is not Symbol:
        return make_task(key, np.concatenate, (List(part),), NO_KWARGS, deps)
    # as dask joins blocks of any type
    return make_task(key, concatenate3, (nested([part], (1,) * len(view.shape)),), NO_KWARGS, deps)
