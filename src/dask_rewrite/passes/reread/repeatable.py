"""Which blocks may be made again: reads, numbers from a seed, and cheap work on these alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import believed, estimate, likely_bytes
from dask_rewrite.analysis.memory.stores import gives_nothing
from dask_rewrite.graph.graph import producers_first
from dask_rewrite.passes.reread.repeats import Repeats
from dask_rewrite.passes.site import Site

#: Blocks that are read for one block, and tasks that make it, at most.
_MOST_READS, _MOST_STEPS = 8, 32
#: What so many tasks use, such as a mean, is there for all of them anyway.
_MANY = 4
#: What is read to make a block is at most so many times as large, else the block is held for less.
_LARGER = 4


class Again(NamedTuple):
    """A block that may be made again.

    Parameters
    ----------
    reads : frozenset of Key
        What is read for it.
    shared : frozenset of Key
        What is there for many such blocks: means of them.
    nbytes : int
        Bytes of what is read.
    held : int
        Bytes that stay as long as the block: of what it is a view of, none where that is in memory anyway.
    steps : int
        Tasks that make it, those that are used twice counted twice.
    """

    reads: frozenset[Key]
    shared: frozenset[Key]
    nbytes: int
    held: int
    steps: int


class Repeatable:
    """The blocks of a graph that may be made again, and which of these are worth it.

    Parameters
    ----------
    site : Site
        The graph and what is known of it.
    min_bytes : int
        Smaller blocks are held.
    costly : bool
        Whether work may be done again that takes longer than to go through the block once.
    among : collection of Key, optional
        Only these blocks are looked at, and what is made of others is not found; by default all.
    """

    def __init__(
        self, site: Site, min_bytes: int, costly: bool = False, among: Collection[Key] | None = None
    ) -> None:
        self._site, self._min_bytes, self._costly = site, min_bytes, costly
        self._repeats = site.context.for_all_plans(Repeats, site.graph)
        keys = list(site.graph.nodes if among is None else among)
        self.order = list(producers_first(keys, site.graph.nodes))
        self._users = site.context.users(site.graph)
        self._bytes: dict[Key, int] = {}
        self.found: dict[Key, Again] = {}
        for key in self.order:
            if (again := self._again(key)) is not None:
                self.found[key] = again

    def worth(self, key: Key) -> bool:
        """Whether a block holds much memory, and not much less than is read to make it again."""
        again = self.found[key]
        return again.held >= self._min_bytes and again.held * _LARGER >= again.nbytes

    def stays(self, key: Key, user: Key) -> bool:
        """Whether what becomes of a block is as large, and wanted: that is held instead, sooner or later."""
        site = self._site
        if not site.wanted(user) and not any(map(site.wanted, site.consumers(user))):
            return False
        size, made = estimate(site.facts, key), estimate(site.facts, user)
        if size is None or made is None or gives_nothing(site.node(user)):
            return False
        return 2 * made.nbytes >= size.nbytes

    def gathered(self, key: Key, user: Key) -> bool:
        """Whether a block itself is wanted: it is held until the end."""
        return self._site.wanted(user) and self.stays(key, user)

    def _again(self, key: Key) -> Again | None:
        site, nodes = self._site, self._site.graph.nodes
        node = nodes[key]
        if type(node) is not Task or site.wanted(key):
            return None
        below = []
        shared: set[Key] = set()
        for dep in node._dependencies:
            if (found := self.found.get(dep)) is not None:
                below.append(found)
            elif type(data := nodes.get(dep)) is DataNode:
                if not self._repeats.is_steady(data.value):
                    return None
            else:
                if self._users[dep] < _MANY or self._calls_elements(dep):
                    return None
                shared.add(dep)
        if (shared and not below) or not self._repeats.may_repeat(node, nodes, self._costly):
            return None
        own = likely_bytes(site.facts, key)
        view = site.effect(key) == "view"
        if not below:
            self._bytes[key] = own
            held = 0 if view and _is_in_memory(node, nodes) else own
            return Again(frozenset([key]), frozenset(), own, held, 1)
        reads = frozenset().union(*[each.reads for each in below])
        steps = 1 + sum(each.steps for each in below)
        if len(reads) > _MOST_READS or steps > _MOST_STEPS:
            return None
        shared.update(*[each.shared for each in below])
        held = max([each.held for each in below]) if view else own
        nbytes = sum(map(self._bytes.__getitem__, reads))
        if self._costly and held * _LARGER < nbytes:
            return None  # what is left of blocks once they are reduced is no block
        return Again(reads, frozenset(shared), nbytes, held, steps)

    def _calls_elements(self, key: Key) -> bool:
        """Whether what NumPy does with a block calls methods of its elements, of which nobody knows."""
        fact = believed(self._site.facts, key)
        return fact is not None and fact.dtype.hasobject


def _is_in_memory(task: Task, nodes: Mapping[Key, GraphNode]) -> bool:
    """Whether a task takes a part of an array that stands in the graph."""
    sources = [getattr(nodes[dep], "value", None) for dep in task._dependencies] or task.args
    return any(type(source) is np.ndarray for source in sources)
