"""Values that are made of the block they are assigned to, as in ``m[i, i] += 1``."""

from __future__ import annotations

from typing import NamedTuple

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.graph import producers_first
from dask_rewrite.graph.nodes import is_coroutine
from dask_rewrite.passes.site import Site

#: Tasks that may lie between a block and the value that is assigned to it.
MOST = 8


class Own(NamedTuple):
    """Tasks that make a value of the block itself, first things first.

    Attributes
    ----------
    tasks : tuple of Task
        Nobody else uses what they make.
    shares : bool
        The value may be a view of the block, or something may have kept the block.
    """

    tasks: tuple[Task, ...]
    shares: bool


NOTHING = Own((), False)


def own_value(task: Task, site: Site) -> Own:
    """The tasks that lead from the block of an assignment to its value, if they serve nothing else."""
    block, value = task.args[:2]
    if type(value) is not TaskRef or len(site.consumers(block.key)) < 2:
        return NOTHING
    found: dict[Key, Task] = {}
    stack = [value.key]
    while stack:
        key = stack.pop()
        node = site.node(key)
        if key == block.key or type(node) is not Task or key in found:
            continue
        if not site.used_once(key) or not site.same_annotations(key, task.key) or is_coroutine(node.func):
            continue
        if len(found) == MOST:
            return NOTHING
        found[key] = node
        stack.extend(node._dependencies)
    order: list[Task] = []
    views = {block.key}  # of what may share memory with the block
    made = {block.key}
    for key in producers_first(sorted(found, key=str, reverse=True), found):
        node = found[key]
        if made.isdisjoint(node._dependencies):  # not of the block, and waited for like any other value
            continue
        order.append(node)
        made.add(key)
        effect = site.effects.of(node)
        if effect == "unknown":
            views |= {key, value.key}
        elif effect == "view" and not views.isdisjoint(node._dependencies):
            views.add(key)
    if value.key not in made:
        return NOTHING
    return Own(tuple(order), value.key in views)
