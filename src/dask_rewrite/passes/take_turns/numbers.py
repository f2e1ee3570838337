"""The tasks of a graph as numbers, from what passes found out of them."""

from __future__ import annotations

from typing import Any

from dask._task_spec import DataNode
from dask.typing import Key

from dask_rewrite.analysis.effects import gives_view
from dask_rewrite.analysis.estimates import beliefs_of, estimate
from dask_rewrite.analysis.memory.blocks import Result, Results
from dask_rewrite.analysis.memory.graphs import Sized, order_of_numbers, sized
from dask_rewrite.graph.places import room_shown
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.site import Site


def numbers_of(site: Site) -> Sized:
    """A graph as numbers, in dask's order: blocks weigh what is known of them, or else taken for granted.

    Parameters
    ----------
    site : Site
        The graph, and what is known of its blocks by now.
    """
    results = Results(site.node, beliefs_of(site.facts))

    def result_of(key: Key) -> Result:
        # the size of most blocks was asked for before, and most tasks make a block of their own
        node: Any = site.node(key)
        if type(node) is not DataNode and room_shown(node, site.node) is None:
            view = gives_view(node)
            if not view or id(getattr(node, "func", None)) in GETITEMS:
                block = estimate(site.facts, key)
                if block is not None and not view:
                    return Result(block.nbytes, block.nbytes)
                if block is not None:
                    results.known[key] = block.nbytes
        return Result(*results.sizes(key))

    graph = site.graph
    threads = site.context.machine.threads
    return sized(graph.nodes, graph.outputs, result_of, threads, order_of_numbers)
