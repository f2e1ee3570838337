"""For fuse-chains: arrays in memory that one task uses, put into that task."""

from __future__ import annotations

from typing import Any

from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.kinds import is_array
from dask_rewrite.graph.nodes import under
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Site

#: Bytes that one task may carry: it is sent as one message, and run again as a whole.
MOST_BYTES = 2**20


def with_own_data(graph: Graph, context: Context, name: str) -> Graph:
    """The graph with small arrays in the tasks that use them, where nobody else does.

    A cluster gets a key less for each, and nothing is moved from worker to worker: the array goes to
    where the task runs.

    Parameters
    ----------
    graph : Graph
        The graph.
    context : Context
        What a pass may use.
    name : str
        The pass in whose name this is done.
    """
    nodes = graph.nodes
    if graph.origin.shared:  # somebody else may hold what uses these
        return graph
    arrays: dict[Any, Any] = {key: node for key, node in nodes.items() if is_array(node)}
    data = {key: node.value.nbytes for key, node in arrays.items() if type(key) is tuple}
    if not data:
        return graph
    users = context.users(graph)
    own = {key for key in data if users[key] == 1}.difference(graph.outputs)
    site = Site(graph, context)
    changed: Nodes = {}
    gone: set[Key] = set()
    for key, node in nodes.items():
        if type(node) is not Task or type(key) is not tuple or own.isdisjoint(node._dependencies):
            continue
        mine = [dep for dep in node._dependencies if dep in own and site.same_annotations(key, dep)]
        few = 0 < sum([data[dep] for dep in mine]) <= MOST_BYTES
        if few and context.may_move(node.func) and context.remarks.allow(name, key):
            values = {dep: nodes[dep] for dep in mine}
            made = with_values(node, values)
            changed[key] = under(key, made, True) if isinstance(made, Task) else made
            gone.update(mine)
            context.regrouped.add(key)
    if not changed:
        return graph
    context.remarks.applied(name, None, f"arrays in the tasks that use them: {len(gone)}", len(gone))
    return graph.with_nodes({key: changed.get(key, node) for key, node in nodes.items() if key not in gone})
