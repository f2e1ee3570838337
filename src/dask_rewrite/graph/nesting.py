"""How deep tasks are nested, and which tasks stand inside of others. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from types import MethodType
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.kinds import ALIAS, FUTURE, ITEMS, KINDS, RAW
from dask_rewrite.graph.nodes import GATHERING, args_of, func_of, kwargs_of

#: How deep tasks nest in templates.
Depths = ByIdentity[int]
#: Types of arguments in which no task nests.
_FLAT = frozenset([TaskRef, int, float, str, bool, type(None), slice, tuple, np.ndarray, np.dtype, type])


#: Tasks nested deeper than this are refused. Passes keep to about half of it; pickle and the
#: interpreter give up at three times it.
NESTING_LIMIT = 64


def check_depth(node: object, limit: int) -> bool:
    """Whether at most ``limit`` tasks are nested in ``node``, itself included. It looks no deeper than that.

    >>> from dask._task_spec import Task, TaskRef
    >>> check_depth(Task("a", abs, Task(None, abs, TaskRef("x"))), 1)
    False
    """
    return nesting(node, limit) <= limit


def nesting(node: object, limit: int = 100_000) -> int:
    """How many tasks are nested in ``node``, itself included; ``limit + 1`` stands for more than ``limit``.

    >>> from dask._task_spec import List, Task, TaskRef
    >>> nesting(Task("a", sum, List(Task(None, abs, TaskRef("x")), TaskRef("y"))))
    3
    """
    return deepest([node], limit)


def deepest(nodes: Sequence[object], limit: int = 100_000) -> int:
    """The same for the one of many nodes in which most are nested; it costs less than one after the other.

    >>> from dask._task_spec import Task, TaskRef
    >>> deepest([Task("a", abs, TaskRef("x")), Task("b", abs, Task(None, abs, TaskRef("x")))])
    2
    """
    depth = 0
    level = tasks_in(nodes)
    while level and depth <= limit:
        depth += 1
        level = nested_in(level)
    return depth


def tasks_in(items: Sequence[Any]) -> Sequence[Task]:
    """Those of the items that are tasks."""
    kinds = set(map(type, items))
    tasks = {kind for kind in kinds if issubclass(kind, Task)}
    if tasks == kinds:
        return items
    return [item for item in items if type(item) in tasks] if tasks else []


def nested_in(tasks: Sequence[Task]) -> Sequence[Task]:
    """The tasks directly inside of ``tasks``.

    Tasks hide in arguments, as the object of a bound method (``template.__call__``), and in the inner
    graph of dask's own fused tasks.
    """
    arguments = list(chain.from_iterable(map(args_of, tasks)))
    arguments += chain.from_iterable(map(dict.values, filter(None, map(kwargs_of, tasks))))
    found = list(tasks_in(arguments))
    kinds = set(map(type, arguments))
    if MethodType in kinds:
        found += _owners([item for item in arguments if type(item) is MethodType])
    if MethodType in set(map(type, map(func_of, tasks))):
        found += _owners(list(map(func_of, tasks)))
    if dict in kinds:  # also where a template is given one
        for held in _unique([item for item in arguments if type(item) is dict]):
            found += tasks_in(list(held.values()))
    # Nested tasks are a graph too, and shared parts must not multiply from level to level.
    return _unique(found) if len(found) > len(tasks) else found


def _owners(functions: list[Any]) -> Sequence[Task]:
    """The tasks whose bound methods are among these functions; many blocks share a few."""
    return tasks_in(_unique([f.__self__ for f in _unique(functions) if type(f) is MethodType]))


def _unique(items: list[Any]) -> list[Any]:
    """Each object once, told apart by identity: to compare or hash tasks would tokenize them."""
    return list(dict(zip(map(id, items), items, strict=True)).values())


def survey(node: GraphNode, templates: Depths | None = None) -> tuple[int, list[Key], list[int]]:
    """How deep tasks nest in a node, templates and programs included, and every reference in it.

    Parameters
    ----------
    node : GraphNode
        The node to look into; nothing recurses over it.
    templates : Depths, optional
        Depths of templates, since many blocks share one; filled in.

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
    >>> survey(Task("y", sum, List(Task(None, abs, TaskRef("a")))))
    (2, ['a'], [2])
    """
    if not isinstance(node, Task):
        return 0, list(node.dependencies), [0] * len(node.dependencies)
    references: list[Key] = []
    levels: list[int] = []
    depth = deepest = 0
    level = [node]
    while level:
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
                elif isinstance(arg, Task):
                    below.append(arg)
                    if type(arg) is not Task and kind != ITEMS:  # what it does with them is its own affair
                        references.extend(arg.dependencies)
                elif kind == FUTURE:
                    references.append(arg.key)
                elif kind == ALIAS:
                    references.append(arg.target)
        levels += [depth] * (len(references) - len(levels))
        deepest = max(deepest, depth)
        level, depth = below, depth + 1
    return deepest, references, levels


def is_flat(task: Task) -> bool:
    """Whether it can be seen at a glance that no task stands in a task, as in most.

    >>> is_flat(Task("y", max, TaskRef("x"), 2)), is_flat(Task("y", abs, Task(None, min, TaskRef("x"))))
    (True, False)
    """
    return _FLAT.issuperset(map(type, task.args)) and type(task.func) is not MethodType and not task.kwargs


def depth_of(task: Task, templates: Depths) -> int:
    """How deep tasks nest in a task, as :func:`survey` tells it."""
    if is_flat(task):
        return 0
    deepest, depth = 0, 0
    level = [task]
    while level:
        below: list[Task] = []
        for each in level:
            if type(each.func) is MethodType:
                deepest = max(deepest, depth + depth_of_call(each.func, templates))
            args = each.args
            if each.kwargs and id(each.func) not in GATHERING:
                args = (*args, *each.kwargs.values())
            for arg in args:
                if type(arg) in _FLAT:
                    continue
                if type(arg) is MethodType:
                    deepest = max(deepest, depth + depth_of_call(arg, templates))
                elif isinstance(arg, Task):
                    below.append(arg)
        deepest = max(deepest, depth)
        level, depth = below, depth + 1
    return deepest


def depth_of_call(call: MethodType, templates: Depths | None) -> int:
    """Levels that a bound method of a task adds; templates hold no templates deeper than a few."""
    body = call.__self__
    if not isinstance(body, Task):
        return 0
    known = Depths() if templates is None else templates
    return known.of(body, lambda task: 1 + survey(task, known)[0])
