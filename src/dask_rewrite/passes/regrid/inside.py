"""Arrays that are made for one other array alone: their work is done inside of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import product
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.estimates import believed, estimate, of_parts
from dask_rewrite.graph.names import is_finalize, layer_name
from dask_rewrite.graph.nesting import Depths, depth_of
from dask_rewrite.graph.program import shape_of
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.movement.memory_order import calls, sums_up
from dask_rewrite.passes.movement.moves import MOVES
from dask_rewrite.passes.regrid.arrays import Argument, Array, Whole
from dask_rewrite.passes.regrid.views import Source, View, Views, is_slice
from dask_rewrite.passes.site import Site

#: Levels that work nests, and arrays that it is done on, where others are worked out inside of it.
_DEPTH, _ARGUMENTS = 10, 16
#: Percent of the blocks, in bytes, that others may take as they are.
STILL_PARTS = 66


class Users:
    """Who takes the blocks of an array, or slices of them.

    Parameters
    ----------
    array : Array
        The array.
    site : Site
        Where it stands.
    """

    def __init__(self, array: Array, site: Site) -> None:
        self._array, self._site = array, site

    @cached_property
    def _all(self) -> list[list[tuple[Key, Key]]]:
        return list(map(self._of, self._array.keys))

    def _of(self, key: Key) -> list[tuple[Key, Key]]:
        """The tasks that take a block, and what each refers to it by."""
        nodes, consumers = self._site.graph.nodes, self._site.consumers
        found = []
        stack = [key]
        while stack:
            here = stack.pop()
            for user in consumers(here):
                if is_slice(nodes[user]) and not self._site.wanted(user):
                    stack.append(user)
                else:
                    found.append((user, here))
        return found

    def only(self, names: Collection[Any]) -> Any:
        """One of these arrays, if its blocks alone take this one's: each of them one, once; None if not."""
        site, keys = self._site, self._array.keys
        first = self._of(next(iter(keys)))  # of most arrays this one tells
        name = layer_name(first[0][0]) if first else None
        if name not in names or any(layer_name(user) != name for user, _ in first):
            return None
        task = site.graph.nodes[first[0][0]]
        if type(task) is not Task or shape_of(task)[1].count(first[0][1]) != 1:
            return None
        takers: set[Key] = set()
        for key, found in zip(keys, self._all):
            for user, _ in found:
                if user in takers or layer_name(user) != name:
                    return None
                takers.add(user)
            if site.wanted(key):
                return None
        return name

    def only_hold(self, names: Collection[Any]) -> bool:
        """Most bytes are taken as they are by work on other grids, which may wait for more than these.

        What known functions make small at once, as sums are, waits for nothing.
        """
        nodes, facts = self._site.graph.nodes, self._site.facts
        taken = total = 0
        for key, found in zip(self._array.keys, self._all):
            block = believed(facts, key)
            nbytes = 1 if block is None else block.nbytes
            total += nbytes
            for user, _ in found:
                if layer_name(user) in names or is_finalize(user) or calls(nodes[user], MOVES):
                    continue
                given = facts.of(user) or of_parts(facts, user)
                if given is None and sums_up(nodes[user]):
                    given = estimate(facts, user)
                if given is None or 2 * given.nbytes > nbytes:
                    taken += nbytes
                    break
        return 100 * taken > STILL_PARTS * total


def fits_into(inner: Whole, user: Task, others: Mapping[Any, Whole]) -> bool:
    """Whether its work may be done inside of a task, with that of others: not deep, nor on many arrays."""
    depths = Depths()
    arguments = len(user._dependencies) + sum([len(each.arguments) for each in (inner, *others.values())])
    return arguments <= _ARGUMENTS and 1 + depth_of(inner.task, depths) + depth_of(user, depths) <= _DEPTH


def show(whole: Whole, views: Views) -> None:
    """Its blocks are what others are cut from, until it is known what these are made of."""
    start = (0,) * len(whole.extents)
    for place, shape in zip(whole.places(), product(*whole.extents)):
        key: Key = (whole.array.name, *place)
        views.learn(key, Source(shape, whole.dtype, False, shape), {key: View(key, start, shape)})


def worked_out(whole: Whole, inner: Mapping[Any, Whole]) -> Whole:
    """The array, made of what some of its arguments are made of."""
    arguments: dict[Any, Argument] = {}
    values: dict[Any, Any] = {}
    for key, argument in whole.arguments.items():
        below = inner.get(_source_name(argument))
        if below is None:
            arguments[key] = argument
            continue
        values[key] = with_values(below.task, {ref: TaskRef((key, ref)) for ref in below.arguments})
        for ref, each in below.arguments.items():
            arguments[key, ref] = _seen_through(argument, below, each, len(whole.array.counts))
    if not values:
        return whole
    return Whole(whole.array, whole.extents, whole.dtype, with_values(whole.task, values), arguments)


def _source_name(argument: Argument) -> Any:
    """The array that all its blocks are cut from."""
    names = {
        layer_name(view.source) if type(view.source) is tuple else None for view in argument.views.values()
    }
    return names.pop() if len(names) == 1 else None


def _seen_through(argument: Argument, below: Whole, each: Argument, ndim: int) -> Argument:
    """What an argument is made of, cut as the argument is cut from its blocks."""
    if not each.views:
        return each  # one block without axes
    (first, *_) = each.views.values()
    outer, inner = ndim - len(below.extents), len(below.extents) - len(first.shape)
    spread = [
        axis not in each.axes and (len(sizes) > 1 or first.shape[axis - inner] != sizes[0])
        for axis, sizes in enumerate(below.extents)
        if axis >= inner
    ]
    kept = [
        at
        for at, axis in enumerate(argument.axes)
        if axis - outer >= inner and not spread[axis - outer - inner]
    ]
    views: dict[tuple[int, ...], View] = {}
    for place, view in argument.views.items():
        here = view.source[1:]
        own = each.views[tuple([here[axis] for axis in each.axes])]
        cut = [
            (at, size) if broadcast else (at + start, length)
            for at, size, start, length, broadcast in zip(
                own.start, own.shape, view.start[inner:], view.shape[inner:], spread
            )
        ]
        views[tuple([place[at] for at in kept])] = View(own.source, *map(tuple, zip(*cut)))
    axes = tuple([argument.axes[at] for at in kept])
    return Argument(axes, argument.full and each.full, each.dtype, {}, views)
