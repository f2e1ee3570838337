"""Sum trees: what dask builds for a sum over blocks, found by the functions of its tasks.

A reduction over many blocks is a tree of combining tasks, each over a (nested) list of results of the
level below. There are two kinds: the sums of ``x.sum``, ``tensordot`` and ``einsum`` concatenate before
they sum; that of ``matmul`` adds block by block.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from dask._task_spec import Task
from dask.array.routines import _chunk_sum
from dask.typing import Key
from toolz.functoolz import Compose

from dask_rewrite.analysis.folds import reducing
from dask_rewrite.analysis.knowledge.linear_algebra import PRODUCTS, SUMS
from dask_rewrite.graph.lists import terms_of
from dask_rewrite.graph.nodes import identity_of
from dask_rewrite.graph.templates import opened
from dask_rewrite.passes.base import Missed
from dask_rewrite.passes.site import Site


class Reducer(NamedTuple):
    """A combining function: all tasks of one tree agree in kind, dtype and axes."""

    kind: Literal["sum", "chunk-sum"]
    dtype: np.dtype[Any]
    axis: tuple[int, ...]


def reducer_of(func: Any) -> Reducer | None:
    """What a combining function sums, None if it is none of dask's sums.

    Examples
    --------
    >>> reducer_of(functools.partial(_chunk_sum, dtype=np.dtype("f8"), axis=(1,), keepdims=True))
    Reducer(kind='chunk-sum', dtype=dtype('float64'), axis=(1,))
    >>> reducer_of(sum)
    """
    kind: Literal["sum", "chunk-sum"] = "sum" if type(func) is Compose else "chunk-sum"
    inner = reducing(func)
    if type(inner) is not functools.partial or inner.args:
        return None
    if inner.func not in SUMS if kind == "sum" else inner.func is not _chunk_sum:
        return None
    options = inner.keywords
    if not options.keys() <= {"axis", "dtype", "keepdims"} or options.get("dtype") is None:
        return None
    axis = options.get("axis")
    if type(axis) is not tuple or not all(type(a) is int and a >= 0 for a in axis):
        return None
    return Reducer(kind, np.dtype(options["dtype"]), axis)


@dataclass(slots=True)
class Tree:
    """One sum: the task that gives its result, those between, and the terms in order.

    Parameters
    ----------
    root : Key
        The task whose result is the sum.
    reducer : Reducer
        How it sums.
    inner : list of Key
        Partial sums, which go when the tree is rewritten.
    leaves : list of Key
        The terms.
    alone : bool
        No other sum needs the blocks of its terms.
    """

    root: Key
    reducer: Reducer
    inner: list[Key]
    leaves: list[Key]
    alone: bool = False


def find_trees(site: Site) -> Iterator[Tree | tuple[Key, Missed]]:
    """All sum trees of a graph whose terms share blocks, or the reason why one is left alone."""
    graph = site.graph
    called = site.context.by_function(graph)
    reducers = {i: it for i, tasks in called.items() if (it := reducer_of(tasks[0].func)) is not None}
    if not reducers:
        return
    summing = {task.key: task for task in site.context.calling(graph, reducers)}
    below: set[Key] = set().union(*[task._dependencies for task in summing.values()])
    calls: dict[Key, Counter[Any]] = {}
    for root in [key for key in summing if key not in below]:
        term = _first_term(root, summing, site)
        if term is None or not makes_product(term):
            continue
        tree = _whole(root, reducers, summing, site)
        if isinstance(tree, Missed):
            yield root, tree
        else:
            tree.alone = not _shares_blocks(term, site, calls)
            yield tree


def _first_term(root: Key, summing: dict[Key, Task], site: Site) -> Task | None:
    key = root
    while key in summing:
        terms = terms_of(summing[key])
        if not terms:
            return None
        key = terms[0]
    term = site.node(key)
    return term if type(term) is Task else None


def _shares_blocks(term: Task, site: Site, calls: dict[Key, Counter[Any]]) -> bool:
    """Whether a term needs a block that another term like it needs too; one of a plain sum does not.

    ``calls`` keeps how often each function is called with a block, since many terms may need it.
    """
    nodes = site.graph.nodes
    for dep in term._dependencies:
        if not site.used_once(dep):
            if dep not in calls:
                users = [nodes[user] for user in site.consumers(dep)]
                calls[dep] = Counter([identity_of(user.func) for user in users if type(user) is Task])
            if calls[dep][identity_of(term.func)] > 1:
                return True
        below = nodes.get(dep)
        if type(below) is Task and below.func is np.transpose:  # a view, which hides the block
            return True
    return False


def makes_product(term: Task) -> bool:
    """Whether a term is a sum over one of dask's products, or over an elementwise one of two blocks."""
    body = opened(term) or term
    inner = body.args[0] if body.args else None
    if type(inner) is not Task:
        return False
    multiplies = (inner.func is operator.mul or inner.func is np.multiply) and len(inner._dependencies) > 1
    return multiplies or id(inner.func) in PRODUCTS


def _whole(root: Key, reducers: dict[int, Reducer], summing: dict[Key, Task], site: Site) -> Tree | Missed:
    reducer = reducers[id(summing[root].func)]
    tree = Tree(root, reducer, [], [])
    stack = [root]
    while stack:
        key = stack.pop()
        task = summing.get(key)
        if key != root:
            if not site.used_once(key):
                return Missed("a term or partial sum has other users")
            if not site.same_annotations(key, root):
                return Missed("annotations differ")
        found = None
        if task is not None and reducers[id(task.func)] == reducer:
            if key == root or keeps_dimensions(task.func):
                found = terms_of(task)
        if found is None:
            tree.leaves.append(key)
            continue
        if key != root:
            tree.inner.append(key)
        stack.extend(reversed(found))
    if len(set(tree.leaves)) < len(tree.leaves) or len(tree.leaves) < 2:
        return Missed("its terms are not one for each slab")
    return tree


def combiner(func: Any) -> Any:
    """The combining function between the levels of a tree, from that of any level: it keeps dimensions.

    Examples
    --------
    >>> combiner(functools.partial(_chunk_sum, axis=(1,), keepdims=False)).keywords["keepdims"]
    True
    """
    if keeps_dimensions(func):
        return func
    inner = reducing(func)
    inner = functools.partial(inner.func, **{**inner.keywords, "keepdims": True})
    return Compose((inner, func.first)) if type(func) is Compose else inner


def keeps_dimensions(func: Any) -> bool:
    """Whether a combining function leaves the summed axes in, with length one."""
    return reducing(func).keywords.get("keepdims") is True
