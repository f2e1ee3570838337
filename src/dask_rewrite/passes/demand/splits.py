"""Blocks that grow out of little, and are only cut apart again, are made in these parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import chunk
from dask.typing import Key

from dask_rewrite.analysis.estimates import believed
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.nodes import literal, nameless, under
from dask_rewrite.graph.program import operation
from dask_rewrite.passes.demand.boxes import Box, hull, lengths, size, whole
from dask_rewrite.passes.demand.forms import Planned, Plans
from dask_rewrite.passes.demand.plans import has_rule
from dask_rewrite.passes.demand.takes import Takes
from dask_rewrite.passes.movement.moves import GETTER_IDS
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.steps import Step

#: Bytes of a block from which it is worth a look.
_LARGE = 1_048_576


def without_splits(
    graph: Graph, keys: Iterable[Key], site: Site, takes: Takes, plans: Plans, name: str
) -> Graph:
    """``getitem(mul(a, b), part)``, for parts that are all of it → ``mul(a[part], b[part])``.

    The outer product of two vectors is as large as an array. Each part is made when it is needed where
    that is no more work, and where all are sent no more of the arguments than they were of the block.

    Parameters
    ----------
    graph : Graph
        The graph.
    keys : iterable of Key
        The blocks that parts are taken from.
    site, takes, plans
        What is known of the graph, of slices in it, and of what tasks need for a box of their result.
    name : str
        Of the pass.
    """
    made: Nodes = {}
    texts: dict[Any, Task] = {}
    for key in keys:
        size_of_it = believed(site.facts, key)
        if size_of_it is None or size_of_it.nbytes < _LARGE or site.wanted(key):
            continue
        parts = _parts(key, site, takes)
        planned = {} if parts is None else _planned(key, parts, site, plans)
        if planned and site.context.remarks.allow(name, key):
            for user, plan in planned.items():
                part: Any = plan.written(user, {}, _no_room, texts)
                copied = operation(np.array, (nameless(part),), {"order": "C"})  # as dask's own slice is
                made[user] = under(user, copied, part.data_producer)
            site.context.remarks.applied(name, key, f"made in the {len(planned)} parts that it is cut into")
    if not made:
        return graph
    nodes: Nodes = {key: made.get(key, node) for key, node in graph.nodes.items()}
    site.context.without_unused(nodes, graph.outputs)
    return graph.with_nodes(nodes)


def _parts(key: Key, site: Site, takes: Takes) -> Mapping[Key, Box] | None:
    """What each user of a block copies of it; None if one does not, or if that is not just all there is."""
    fact = site.facts.of(key)
    node: Any = site.graph.nodes[key]
    if fact is None or fact.scalar or not has_rule(node.func) or not _is_grown(node, fact, site):
        return None
    found: dict[Key, Box] = {}
    for user in site.consumers(key):
        task: Any = site.graph.nodes[user]
        if type(task) is not Task or task.func is not chunk.getitem or not _is_plain(task.args[1:]):
            return None
        taken = takes.of(task, site.facts.value)
        part = site.facts.of(user)
        if taken is None or part is None or part.shape != lengths(taken[1]) or not part.size:
            return None
        if 2 * part.size > fact.size or not site.same_annotations(key, user):
            return None  # a view, whose memory others could see
        found[user] = taken[1]
    if sum(map(size, found.values())) != fact.size or reduce(hull, found.values()) != whole(fact.shape):
        return None
    return found


def _is_grown(node: Task, fact: Fact, site: Site) -> bool:
    """A block is larger than all that it is made of, taken once for each of its users."""
    users = len(site.consumers(node.key))
    given = [site.facts.of(dep) for dep in node._dependencies]
    known = [each.nbytes for each in given if each is not None]
    return 0 < len(known) == len(given) and users * sum(known) <= fact.nbytes


def _is_plain(args: Sequence[Any]) -> bool:
    """Slices of steps of one."""
    index = args[0].value if len(args) == 1 and type(args[0]) is DataNode else args and args[0]
    return type(index) is tuple and all(type(each) is slice and each.step in (None, 1) for each in index)


def _planned(key: Key, parts: Mapping[Key, Box], site: Site, plans: Plans) -> dict[Key, Planned]:
    """How each part is made; empty if something in the task would be done in full for each of them."""
    found: dict[Key, Planned] = {}
    for user, box in parts.items():
        planned = plans.of(site.graph.nodes[key], box)
        if planned is None or planned.plan.box != box or None in planned.plan.boxes.values():
            return {}
        if any(map(_reads, planned.plan.steps)):
            return {}  # the same parts of a file would be read again and again
        found[user] = planned
    return found


def _reads(step: Step) -> bool:
    """Whether a step takes a part of a file that stands in the task."""
    task = step.task
    if id(task.func) not in GETTER_IDS or not task.args or type(task.args[0]) is TaskRef:
        return False
    return type(literal(task.args[0])) is not np.ndarray


def _no_room(key: Key) -> int:
    return 0
