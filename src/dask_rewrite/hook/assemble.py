"""From tasks back to a HighLevelGraph that the rest of dask can go on working with.

Everything in dask looks a collection up under its own layer name, so every collection's layer exists,
holds all of its output keys and has true dependencies. The other tasks lie in layers of their own, one
per set of annotation names. Dependencies between layers never form a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any

from dask._task_spec import GraphNode
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.typing import Key

from dask_rewrite.graph.graph import Graph, consumers_of, producers_first
from dask_rewrite.graph.names import fingerprint
from dask_rewrite.graph.nodes import dependencies_of
from dask_rewrite.hook.task_layer import TaskLayer


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
        _hold(graph, layers, dependencies, collections or {})
    return HighLevelGraph(layers, dependencies)


def _layers(
    graph: Graph, owner: Mapping[Key, str], place: Mapping[Key, Any] | None, collections: Any
) -> tuple[dict[str, Any], dict[str, set[str]]]:
    """Layers and their dependencies, from the place of each task."""
    # Layers of one name from two rewrites would overwrite each other where the graphs are merged.
    token = _token(graph, collections) if collections else graph.origin.token
    if place is None and not collections:  # straight to a scheduler: one layer is enough
        return {f"rewrite-{token}-0": TaskLayer(graph.nodes)}, {f"rewrite-{token}-0": set()}
    grouped = _grouped(graph, owner, place, collections or ())
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
        layers[names[group]] = TaskLayer(nodes, annotations=_layer_annotations(graph, nodes))
    if len(layers) == 1:
        return layers, {name: set() for name in layers}
    if None in grouped:  # nothing in there needs a collection's block
        grouped[None] = {}
    return layers, _dependencies(grouped, names, where)


def _grouped(
    graph: Graph, owner: Mapping[Key, str], place: Mapping[Key, Any] | None, collections: Iterable[str]
) -> dict[Any, dict[Key, Any]]:
    """The tasks of each place; without places, those of each collection and the rest."""
    grouped: dict[Any, dict[Key, Any]] = {name: {} for name in collections}
    if place is not None:
        for key, node in graph.nodes.items():
            grouped.setdefault(place[key], {})[key] = node
        return grouped or {None: {}}
    rest = dict(graph.nodes)
    for key, name in owner.items():
        grouped[name][key] = rest.pop(key)
    if rest or not grouped:
        grouped[None] = rest
    return grouped


def _token(graph: Graph, collections: Iterable[str]) -> str:
    """What the names of layers differ in; the raw graph and what was asked of it decide what is in them."""
    keys: Iterable[Key] = () if graph.origin.token else chain(graph.nodes, graph.held)
    return fingerprint([graph.origin.token, len(graph.nodes), *collections, *map(str, keys)])


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
    for key in producers_first(list(graph.nodes), graph.nodes):
        if not needing.isdisjoint(graph.nodes[key].dependencies):
            needing.add(key)
    return {key: first if key in needing else None for key in graph.nodes}


def _hold(
    graph: Graph, layers: dict[str, Any], dependencies: dict[str, set[str]], collections: Mapping[str, Any]
) -> None:
    """Futures stand in a layer that all others need, so that they live as long as any part of the graph.

    Those that somebody asked for stand in the layer of their collection too.
    """
    for name, keys in collections.items():
        futures = {key: graph.held[key] for key in keys if key in graph.held}
        if futures:
            layers[name] = TaskLayer(
                {**layers[name].mapping, **futures}, annotations=layers[name].annotations
            )
    apart = f"rewrite-held-{_token(graph, collections)}"
    for needed in dependencies.values():
        needed.add(apart)
    layers[apart], dependencies[apart] = MaterializedLayer(graph.held), set()


def _places(graph: Graph, owner: dict[Key, str]) -> dict[Key, Any] | None:
    """The layer of each task, as a hashable: a collection's name, or (stage, what it carries, what it needs).

    A task's stage is one more than that of a dependency in another group, so edges between layers
    only ever lead to a later stage. None where nothing but the collection of a task matters.
    """
    annotated = graph.annotations
    if not owner and not annotated:
        return None
    kinds = {key: tuple(sorted(graph.annotations[key])) for key in annotated}
    owned = frozenset(owner)
    reused = owner and not owned.isdisjoint(chain.from_iterable(map(dependencies_of, graph.nodes.values())))
    if not annotated and not reused:
        return None
    nodes = graph.nodes
    needs = _needed_names(nodes, owner) if reused else {}
    nothing: tuple[str, ...] = ()
    place: dict[Key, Any] = {}
    if not annotated:
        place = {key: owner.get(key) or (0, nothing, needs.get(key, nothing)) for key in nodes}
    else:
        stage: dict[Key, int] = {}
        for key in producers_first(list(nodes), nodes):
            kind = kinds.get(key, ())
            deps = [d for d in nodes[key].dependencies if d in nodes]
            stage[key] = max((stage[d] + (kinds.get(d, ()) != kind) for d in deps), default=0)
            place[key] = owner.get(key) or (stage[key], kind, needs.get(key, nothing))
    if reused:  # a task between two blocks of one collection belongs to that collection
        _draw_in(nodes, owner, needs, place)
    return place


def _needed_names(nodes: Mapping[Key, GraphNode], owner: Mapping[Key, str]) -> dict[Key, tuple[str, ...]]:
    """The collections whose blocks a task needs, directly or not; tasks that need none are left out."""
    consumers = consumers_of(nodes)
    found: dict[Key, set[str]] = {}
    for key, name in owner.items():
        stack = [key]
        while stack:  # each task is met once for each collection
            for user in consumers.get(stack.pop(), ()):
                names = found.setdefault(user, set())
                if name not in names:
                    names.add(name)
                    stack.append(user)
    return {key: tuple(sorted(names)) for key, names in found.items()}


def _draw_in(
    nodes: Mapping[Key, GraphNode], owner: dict[Key, str], needs: Mapping[Key, Any], place: dict[Key, Any]
) -> None:
    stack = [(key, name) for key, name in owner.items() if name in needs.get(key, ())]
    seen: set[Key] = set()
    while stack:
        key, name = stack.pop()
        for dep in nodes[key].dependencies:
            if dep in nodes and dep not in owner and name in needs.get(dep, ()) and dep not in seen:
                seen.add(dep)
                place[dep] = name
                stack.append((dep, name))


def _dependencies(
    grouped: Mapping[Any, Mapping[Key, GraphNode]], names: Mapping[Any, str], where: Mapping[Key, str]
) -> dict[str, set[str]]:
    dependencies: dict[str, set[str]] = {}
    for group, nodes in grouped.items():
        used = set().union(*map(dependencies_of, nodes.values()))
        mine = names[group]
        dependencies[mine] = {name for name in set(map(where.get, used)) if name is not None and name != mine}
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
