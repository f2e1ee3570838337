"""Lists of positions that stand in nodes of their own, by which dask's shuffles tie all reads of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import chunk
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import LOADING_IDS
from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.nodes import NO_KWARGS, make_task
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.takes import SHUFFLE

#: Bytes of positions that may stand in each task that picks from a read.
_MOST_BYTES = 2048


def with_lists(graph: Graph, context: Context, name: str) -> Graph:
    """``_getitem(read, pair)`` → ``getitem(read, positions)``: so a read can go with what picks from it.

    Parameters
    ----------
    graph : Graph
        In which it is not worth it to plan how much of each block is needed, which would do the same.
    context : Context
        What is shared by all passes.
    name : str
        Of the pass.
    """
    nodes = graph.nodes
    lists: dict[Key, Any] = {}
    made: Nodes = {}
    for task in context.calling(graph, {id(SHUFFLE)}):
        if task.kwargs or len(task.args) != 2:
            continue
        source, pair = task.args
        if type(source) is not TaskRef or type(pair) is not TaskRef:
            continue
        below = nodes.get(source.key)
        if type(below) is not Task or id(below.func) not in LOADING_IDS:
            continue
        if pair.key not in lists:
            lists[pair.key] = _short(nodes.get(pair.key))
        index = lists[pair.key]
        if index is not None and context.remarks.allow(name, task.key):
            deps = frozenset([source.key])
            made[task.key] = make_task(
                task.key, chunk.getitem, (source, index), NO_KWARGS, deps, task._data_producer
            )
    if not made:
        return graph
    context.remarks.applied(name, None, f"lists of positions in the tasks that pick: {len(made)}", len(made))
    after = {**nodes, **made}
    context.without_unused(after, graph.outputs)
    return graph.with_nodes(after)


def _short(node: Any) -> Any:
    """The index in a node, if that is a pair as dask makes them and short."""
    pair = node.value if type(node) is DataNode else None
    if type(pair) is not tuple or len(pair) != 2 or type(pair[1]) is not tuple:
        return None
    index = pair[1]
    if not all(type(item) in (slice, np.ndarray) for item in index):
        return None
    return index if sum([item.nbytes for item in index if type(item) is np.ndarray]) <= _MOST_BYTES else None
