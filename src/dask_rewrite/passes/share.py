"""The same work under two names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dask._task_spec import DataNode, GraphNode, TaskRef
from dask.typing import Key

from dask_rewrite.facts import Fact
from dask_rewrite.frozen import is_frozen
from dask_rewrite.graph import Graph, Nodes
from dask_rewrite.nodes import NO_KWARGS, make_task, with_references
from dask_rewrite.numbering import Numbering, Same
from dask_rewrite.remarks import Remarks
from dask_rewrite.rules import Site

#: Larger blocks are not shared: to make one anew may cost less than to hold it, or to send it.
LARGE = 2**20


@dataclass(frozen=True, slots=True)
class Share:
    """``a = f(x); b = f(x)`` → ``a``.

    Thousands of blocks of the same constant, and the sums over them, collapse to a few. Legal where all
    functions in the tasks are known to be pure, constants agree bit for bit, and nobody who gets one of
    the blocks may write into it; what is wanted as a result keeps a block of its own.

    Parameters
    ----------
    reassociate : bool
        Blocks of the same constant are the same whoever made them. They may lie in memory in another
        way, which can change the order in which numbers are added up.
    """

    name: ClassVar[str] = "share"
    reassociate: bool = True

    def run(self, graph: Graph, remarks: Remarks) -> Graph:
        leaves = [key for key, node in graph.nodes.items() if not node._dependencies]
        site = Site(graph)
        numbering = Numbering(site, self.reassociate)
        numbering.run(leaves)
        if not numbering.classes:
            return graph
        site.alike = numbering.tokens
        return _merged(numbering.classes, site, remarks)


def _merged(classes: Iterable[Same], site: Site, remarks: Remarks) -> Graph:
    """The graph in which one of each class stands for all of it."""
    before = site.graph.nodes
    outputs = frozenset(site.graph.outputs)
    renamed: dict[Key, TaskRef] = {}
    made: Nodes = {}
    for same in classes:
        chosen = _chosen(same.members, same.constant, outputs, site, remarks)
        if chosen is None:
            continue
        node, others = chosen
        ref = TaskRef(node.key)
        merged = [key for key in others if remarks.allow(Share.name, key)]
        if not merged:
            continue
        renamed.update(dict.fromkeys(merged, ref))
        if node is not before[node.key]:
            made[node.key] = node
        remarks.applied(Share.name, node.key, f"stands for as many others: {len(merged)}", len(merged))
    if not renamed:
        return site.graph
    nodes = {key: node for key, node in before.items() if key not in renamed}
    for user in {user for key in renamed for user in site.consumers(key)} & nodes.keys():
        nodes[user] = with_references(nodes[user], renamed)
    nodes.update(made)
    lost = [dep for key in (*renamed, *made) for dep in before[key]._dependencies]
    graph = site.graph.with_nodes(nodes)
    _drop_unused(graph, [renamed[dep].key if dep in renamed else dep for dep in lost])
    if remarks.check is not None:
        remarks.check(graph)
    return graph


def _chosen(
    members: list[Key], constant: Fact | None, outputs: frozenset[Key], site: Site, remarks: Remarks
) -> tuple[GraphNode, list[Key]] | None:
    """The node that may stand for others, and those others."""
    if len(members) < 2:
        return None
    nodes = site.graph.nodes
    keys = [key for key in members if key not in outputs and not _joins_its_consumer(key, site)]
    if len(keys) < 2:
        return None
    fact = constant or site.facts.of(keys[0])
    if fact is not None and fact.nbytes > LARGE and type(nodes[keys[0]]) is not DataNode:
        remarks.missed(Share.name, keys[0], "the blocks are large", len(keys) - 1)
        return None
    safe = keys if is_frozen(nodes[keys[0]]) else [key for key in keys if site.read_only(key)]
    if len(safe) < len(keys):
        remarks.missed(
            Share.name, keys[0], "somebody may write into the blocks", len(keys) - max(1, len(safe))
        )
    if len(safe) < 2:
        return None
    # a constant is made from nothing, so that it depends on nothing that it may stand for
    first = next((key for key in safe if not nodes[key]._dependencies), safe[0])
    node = nodes[first]
    if constant is not None and node._dependencies:
        node = _filled(first, constant, node.data_producer)
    return node, [key for key in safe if key != first]


def _joins_its_consumer(key: Key, site: Site) -> bool:
    """A small source that other passes make part of the one task that uses it: nothing is won."""
    nodes = site.graph.nodes
    node = nodes[key]
    if node._dependencies or (type(node) is DataNode and getattr(node.value, "nbytes", 0) > 4096):
        return False
    users = site.consumers(key)
    if len(users) != 1:
        return False
    (user,) = users
    inputs = nodes[user]._dependencies
    if len(inputs) == 1:
        return True
    layer = user[0] if type(user) is tuple and user else None
    return (
        layer in site.graph.elementwise
        and len(inputs) <= 8
        and all(dep in nodes and not nodes[dep]._dependencies for dep in inputs)
    )


def _filled(key: Key, fact: Fact, producer: bool) -> GraphNode:
    if fact.scalar:
        return DataNode(key, fact.fill)
    return make_task(key, np.full, (fact.shape, fact.fill, fact.dtype), NO_KWARGS, frozenset(), producer)


def _drop_unused(graph: Graph, suspects: list[Key]) -> None:
    nodes, outputs = graph.nodes, frozenset(graph.outputs)
    users = graph.users()
    while suspects:
        key = suspects.pop()
        if key in nodes and not users[key] and key not in outputs:
            for dep in nodes.pop(key)._dependencies:
                users[dep] -= 1
                suspects.append(dep)
            graph.annotations.pop(key, None)
