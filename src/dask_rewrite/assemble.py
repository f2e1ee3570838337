"""From tasks back to a HighLevelGraph that the rest of dask can go on working with.

Everything in dask looks a collection up under its own layer name, so every collection's layer exists,
holds all of its output keys and has true dependencies. The other tasks lie in layers of their own, one
per set of annotation names. Dependencies between layers never form a cycle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from typing import Any

from dask._task_spec import GraphNode, Task, TaskRef
from dask.base import clone_key
from dask.graph_manipulation import chunks
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.typing import Key
from toolz import identity

from dask_rewrite.graph import Graph
from dask_rewrite.names import fingerprint, layer_name
from dask_rewrite.nodes import renamed
from dask_rewrite.program import operation


class TaskLayer(MaterializedLayer):
    """A layer of task nodes that can be cloned and bound; dask's own knows tuples only.

    Pickled it becomes dask's own layer.
    """

    def clone(self, keys: Set[Key], seed: Hashable, bind_to: Key | None = None) -> tuple[TaskLayer, bool]:
        """The layer under new keys; tasks without dependencies among ``keys`` wait for ``bind_to``."""
        made: dict[Key, Any] = {}
        bound = False
        for key, node in self.mapping.items():
            if key not in keys:
                made[key] = node
                continue
            key = clone_key(key, seed)
            subs = {dep: clone_key(dep, seed) for dep in node.dependencies if dep in keys}
            if subs or bind_to is None:
                made[key] = renamed(node.substitute(subs), key)
            else:
                inner = node if isinstance(node, Task) else operation(identity, (node,))
                made[key] = Task(key, chunks.bind, inner, TaskRef(bind_to), _data_producer=node.data_producer)
                bound = True
        return TaskLayer(made, annotations=self.annotations), bound

    def __reduce__(self) -> Any:
        return MaterializedLayer, (dict(self.mapping), self.annotations)


def assemble(graph: Graph, collections: Mapping[str, Iterable[Key]] | None = None) -> HighLevelGraph:
    """The graph as a HighLevelGraph.

    Parameters
    ----------
    graph : Graph
        Tasks, outputs, annotations and futures.
    collections : mapping of str to keys, optional
        Layer name of each collection and its output keys. None: the graph goes straight to a
        scheduler, and the names do not matter.
    """
    owner: dict[Key, str] = {}
    for name, keys in (collections or {}).items():
        for key in keys:
            if key in graph.nodes:
                owner[key] = name
    layers, dependencies = _layers(graph, owner, _places(graph, owner), collections)
    if owner and _is_cyclic(dependencies):
        layers, dependencies = _layers(graph, owner, _together(graph, owner), collections)
    if graph.held:
        _hold(graph, layers, dependencies, set(collections or ()))
    return HighLevelGraph(layers, dependencies)


def _layers(
    graph: Graph, owner: Mapping[Key, str], place: Mapping[Key, Any] | None, collections: Any
) -> tuple[dict[str, Any], dict[str, set[str]]]:
    """Layers and their dependencies, from the place of each task."""
    if place is None and not collections:  # straight to a scheduler: one layer is enough
        return {"rewrite-tasks-0": MaterializedLayer(graph.nodes)}, {"rewrite-tasks-0": set()}
    grouped: dict[Any, dict[Key, Any]] = {name: {} for name in collections or {}}
    for key, node in graph.nodes.items():
        grouped.setdefault(place[key] if place else None, {})[key] = node
    if not grouped:
        grouped[None] = {}
    kind = MaterializedLayer if collections is None else TaskLayer
    # Layers of one name from two rewrites would overwrite each other where the graphs are merged.
    token = fingerprint(map(str, graph.nodes)) if collections else "tasks"
    names = {
        group: group if isinstance(group, str) else f"rewrite-{token}-{i}" for i, group in enumerate(grouped)
    }
    layers: dict[str, Any] = {}
    where: dict[Key, str] = {}
    for group, nodes in grouped.items():
        where.update(dict.fromkeys(nodes, names[group]))
    for key, name in owner.items():
        grouped[name].setdefault(key, graph.nodes[key])  # every collection's layer holds its keys
    for group, nodes in grouped.items():
        layers[names[group]] = kind(nodes, annotations=_layer_annotations(graph, nodes))
    if len(layers) == 1:
        return layers, {name: set() for name in layers}
    return layers, _dependencies(grouped, names, where)


def _is_cyclic(dependencies: Mapping[str, Iterable[str]]) -> bool:
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError:
        return True
    return False


def _together(graph: Graph, owner: Mapping[Key, str]) -> dict[Key, Any]:
    """Places for collections whose blocks need each other, as the factors of `linalg.lu` do.

    All that belongs to them lies in the layer of the first; the others hold copies of their own keys.
    """
    first = next(iter(owner.values()))
    needing = set(owner)
    for key in topological(graph.nodes):
        if not needing.isdisjoint(graph.nodes[key].dependencies):
            needing.add(key)
    return {key: first if key in needing else None for key in graph.nodes}


def _hold(
    graph: Graph, layers: dict[str, Any], dependencies: dict[str, set[str]], collections: set[str]
) -> None:
    """Futures stand in a layer, under their own keys, so that they live as long as the graph does."""
    held: dict[str, dict[Key, Any]] = {}
    for key, future in graph.held.items():
        layer = layer_name(key)
        held.setdefault(layer if layer in collections else f"rewrite-held-{layer}", {})[key] = future
    for name, futures in held.items():
        if name in layers:
            layers[name] = MaterializedLayer(
                {**layers[name].mapping, **futures}, annotations=layers[name].annotations
            )
            continue
        layers[name] = MaterializedLayer(futures)
        dependencies[name] = set()
    separate = [name for name in held if name not in collections]
    for name in list(dependencies):
        if name not in held:
            dependencies[name] = dependencies[name] | set(separate)


def _places(graph: Graph, owner: dict[Key, str]) -> dict[Key, Any] | None:
    """The layer of each task, as a hashable: a collection's name, or (stage, what it carries, what it needs).

    A task's stage is one more than that of a dependency in another group, so edges between layers
    only ever lead to a later stage.
    """
    annotated = graph.annotations
    if not owner and not annotated:
        return None
    kinds = {key: tuple(sorted(graph.annotations[key])) for key in annotated}
    reused = owner and any(not owner.keys().isdisjoint(node.dependencies) for node in graph.nodes.values())
    if not annotated and not reused:
        return {key: owner.get(key) for key in graph.nodes}
    place: dict[Key, Any] = {}
    stage: dict[Key, int] = {}
    needs: dict[Key, frozenset[str]] = {}
    none: frozenset[str] = frozenset()
    nodes = graph.nodes
    for key in topological(nodes):
        kind = kinds.get(key, ())
        deps = [d for d in nodes[key].dependencies if d in nodes]
        below = none.union(*[needs[d] | {owner[d]} if d in owner else needs[d] for d in deps])
        stage[key] = max((stage[d] + (kinds.get(d, ()) != kind) for d in deps), default=0)
        needs[key] = below
        place[key] = owner.get(key) or (stage[key], kind, tuple(sorted(below)))
    if reused:  # a task between two blocks of one collection belongs to that collection
        _draw_in(nodes, owner, needs, place)
    return place


def _draw_in(
    nodes: Mapping[Key, GraphNode], owner: dict[Key, str], needs: Mapping[Key, Any], place: dict[Key, Any]
) -> None:
    stack = [(key, name) for key, name in owner.items() if name in needs[key]]
    seen: set[Key] = set()
    while stack:
        key, name = stack.pop()
        for dep in nodes[key].dependencies:
            if dep in nodes and dep not in owner and name in needs[dep] and dep not in seen:
                seen.add(dep)
                place[dep] = name
                stack.append((dep, name))


def topological(nodes: Mapping[Key, GraphNode]) -> list[Key]:
    """Keys with producers before consumers, without recursion."""
    order: list[Key] = []
    done: set[Key] = set()
    for start in nodes:
        stack: list[Key] = [start]
        while stack:
            key = stack[-1]
            if key in done:
                stack.pop()
                continue
            missing = [d for d in nodes[key].dependencies if d in nodes and d not in done]
            if missing:
                stack.extend(missing)
                continue
            done.add(key)
            order.append(key)
            stack.pop()
    return order


def _dependencies(
    grouped: Mapping[Any, Mapping[Key, GraphNode]], names: Mapping[Any, str], where: Mapping[Key, str]
) -> dict[str, set[str]]:
    dependencies: dict[str, set[str]] = {}
    for group, nodes in grouped.items():
        used: set[Key] = set()
        for node in nodes.values():
            used |= node.dependencies
        mine = names[group]
        found = set(map(where.get, used)) - {None, mine}
        dependencies[mine] = found  # type: ignore[assignment]
    return dependencies


def _layer_annotations(graph: Graph, nodes: Mapping[Key, Any]) -> dict[str, Any] | None:
    """One dict for a layer: a plain value where all tasks agree, a lookup by key elsewhere."""
    if not graph.annotations:
        return None
    annotated = {key: graph.annotations[key] for key in nodes if key in graph.annotations}
    if not annotated:
        return None
    found: dict[str, Any] = {}
    for name in sorted(set().union(*annotated.values())):
        values = {key: value[name] for key, value in annotated.items() if name in value}
        first = next(iter(values.values()))
        same = len(values) == len(nodes) and all(
            value is first or value == first for value in values.values()
        )
        if same:
            found[name] = first
        elif len(values) == len(nodes):
            found[name] = values.__getitem__
        elif name in _NEUTRAL:  # a layer that is only partly annotated
            found[name] = {key: values.get(key, _NEUTRAL[name]) for key in nodes}.__getitem__
    return found


#: What a task without the annotation would have.
_NEUTRAL: dict[str, Any] = {
    "priority": 0,
    "retries": 0,
    "resources": {},
    "workers": [],
    "allow_other_workers": False,
}
