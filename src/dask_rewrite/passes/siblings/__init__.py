"""Small tasks over the same blocks, as one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.siblings.light import FEWEST
from dask_rewrite.passes.siblings.slices import is_block
from dask_rewrite.passes.siblings.together import Together
from dask_rewrite.passes.site import Site


@dataclass(frozen=True, slots=True)
class Siblings:
    """``f(x[0:1]), f(x[1:2]), ...`` → ``y = [f(x[0:1]), f(x[1:2]), ...]``, and ``y[k]`` for who uses them.

    What is done day by day, or row by row, makes many small tasks on each block, and so do several
    reductions. They go together where they wait for the same blocks, so that none waits longer than before,
    and so do the tasks that wait for their results. A small slice that only one of them uses is taken in the
    task itself where all of them together need half of the block.

    Parameters
    ----------
    max_bytes : int
        Bytes of a result, for all workers that may be sent it.
    max_tasks : int
        Tasks that one task may stand for.
    """

    name: ClassVar[str] = "siblings"
    max_bytes: int = 65_536
    max_tasks: int = 128

    def run(self, graph: Graph, context: Context) -> Graph:
        if graph.annotations or graph.origin.shared:
            return graph
        users = context.users(graph)
        busy = {key for key, count in users.items() if count >= FEWEST}
        busy = {key for key in busy if key in graph.nodes and is_block(graph.nodes[key])}
        if not busy:
            return graph
        limit = self.max_bytes // context.machine.workers
        together = Together(Site(graph, context), busy, limit, self.max_tasks)
        if not together.has_siblings():
            return graph
        together.run()
        if not together.gone:
            return graph
        gone = together.gone
        context.remarks.applied(self.name, None, f"small tasks with others: {len(gone)}", len(gone))
        nodes: Nodes = {}
        for key in graph.nodes:  # each new task where the first of its members stood
            nodes.update(together.made.get(key, ()))
            if key not in gone:
                nodes[key] = together.nodes[key]
        return graph.with_nodes(nodes)
