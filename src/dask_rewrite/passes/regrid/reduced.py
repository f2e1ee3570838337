"""Elementwise work that stands in reductions, as arrays of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.declared import Assumed, Symbol
from dask_rewrite.analysis.estimates import believed
from dask_rewrite.analysis.facts import Fact, Facts
from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.names import layer_name
from dask_rewrite.graph.nodes import make_task, under
from dask_rewrite.graph.templates import opened
from dask_rewrite.passes.movement.memory_order import calls
from dask_rewrite.passes.movement.moves import MOVES
from dask_rewrite.passes.regrid.arrays import Array
from dask_rewrite.passes.regrid.grids import extents_along, is_crumbled
from dask_rewrite.passes.regrid.views import Views
from dask_rewrite.passes.regrid.work import works_by_element
from dask_rewrite.passes.site import Site

#: Slices and joins are looked through so far down.
_LOOK_DOWN = 4


class Apart(NamedTuple):
    """A graph in which work and reductions of it are two tasks."""

    graph: Graph
    names: Mapping[Any, Array]  # of the work: the reductions


def taken_apart(site: Site, crumbled: Collection[Any]) -> Apart:
    """Reductions of elementwise work on slivers, and this work, each as tasks of its own.

    ``sum(x[0:1] + y[0:1])`` is one task where dask fuses it: the work goes on a coarse grid only by itself.
    Only where it takes blocks of other arrays that crumbled: slices of sources are as good as they are.
    """
    graph, facts, views = site.graph, site.facts, Views(site)
    found: dict[Any, dict[Key, Task]] = {}
    for func, tasks in site.context.by_function(graph).items():
        if func not in MOVES and _reduction(tasks[0]) is not None:
            for task in tasks:
                if type(task.key) is tuple and len(task.key) > 1 and (plain := _reduction(task)) is not None:
                    found.setdefault(task.key[0], {})[task.key] = plain
    made: Nodes = {}
    taken = set(map(layer_name, graph.nodes)) if found else ()
    names: dict[Any, Array] = {}
    for name, plain_ones in found.items():
        array = Array(name, dict.fromkeys(plain_ones))
        if len(plain_ones) < 3 or not array.counts or f"{name}-work" in taken:
            continue
        symbol = Symbol(name, _stated(next(iter(plain_ones.values())), facts))
        extents = extents_along(name, array.counts, partial(_of_work, site, views, plain_ones, symbol))
        if is_crumbled(extents) and any(_takes(plain, crumbled, graph) for plain in plain_ones.values()):
            names[f"{name}-work"] = array
            if extents is not None and facts.declared is not None:
                facts.declared.tell(f"{name}-work", extents, symbol)
            for plain in plain_ones.values():
                made.update(_two(plain))
    return Apart(graph.with_nodes({**graph.nodes, **made}) if made else graph, names)


def _reduction(node: Task) -> Task | None:
    """A task, opened, that calls one function on elementwise work; None if it is another one."""
    task = opened(node) or node
    if len(task.args) != 1 or type(task.args[0]) is not Task or works_by_element(task):
        return None
    if any(isinstance(arg, (GraphNode, TaskRef)) for arg in task.kwargs.values()):
        return None
    return task if works_by_element(task.args[0]) else None


def _takes(task: Task, names: Collection[Any], graph: Graph) -> bool:
    """Whether a task takes blocks of these arrays, or slices or joins of them."""
    nodes = graph.nodes
    stack = list(task._dependencies)
    for _ in range(_LOOK_DOWN):
        if any(layer_name(key) in names for key in stack):
            return True
        stack = [dep for key in stack if calls(nodes.get(key), MOVES) for dep in nodes[key]._dependencies]
    return False


def _of_work(
    site: Site, views: Views, tasks: Mapping[Key, Task], symbol: Symbol, key: Key
) -> Fact | Assumed | None:
    """What is known of the work that a reduction is called on, or follows from what is assumed."""
    work: Any = tasks[key].args[0]
    if (fact := site.facts.of_node(work)) is not None:
        return fact
    blocks = [views.of(dep) or site.facts.of_or_assumed(dep) for dep in work._dependencies]
    shapes = [block.shape for block in blocks if block is not None]
    try:
        return Assumed(np.broadcast_shapes(*shapes), symbol) if len(shapes) == len(blocks) else None
    except ValueError:  # they do not fit together, as dask will say
        return None


def _stated(task: Task, facts: Facts) -> np.dtype[Any]:
    """The dtype that is said of a block of the work, for estimates."""
    found = [believed(facts, dep) for dep in task._dependencies]
    return np.result_type(*[fact.dtype for fact in found if fact is not None] or [np.dtype(float)])


def _two(task: Any) -> Nodes:
    """The work of a task, and the rest of it."""
    name, *place = task.key
    work = under((f"{name}-work", *place), task.args[0])
    deps = frozenset([work.key])
    rest = make_task(task.key, task.func, (TaskRef(work.key),), task.kwargs, deps, task._data_producer)
    return {work.key: work, task.key: rest}
