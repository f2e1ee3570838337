"""Elementwise work on a grid that crumbled, done on a coarse one instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, ClassVar

from dask._task_spec import Task
from dask.array.core import finalize
from dask.typing import Key

from dask_rewrite.analysis.estimates import believed
from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.names import layer_name
from dask_rewrite.graph.nesting import survey
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement.memory_order import calls
from dask_rewrite.passes.movement.moves import MOVES
from dask_rewrite.passes.regrid.arrays import Array, Whole, common_shape, first_of, in_order, is_cut, whole_of
from dask_rewrite.passes.regrid.grids import coarse_edges, extents_along, is_crumbled
from dask_rewrite.passes.regrid.inside import Users, fits_into, show, worked_out
from dask_rewrite.passes.regrid.names import producers_first
from dask_rewrite.passes.regrid.reduced import Apart, taken_apart
from dask_rewrite.passes.regrid.views import Views
from dask_rewrite.passes.regrid.work import works_by_element
from dask_rewrite.passes.regrid.write import LARGE, Coarse, part_of
from dask_rewrite.passes.site import Site

#: Of blocks of so many bytes more have to become one: a sliver costs a task, and a whole block on a coarse
#: grid waits for its neighbour, so that each thread holds two.
_HEAVY = 262_144
#: Percent of the blocks of the coarse grid that there have to be of these.
_HEAVY_GAIN = 600


@dataclass(frozen=True, slots=True)
class Regrid:
    """``f(x[0:1], y[0:1]), f(x[1:99], y[1:99]), ...`` → ``z = f(x, y)`` and ``z[0:1], z[1:99], ...``.

    Arrays that are shifted against each other and added are cut at the borders of both: after some steps of
    a stencil most blocks are slivers. Inner grids are nobody's but ours. Elementwise work is done on blocks
    of about the size of those that the slivers were cut from; what its users see are slices of these. The
    joins and slices that this makes are composed by the pass ``movement``.

    Parameters
    ----------
    gain : int
        Percent of the blocks of the coarse grid that there have to be at least.
    slack : int
        Percent that a coarse block may be longer, along an axis, than the block that it is cut from.
    reassociate : bool
        Sums over blocks of which nobody knows how they lie in memory may add in another order.
    """

    name: ClassVar[str] = "regrid"
    gain: int = 150
    slack: int = 25
    reassociate: bool = True

    def run(self, graph: Graph, context: Context) -> Graph:
        if graph.annotations or not any(func in MOVES for func in context.by_function(graph)):
            return graph
        site = Site(graph, context)
        arrays = {array.name: array for array in _arrays(graph, context)}
        crumbled = {name for name, array in arrays.items() if _crumbled(array, site)}
        apart = taken_apart(site, crumbled) if crumbled else Apart(graph, {})
        if apart.names:
            site = Site(apart.graph, context)
            arrays.update({array.name: array for array in _arrays(apart.graph, context)})
            crumbled.update(apart.names)
        if not any(_uses_moves(arrays[name], apart.graph.nodes) for name in crumbled):
            return graph
        views = Views(site, self.reassociate)
        grids, parts = self._coarsened(arrays, crumbled, site, views)
        if not parts:
            return graph
        made: Nodes = {key: node for coarse in grids.values() for key, node in coarse.nodes.items()}
        made.update(_gathered(graph, grids))
        for name, array in apart.names.items():
            if name not in grids:
                made.update({key: graph.nodes[key] for key in array.keys})
        context.coarsened = True
        context.remarks.applied(
            self.name, None, f"blocks that are slices of coarse ones: {len(parts)}", len(parts)
        )
        return graph.with_nodes(_needed(apart.graph, made, parts, views))

    def _coarsened(
        self, arrays: Mapping[Any, Array], crumbled: Collection[Any], site: Site, views: Views
    ) -> tuple[dict[Any, Coarse], dict[Key, None]]:
        """The arrays that go on coarse grids, and the blocks that become parts of these."""
        grids: dict[Any, Coarse] = {}
        parts: dict[Key, None] = {}
        waiting: dict[Any, dict[Any, Whole]] = {}  # by the array that they are to be worked out inside of
        for name in producers_first(site.graph):
            array = arrays.get(name)
            if array is None:
                continue
            users = Users(array, site)
            user = users.only(crumbled)
            if name not in crumbled and user is None:
                continue
            inner = waiting.pop(name, {})
            whole = whole_of(array, site, views)
            if whole is not None:
                whole = worked_out(whole, inner)
                others = waiting.get(user, {})
                if user is not None and fits_into(whole, first_of(arrays[user], site), others):
                    show(whole, views)
                    waiting.setdefault(user, {}).update({**inner, name: whole})
                    continue
            if name not in crumbled:
                continue
            if self._coarse(array, whole, partial(users.only_hold, crumbled), site, views, grids):
                parts.update(array.keys)
                continue
            # on grids of their own, then, unless they are large: who takes them is not on one
            for each in inner.values():
                if each.array.name in crumbled and self._coarse(
                    each.array, each, lambda: True, site, views, grids
                ):
                    parts.update(each.array.keys)
        return grids, parts

    def _coarse(
        self,
        array: Array,
        whole: Whole | None,
        held: Callable[[], bool],
        site: Site,
        views: Views,
        grids: dict[Any, Coarse],
    ) -> bool:
        """Put an array on a coarse grid, if that is legal and worth it."""
        remarks, first = site.context.remarks, next(iter(array.keys))
        if whole is None:
            remarks.missed(self.name, first, "the blocks are not known to be one regular array")
            return False
        size = common_shape(whole, views) if is_cut(whole, self.gain) else None
        if size is None:
            return False
        if site.facts.declared is not None and site.facts.declared.is_masked(first):
            remarks.missed(self.name, first, "joined masked blocks have a fill value of their own")
            return False
        edges = coarse_edges(whole.extents, size, self.slack)
        nbytes, coarser = prod(size) * whole.dtype.itemsize, prod([len(along) - 1 for along in edges])
        if coarser * self.gain > 100 * len(array.keys):
            return False
        if nbytes >= _HEAVY and coarser * max(self.gain, _HEAVY_GAIN) > 100 * len(array.keys):
            remarks.missed(self.name, first, "few slivers of large blocks: whole ones wait for neighbours")
            return False
        ordered = in_order(whole, views)
        if not ordered and not all(map(views.order.is_unseen, array.keys)):
            remarks.missed(self.name, first, "the blocks may lie differently in memory")
            return False
        if nbytes >= LARGE and held():
            reason = "most parts are needed as they are: the coarse blocks would be held for them"
            remarks.missed(self.name, first, reason)
            return False
        if not remarks.allow(self.name, first):
            return False
        coarse = Coarse(whole, edges, size, site.graph, views)
        if not coarse.write():
            remarks.missed(self.name, first, "far more pieces than blocks")
            return False
        coarse.learn(ordered)
        grids[array.name] = coarse
        return True


def _arrays(graph: Graph, context: Context) -> list[Array]:
    """The arrays whose blocks do elementwise work."""
    found: dict[Any, dict[Key, None]] = {}
    for func, tasks in context.by_function(graph).items():
        if func not in MOVES and works_by_element(tasks[0]):
            for task in tasks:
                if type(task.key) is tuple and len(task.key) > 1:
                    found.setdefault(task.key[0], {})[task.key] = None
    arrays = [Array(name, keys) for name, keys in found.items() if len(keys) > 2]
    return [array for array in arrays if array.counts]


def _crumbled(array: Array, site: Site) -> bool:
    """Sizes are declared of most blocks: only where these look crumbled is it found out what is known."""
    name, counts, facts = array.name, array.counts, site.facts
    return all(
        is_crumbled(extents_along(name, counts, of)) for of in (partial(believed, facts), facts.of_or_assumed)
    )


def _uses_moves(array: Array, nodes: Nodes) -> bool:
    """Some of its blocks are made of what was moved."""
    return any(calls(nodes.get(dep), MOVES) for key in array.keys for dep in nodes[key]._dependencies)


def _gathered(graph: Graph, grids: Mapping[Any, Coarse]) -> Nodes:
    """Tasks that gave all blocks of an array that went on a coarse grid to who asked for it."""
    found: Nodes = {}
    for key in graph.outputs:
        task = graph.nodes.get(key)
        if type(task) is Task and task.func is finalize:
            used = survey(task)[1]
            coarse = grids.get(layer_name(used[0])) if used else None
            new = None if coarse is None else coarse.gathered(task, used)
            if new is not None:
                found[key] = new
    return found


def _needed(graph: Graph, made: Nodes, parts: Mapping[Key, None], views: Views) -> Nodes:
    """What outputs need: the blocks that are parts of coarse ones are slices of these."""
    nodes = graph.nodes
    found: Nodes = {}
    stack: list[Key] = list(graph.outputs)
    while stack:
        key = stack.pop()
        if key in found:
            continue
        node = made.get(key)
        view = views.of(key) if node is None and key in parts else None
        if view is not None and view.source != key:
            node = part_of(key, view, views.source(view.source))
        elif node is None:
            node = nodes.get(key)
        if node is not None:
            found[key] = node
            stack.extend(node._dependencies)
    kept: Nodes = {key: found.pop(key) for key in nodes if key in found}
    kept.update({key: node for key, node in made.items() if key in found})
    return kept
