"""Arrays that are made for one other array alone: their work is done inside of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.names import is_finalize, layer_name
from dask_rewrite.graph.nesting import Depths, depth_of
from dask_rewrite.graph.program import shape_of
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.movement.moves import MOVES
from dask_rewrite.passes.regrid.arrays import Argument, Array, Whole
from dask_rewrite.passes.regrid.views import View, is_slice
from dask_rewrite.passes.site import Site

#: Levels that work nests, and arrays that it is done on, where others are worked out inside of it.
_DEPTH, _ARGUMENTS = 10, 16
#: Percent of the blocks that others may take as they are.
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
        self.of: dict[Key, list[tuple[Key, Key]]] = {}  # by block: tasks, and what they refer to it by
        for key in array.keys:
            found = self.of[key] = []
            stack = [key]
            while stack:
                here = stack.pop()
                for user in site.consumers(here):
                    if is_slice(site.graph.nodes[user]):
                        stack.append(user)
                    else:
                        found.append((user, here))

    def only(self, names: Collection[Any]) -> Any:
        """One of these arrays, if its blocks alone take this one's: each of them one, once; None if not."""
        site = self._site
        pairs = [pair for found in self.of.values() for pair in found]
        takers = {layer_name(user) for user, _ in pairs}
        if len(takers) != 1 or not takers.issubset(names) or len({user for user, _ in pairs}) < len(pairs):
            return None
        user, ref = pairs[0]
        task = site.graph.nodes[user]
        if type(task) is not Task or shape_of(task)[1].count(ref) != 1:
            return None
        if any(map(site.wanted, self.of)) or any(site.wanted(ref) for _, ref in pairs):
            return None
        return takers.pop()

    def only_hold(self, names: Collection[Any]) -> bool:
        """Most blocks are taken, as they are, by work on other grids, which may wait for more than these."""
        nodes = self._site.graph.nodes
        taken = 0
        for found in self.of.values():
            taken += any(
                layer_name(user) not in names
                and id(getattr(nodes[user], "func", None)) not in MOVES
                and not is_finalize(user)
                for user, _ in found
            )
        return 100 * taken > STILL_PARTS * len(self.of)


def fits_into(inner: Whole, user: Task) -> bool:
    """Whether the work of one array may be done inside of another's: neither deep nor on many arrays."""
    depths = Depths()
    return (
        1 + depth_of(inner.task, depths) + depth_of(user, depths) <= _DEPTH
        and len(inner.arguments) + len(user._dependencies) <= _ARGUMENTS
    )


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
