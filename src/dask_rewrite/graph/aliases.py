"""Blocks under a second name, and graphs without them."""

from __future__ import annotations

from dask._task_spec import Alias, TaskRef
from dask.typing import Key

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.substitute import with_values


def without_aliases(graph: Graph) -> Graph:
    """Inner blocks that are other blocks under a second name stand between a task and its consumer."""
    if graph.origin.shared:  # somebody else may know them by either name
        return graph
    nodes, outputs = graph.nodes, frozenset(graph.outputs)
    aliases = {key: node.target for key, node in nodes.items() if type(node) is Alias and key not in outputs}
    if not aliases:
        return graph
    refs: dict[Key, TaskRef] = {}
    for key in aliases:
        path = []
        while key in aliases and key not in refs:
            path.append(key)
            key = aliases[key]
        refs.update(dict.fromkeys(path, refs.get(key) or TaskRef(key)))
    return graph.with_nodes(
        {key: with_values(node, refs) for key, node in nodes.items() if key not in aliases}
    )
