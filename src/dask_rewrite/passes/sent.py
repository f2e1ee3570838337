"""For fuse-chains: blocks of a peer-to-peer rechunk are made in the tasks that send them."""

from __future__ import annotations

import sys
from dataclasses import replace

from dask._task_spec import Task

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.graph.annotations import merged
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nesting import check_depth
from dask_rewrite.graph.nodes import under
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context


def made_where_sent(graph: Graph, context: Context, name: str, deepest: int) -> Graph:
    """``rechunk_transfer(x)`` → ``rechunk_transfer(make_x(...))``, in the task of the transfer.

    Dask joins blocks before it sends them. A worker held what is joined as a result, beside all that it is
    joined of. Workers know a transfer by its name and its function, which it keeps. Legal where
    nobody else uses the block, and where it calls nothing unknown: a ``StopIteration`` would be lost.

    Parameters
    ----------
    graph : Graph
        The graph.
    context : Context
        What is known of it.
    name : str
        The pass that it is done for.
    deepest : int
        How deep tasks may nest.
    """
    transfers = context.calling(graph, _transfers())
    if not transfers or graph.origin.shared:
        return graph
    nodes, users, effects = dict(graph.nodes), context.users(graph), Effects()
    together, outputs, count = dict(graph.annotations), frozenset(graph.outputs), 0
    for task in transfers:
        if len(task._dependencies) != 1:
            continue
        (dep,) = task._dependencies
        made = nodes.get(dep)
        if type(made) is not Task or users[dep] != 1 or dep in outputs:
            continue
        annotations = merged(graph.annotations.get(task.key), graph.annotations.get(dep))
        if annotations is None or not context.may_move(made.func) or effects.unknown(made):
            continue
        joined = with_values(task, {dep: made})
        if not check_depth(joined, deepest) or not context.remarks.allow(name, task.key):
            continue
        nodes[task.key] = under(task.key, joined, task._data_producer or made._data_producer)
        del nodes[dep]
        if dep in graph.annotations:
            together[task.key] = annotations
        count += 1
    if not count:
        return graph
    context.remarks.applied(name, None, f"blocks that are made where they are sent: {count}", count)
    return replace(graph, annotations=together).with_nodes(nodes)


def _transfers() -> frozenset[int]:
    """What sends blocks of arrays to other workers; nothing where no cluster is in use."""
    rechunk = sys.modules.get("distributed.shuffle._rechunk")
    func = getattr(rechunk, "rechunk_transfer", None)
    return frozenset() if func is None else frozenset([id(func)])
