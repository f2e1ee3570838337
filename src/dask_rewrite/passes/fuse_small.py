"""Small pieces of work and the task that gathers them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dask._task_spec import GraphNode, NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph import Graph
from dask_rewrite.layers import is_coroutine
from dask_rewrite.nodes import NO_DEPS, NO_KWARGS, children, make_container, make_task
from dask_rewrite.passes.fuse_chains import nesting
from dask_rewrite.remarks import Remarks
from dask_rewrite.rules import Site

#: Candidates that are looked at before the whole graph is: where blocks are large, none of them is small.
_SAMPLE = 24


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
        sizes: dict[Key, bool] = {}
        step = max(1, len(producers) // _SAMPLE)
        if not any(self._small(key, site, sizes) for key in producers[::step]):
            return graph
        candidates = set(producers)
        absorbs: dict[int, bool] = {}  # by function
        links: dict[Key, list[Key]] = {}
        for key, node in graph.nodes.items():
            if type(node) is not Task or candidates.isdisjoint(node._dependencies):
                continue
            if (able := absorbs.get(id(node.func))) is None:
                able = absorbs[id(node.func)] = _may_absorb(node)
            if not able:
                continue
            below = [
                dep
                for dep in node._dependencies
                if dep in candidates and self._small(dep, site, sizes) and _belong(key, dep, site)
            ]
            if below:
                references = _references(node)
                links[key] = sorted((dep for dep in below if references[dep] == 1), key=str)
        return self._fused(graph, {key: below for key, below in links.items() if below}, remarks)

    def _producers(self, graph: Graph, users: Counter[Key]) -> list[Key]:
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

    def _small(self, key: Key, site: Site, sizes: dict[Key, bool]) -> bool:
        node = site.graph.nodes[key]
        return self._is_small(key, site, sizes) and all(
            self._is_small(dep, site, sizes) for dep in node.dependencies
        )

    def _is_small(self, key: Key, site: Site, sizes: dict[Key, bool]) -> bool:
        found = sizes.get(key)
        if found is None:
            fact = site.facts.of(key)
            found = fact is not None and fact.nbytes <= self.max_bytes
            sizes[key] = found
        return found

    def _fused(self, graph: Graph, links: Mapping[Key, list[Key]], remarks: Remarks) -> Graph:
        """Absorb bottom up: each task is used once, so that the links are trees."""
        nodes = dict(graph.nodes)
        absorbed: Counter[Key] = Counter()
        templates: dict[int, int] = {}
        depths: dict[Key, int] = {}
        fused = 0
        for key in _producers_first(links):
            task = nodes[key]
            deps = set(task.dependencies)
            most = max(self.max_inputs, len(deps))
            depth = deepest = nesting(task, templates)
            values: dict[Key, GraphNode] = {}
            for dep in links[key]:
                below = nodes[dep]
                weight = 1 + absorbed[dep]
                new = below.dependencies - deps
                if absorbed[key] + weight > self.max_tasks or len(deps) - 1 + len(new) > most:
                    continue
                if dep not in depths:
                    depths[dep] = nesting(below, templates)
                if depth + 2 + depths[dep] > self.max_depth:
                    continue
                if not remarks.allow(self.name, dep):
                    continue
                deps.discard(dep)
                deps |= new
                deepest = max(deepest, depth + 2 + depths[dep])
                absorbed[key] += weight
                values[dep] = below
            depths[key] = deepest
            if values:
                nodes[key] = _absorbed(task, values)
                fused += len(values)
                for dep in values:
                    del nodes[dep]
        if not fused:
            return graph
        remarks.applied(self.name, None, f"small tasks into their consumers: {fused}", fused)
        return graph.with_nodes(nodes)


def _may_absorb(task: Task) -> bool:
    """Tasks that a worker awaits, or knows by name, stay as they are."""
    module = getattr(task.func, "__module__", None) or ""
    return not is_coroutine(task.func) and not module.startswith("distributed.")


def _belong(consumer: Key, producer: Key, site: Site) -> bool:
    if not site.graph.fuse_text_keys and (type(consumer) is str or type(producer) is str):
        return False
    return site.same_annotations(consumer, producer)


def _references(task: Task) -> Counter[Key]:
    """How often a task refers to each key."""
    counts: Counter[Key] = Counter()
    stack: list[Any] = [task]
    while stack:
        for child in children(stack.pop()):
            if isinstance(child, TaskRef):
                counts[child.key] += 1
            elif isinstance(child, Task):
                if child._dependencies:
                    stack.append(child)
            else:
                counts.update(child.dependencies)
    return counts


def _producers_first(links: Mapping[Key, list[Key]]) -> list[Key]:
    order: list[Key] = []
    below = {dep for deps in links.values() for dep in deps}
    for top in links:
        if top in below:
            continue
        mine = [top]
        for key in mine:  # grows while it is walked
            mine.extend(dep for dep in links[key] if dep in links)
        order.extend(reversed(mine))
    return order


def _absorbed(task: GraphNode, values: Mapping[Key, GraphNode]) -> Task:
    body = _filled(task, values)
    assert isinstance(body, Task)
    producer = isinstance(task, Task) and task.data_producer
    return make_task(task.key, body.func, body.args, body.kwargs, body._dependencies, producer)


def _filled(node: Any, values: Mapping[Key, GraphNode]) -> Any:
    """The node with the producers in the place of the references to them."""
    if isinstance(node, TaskRef):
        found = values.get(node.key, node)
        return _nameless(found) if found is not node else node
    if not isinstance(node, GraphNode) or node.dependencies.isdisjoint(values):
        return node
    deps = NO_DEPS.union(*[values[d].dependencies if d in values else (d,) for d in node.dependencies])
    if type(node) is Task:
        args = tuple([_filled(arg, values) for arg in node.args])
        kwargs = {k: _filled(v, values) for k, v in node.kwargs.items()} if node.kwargs else NO_KWARGS
        return make_task(node.key, node.func, args, kwargs, deps)
    if isinstance(node, NestedContainer):
        return make_container(node, tuple([_filled(arg, values) for arg in node.args]), deps)
    return node.substitute({key: values[key] for key in node.dependencies if key in values})


def _nameless(node: Any) -> Any:
    return make_task(None, node.func, node.args, node.kwargs, node._dependencies)
