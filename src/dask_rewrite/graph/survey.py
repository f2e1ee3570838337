"""One look into a task: how deep tasks nest in it, and what it refers to."""

from __future__ import annotations

from types import MethodType

import numpy as np
from dask._task_spec import GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.kinds import ALIAS, FUTURE, ITEMS, KINDS, RAW
from dask_rewrite.graph.nodes import GATHERING


def survey(node: GraphNode, templates: dict[int, int]) -> tuple[int, list[Key], list[int]]:
    """How deep tasks nest in a node, templates and programs included, and every reference in it.

    Parameters
    ----------
    node : GraphNode
        The node to look into; nothing recurses over it.
    templates : dict
        Depths of templates by identity, since many blocks share one; filled in.

    Returns
    -------
    depth : int
        Zero for a task that holds no other.
    references : list of Key
        A key stands there as often as the node refers to it; once more for each task of another class
        that does, in which nothing can be put in its place.
    levels : list of int
        How deep each reference stands: zero for an argument of the node itself.

    Examples
    --------
    >>> from dask._task_spec import List, TaskRef
    >>> survey(Task("y", sum, List(Task(None, abs, TaskRef("a")))), {})
    (2, ['a'], [2])
    """
    if not isinstance(node, Task):
        return 0, list(node.dependencies), [0] * len(node.dependencies)
    references: list[Key] = []
    levels: list[int] = []
    depth = deepest = 0
    level = [node]
    while True:
        below: list[Task] = []
        for task in level:
            func, args = task.func, task.args
            if type(func) is MethodType:
                deepest = max(deepest, depth + depth_of_call(func, templates))
            if task.kwargs and id(func) not in GATHERING:
                args = (*args, *task.kwargs.values())
            for arg in args:
                if type(arg) is TaskRef:
                    references.append(arg.key)
                    continue
                kind = KINDS[type(arg)]
                if kind == RAW:
                    if type(arg) is MethodType:
                        deepest = max(deepest, depth + depth_of_call(arg, templates))
                elif kind == ITEMS or type(arg) is Task:
                    below.append(arg)
                elif isinstance(arg, Task):  # what it does with its arguments is its own affair
                    below.append(arg)
                    references.extend(arg.dependencies)
                elif kind == FUTURE:
                    references.append(arg.key)
                elif kind == ALIAS:
                    references.append(arg.target)
        levels += [depth] * (len(references) - len(levels))
        if not below:
            return max(deepest, depth), references, levels
        depth += 1
        level = below


#: Types of arguments in which no task nests.
_FLAT = frozenset([TaskRef, int, float, str, bool, type(None), slice, tuple, np.ndarray, np.dtype, type])


def depth_of(task: Task, templates: dict[int, int]) -> int:
    """How deep tasks nest in a task, as :func:`survey` tells it."""
    for arg in task.args:  # few, as a rule
        if type(arg) not in _FLAT:
            break
    else:
        if not task.kwargs and type(task.func) is not MethodType:
            return 0
    return survey(task, templates)[0]


def depth_of_call(call: MethodType, templates: dict[int, int]) -> int:
    """Levels that a bound method of a task adds; templates hold no templates deeper than a few."""
    body = call.__self__
    if not isinstance(body, Task):
        return 0
    found = templates.get(id(body))
    if found is None:
        found = templates[id(body)] = 1 + survey(body, templates)[0]
    return found


__all__ = ["depth_of", "depth_of_call", "survey"]
