"""Tasks that no output needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dask.typing import Key

from dask_rewrite.graph import Graph
from dask_rewrite.remarks import Remarks


@dataclass(frozen=True, slots=True)
class Sweep:
    """Unreachable task → nothing.

    Lowering makes only what is asked for, but a rewrite can leave something behind; it would be sent
    though nobody runs it. Always legal.
    """

    name: ClassVar[str] = "sweep"

    def run(self, graph: Graph, remarks: Remarks) -> Graph:
        nodes = graph.nodes
        seen: set[Key] = set(graph.outputs)
        stack = list(seen)
        while stack:
            node = nodes.get(stack.pop())
            if node is None:
                continue
            new = node.dependencies - seen
            if new:
                seen |= new
                stack.extend(new)
        if len(seen) >= len(nodes) and seen.issuperset(nodes):
            return graph
        unused = [key for key in nodes if key not in seen]
        if not unused:
            return graph
        remarks.applied(self.name, None, f"{len(unused)} unreachable tasks", len(unused))
        return Graph(
            {key: node for key, node in nodes.items() if key in seen},
            graph.outputs,
            {key: value for key, value in graph.annotations.items() if key in seen},
            graph.elementwise,
            graph.fuse_text_keys,
            graph.held,
        )
