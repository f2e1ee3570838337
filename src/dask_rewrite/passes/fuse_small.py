"""Small pieces of work and the task that gathers them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any, ClassVar, cast

import numpy as np
from dask._task_spec import DataNode, GraphNode, NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.facts import Facts
from dask_rewrite.graph import Graph, producers_first
from dask_rewrite.kinds import ALIAS, ITEMS, KINDS, NODE, RAW, REF
from dask_rewrite.layers import is_coroutine
from dask_rewrite.nodes import make_container, make_task, nameless
from dask_rewrite.remarks import Remarks
from dask_rewrite.rules import Site
from dask_rewrite.survey import depth_of, depth_of_call

#: Candidates that are looked at before the whole graph is: where blocks are large, none of them is small.
_SAMPLE = 24
#: Blocks of a layer that are looked at, if it has more than twice as many.
_BLOCKS = 8
#: In place of the identity of a function, for data.
_NO_FUNCTION = 0
#: Longer tuples are not looked into.
MOST_PARTS = 16
_NAMING = (REF, ALIAS)


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
        candidates = {key for key in producers if small.work(graph.nodes[key])}
        absorbing = _Absorbing(self, site, candidates, remarks)
        fused = absorbing.run()
        if not fused:
            return graph
        remarks.applied(self.name, None, f"small tasks into their consumers: {fused}", fused)
        return graph.with_nodes(absorbing.nodes)

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


class _Absorbing:
    """Puts producers in the place of the references to them, in one walk over each consumer."""

    def __init__(self, bounds: FuseSmall, site: Site, candidates: set[Key], remarks: Remarks) -> None:
        self.nodes: dict[Key, Any] = dict(site.graph.nodes)
        self._before, self._site = site.graph.nodes, site
        self._candidates, self._remarks = candidates, remarks
        self._max_tasks, self._max_depth = bounds.max_tasks, bounds.max_depth
        self._max_inputs = bounds.max_inputs
        self._anyone = site.graph.fuse_text_keys and not site.graph.annotations
        self._absorbed: dict[Key, int] = {}  # how many tasks a task has taken in
        self._depths: dict[Key, int] = {}  # how deep those nest that have
        self._templates: dict[int, int] = {}

    def run(self) -> int:
        """Go through the graph bottom up, and say how many tasks were absorbed."""
        nodes, candidates = self.nodes, self._candidates
        able: dict[int, bool] = {}  # by function
        consumers = set()
        for key, node in self._before.items():
            if type(node) is Task and not candidates.isdisjoint(node._dependencies):
                if (may := able.get(id(node.func))) is None:
                    may = able[id(node.func)] = _may_absorb(node)
                if may:
                    consumers.add(key)
        fused = 0
        for key in producers_first(consumers, self._before):
            task = self._filled(nodes[key])
            if not self._taken:
                continue
            nodes[key] = task
            self._depths[key], self._absorbed[key] = self._deepest, self._weight
            fused += len(self._taken)
            for dep in self._taken:
                del nodes[dep]
        return fused

    def _filled(self, task: Any) -> Task:
        """The task with all inside that it may absorb."""
        while True:
            self._consumer = task.key
            self._taken: set[Key] = set()
            self._twice: set[Key] = set()
            self._deps = set(task._dependencies)
            self._most = max(self._max_inputs, len(self._deps))
            self._weight = self._deepest = 0
            filled = self._walk(task, 0)
            if not self._twice:
                return filled
            self._candidates -= self._twice  # what is referred to twice would run twice

    def _walk(self, node: Task, level: int) -> Task:
        """A task or container, so many levels below the consumer, with tasks in place of references."""
        candidates, before = self._candidates, len(self._taken)
        nested = type(node) is not Task
        self._note(level, node.func)
        gained: set[Key] = set()
        parts: list[Any] = []
        for part in (*node.args, *node.kwargs.values()) if node.kwargs and not nested else node.args:
            kind = REF if type(part) is TaskRef else KINDS[type(part)]
            if kind in _NAMING:
                key = part.key if kind == REF else part.target
                if key in candidates:
                    found = self._take(key, level + 1)
                    if found is None:
                        candidates.discard(key)  # for good: there may be a second reference to it
                    else:
                        part = nameless(found)
                        gained |= found._dependencies
            elif type(part) is Task or kind == ITEMS:
                inner = self._walk(part, level + 1)
                if inner is not part:
                    part = inner
                    gained |= inner._dependencies
            elif kind == RAW:
                self._note(level, part)
            elif kind == NODE:  # of another class, which keeps its references
                if isinstance(part, Task):
                    self._deepest = max(self._deepest, level + 1 + depth_of(part, self._templates))
                self._twice |= self._taken & part.dependencies
                candidates -= part.dependencies
            parts.append(part)
        if len(self._taken) == before:
            return node
        deps = node._dependencies.difference(self._taken).union(gained)
        if nested:
            return make_container(cast(NestedContainer, node), tuple(parts), deps)
        count = len(node.args)
        kwargs = dict(zip(node.kwargs, parts[count:])) if node.kwargs else node.kwargs
        return make_task(node.key, node.func, tuple(parts[:count]), kwargs, deps, node._data_producer)

    def _note(self, level: int, call: Any) -> None:
        if type(call) is MethodType:
            level += depth_of_call(call, self._templates)
        if level > self._deepest:
            self._deepest = level

    def _take(self, key: Key, level: int) -> Task | None:
        """The task to stand in the place of a reference, if it may."""
        if key in self._taken:
            self._twice.add(key)
            return None
        if not (self._anyone or _belong(self._consumer, key, self._site)):
            return None
        task: Task = self.nodes[key]
        weight = self._weight + 1 + self._absorbed.get(key, 0)
        new = task._dependencies - self._deps
        if weight > self._max_tasks or len(self._deps) - 1 + len(new) > self._most:
            return None
        depth = self._depths.get(key)
        if depth is None:
            depth = depth_of(task, self._templates)
        depth += level
        if depth > self._max_depth or not self._remarks.allow(FuseSmall.name, key):
            return None
        if depth > self._deepest:
            self._deepest = depth
        self._weight = weight
        self._deps |= new
        self._deps.discard(key)
        self._taken.add(key)
        return task


class _Small(dict[Key, bool]):
    """Which blocks are known to be small; found out when first asked.

    Of the blocks of a layer that call the same function, or are data, only some are looked at, as long
    as they agree: nothing but profit hangs on it.
    """

    def __init__(self, nodes: Mapping[Key, GraphNode], facts: Facts, max_bytes: int) -> None:
        super().__init__()
        self._nodes, self._facts, self._max_bytes = nodes, facts, max_bytes
        self._alike: dict[tuple[Any, int], list[Key]] | None = None

    def __missing__(self, key: Key) -> bool:
        node = self._nodes.get(key)
        if type(key) is tuple and key and node is not None:
            if self._alike is None:
                self._alike = self._groups()
            keys = self._alike.pop((key[0], id(node.func) if type(node) is Task else _NO_FUNCTION), ())
            if len(keys) > 2 * _BLOCKS:
                step = len(keys) // _BLOCKS | 1  # odd: every other block may be of another size
                found = set(map(self._of, keys[::step]))
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
