"""Tasks that no output needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dask_rewrite.graph.graph import Graph, reachable
from dask_rewrite.passes.context import Context


@dataclass(frozen=True, slots=True)
class Sweep:
    """Unreachable task → nothing.

    Lowering makes only what is asked for, but a rewrite can leave something behind; it would be sent
    though nobody runs it. Always legal.
    """

    name: ClassVar[str] = "sweep"

    def run(self, graph: Graph, context: Context) -> Graph:
        if not context.leftovers:
            return graph
        nodes = graph.nodes
        # Without cycles, a graph in which only outputs have no users is reachable as a whole.
        if not nodes.keys() - context.users(graph).keys() - set(graph.outputs):
            return graph
        seen = reachable(nodes, graph.outputs)
        unused = len(nodes) - len(seen)
        context.remarks.applied(self.name, None, f"unreachable tasks: {unused}", unused)
        return graph.with_nodes({key: node for key, node in nodes.items() if key in seen})
