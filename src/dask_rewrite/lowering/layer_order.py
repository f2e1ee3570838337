"""Layers: as a graph of them, and in order, consumers before producers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key

from dask_rewrite.graph.names import layer_name


def layer_order(hlg: HighLevelGraph, outputs: Collection[Key]) -> tuple[list[str], dict[str, list[str]]]:
    """Layers that the outputs need, consumers before producers, and the users of each."""
    layers, dependencies = hlg.layers, hlg.dependencies
    names = dict.fromkeys(map(layer_name, outputs))
    starts: list[Any] = list(names if layers.keys() >= names.keys() else layers)
    users: dict[str, list[str]] = {name: [] for name in starts}
    needs: dict[str, list[str]] = {}
    stack = list(starts)
    while stack:
        name = stack.pop()
        found = [dep for dep in dependencies.get(name, ()) if dep in layers]
        if len(found) > 1:
            found.sort(key=str)
        needs[name] = found
        for dep in found:
            if dep not in users:
                users[dep] = []
                stack.append(dep)
            users[dep].append(name)
    waiting = {name: len(using) for name, using in users.items()}
    ready = [name for name, count in waiting.items() if not count]
    order = []
    while ready:
        name = ready.pop()
        order.append(name)
        for dep in needs[name]:
            waiting[dep] -= 1
            if not waiting[dep]:
                ready.append(dep)
    if len(order) < len(waiting):  # a cycle of layers (not of tasks) is possible in hand-made graphs
        order += [name for name, count in waiting.items() if count]
    return order, users


def as_layers(dsk: HighLevelGraph | Mapping[Key, Any], name: str = "graph") -> HighLevelGraph:
    """The graph as a HighLevelGraph; a plain mapping becomes one layer."""
    if isinstance(dsk, HighLevelGraph):
        return dsk
    return HighLevelGraph.from_collections(name, dsk, dependencies=())
