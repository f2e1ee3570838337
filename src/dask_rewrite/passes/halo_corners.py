"""Slices that are part of another slice of the same block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, TypeAlias

from dask._task_spec import GraphNode, Task, TaskRef, _identity_cast
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nodes import children, may_move
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.site import Site

#: Start, stop and step of each axis.
Index: TypeAlias = tuple[tuple[Any, Any, Any], ...]

_SLICES = frozenset([slice])
_ALL = (None, None, None)


@dataclass(frozen=True, slots=True)
class HaloCorners:
    """``f(x[-1:, -1:])`` beside ``x[-1:, :]`` → ``f(edge[:, -1:])``, without a task for the corner.

    The neighbours in a halo exchange take four edges of a block and four corners, each a task. The corners
    are parts of the edges. Legal wherever slices are: what the edge leaves whole is cut from it. It makes
    edges travel where corners would do, so that it is done where blocks have two axes, or where facts say
    that the edge is small. Of a block that is small itself no slice needs a task.

    Parameters
    ----------
    max_bytes : int
        Largest edge, in bytes, of blocks with more than two axes; and blocks that are not looked at.
    """

    name: ClassVar[str] = "halo-corners"
    max_bytes: int = 65_536

    def run(self, graph: Graph, context: Context) -> Graph:
        site = Site(graph, context)
        slices = self._slices_by_block(graph, context, site)
        if not slices:
            return graph
        takers = _Takers(site)
        cuts: dict[Key, Task] = {}
        consumers: dict[Key, list[Key]] = {}
        for found in slices.values():
            kept: dict[Index, Key] = {}
            for index in sorted(found, key=lambda index: -index.count(_ALL)):
                key = found[index]
                edge = next((whole for whole in _containing(index) if whole in kept), None)
                consumer = takers.consumer(key) if edge is not None else None
                if edge is None or consumer is None or not self._worth_it(kept[edge], index, site):
                    kept[index] = key
                elif context.remarks.allow(self.name, key):
                    cuts[key] = _cut(graph.nodes[key], kept[edge], index, edge)
                    consumers.setdefault(consumer, []).append(key)
        if not cuts:
            return graph
        nodes = {key: node for key, node in graph.nodes.items() if key not in cuts}
        for consumer, corners in consumers.items():
            nodes[consumer] = with_values(nodes[consumer], {key: cuts[key] for key in corners})
        context.remarks.applied(self.name, None, f"corners cut from edges: {len(cuts)}", len(cuts))
        return graph.with_nodes(nodes)

    def _slices_by_block(self, graph: Graph, context: Context, site: Site) -> dict[Key, dict[Index, Key]]:
        """By block, its slices along two or more axes; blocks of which one is part of another."""
        by_block: defaultdict[Key, list[Task]] = defaultdict(list)
        for task in context.calling(graph, GETITEMS):
            if task.args and type(task.args[0]) is TaskRef:
                by_block[task.args[0].key].append(task)
        found: dict[Key, dict[Index, Key]] = {}
        for block, tasks in by_block.items():
            size = estimate(site.facts, block) if len(tasks) > 1 else None
            if len(tasks) < 2 or (size is not None and size.nbytes <= self.max_bytes):
                continue  # a small one travels as a whole
            slices: dict[Index, Key] = {}
            for task in tasks:
                if (index := _index_of(task)) is not None:
                    slices.setdefault(index, task.key)
            if len({index.count(_ALL) for index in slices}) > 1:
                found[block] = slices
        return found

    def _worth_it(self, edge: Key, index: Index, site: Site) -> bool:
        if len(index) <= 2:
            return True
        fact = site.facts.of(edge)
        return fact is not None and fact.nbytes <= self.max_bytes


class _Takers:
    """Which tasks may take over the slicing of what they use; each task is looked at once.

    Parameters
    ----------
    site : Site
        The graph.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._taken: dict[Key, Mapping[Key, Task]] = {}
        self._effects = ByIdentity[str]()

    def consumer(self, key: Key) -> Key | None:
        """The one task that uses a slice, if it may take the slicing over."""
        site = self._site
        if not site.used_once(key):
            return None
        (consumer,) = site.consumers(key)
        taken = self._taken.get(consumer)
        if taken is None:
            taken = self._taken[consumer] = _taken_once(site.graph.nodes[consumer])
        taker = taken.get(key)
        if taker is None or not site.same_annotations(key, consumer):
            return None
        # what it is put into must not be able to write into the edge, which others use
        return consumer if self._effects.of(taker, site.effects.of) == "fresh" else None


def _taken_once(node: GraphNode) -> Mapping[Key, Task]:
    """What a task refers to once, and the call inside of it that this is an argument of, perhaps in lists."""
    if type(node) is not Task or id(node.func) in GETITEMS or not may_move(node.func):
        return {}
    takers: dict[Key, Task] = {}
    again: set[Key] = set()
    stack: list[tuple[Any, Task]] = [(node, node)]
    while stack:
        here, taker = stack.pop()
        if type(here) is TaskRef:
            if here.key in takers:
                again.add(here.key)
            takers[here.key] = taker
        elif isinstance(here, Task):
            if type(here) is Task and here.func is not _identity_cast:
                taker = here
            stack.extend([(child, taker) for child in children(here)])
        else:
            refs = here.dependencies if isinstance(here, GraphNode) else (here.key,)
            again.update([ref for ref in refs if ref in takers])
            takers.update(dict.fromkeys(refs, taker))
    for key in again:
        del takers[key]
    return takers


def _index_of(node: Task) -> Index | None:
    if len(node.args) != 2 or node.kwargs or node.data_producer or type(node.args[0]) is not TaskRef:
        return None
    index = node.args[1]
    if type(index) is not tuple or len(index) < 2 or not _SLICES.issuperset(map(type, index)):
        return None
    return tuple([(part.start, part.stop, None if part.step == 1 else part.step) for part in index])


def _containing(index: Index) -> Iterator[Index]:
    """What contains a slice, the smallest first: some axes cut alike, the others whole."""
    cut = [axis for axis, part in enumerate(index) if part != _ALL]
    for count in range(1, len(cut)):
        for axes in combinations(cut, count):
            yield tuple([_ALL if axis in axes else part for axis, part in enumerate(index)])


def _cut(corner: Any, edge: Key, index: Index, whole: Index) -> Task:
    parts = [slice(*part) if other != part else slice(None) for part, other in zip(index, whole)]
    return operation(corner.func, (TaskRef(edge), tuple(parts)))
