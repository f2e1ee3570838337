"""Tiny tasks that do the same on neighbouring blocks, as one task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar

from dask.typing import Key

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import fingerprint, mark
from dask_rewrite.passes.coalesce.forms import forms
from dask_rewrite.passes.coalesce.groups import groups, place_of
from dask_rewrite.passes.coalesce.reads import MergedReads
from dask_rewrite.passes.coalesce.tiles import tile_edges, tiled
from dask_rewrite.passes.coalesce.weights import Weights
from dask_rewrite.passes.coalesce.write import Batch, Writer
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.waiting import Waiting


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
        site = Site(graph, context)
        weights = Weights(site, self.max_bytes, self.max_unknown)
        token = fingerprint([self.name, graph.origin.token])
        nodes: Any = graph.nodes
        waiting: Waiting | None = None
        reads = MergedReads(site.facts.value)
        for levels, most in groups(graph, context, weights):
            keys = [key for level in levels for key in level]
            places = [(number, *place_of(key)) for number, level in enumerate(levels) for key in level]
            blocks = dict(zip(places, keys))
            waiting = waiting or Waiting(site)
            limits = [n if may else 1 for n, may in zip(waiting.limits(blocks), weights.axes(blocks))]
            edges = tile_edges(places, most, limits)
            for form in forms([nodes[key] for key in keys]):
                pick_form = itemgetter(*form.rows)
                members = pick_form(keys)
                call, producer = form.template.__call__, nodes[members[0]]._data_producer
                tiles = tiled(pick_form(places), edges)
                for rows in chain.from_iterable([waiting.near(tile, members) for tile in tiles]):
                    first = members[rows[0]]
                    if len(rows) > 1 and context.remarks.allow(self.name, first):
                        pick = itemgetter(*rows)
                        columns = list(map(pick, form.columns))
                        name = mark(first[0], token)
                        found = Batch((name, *first[1:]), pick(members), call, columns, producer)
                        site.facts.tell_list(found.key, found.members)
                        yield reads.of(found)
