"""A graph that is rewritten file by file, whose tables are kept up to date instead of being made anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from dask.typing import Key

from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.names import layer_name
from dask_rewrite.graph.postorder import postorder
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.boxes import Box
from dask_rewrite.passes.movement.moves import JOINS
from dask_rewrite.passes.site import Site

#: Tasks of more blocks than this are wide; how many of these are looked at, or how often each on the average.
_WIDE, _MANY, _OFTEN = 64, 65_536, 16


class Worksite(Site):
    """A graph that is rewritten file by file: what each of them takes depends on its own tasks alone.

    Parameters
    ----------
    graph : Graph
        The graph before; it is not changed.
    context : Context
        What is shared by all passes.
    """

    def __init__(self, graph: Graph, context: Context) -> None:
        super().__init__(graph, context)
        self._before = graph
        self._renamed: dict[Key, Key] = {}  # new names, by those before
        self._first: dict[Key, Key] = {}  # names in the graph before, by new ones
        self._elementwise: set[str] = set()  # names of layers that were renamed
        self.seeing: set[Key] = set()  # tasks that see where the blocks of a file end

    @cached_property
    def has_joins(self) -> bool:
        """Something was put together before: what this pass puts together is of no use to it."""
        return bool(self.context.calling(self._before, JOINS))

    @cached_property
    def _turns(self) -> dict[Key, int]:
        """Places of tasks in about the order in which they will run."""
        nodes = self._before.nodes
        place = {key: i for i, key in enumerate(nodes)}
        turns = postorder(self._before.outputs, lambda key: nodes[key]._dependencies, place.__getitem__)
        return {key: i for i, key in enumerate(turns)}

    def in_turn(self, blocks: Mapping[Key, Box]) -> dict[Key, Box]:
        """Boxes in about the order in which their tasks will run."""
        turns = self._turns
        places = {key: place for key in blocks if (place := turns.get(self._first.get(key, key))) is not None}
        return {key: blocks[key] for key in sorted(places, key=places.__getitem__)}

    @cached_property
    def _looks(self) -> int:
        """How many blocks of wide tasks may still be looked at."""
        needs = [len(node._dependencies) for node in self._before.nodes.values()]
        return max(_MANY, _OFTEN * sum([n for n in needs if n > _WIDE]))

    def may_look(self, key: Key) -> bool:
        """Whether to look at a task: at one of blocks of very many files not once more for each of these."""
        width = len(self.graph.nodes[key]._dependencies)
        if width <= _WIDE:
            return True
        self._looks -= width
        return self._looks >= 0 and key not in self.seeing

    def put(self, made: Nodes, annotations: Mapping[Key, dict[str, Any]]) -> None:
        """Put in new tasks, with their annotations, and tasks that stand in place of others."""
        before = self.graph.nodes
        new = {key: node for key, node in made.items() if key not in before}
        instead = [key for key in made if key in before]
        for key in instead:
            self.replace(key, {**new, key: made[key]} if key == instead[0] else {key: made[key]})
        kept = self.graph.annotations
        if kept:  # they do not have those of what they were put in with
            for key in new:
                kept.pop(key, None)
            kept.update(annotations)

    def rename(self, names: Mapping[Key, Key], made: Nodes) -> None:
        """Put in tasks under new names, and those that use them; nobody uses the old names any more."""
        before = self.graph.annotations
        self.put(made, {new: before[key] for key, new in names.items() if key in before})
        self._renamed.update(names)
        for key, new in names.items():
            self._first[new] = self._first.get(key, key)
            layer = layer_name(key)
            if layer in self._before.origin.elementwise or layer in self._elementwise:
                self._elementwise.add(layer_name(new))

    def result(self) -> Graph:
        """The graph with all that was put in; the one before if that was nothing."""
        if not self.changed:
            return self._before
        graph, nodes = self.graph, self.graph.nodes
        if self._renamed:  # they stand where they stood before
            nodes = {}
            for key in self._before.nodes:
                while key in self._renamed:
                    key = self._renamed[key]
                if key in graph.nodes:
                    nodes[key] = graph.nodes[key]
            nodes.update(graph.nodes)
            elementwise = graph.origin.elementwise.union(self._elementwise)
            graph = replace(graph, origin=replace(graph.origin, elementwise=elementwise))
        self.context.without_unused(nodes, graph.outputs)
        return graph.with_nodes(nodes)
