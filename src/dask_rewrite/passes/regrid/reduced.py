"""Elementwise work that stands in reductions, as arrays of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dask._task_spec import GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.nodes import make_task, under
from dask_rewrite.passes.movement.moves import MOVES
from dask_rewrite.passes.regrid.arrays import Array
from dask_rewrite.passes.regrid.grids import extents_along, is_crumbled
from dask_rewrite.passes.regrid.work import works_by_element
from dask_rewrite.passes.site import Site


class Apart(NamedTuple):
    """A graph in which work and reductions of it are two tasks."""

    graph: Graph
    names: Mapping[Any, Array]  # of the work: the reductions


def taken_apart(site: Site) -> Apart:
    """Reductions of elementwise work on slivers, and this work, each as tasks of its own.

    ``sum(x[0:1] + y[0:1])`` is one task where dask fuses it: the work goes on a coarse grid only by itself.
    """
    found: dict[Any, dict[Key, None]] = {}
    graph = site.graph
    for func, tasks in site.context.by_function(graph).items():
        if func not in MOVES and _work(tasks[0]) is not None:
            for task in tasks:
                if type(task.key) is tuple and len(task.key) > 1 and _work(task) is not None:
                    found.setdefault(task.key[0], {})[task.key] = None
    facts, nodes = site.facts, graph.nodes
    made: Nodes = {}
    names: dict[Any, Array] = {}
    for name, keys in found.items():
        array = Array(name, keys)

        def of(key: Key) -> Any:
            work = _work(nodes[key])
            return None if work is None else facts.of_node(work)

        if len(keys) > 2 and array.counts and is_crumbled(extents_along(name, array.counts, of)):
            names[f"{name}-work"] = array
            for key in keys:
                made.update(_two(nodes[key]))
    return Apart(graph.with_nodes({**nodes, **made}) if made else graph, names)


def _work(node: GraphNode) -> Task | None:
    """The elementwise work that a task calls one other function on."""
    if type(node) is not Task or len(node.args) != 1 or works_by_element(node):
        return None
    (work,) = node.args
    if type(work) is not Task or not works_by_element(work):
        return None
    return None if any(isinstance(arg, (GraphNode, TaskRef)) for arg in node.kwargs.values()) else work


def _two(task: Any) -> Nodes:
    """The work of a task, and the rest of it."""
    name, *place = task.key
    work = under((f"{name}-work", *place), task.args[0])
    rest = make_task(
        task.key, task.func, (TaskRef(work.key),), task.kwargs, frozenset([work.key]), task._data_producer
    )
    return {work.key: work, task.key: rest}
