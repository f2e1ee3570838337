"""Tasks that only move data: slices, concatenations, transpositions, pads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dask.typing import Key

from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement.isolated import staying
from dask_rewrite.passes.movement.moves import MOVES
from dask_rewrite.passes.movement.normal_forms import Forms
from dask_rewrite.passes.movement.reshapes import RESHAPES
from dask_rewrite.passes.movement.write import Writer
from dask_rewrite.passes.site import Site


@dataclass(frozen=True, slots=True)
class Movement:
    """``concatenate([pad(x)[:2], zeros])`` through any number of tasks → one task over the source blocks.

    Appending, padding, slicing, stacking and rechunking in turns copy the same bytes again and again, and
    make more tasks each time. Each block of this kind has one normal form, a mosaic, and is made from it:
    an alias, a slice, a constant, a pad, or one concatenation. Legal where all blocks are known to be
    NumPy arrays of one dtype; of others, only slices are composed. A stage that exists to keep the graph
    small stays.

    Parameters
    ----------
    max_pieces : int
        Blocks that one task may be put together from, unless it was from as many before.
    max_whole : int
        Bytes of a block that may travel as a whole where only a slice of it is needed: that saves a task.
    """

    name: ClassVar[str] = "movement"
    max_pieces: int = 16
    max_whole: int = 65_536

    def run(self, graph: Graph, context: Context) -> Graph:
        remarks = context.remarks
        nodes = graph.nodes
        moves = {task.key for task in context.calling(graph, MOVES | RESHAPES)}
        if not context.fuse_text_keys:
            moves = {key for key in moves if type(key) is not str}
        if not moves:
            return graph
        site = Site(graph, context)
        still = staying(moves, site, self.max_whole)
        moves -= still
        if not moves:
            return graph
        pinned = self._pinned(graph, moves)
        forms = Forms(site, moves, pinned, self.max_pieces, still)
        forms.learn()
        writer = Writer(forms, self.max_whole)
        made: Nodes = {}
        place: dict[Key, int] = {}
        work = [key for key in nodes if key in pinned]
        changed = 0
        for key in work:  # grows while it is worked off
            if key in made:
                continue
            task = nodes[key]
            found = writer.task(key)
            new = task if isinstance(found, str) else found
            if isinstance(found, str):
                remarks.missed(self.name, key, found)
            elif new is not task and not remarks.allow(self.name, key):
                new = task
            if new is not task:
                changed += 1
                remarks.applied(self.name, key)
            made[key] = new
            needed = [dep for dep in new._dependencies if dep in moves and dep not in made]
            if writer.cuts:
                needed += [source for dep in new._dependencies if (source := writer.cut_from(dep)) in moves]
            if len(needed) > 1:
                place = place or {key: i for i, key in enumerate(nodes)}
                needed.sort(key=place.__getitem__)
            work.extend(needed)
        after = self._assembled(graph, moves, made, writer) if changed else graph
        for each in (forms, writer):  # they refer to each other, and would keep the old graph for long
            vars(each).clear()
        return after

    def _pinned(self, graph: Graph, moves: set[Key]) -> set[Key]:
        """The moves that outputs are, or that other tasks use."""
        others = [node._dependencies for key, node in graph.nodes.items() if key not in moves]
        used: frozenset[Key] = frozenset().union(*others)
        return moves & used.union(graph.outputs)

    def _assembled(self, graph: Graph, moves: set[Key], made: Nodes, writer: Writer) -> Graph:
        nodes: Nodes = {key: node for key, node in graph.nodes.items() if key not in moves or key in made}
        nodes.update(made)
        nodes.update(writer.cuts)
        annotations = graph.annotations
        if annotations and writer.annotations:
            graph = replace(graph, annotations={**annotations, **writer.annotations})
        writer.site.context.without_unused(nodes, graph.outputs)
        return graph.with_nodes(nodes)
