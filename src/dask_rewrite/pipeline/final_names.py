"""Which inner tasks go under their own names in the end: those that wait for nothing.

A task's name is that of its block and says what its value is. A scheduler mixes up two tasks of one name
only where they wait for different things, so that the others get the mark of their rewrite, or one after
the keys of what was hoisted out of them, if they wait for nothing else (`dask_rewrite.lowering.hoisted`).
What loads keeps its name, and whoever else holds the block loads it together with us: a dataframe beside its
array, or the same array in another program that runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from dask._task_spec import DataNode, GraphNode, TaskRef
from dask.typing import Key

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.held import is_held
from dask_rewrite.graph.names import carrying, marked
from dask_rewrite.graph.nodes import renamed
from dask_rewrite.graph.substitute import with_values


def data_keys(graph: Graph) -> Set[Key]:
    """Keys of the values that stand in a graph: arrays, locks."""
    return {key for key, node in graph.nodes.items() if type(node) is DataNode and type(key) is str}


def settle_names(graph: Graph, data: Set[Key], regrouped: Set[Key] = frozenset()) -> Graph:
    """Give each inner task that waits for nothing its own name, and only to those, now that all is fused.

    Parameters
    ----------
    graph : Graph
        After all passes.
    data : set of Key
        Keys of values that stood in the raw graph.
    regrouped : set of Key
        Tasks that make what they would wait for under dask's optimizer: they go under the mark.
    """
    if graph.origin.shared:
        return graph
    nodes, outputs, original = graph.nodes, frozenset(graph.outputs), graph.origin.names
    changed: dict[Key, Any] = {}
    for key in graph.origin.kept:
        node = nodes.get(key)
        if node is None or node._dependencies <= data or key in outputs:
            continue
        if type(key) is tuple:  # it waits for something that a pass made
            held = [dep for dep in node._dependencies if is_held(nodes.get(dep))]
            only = node._dependencies.difference(held) <= data
            changed[key] = marked(key, carrying(held) if only else graph.origin.token)
    for key in regrouped:
        if type(key) is tuple and key in nodes and key not in outputs and key[0] not in original:
            changed[key] = marked(key, graph.origin.token)
    if original:
        own_names = [key for key, node in nodes.items() if node._dependencies <= data]
        for key in own_names if not regrouped else [key for key in own_names if key not in regrouped]:
            own = _own_name(key, original)
            if own is not None and own not in nodes and key not in outputs:
                changed[key] = own
    return with_names(graph, changed) if changed else graph


def _own_name(key: Any, original: Mapping[Any, Any]) -> Any:
    if type(key) is not tuple or not key:
        return original.get(key)
    old = original.get(key[0])
    return None if old is None else (old, *key[1:])


def with_names(graph: Graph, changed: Mapping[Key, Any]) -> Graph:
    """The same graph with other keys for some of its tasks."""
    refs = {key: TaskRef(new) for key, new in changed.items()}
    none_of, new_name = refs.keys().isdisjoint, changed.get
    nodes: dict[Key, GraphNode] = {}
    for key, node in graph.nodes.items():
        if node._dependencies and not none_of(node._dependencies):
            node = with_values(node, refs)
        if (new := new_name(key)) is not None:
            key, node = new, renamed(node, new)
        nodes[key] = node
    annotations = {new_name(key, key): value for key, value in graph.annotations.items()}
    return replace(graph, nodes=nodes, annotations=annotations)
