"""Small pieces of work and the task that gathers them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dask._task_spec import GraphNode, NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph import Graph
from dask_rewrite.knowledge import known
from dask_rewrite.layers import is_coroutine
from dask_rewrite.nodes import NO_DEPS, NO_KWARGS, count_references, make_container, make_task
from dask_rewrite.passes.fuse_chains import nesting
from dask_rewrite.remarks import Remarks
from dask_rewrite.rules import Site

#: Candidates that are looked at before the whole graph is: where blocks are large, none of them is small.
_SAMPLE = 64


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
        smallness: dict[Key, bool] = {}
        step = max(1, len(producers) // _SAMPLE)
        if not any(self._small(key, site, smallness) for key in producers[::step]):
            return graph
        candidates = set(producers)
        links: dict[Key, list[Key]] = {}
        for key, node in graph.nodes.items():
            below = [dep for dep in _in_order(node) if dep in candidates] if _may_absorb(node) else ()
            if below:
                links[key] = [
                    dep
                    for dep in below
                    if self._small(dep, site, smallness) and self._belongs(key, dep, site)
                ]
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

    def _small(self, key: Key, site: Site, known_already: dict[Key, bool]) -> bool:
        found = known_already.get(key)
        if found is None:
            node = site.node(key)
            found = node is not None and self._is_small(key, site)
            found = found and all(self._is_small(dep, site) for dep in node.dependencies)  # type: ignore[union-attr]
            known_already[key] = found
        return found

    def _is_small(self, key: Key, site: Site) -> bool:
        fact = site.facts.of(key)
        return fact is not None and fact.nbytes <= self.max_bytes

    def _belongs(self, consumer: Key, producer: Key, site: Site) -> bool:
        if not site.same_annotations(consumer, producer):
            return False
        if not site.graph.fuse_text_keys and (type(consumer) is str or type(producer) is str):
            return False
        return count_references(site.graph.nodes[consumer], producer) == 1

    def _fused(self, graph: Graph, links: Mapping[Key, list[Key]], remarks: Remarks) -> Graph:
        """Absorb bottom up: each task is used once, so that the links are trees."""
        nodes = dict(graph.nodes)
        absorbed: Counter[Key] = Counter()
        depths: dict[int, int] = {}
        fused = 0
        for key in _producers_first(links):
            task = nodes[key]
            deps = set(task.dependencies)
            most = max(self.max_inputs, len(deps))
            values: dict[Key, GraphNode] = {}
            for dep in links[key]:
                below = nodes[dep]
                weight = 1 + absorbed[dep]
                more = deps.union(below.dependencies) - {dep}
                if absorbed[key] + weight > self.max_tasks or len(more) > most:
                    continue
                if nesting(below, depths) + 2 + nesting(task, depths) > self.max_depth:
                    continue
                if not remarks.allow(self.name, dep):
                    continue
                deps = more
                absorbed[key] += weight
                values[dep] = below
            if values:
                nodes[key] = _absorbed(task, values)
                fused += len(values)
                for dep in values:
                    del nodes[dep]
        if not fused:
            return graph
        remarks.applied(self.name, None, f"small tasks into their consumers: {fused}", fused)
        return graph.with_nodes(nodes)


def _may_absorb(node: GraphNode) -> bool:
    if type(node) is not Task or not node._dependencies:
        return False
    if known(node.func) is not None:
        return True
    module = getattr(node.func, "__module__", None) or ""
    return not is_coroutine(node.func) and not module.startswith("distributed.")


def _in_order(node: GraphNode) -> Iterable[Key]:
    """Dependencies in the order of a node's arguments, the same in every process."""
    deps = node.dependencies
    return deps if len(deps) == 1 else sorted(deps, key=str)


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
