"""Blocks of a grid that crumbled, made together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

from dask._task_spec import Task
from dask.typing import Key
from toolz import groupby

from dask_rewrite.analysis.estimates import believed, estimate
from dask_rewrite.graph.batches import one_of
from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.names import compound, fingerprint, mark
from dask_rewrite.graph.nesting import Depths, depth_of
from dask_rewrite.graph.nodes import cast_to, nameless, needs_of, under
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement.moves import JOINS
from dask_rewrite.passes.regrid.grids import Edges, coarse_edges, extents_along, is_crumbled
from dask_rewrite.passes.regrid.names import producers_first
from dask_rewrite.passes.regrid.work import works_by_element
from dask_rewrite.passes.siblings.slices import takes_part
from dask_rewrite.passes.site import Site

#: Fewer blocks stay as they are.
_LEAST = 16
#: Nesting of tasks that go together.
_DEEP = 20
#: A slice that a task takes in is at least one part in so many of its block, or the block is small.
_PART = 2


class _Crumbs(NamedTuple):
    """The blocks of an array that crumbled, and how many there are along each axis."""

    keys: Sequence[Any]
    extents: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Crumbs:
    """``f(x[0:1]), f(x[1:99]), ...`` → ``y = [f(x[0:1]), f(x[1:99]), ...]``, and ``y[k]`` for who uses them.

    What the pass regrid does for blocks that are known to be NumPy arrays, without joining any: slivers of
    about one block together are made by one task, each as it was. Legal for blocks of any kind, as the same
    functions are called on the same blocks, and none of the array is made of another one.

    Parameters
    ----------
    gain : int
        Percent of the tasks that are left that there have to be at least.
    slack : int
        Percent that blocks made together may be longer, along an axis, than those that they were cut from.
    max_bytes : int
        Bytes of the blocks that are made together, and of the blocks that they are cut from.
    """

    name: ClassVar[str] = "crumbs"
    gain: int = 150
    slack: int = 25
    max_bytes: int = 131_072

    def run(self, graph: Graph, context: Context) -> Graph:
        if graph.annotations or graph.origin.shared:
            return graph
        site = Site(graph, context)
        crumbled = _crumbled(site)
        if not crumbled:
            return graph
        together = _Together(self, site)
        for name in producers_first(graph):
            if name in crumbled:
                together.take(name, crumbled[name])
        if not together.gone:
            return graph
        count = len(together.gone)
        context.remarks.applied(self.name, None, f"blocks made with others: {count}", count)
        return graph.with_nodes(together.nodes_of(graph))


def _crumbled(site: Site) -> dict[str, _Crumbs]:
    """The arrays that crumbled, by name."""
    nodes: Mapping[Any, Any] = site.graph.nodes
    arrays = groupby(itemgetter(0), [key for key in nodes if type(key) is tuple and len(key) > 1])
    found = {}
    for name, keys in arrays.items():
        if len(keys) < _LEAST or not works_by_element(nodes[keys[0]], slices=True):
            continue
        _, *axes = zip(*keys)
        if len(set(map(len, keys))) > 1 or set(map(type, chain.from_iterable(axes))) != {int}:
            continue
        counts = [1 + max(axis) for axis in axes]
        extents = extents_along(name, counts, partial(believed, site.facts))
        if extents is not None and is_crumbled(extents):
            found[name] = _Crumbs(keys, extents)
    return found


class _Together:
    """Puts the blocks of one array after the other together, producers first."""

    def __init__(self, bounds: Crumbs, site: Site) -> None:
        self.gone: set[Key] = set()
        self._bounds, self._site = bounds, site
        self._nodes: Mapping[Any, Any] = site.graph.nodes
        self._users = site.context.users(site.graph)
        self._made: Nodes = {}  # new tasks, and those in new words
        self._instead: dict[Key, Any] = {}  # where the result of a block is to be found
        self._sizes: dict[Any, list[int]] = {}  # by array, what its blocks were cut from
        self._depths = Depths()

    def take(self, name: str, crumbs: _Crumbs) -> None:
        """Make the blocks of an array together, if that is worth it."""
        site, bounds = self._site, self._bounds
        size = self._size(name, crumbs)
        edges = coarse_edges(crumbs.extents, size, bounds.slack)
        tasks = [key for key in crumbs.keys if self._may_join(key)]
        slices = {key: self._slices(key) for key in tasks}
        kept = sum([site.wanted(key) or key in site.bare for key in tasks])
        cells: dict[tuple[int, ...], list[Any]] = groupby(partial(_cell, edges), tasks)
        before = len(tasks) + sum(map(len, slices.values()))
        if before * 100 < bounds.gain * (len(cells) + kept) or not all(map(self._fits, cells.values())):
            return
        if not site.context.remarks.allow(bounds.name, crumbs.keys[0]):
            return
        token = mark(compound(["crumbs"], name), fingerprint([site.graph.origin.token, name, edges]))
        for place, members in cells.items():
            self._write((token, *place), members, slices)

    def _size(self, name: str, crumbs: _Crumbs) -> list[int]:
        """The size of the blocks that those of an array were cut from, or were meant to be cut from."""
        size = list(map(max, crumbs.extents))
        for dep in self._nodes[crumbs.keys[0]]._dependencies:
            if _takes_part(self._nodes.get(dep)):
                (dep,) = self._nodes[dep]._dependencies
            below = self._sizes.get(dep[0]) if type(dep) is tuple else None
            fact = believed(self._site.facts, dep) if below is None else None
            below = below or (list(fact.shape) if fact is not None else [])
            if len(below) == len(size):
                size = list(map(max, size, below))
        self._sizes[name] = size
        return size

    def _may_join(self, key: Key) -> bool:
        node = self._nodes[key]
        return (
            not node._data_producer
            and works_by_element(node, slices=True)
            and depth_of(node, self._depths) <= _DEEP
        )

    def _slices(self, key: Key) -> list[Key]:
        """The slices that only this task uses, if it may as well wait for their blocks."""
        return [dep for dep in self._nodes[key]._dependencies if self._is_own_slice(dep)]

    def _is_own_slice(self, key: Key) -> bool:
        node: Any = self._nodes.get(key)
        if self._users[key] != 1 or not _takes_part(node) or self._site.wanted(key):
            return False
        (block,) = node._dependencies
        whole, part = estimate(self._site.facts, block), estimate(self._site.facts, key)
        if whole is None or part is None:
            return False
        return whole.nbytes <= self._bounds.max_bytes or part.nbytes * _PART >= whole.nbytes

    def _fits(self, members: Sequence[Key]) -> bool:
        """Whether what one task would give is small."""
        sizes = [estimate(self._site.facts, key) for key in members]
        total = sum([size.nbytes for size in sizes if size is not None])
        return None not in sizes and total <= self._bounds.max_bytes

    def _write(self, new: Key, members: Sequence[Key], slices: Mapping[Key, Sequence[Key]]) -> None:
        tasks = []
        for key in members:
            taken = {each: self._filled(self._nodes[each]) for each in slices[key]}
            self.gone.update(taken)
            tasks.append(self._filled(self._nodes[key], taken))
        if len(members) == 1:
            self._made[members[0]] = tasks[0]
            return
        self._made[new] = cast_to(list, new, tuple(map(nameless, tasks)), needs_of(tasks))
        for row, key in enumerate(members):
            self._instead[key] = one_of(new, row)
            self.gone.add(key)

    def _filled(self, node: Any, values: Mapping[Key, Any] = {}) -> Any:
        """A node with some values in it, and with the new places of what it uses."""
        values = {**values, **{dep: self._instead[dep] for dep in node._dependencies & self._instead.keys()}}
        return with_values(node, values) if values else node

    def nodes_of(self, graph: Graph) -> Nodes:
        """All nodes: those of blocks that somebody asked for take them out of what was made together."""
        nodes: Nodes = {}
        for key, node in graph.nodes.items():
            if key in self._made:
                nodes[key] = self._made.pop(key)
            elif key not in self.gone:
                nodes[key] = self._filled(node)
            elif key in self._instead and (self._site.wanted(key) or key in self._site.bare):
                nodes[key] = under(key, self._instead[key])
        nodes.update(self._made)
        return nodes


def _takes_part(node: Any) -> bool:
    """Something of one block: a slice, or a copy of one."""
    joins = type(node) is Task and id(node.func) in JOINS and len(node._dependencies) == 1
    return joins or takes_part(node)


def _cell(edges: Edges, key: tuple[Any, ...]) -> tuple[int, ...]:
    """Which blocks are made together with one."""
    return tuple([bisect_right(along, at) - 1 for along, at in zip(edges, key[1:])])
