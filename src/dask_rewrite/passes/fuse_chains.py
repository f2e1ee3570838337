"""Linear chains of tasks, and elementwise work with its sources."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.typing import Key
from toolz import pipe

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.graph.aliases import without_aliases
from dask_rewrite.graph.annotations import merged
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nesting import Depths, survey
from dask_rewrite.graph.nodes import Deps, children, needs_of, under
from dask_rewrite.graph.templates import frame_of
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.framed import Framed
from dask_rewrite.passes.movement.moves import JOINS
from dask_rewrite.passes.outline import Outliner
from dask_rewrite.passes.own_data import with_own_data
from dask_rewrite.passes.sent import made_where_sent

#: Tasks that wait for more are not looked at as links of chains.
MOST_INPUTS = 16
#: How many tasks before a producer may be what waits for something.
_LOOK_BACK = 4


@dataclass(frozen=True, slots=True)
class FuseChains:
    """``c(b(a(x)))`` in three tasks → one task.

    Each task costs the scheduler a fraction of a millisecond, and its result a place in memory. Legal
    where each producer has this one consumer, which uses nothing else; also where all that
    an elementwise task uses are sources of its own, and where the producer waits for whatever else its
    consumer waits for. Short chains nest; longer ones, those that use a value twice, and those of calls that
    nobody knows, become programs or called templates.

    Parameters
    ----------
    max_length : int
        Longer chains are cut.
    max_depth : int
        Nesting that fused tasks may reach.
    max_sources : int
        Sources (tasks without dependencies) that one task may absorb, so that loads stay parallel, and
        blocks that a chain may make beside what it hands on: a step of a program names all that later
        steps are given, and programs of few steps are the same ones.
    """

    name: ClassVar[str] = "fuse-chains"
    max_length: int = 64
    max_depth: int = 16
    max_sources: int = 8

    def run(self, graph: Graph, context: Context) -> Graph:
        graph = made_where_sent(self._fused(graph, context), context, self.name, self.max_depth)
        return with_own_data(graph, context, self.name)

    def _fused(self, graph: Graph, context: Context) -> Graph:
        graph = without_aliases(graph)
        templates = Depths()
        depths: dict[Key, int] = {}
        after: set[Key] = set()  # consumers whose producer is done once, before anything else of them
        links = self._links(graph, context, templates, depths, after)
        if not links:
            return graph
        nodes = dict(graph.nodes)
        together = dict(graph.annotations)
        outliner, framed = Outliner(), Framed()
        absorbed = {p for producers in links.values() for p in producers}
        fused = 0
        for top in [key for key in links if key not in absorbed]:
            for chain in self._cut(_chain(top, links), links, nodes):
                if not context.remarks.allow(self.name, chain[0]):
                    continue
                for key in chain:
                    if key not in depths:
                        depths[key] = survey(nodes[key], templates)[0]
                joined = self._joined(chain, nodes, depths, outliner, after, framed)
                if joined is None:
                    continue
                for key in chain[1:]:
                    del nodes[key]
                    if key in graph.annotations:
                        together[chain[0]] = merged(graph.annotations[key], together.get(chain[0])) or {}
                nodes[chain[0]] = joined
                if not context.regrouped.isdisjoint(chain):
                    context.regrouped.add(chain[0])
                fused += len(chain) - 1
        if not fused:
            return graph
        context.remarks.applied(self.name, None, f"tasks into their consumers: {fused}", fused)
        return replace(graph, annotations=together).with_nodes(nodes)

    def _links(
        self,
        graph: Graph,
        context: Context,
        templates: Depths,
        depths: dict[Key, int],
        after: set[Key],
    ) -> dict[Key, list[Key]]:
        """For each consumer, the producers that it could absorb; how deep it nests is noted on the way."""
        nodes = graph.nodes
        most, elementwise = self.max_sources, graph.origin.elementwise
        users: Mapping[Key, int] | None = None
        outputs = frozenset(graph.outputs)
        links: dict[Key, list[Key]] = {}
        effects = Effects()
        for key, node in nodes.items():
            deps = node._dependencies
            if not deps or type(node) is not Task:
                continue
            if users is None:
                users = context.users(graph)
            if len(deps) == 1:
                (dep,) = deps
                alone = users[dep] != 1 or (graph.origin.shared and _is_load(dep, graph))
                producers = [] if alone else [dep]
            elif graph.origin.shared:  # somebody else may hold what is below
                producers = []
            elif len(deps) <= most and type(key) is tuple and key and key[0] in elementwise:
                if any(users[dep] != 1 or dep not in nodes or nodes[dep].dependencies for dep in deps):
                    producers = _waited_for(deps, nodes, users)
                elif _joins(node):
                    producers = []
                else:
                    producers = sorted(deps, key=str)
            else:
                producers = _waited_for(deps, nodes, users)
            if not producers or not all(_may_link(key, dep, graph, outputs, context) for dep in producers):
                continue
            if not context.fuse_text_keys and str in map(type, (key, *producers)):
                continue
            depths[key], references, _ = survey(node, templates)
            if all(references.count(dep) == 1 for dep in producers):
                links[key] = producers
            elif len(producers) == 1:
                links[key] = producers
                after.add(key)
            if len(deps) > 1 and key in links and any(effects.unknown(nodes[k]) for k in (key, *producers)):
                after.add(key)  # which may write into what the other takes as well
        return links

    def _cut(
        self, chain: list[Key], links: Mapping[Key, list[Key]], nodes: Mapping[Key, GraphNode]
    ) -> list[list[Key]]:
        """Pieces of a chain that are not too long, and make no more than so many blocks on the way.

        A consumer of several sources stays with all of these.
        """
        short = len(chain) <= min(self.max_length, self.max_sources)
        if short and all(getattr(nodes[key], "func", None) is not pipe for key in chain):
            return [chain]
        several = (i for i, key in enumerate(chain) if len(links.get(key, ())) > 1)
        end = next(several, len(chain))
        members = frozenset(chain)
        pieces: list[list[Key]] = []
        made = 0
        for key in chain[:end]:
            more = _made(nodes[key], members)
            if not pieces or len(pieces[-1]) == self.max_length or made + more > self.max_sources:
                pieces.append([])
                made = 0
            pieces[-1].append(key)
            made += more
        if pieces and len(pieces[-1]) + len(chain) - end <= self.max_length:
            pieces[-1].extend(chain[end:])
        else:
            pieces.append(chain[end:])
        return [piece for piece in pieces if 1 < len(piece) <= self.max_length]

    def _joined(
        self,
        chain: list[Key],
        nodes: Mapping[Key, GraphNode],
        depths: Mapping[Key, int],
        outliner: Outliner,
        after: set[Key],
        framed: Framed,
    ) -> Task | None:
        """One task for a chain (consumer first), or None if it would nest too deep."""
        tasks = [nodes[key] for key in chain]
        for i in reversed(range(1, len(tasks))):  # a consumer must not have lost its own list yet
            tasks[i] = streamed(tasks[i], tasks[i - 1])
        inner = [depths[key] for key in chain]
        producer = any(task.data_producer for task in tasks)
        if len(chain) <= 4 and sum(inner) + len(chain) <= self.max_depth // 2:
            body: Task = framed.nested(chain, tasks, after)
            if body.key == chain[0] and producer == body._data_producer:
                return body
            return under(chain[0], body, producer)
        if max(inner) + 3 > self.max_depth:
            return None
        members = dict(zip(reversed(chain), reversed(tasks)))
        return outliner.program(chain[0], members, TaskRef(chain[0]), producer)


def _is_load(key: Key, graph: Graph) -> bool:
    """Whether a block waits for nothing but data: of an array or delayed, since dask fuses those of bags."""
    node = graph.nodes.get(key)
    if node is None or (type(key) is tuple and key and key[0] not in graph.origin.elementwise):
        return False
    return all(type(graph.nodes.get(dep)) is DataNode for dep in node._dependencies)


def _waited_for(deps: Deps, nodes: Mapping[Key, GraphNode], users: Mapping[Key, int]) -> list[Key]:
    """The one producer that has waited for all that its consumer waits for: together they start no later."""
    if len(deps) > MOST_INPUTS:
        return []
    # nobody waits for lists of positions; blocks of arrays in memory may have a way to go
    waits = frozenset([dep for dep in deps if type(dep) is tuple or type(nodes.get(dep)) is not DataNode])
    for dep in waits:
        if users[dep] == 1:  # all others have a second user: what comes before this one
            late = waits - {dep}
            if not late:
                return [dep]
            key = dep
            for _ in range(_LOOK_BACK):
                below = nodes.get(key)
                late = late if below is None else late - below.dependencies
                if not late:
                    return [dep]
                if below is None or len(below.dependencies) != 1:
                    return []
                (key,) = below.dependencies
            return []
    return []


def _chain(top: Key, links: Mapping[Key, list[Key]]) -> list[Key]:
    """Consumer first; only its last element can have several producers, all of them sources."""
    chain = [top]
    while (producers := links.get(chain[-1])) is not None:
        chain.extend(producers)
        if len(producers) > 1:
            break
    return chain


def _may_link(key: Key, dep: Key, graph: Graph, outputs: frozenset[Key], context: Context) -> bool:
    below = graph.nodes.get(dep)
    if below is None or dep in outputs or (type(below) is not Task and type(below) is not DataNode):
        return False
    annotations = graph.annotations
    if annotations and merged(annotations.get(key), annotations.get(dep)) is None:
        return False
    return _may_move(graph.nodes[key], context) and _may_move(below, context)


def _made(node: GraphNode, members: Set[Key]) -> int:
    """Calls in a task that need none of the members, those in the steps of a program too."""
    found = 0
    stack: list[Any] = [node] if type(node) is Task else []
    while stack:
        here = stack.pop()
        if here is not node and here._dependencies.isdisjoint(members):
            found += here.func is not operator.getitem
            continue
        stack += [child for child in children(here) if type(child) is Task]
        if here.func is pipe and (frame := frame_of(here)) is not None:
            free = {name for name, value in frame.inputs.items() if members.isdisjoint(needs_of((value,)))}
            steps = [arg for body in frame.bodies for arg in body.kwargs.values() if type(arg) is Task]
            found += sum(free.issuperset(step._dependencies) for step in steps)
    return found


def _joins(task: Task) -> bool:
    """Whether a task puts blocks together: to load all of them in it might take as long as all others do."""
    stack: list[Any] = [task]
    while stack:
        here = stack.pop()
        if id(here.func) in JOINS:
            return True
        stack += [child for child in children(here) if isinstance(child, Task)]
    return False


def _may_move(node: GraphNode, context: Context) -> bool:
    return type(node) is not Task or context.may_move(node.func)


def streamed(node: GraphNode, consumer: GraphNode) -> GraphNode:
    """A bag's task without the list that it would make of its elements, for a consumer of the same kind."""
    bags = sys.modules.get("dask.bag.core")
    if bags is None or type(node) is not Task or type(consumer) is not Task:
        return node
    if node.func is bags.reify and consumer.func is bags.reify:
        (inner,) = node.args
        if type(inner) is Task:
            return under(node.key, inner)
    return node
