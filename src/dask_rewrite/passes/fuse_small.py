"""Small pieces of work and the task that gathers them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task
from dask.typing import Key

from dask_rewrite.facts import Facts
from dask_rewrite.graph import Graph
from dask_rewrite.layers import is_coroutine
from dask_rewrite.nodes import with_values
from dask_rewrite.remarks import Remarks
from dask_rewrite.rules import Site
from dask_rewrite.survey import survey

#: Candidates that are looked at before the whole graph is: where blocks are large, none of them is small.
_SAMPLE = 24
#: Blocks of a layer that are looked at, if it has more than twice as many.
_BLOCKS = 8
#: In place of the identity of a function, for data.
_NO_FUNCTION = 0
#: Longer tuples are not looked into.
MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class FuseSmall:
    """``combine([f(a), f(b), f(c)])`` in four tasks → one task, where the blocks are known to be small.

    A task costs the scheduler more than it takes to slice or add a few kilobytes, and to run such work
    side by side gains nothing. Legal where the consumer is the only user of each producer; worth it
    where facts say that all blocks involved are small and the functions are known, so that nothing
    slow is hidden in them. Loads and data stay tasks of their own.

    Parameters
    ----------
    max_bytes : int
        Largest block, in bytes, that counts as small.
    max_tasks : int
        Tasks that one task may absorb.
    max_inputs : int
        Blocks that the fused task may wait for, unless it waited for as many before.
    max_depth : int
        Nesting that fused tasks may reach.
    """

    name: ClassVar[str] = "fuse-small"
    max_bytes: int = 65_536
    max_tasks: int = 32
    max_inputs: int = 8
    max_depth: int = 12

    def run(self, graph: Graph, remarks: Remarks) -> Graph:
        users = graph.users()
        producers = self._producers(graph, users)
        if not producers:
            return graph
        site = Site(graph)
        small = _Small(graph.nodes, site.facts, self.max_bytes)
        step = max(1, len(producers) // _SAMPLE)
        if not any(small.work(graph.nodes[key]) for key in producers[::step]):
            return graph
        depths: dict[Key, int] = {}
        links = self._links(graph, site, set(producers), small, depths)
        return self._fused(graph, links, depths, remarks)

    def _links(
        self, graph: Graph, site: Site, candidates: set[Key], small: _Small, depths: dict[Key, int]
    ) -> dict[Key, list[Key]]:
        """For each consumer, the producers that it could absorb; how deep they nest is noted on the way."""
        nodes = graph.nodes
        absorbs: dict[int, bool] = {}  # by function
        templates: dict[int, int] = {}
        links: dict[Key, list[Key]] = {}
        anyone = graph.fuse_text_keys and not graph.annotations
        for key, node in nodes.items():
            if type(node) is not Task or candidates.isdisjoint(node._dependencies):
                continue
            if (able := absorbs.get(id(node.func))) is None:
                able = absorbs[id(node.func)] = _may_absorb(node)
            if not able:
                continue
            below = {
                dep
                for dep in node._dependencies
                if dep in candidates and small.work(nodes[dep]) and (anyone or _belong(key, dep, site))
            }
            if not below:
                continue
            depths[key], references = survey(node, templates)
            if len(references) > len(node._dependencies):
                times = Counter(references)
                below = {dep for dep in below if times[dep] == 1}
            if below:
                links[key] = [dep for dep in references if dep in below]
                for dep in below:
                    if dep not in depths:
                        depths[dep] = survey(nodes[dep], templates)[0]
        return links

    def _producers(self, graph: Graph, users: Mapping[Key, int]) -> list[Key]:
        """Tasks of known functions that one task uses; what loads or creates is not among them."""
        outputs = frozenset(graph.outputs)
        return [
            key
            for key, node in graph.nodes.items()
            if type(node) is Task
            and node._dependencies
            and users[key] == 1
            and key not in outputs
            and not node._data_producer
        ]

    def _fused(
        self, graph: Graph, links: Mapping[Key, list[Key]], depths: dict[Key, int], remarks: Remarks
    ) -> Graph:
        """Absorb bottom up: each task is used once, so that the links are trees."""
        nodes = dict(graph.nodes)
        absorbed: dict[Key, int] = {}
        fused = 0
        for key in _producers_first(links):
            task = nodes[key]
            deps = set(task._dependencies)
            most = max(self.max_inputs, len(deps))
            depth = deepest = depths[key]
            taken = 0
            values: dict[Key, GraphNode] = {}
            for dep in links[key]:
                below = nodes[dep]
                weight = taken + 1 + absorbed.get(dep, 0)
                new = below._dependencies - deps
                if weight > self.max_tasks or len(deps) - 1 + len(new) > most:
                    continue
                inside = depth + 2 + depths[dep]
                if inside > self.max_depth or not remarks.allow(self.name, dep):
                    continue
                deps.discard(dep)
                deps |= new
                deepest = max(deepest, inside)
                taken = weight
                values[dep] = below
            if values:
                absorbed[key], depths[key] = taken, deepest
                nodes[key] = with_values(task, values)
                fused += len(values)
                for dep in values:
                    del nodes[dep]
        if not fused:
            return graph
        remarks.applied(self.name, None, f"small tasks into their consumers: {fused}", fused)
        return graph.with_nodes(nodes)


class _Small(dict[Key, bool]):
    """Which blocks are known to be small; found out when first asked.

    Of the blocks of a layer that call the same function, or are data, only some are looked at, as long
    as they agree: nothing but profit hangs on it.
    """

    def __init__(self, nodes: Mapping[Key, GraphNode], facts: Facts, max_bytes: int) -> None:
        super().__init__()
        self._nodes, self._facts, self._max_bytes = nodes, facts, max_bytes
        self._alike: dict[tuple[Any, int], list[Key]] = {}

    def __missing__(self, key: Key) -> bool:
        node = self._nodes.get(key)
        if type(key) is tuple and key and node is not None:
            self._alike = self._alike or self._groups()
            keys = self._alike.pop((key[0], id(node.func) if type(node) is Task else _NO_FUNCTION), ())
            if len(keys) > 2 * _BLOCKS:
                found = set(map(self._of, keys[:: len(keys) // _BLOCKS]))
                if len(found) == 1:
                    self.update(dict.fromkeys(keys, found.pop()))
                    return self[key]
        self[key] = small = self._of(key)
        return small

    def _groups(self) -> dict[tuple[Any, int], list[Key]]:
        """Blocks of one layer that call the same function."""
        groups: defaultdict[tuple[Any, int], list[Key]] = defaultdict(list)
        for key, node in self._nodes.items():
            if type(key) is tuple and key:
                groups[key[0], id(node.func) if type(node) is Task else _NO_FUNCTION].append(key)
        return groups

    def work(self, node: GraphNode) -> bool:
        """All that a task takes is small, and what it gives."""
        return self[node.key] and all(map(self.__getitem__, node._dependencies))

    def _of(self, key: Key) -> bool:
        fact = self._facts.of(key)
        if fact is not None:
            return fact.nbytes <= self._max_bytes
        node = self._nodes.get(key)
        return type(node) is DataNode and _is_short(node.value, self._max_bytes)


def _is_short(value: Any, max_bytes: int) -> bool:
    """Whether a value is an index into blocks, and a short one."""
    if type(value) is tuple:
        return len(value) < MOST_PARTS and all(_is_short(part, max_bytes) for part in value)
    if type(value) is np.ndarray:
        return value.nbytes <= max_bytes
    return type(value) in (int, slice, type(None))


def _may_absorb(task: Task) -> bool:
    """Tasks that a worker awaits, or knows by name, stay as they are."""
    module = getattr(task.func, "__module__", None) or ""
    return not is_coroutine(task.func) and not module.startswith("distributed.")


def _belong(consumer: Key, producer: Key, site: Site) -> bool:
    if not site.graph.fuse_text_keys and (type(consumer) is str or type(producer) is str):
        return False
    return site.same_annotations(consumer, producer)


def _producers_first(links: Mapping[Key, list[Key]]) -> list[Key]:
    order: list[Key] = []
    below = set(chain.from_iterable(links.values()))
    if below.isdisjoint(links):
        return list(links)
    for top in links:
        if top in below:
            continue
        mine = [top]
        for key in mine:  # grows while it is walked
            mine.extend(dep for dep in links[key] if dep in links)
        order.extend(reversed(mine))
    return order
