"""Reductions as dask builds them: a task that combines lists of partial results, over several levels."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, Task
from dask.array import reductions
from dask.typing import Key
from toolz.functoolz import Compose

from dask_rewrite.analysis.folds import COMBINING, reducing
from dask_rewrite.graph.lists import terms_of
from dask_rewrite.graph.nodes import may_move
from dask_rewrite.passes.site import Site

#: Kinds of operations that never round.
_EXACT = ("extreme", "logic")


@dataclass(slots=True)
class Tree:
    """One reduction.

    Parameters
    ----------
    root : Key
        The task that gives the result.
    inner : list of Key
        The tasks between, users first.
    leaves : list of Key
        What is combined, in order.
    form : tuple of int
        How many partial results each task combines, depth first; leaves combine none.
    """

    root: Key
    inner: list[Key] = field(default_factory=list)
    leaves: list[Key] = field(default_factory=list)
    form: tuple[int, ...] = ()


def combining(func: Any) -> functools.partial[Any] | None:
    """The function that combines partial results, as dask binds it: with axes, told whether to keep them.

    Examples
    --------
    >>> combining(functools.partial(np.sum, axis=(0,), keepdims=True)).func.__name__
    'sum'
    >>> combining(np.sum)
    """
    inner = reducing(func)
    if type(inner) is not functools.partial or not inner.keywords.keys() >= {"axis", "keepdims"}:
        return None
    return inner if may_move(inner.func) else None


def associates(func: Any) -> bool:
    """Whether partial results may be grouped in another way, and those of one kind be combined again."""
    inner = combining(func)
    return inner is not None and inner.keywords["keepdims"] is True and inner.func in COMBINING


def keeps_digits(func: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a long chain gives numbers as good as a tree's: sums in single precision lose some.

    >>> keeps_digits(functools.partial(np.sum, axis=(0,), keepdims=True), np.dtype("f4"))
    False
    """
    inner = combining(func)
    if inner is None or dtype.kind not in "biufc":
        return False
    return COMBINING.get(inner.func) in _EXACT or dtype.kind not in "fc" or bool(np.finfo(dtype).eps < 1e-12)


def at_once(task: Task) -> int:
    """How many partial results a step takes in: moments are costly to combine.

    >>> at_once(Task("s", functools.partial(np.sum, axis=(0,), keepdims=True), []))
    1
    """
    inner = combining(task.func)
    return 2 if inner is not None and inner.func is reductions.moment_combine else 1


def same_function(one: Any, other: Any) -> bool:
    """Whether two combining functions do the same."""
    if one is other:
        return True
    first, second = combining(one), combining(other)
    return (
        type(one) is type(other)
        and first is not None
        and second is not None
        and first.func is second.func
        and first.args == second.args
        and first.keywords == second.keywords
        and (type(one) is not Compose or one.first.keywords == other.first.keywords)
    )


def find_trees(site: Site) -> list[Tree]:
    """All reductions of a graph over more than one block, largest trees first found from their roots."""
    graph = site.graph
    functions = {
        func
        for func, tasks in site.context.by_function(graph).items()
        if combining(tasks[0].func) is not None
    }
    if not functions:
        return []
    tasks = {task.key: task for task in site.context.calling(graph, functions) if type(task.key) is tuple}
    lists: dict[Key, list[Key]] = {
        key: found for key, task in tasks.items() if (found := listed(task)) is not None
    }
    below = set(chain.from_iterable(lists.values()))
    return [_whole(key, lists, site) for key in graph.nodes if key in lists and key not in below]


def _whole(root: Key, lists: Mapping[Key, list[Key]], site: Site) -> Tree:
    tree = Tree(root)
    form: list[int] = []
    stack = [root]
    while stack:
        key = stack.pop()
        found = lists.get(key)
        if found is None or (key != root and not (site.used_once(key) and site.same_annotations(key, root))):
            tree.leaves.append(key)
            form.append(0)
            continue
        if key != root:
            tree.inner.append(key)
        form.append(len(found))
        if lists.keys().isdisjoint(found):
            tree.leaves += found
            form += [0] * len(found)
        else:
            stack.extend(reversed(found))
    tree.form = tuple(form)
    return tree


def listed(task: Task) -> list[Key] | None:
    """The keys that a combining task is called with, each once; None if one stands there twice."""
    found = terms_of(task)
    return found if found is not None and len(found) == len(task._dependencies) else None


def levels(nodes: Mapping[Key, GraphNode], order: list[Key], roots: frozenset[Key]) -> dict[Key, int]:
    """For each key the most reductions on a way down from it; ``order`` has producers first.

    What several reductions need may be computed together only where none of them waits for another.
    """
    found: dict[Key, int] = {}
    get = found.get
    for key in order:
        deps = nodes[key]._dependencies
        found[key] = (max([get(dep, 0) for dep in deps]) if deps else 0) + (key in roots)
    return found
