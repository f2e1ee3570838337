"""Tiny tasks that do the same on neighbouring blocks, as one task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar

from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.graph.graph import Graph, Nodes, depths_of
from dask_rewrite.graph.names import fingerprint, mark
from dask_rewrite.graph.nodes import func_of
from dask_rewrite.passes.coalesce.forms import forms
from dask_rewrite.passes.coalesce.tiles import tile_edges, tiled
from dask_rewrite.passes.coalesce.weights import Weights
from dask_rewrite.passes.coalesce.write import Batch, Writer
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Site


@dataclass(frozen=True, slots=True)
class Coalesce:
    """``y0 = f(x0); y1 = f(x1); ...`` → ``y = [f(x) for x in (x0, x1, ...)]``, for very many tiny tasks.

    A task costs the scheduler, a worker and the network the better part of a millisecond, whatever it does.
    Where a graph has more of them than any machine runs at once, neighbouring blocks of an array that are
    made alike become the list that one task makes (horizontal fusion). Legal where nobody asked for the
    blocks, and among tasks of equal depth, none of which can wait for another. Worth it where blocks are
    small; for each thread several tasks are left, more of them where functions are unknown, since these
    may be slow.

    Parameters
    ----------
    min_tasks : int
        Graphs of fewer tasks stay as they are.
    max_bytes : int
        Largest block, in bytes, that counts as small.
    max_unknown : int
        Tasks that one takes the place of where functions are unknown; 1 leaves those alone.
    """

    name: ClassVar[str] = "coalesce"
    min_tasks: int = 2_000
    max_bytes: int = 65_536
    max_unknown: int = 16

    def run(self, graph: Graph, context: Context) -> Graph:
        if len(graph.nodes) < self.min_tasks or graph.origin.shared:
            return graph
        batches = list(self._batches(graph, context))
        if not batches:
            return graph
        writer = Writer(batches)
        places = writer.places
        made = {each.members[0]: writer.written(each) for each in batches}
        nodes: dict[Key, Any] = {}
        for key, node in graph.nodes.items():
            if key not in places:
                nodes[key] = writer.without_members(node)
            elif key in made:
                nodes[made[key].key] = made[key]
        text = f"tiny tasks in batches: {len(places)} in {len(batches)}"
        context.remarks.applied(self.name, None, text, len(places))
        return graph.with_nodes(nodes)

    def _batches(self, graph: Graph, context: Context) -> Iterator[Batch]:
        weights = Weights(Site(graph, context), self.max_bytes, self.max_unknown)
        token = fingerprint([self.name, graph.origin.token])
        layers = _layers(graph, context)
        together = {name: most for name, keys in layers.items() if (most := weights.together(keys)) > 1}
        nodes: Any = graph.nodes
        for (name, _), keys in _levels(nodes, {name: layers[name] for name in together}).items():
            if len(keys) < 2:
                continue
            edges = tile_edges([key[1:] for key in keys], together[name], weights.axes(keys))
            for form in forms([nodes[key] for key in keys]):
                members = [keys[row] for row in form.rows]
                call, producer = form.template.__call__, nodes[members[0]]._data_producer
                for rows in tiled([key[1:] for key in members], edges):
                    first = members[rows[0]]
                    if len(rows) > 1 and context.remarks.allow(self.name, first):
                        pick = itemgetter(*rows)
                        columns = list(map(pick, form.columns))
                        yield Batch((mark(name, token), *first[1:]), pick(members), call, columns, producer)


def _layers(graph: Graph, context: Context) -> dict[str, list[Any]]:
    """The blocks of each array that may be made together."""
    nodes: Any = graph.nodes
    layers: defaultdict[str, list[Any]] = defaultdict(list)
    tasks = [key for key, node in nodes.items() if type(node) is Task]
    for key in [key for key in tasks if type(key) is tuple and len(key) > 1]:
        layers[key[0]].append(key)
    aside = {*graph.outputs, *graph.annotations}
    aside.update(*[node._dependencies for node in nodes.values() if type(node) is not Task])
    for name, keys in [*layers.items()]:
        if not aside.isdisjoint(keys):
            layers[name] = keys = [key for key in keys if key not in aside]
        functions = {id(func): func for func in map(func_of, map(nodes.__getitem__, keys))}
        if type(name) is not str or not _is_grid(keys) or not all(map(context.may_move, functions.values())):
            del layers[name]
        else:
            keys.sort()
    return layers


def _levels(nodes: Nodes, layers: Mapping[str, list[Any]]) -> dict[Any, list[Any]]:
    """The blocks of each array that are equally deep in the graph."""
    groups: dict[Any, list[Any]] = {}
    depths = depths_of(nodes) if layers else {}
    for name, keys in layers.items():
        levels = list(map(depths.__getitem__, keys))
        if levels.count(levels[0]) == len(levels):
            groups[name, levels[0]] = keys
            continue
        for depth, key in zip(levels, keys):
            groups.setdefault((name, depth), []).append(key)
    return groups


def _is_grid(keys: Sequence[tuple[Any, ...]]) -> bool:
    """Whether keys are those of blocks, of which there are several."""
    if len(keys) < 2 or len(set(map(len, keys))) > 1:
        return False
    _, *axes = zip(*keys)
    return set(map(type, chain.from_iterable(axes))) == {int}
