"""Arrays of blocks that all do the same elementwise work, checked block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
from dask.typing import Key

from dask_rewrite.graph.program import shape_of
from dask_rewrite.passes.movement.moves import DType
from dask_rewrite.passes.movement.pieces import Fill
from dask_rewrite.passes.regrid.grids import Extents, extents_along
from dask_rewrite.passes.regrid.views import Shape, View, Views, dtype_of, joins_keep
from dask_rewrite.passes.regrid.work import same_work, works_by_element
from dask_rewrite.passes.site import Site


@dataclass(frozen=True, slots=True)
class Array:
    """The blocks of one name.

    Parameters
    ----------
    name : object
        The name.
    keys : dict of Key to None
        All blocks that there are.
    counts : tuple of int
        How many there are along each axis.
    """

    name: Any
    keys: Mapping[Any, None]
    counts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        axes = list(zip(*self.keys))[1:]
        whole = all(type(i) is int for axis in axes for i in axis)
        counts = tuple([1 + max(axis) for axis in axes]) if whole else ()
        object.__setattr__(self, "counts", counts if prod(counts) == len(self.keys) else ())


@dataclass(frozen=True, slots=True)
class Argument:
    """One reference of the task, over all blocks.

    Parameters
    ----------
    axes : tuple of int
        The axes of the array along which it has another block for each block: elsewhere it is broadcast.
    full : bool
        It is broadcast nowhere.
    dtype : dtype
        Of all its blocks.
    keys, views : dict
        Its blocks, by the place of the array's block along these axes.
    """

    axes: tuple[int, ...]
    full: bool
    dtype: DType
    keys: dict[tuple[int, ...], Key]
    views: dict[tuple[int, ...], View]


@dataclass(frozen=True, slots=True)
class Whole:
    """An array that is known to be regular: each block the same work on blocks that fit."""

    array: Array
    extents: Extents
    dtype: DType
    task: Any  # of a block
    arguments: Mapping[Key, Argument]  # by what this task refers to

    def places(self) -> Iterator[tuple[int, ...]]:
        """Of all blocks."""
        return product(*map(range, self.array.counts))


def first_of(array: Array, site: Site) -> Any:
    """The task of its first block."""
    return site.graph.nodes[(array.name, *(0 for _ in array.counts))]


def whole_of(array: Array, site: Site, views: Views) -> Whole | None:
    """The array, if all its blocks do the same to blocks that fit together; None if not."""
    nodes = site.graph.nodes
    extents = extents_along(array.name, array.counts, site.facts.of_or_assumed)
    if extents is None:
        return None
    start = first_of(array, site)
    dtype = dtype_of(site.facts.of_or_assumed(start.key))
    if dtype is None or not joins_keep(dtype) or not works_by_element(start):
        return None
    shape = shape_of(start)[0]
    places = product(*map(range, array.counts))
    used = [same_work(start, nodes[(array.name, *place)], shape) or [] for place in places]
    widest = max(used, key=lambda each: len(set(each)))  # edges may take one block for several arguments
    names = {name: widest.index(name) for name in widest}
    firsts = [names[name] for name in widest]
    if any(len(each) != len(widest) or each != [each[i] for i in firsts] for each in used):
        return None
    place = np.unravel_index(used.index(widest), array.counts)
    task = nodes[(array.name, *map(int, place))]
    found = [[each[i] for each in used] for i in names.values()]
    arguments = {}
    for name, row in zip(names, found):
        argument = _scalar(row, site) or _argument(row, extents, array.counts, views)
        if argument is None:
            return None
        arguments[name] = argument
    cut = {axis for argument in arguments.values() for axis in argument.axes}
    if any(count > 1 and axis not in cut for axis, count in enumerate(array.counts)):
        return None
    return Whole(array, extents, dtype, task, arguments)


def _scalar(row: list[Key], site: Site) -> Argument | None:
    """A block without axes, which all others share."""
    fact = site.facts.of_or_assumed(row[0])
    dtype = dtype_of(fact)
    if fact is None or dtype is None or fact.shape or any(key != row[0] for key in row):
        return None
    return Argument((), False, dtype, {(): row[0]}, {})


def _argument(row: list[Key], extents: Extents, counts: tuple[int, ...], views: Views) -> Argument | None:
    """How the blocks of one argument lie over the grid; None if they do not fit."""
    first = views.of(row[0])
    if first is None or len(first.shape) > len(counts):
        return None
    dtype = views.dtype(first)
    before = len(counts) - len(first.shape)  # axes of the array that it does not have
    axes = []
    stride = 1
    for axis in reversed(range(len(counts))):
        line = row[: stride * counts[axis] : stride]  # an edge may be there twice, one after the other
        if axis >= before and any(key != line[0] for key in line):
            axes.append(axis)
        stride *= counts[axis]
    axes.reverse()
    keys: dict[tuple[int, ...], Key] = {}
    if len(axes) == len(counts):
        keys.update(zip(product(*map(range, counts)), row))
    else:
        for place, key in zip(product(*map(range, counts)), row):
            if keys.setdefault(tuple([place[axis] for axis in axes]), key) != key:
                return None
    sizes: list[tuple[int, ...]] = [(n,) for n in first.shape]
    for axis in axes:
        sizes[axis - before] = extents[axis]
    seen: dict[tuple[int, ...], View] = {}
    for (at, key), shape in zip(keys.items(), product(*sizes)):  # the places run as these products do
        view = views.of(key)
        if view is None or view.shape != shape or views.dtype(view) != dtype:
            return None
        seen[at] = view
    for axis in range(before, len(counts)):
        if axis not in axes and counts[axis] > 1 and first.shape[axis - before] != 1:
            return None
    full = not before and all(
        axis in axes or (counts[axis] == 1 and size == extents[axis][0])
        for axis, size in enumerate(first.shape)
    )
    return Argument(tuple(axes), full, dtype, keys, seen)


def common_shape(whole: Whole, views: Views) -> Shape | None:
    """The shape of the largest block that a full argument is cut from."""
    shapes: dict[Shape, None] = {}
    for source in {view.source: None for each in _full(whole) for view in each.views.values()}:
        if type(source) is not Fill:
            shapes[views.source(source).size] = None
    found = [shape for shape in shapes if len(shape) == len(whole.extents)]
    return max(found, key=prod, default=None)


def is_cut(whole: Whole, gain: int) -> bool:
    """Some full argument has this many percent of the blocks that its own are cut from."""
    for each in _full(whole):
        sources = {view.source: None for view in each.views.values()}
        if gain * sum(type(source) is not Fill for source in sources) <= 100 * len(each.views):
            return True
    return False


def in_order(whole: Whole, views: Views) -> bool:
    """The results are known to lie in memory in C order.

    They do where any full argument does, and where nothing else than constants goes in.
    """
    full = _full(whole)
    met: set[tuple[Any, ...]] = set()
    for place in whole.places():
        met.add(tuple([each.views[tuple([place[axis] for axis in each.axes])].source for each in full]))
    for sources in met:
        blocks = [views.source(source) for source in sources if type(source) is not Fill]
        if blocks and not any(block.in_order for block in blocks):
            return False
    return bool(full)


def _full(whole: Whole) -> list[Argument]:
    return [argument for argument in whole.arguments.values() if argument.full]
