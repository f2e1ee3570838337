"""The same work under two names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.estimates import believed
from dask_rewrite.analysis.facts import Fact, Facts
from dask_rewrite.graph.graph import Consumers, Graph, Nodes
from dask_rewrite.graph.nodes import NO_KWARGS, make_task
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.share.bulk_effects import maybe_written, users_of
from dask_rewrite.passes.share.immutable import is_frozen
from dask_rewrite.passes.share.rows import picked_too
from dask_rewrite.passes.share.value_numbering import Numbering
from dask_rewrite.remarks import Remarks

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
        Blocks of the same constant are the same whoever made them, and rows that are picked are not
        sliced as well. They may lie in memory in another way, which can change the order in which numbers
        are added up.
    """

    name: ClassVar[str] = "share"
    reassociate: bool = True

    def run(self, graph: Graph, context: Context) -> Graph:
        facts = context.facts(graph.nodes.get)
        if self.reassociate:
            graph = _rows_once(graph, facts, context)
        leaves = [key for key, node in graph.nodes.items() if not node._dependencies]
        numbering = Numbering(graph, facts, self.reassociate, context.consumers)
        numbering.run(leaves)
        if not numbering.classes:
            return graph
        return _merged(graph, facts, numbering, context)


def _rows_once(graph: Graph, facts: Facts, context: Context) -> Graph:
    """The graph in which rows that are picked are not sliced as well."""
    remarks = context.remarks
    found = {
        key: other
        for key, other in picked_too(graph, facts, context).items()
        if remarks.allow(Share.name, key)
    }
    if not found:
        return graph
    for other in found.values():
        remarks.applied(Share.name, other, "stands for a slice of the same row")
    return _renamed(graph, {key: TaskRef(other) for key, other in found.items()}, {}, context)


@dataclass(slots=True)
class _Group:
    """Tasks that compute the same and may be merged, as far as their users allow it."""

    keys: list[Key]
    constant: Fact | None
    frozen: bool = False
    large: bool = False


def _merged(graph: Graph, facts: Facts, numbering: Numbering, context: Context) -> Graph:
    """The graph in which one of each class stands for all of it."""
    remarks = context.remarks
    before, consumers, outputs = graph.nodes, numbering.consumers, frozenset(graph.outputs)
    groups = _groups(graph, facts, numbering, outputs)
    wanted = [key for group in groups if not (group.frozen or group.large) for key in group.keys]
    unsafe = maybe_written(wanted, before, consumers, outputs, numbering.behaviour)
    renamed: dict[Key, TaskRef] = {}
    made: Nodes = {}
    for group in groups:
        chosen = _chosen(group, unsafe, before, remarks)
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
        return graph
    return _renamed(graph, renamed, made, context)


def _renamed(graph: Graph, renamed: dict[Key, TaskRef], made: Nodes, context: Context) -> Graph:
    """The graph without the tasks that others stand for, some of which are made anew."""
    before, consumers = graph.nodes, context.consumers(graph)
    nodes = {key: node for key, node in before.items() if key not in renamed}
    for user in set(users_of(renamed, consumers)).difference(renamed):
        nodes[user] = with_values(nodes[user], renamed)
    nodes.update(made)
    if any(before[key]._dependencies for key in (*renamed, *made)):
        context.without_unused(nodes, graph.outputs)
    return graph.with_nodes(nodes)


def _groups(graph: Graph, facts: Facts, numbering: Numbering, outputs: frozenset[Key]) -> list[_Group]:
    """What might be merged of each class."""
    nodes = graph.nodes
    groups = []
    joining = _Joining(graph, numbering.consumers)
    for same in numbering.classes:
        members = same.members
        if len(members) < 2:
            continue
        keys = joining.others(
            members if outputs.isdisjoint(members) else [k for k in members if k not in outputs]
        )
        if len(keys) < 2:
            continue
        group = _Group(keys, same.constant, is_frozen(nodes[keys[0]]))
        if type(nodes[keys[0]]) is not DataNode:
            fact = same.constant or believed(facts, keys[0])
            if fact is not None and fact.nbytes > LARGE:  # what is declared of a block need not be so
                fact = facts.of(keys[0])
                facts.same(keys[0], members)
                group.large = fact is not None and fact.nbytes > LARGE
        groups.append(group)
    return groups


def _chosen(
    group: _Group, unsafe: set[Key], nodes: Nodes, remarks: Remarks
) -> tuple[GraphNode, list[Key]] | None:
    """The node that may stand for others, and those others."""
    keys = group.keys
    if group.large:
        remarks.missed(Share.name, keys[0], "the blocks are large", len(keys) - 1)
        return None
    safe = keys if group.frozen else [key for key in keys if key not in unsafe]
    if len(safe) < len(keys):
        remarks.missed(
            Share.name, keys[0], "somebody may write into the blocks", len(keys) - max(1, len(safe))
        )
    if len(safe) < 2:
        return None
    # a constant is made from nothing, so that it depends on nothing that it may stand for
    first = next((key for key in safe if not nodes[key]._dependencies), safe[0])
    node = nodes[first]
    if group.constant is not None and node._dependencies:
        node = _filled(first, group.constant, node.data_producer)
    return node, [key for key in safe if key != first]


class _Joining:
    """Which sources are small, so that other passes make them part of the one task that uses them."""

    def __init__(self, graph: Graph, consumers: Consumers) -> None:
        self._nodes = graph.nodes
        self._elementwise = graph.origin.elementwise
        self._consumers = consumers
        self._known: dict[Key, bool] = {}

    def others(self, keys: list[Key]) -> list[Key]:
        """The tasks that are no such sources."""
        nodes, consumers, known = self._nodes, self._consumers, self._known
        found = []
        for key in keys:
            node = nodes[key]
            users = () if node._dependencies else consumers.get(key, ())
            if len(users) == 1 and (type(node) is Task or _is_small(node)):
                user = users[0]
                if user not in known:
                    known[user] = self._takes_sources(user)
                if known[user]:
                    continue
            found.append(key)
        return found

    def _takes_sources(self, user: Key) -> bool:
        nodes = self._nodes
        inputs = nodes[user]._dependencies
        if len(inputs) == 1:
            return True
        layer = user[0] if type(user) is tuple and user else None
        return (
            layer in self._elementwise
            and len(inputs) <= 8
            and all(dep in nodes and not nodes[dep]._dependencies for dep in inputs)
        )


def _is_small(node: GraphNode) -> bool:
    return type(node) is not DataNode or getattr(node.value, "nbytes", 0) <= 4096


def _filled(key: Key, fact: Fact, producer: bool) -> GraphNode:
    if fact.scalar:
        return DataNode(key, fact.fill)
    return make_task(key, np.full, (fact.shape, fact.fill, fact.dtype), NO_KWARGS, frozenset(), producer)
