"""Parts of blocks that are read from files, each read on its own instead of cut from what was read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.graph.graph import Graph, producers_first
from dask_rewrite.graph.names import fingerprint, marked
from dask_rewrite.graph.nesting import Depths
from dask_rewrite.graph.nodes import make_task, renamed, under
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.base import Rules
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand import Demand
from dask_rewrite.passes.demand.beginnings import sliced
from dask_rewrite.passes.demand.boxes import Box, hull, size
from dask_rewrite.passes.demand.takes import Takes
from dask_rewrite.passes.fuse_slices import FuseSlices
from dask_rewrite.passes.outline import Outliner
from dask_rewrite.passes.reread.copies import fits
from dask_rewrite.passes.reread.repeatable import Repeatable
from dask_rewrite.passes.site import Site

#: What is put around slices.
_COPYING = frozenset(map(id, (np.array, np.copy, copy.copy)))
#: Parts that overlap are one if that is so many times as large as the largest of them, at most.
_LARGER = 1.25

#: A part of a block, and the tasks that take it.
_Part = tuple[Box, list[Key]]


def read_in_parts(graph: Graph, context: Context, min_bytes: int, parts: int, name: str) -> Graph:
    """``x[0:5]`` and ``x[5:9]`` of one read ``x`` → two reads, of these parts only.

    A block that is read stays until the last part of it was taken, and these wait for other blocks: the
    months of a year, the halves of what is put together anew. A stored chunk is decoded as many times as
    there are parts. Legal for what may be read again.

    Parameters
    ----------
    graph, context
        As for a pass.
    min_bytes : int
        Smaller blocks are read as a whole.
    parts : int
        Small parts are read together, one such part of the block at a time; a block of more than twice as
        many parts is read as a whole.
    name : str
        The pass that asks.
    """
    before, token = graph, fingerprint([graph.origin.token, name, "parts"])
    graph = _without_copies(graph, context, token)
    site, takes = Site(graph, context), Takes(graph.nodes)
    started = sliced(graph, context, takes)
    if not started:
        return before
    again = Repeatable(site, min_bytes, among=started).found
    nodes: dict[Key, Any] = dict(graph.nodes)
    count = 0
    for key, tasks in started.items():
        fact = site.facts.of(key)
        if key not in again or again[key].reads != {key} or fact is None or again[key].held < min_bytes:
            continue
        groups = _groups(key, tasks, site, takes, parts)
        if groups is None or not context.remarks.allow(name, key):
            continue
        for number, users in enumerate(groups):
            new = marked(key, fingerprint([token, str(number)]))
            nodes[new] = renamed(nodes[key], new)
            site.facts.same(key, [new])
            for user in users:
                nodes[user] = with_values(nodes[user], {key: TaskRef(new)})
            count += 1
    if not count:
        return before
    context.remarks.applied(name, None, f"parts of blocks that are read on their own: {count}", count)
    regroups = context.options.reassociate
    context.leftovers = True
    graph = Demand(min_bytes=1, reassociate=regroups).run(graph.with_nodes(nodes), context)
    return Rules(FuseSlices.name, (FuseSlices(reassociate=regroups),)).run(graph, context)


def made_where_used(graph: Graph, context: Context, min_bytes: int, loads: int) -> Graph:
    """``f(x, y)`` of blocks that only this task uses and that wait for nothing → one task makes all of them.

    What is read for a task waits for the others that are read for it, and all of them for the task; made in
    it, they are gone with it. They are read one after the other then.

    Parameters
    ----------
    graph, context
        As for a pass.
    min_bytes : int
        Smaller blocks are held.
    loads : int
        No task reads more blocks than that.
    """
    site, nodes, templates = Site(graph, context), dict[Key, Any](graph.nodes), Depths()
    outliner = Outliner()
    counts: dict[Key, int] = {}  # of what waits for nothing: how many blocks are read for it
    inside: dict[Key, dict[Key, Any]] = {}  # what became part of a task
    for key in producers_first(list(graph.nodes), graph.nodes):
        node = nodes[key]
        if type(node) is not Task:
            continue
        waits = [dep for dep in node._dependencies if type(nodes.get(dep)) is not DataNode]
        total = sum([counts.get(dep, loads + 1) for dep in waits]) or 1
        if total > loads:
            continue
        for dep in sorted(waits, key=str):
            block = estimate(site.facts, dep)
            if not site.used_once(dep) or block is None or block.nbytes < min_bytes:
                continue
            if fits(key, dep, nodes, graph.annotations, context, templates):
                made = inside.setdefault(key, {})[dep] = nodes.pop(dep)
                nodes[key] = under(key, with_values(nodes[key], {dep: made}), True)
        if all(type(nodes.get(dep)) is DataNode for dep in nodes[key]._dependencies):
            counts[key] = total
    stack = [key for key in inside if key in nodes]
    while stack:  # chains become one task anyway, where that is good
        key = stack.pop()
        if key not in inside:
            continue
        apart = outliner.apart(nodes[key]) if len(inside[key]) > 1 else None
        if apart is not None:
            nodes[key] = apart
            context.regrouped.add(key)
            continue
        nodes[key] = graph.nodes[key]
        nodes.update(inside[key])
        stack += inside[key]
    if len(nodes) == len(graph.nodes):
        return graph
    return graph.with_nodes(nodes)


def _without_copies(graph: Graph, context: Context, token: str) -> Graph:
    """What copies a part of a block, as a copy of what takes it: two tasks, which become one again later."""
    takes, made = Takes(graph.nodes), dict[Key, Any]()
    for task in context.calling(graph, _COPYING):
        if type(task.key) is not tuple or len(task._dependencies) != 1 or task.key in graph.annotations:
            continue
        around: list[Task] = []
        inner: Any = task
        while type(inner) is Task and inner.args and takes.source(inner) is None:
            around.append(inner)
            inner = inner.args[0]
        if takes.source(inner) is None:
            continue
        new = marked(task.key, token)
        made[new] = under(new, inner)
        whole: Any = TaskRef(new)
        for each in reversed(around):
            whole = make_task(each.key, each.func, (whole, *each.args[1:]), each.kwargs, frozenset([new]))
        made[task.key] = whole
    return graph.with_nodes({**graph.nodes, **made}) if made else graph


def _groups(key: Key, tasks: Sequence[Task], site: Site, takes: Takes, parts: int) -> list[list[Key]] | None:
    """The tasks that take parts of a block, those together that take about the same; None: read it once."""
    fact = site.facts.of(key)
    assert type(fact) is Fact
    boxes = [(takes.box(task, fact.shape), task.key) for task in tasks]
    taken = sorted(
        [(box, user) for box, user in boxes if box is not None], key=lambda pair: (pair[0], str(pair[1]))
    )
    found: list[_Part] = []
    for box, user in taken:
        if found:
            before, users = found[-1]
            both = hull(before, box)
            most = _LARGER * max(size(before), size(box)) if _meet(before, box) else 0
            if size(both) <= max(fact.size / parts, most):
                found[-1] = both, [*users, user]
                continue
        found.append((box, [user]))
    others = len(site.consumers(key)) > len(taken)
    if len(found) > 2 * parts or len(found) + others < 2:
        return None
    return [users for box, users in found if 10 * size(box) <= 9 * fact.size]


def _meet(one: Box, other: Box) -> bool:
    """Whether two boxes lie within each other's ends."""
    return all(a < d and c < b for (a, b, *_), (c, d, *_) in zip(one, other))
