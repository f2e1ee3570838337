"""Slices of slices, and slices of loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.array.chunk import getitem
from dask.array.core import getter, getter_inline, getter_nofancy
from dask.array.optimization import GETTERS, fuse_slice

from dask_rewrite.graph.nodes import NO_KWARGS, literal, make_task, needs_of
from dask_rewrite.passes.base import Missed
from dask_rewrite.passes.movement.moves import GETTER_IDS
from dask_rewrite.passes.site import Replacement, Site

_SHARED = Missed("the inner block has other users")
_IN_MEMORY = Missed("the block would lie differently in memory than dask lays it")
#: Types of indices that leave an axis where it is.
_AXES = frozenset([slice, np.ndarray, list])
_NO_COMPOSITION = Missed("the indices do not compose")


class _Getter(NamedTuple):
    func: Callable[..., Any]
    source: Any
    index: Any
    asarray: bool
    lock: Any


@dataclass(frozen=True, slots=True)
class FuseSlices:
    """``getitem(getter(source, i), j)`` → ``getter(source, i[j])``.

    The load then reads only what is asked for: three elements of a file instead of a block. Legal where
    dask's own ``fuse_slice`` can compose the two indices, the load has no other user, and both agree on
    the lock; and where dask fuses the two as well, since a slice that is a copy lies otherwise in memory
    than one that is a view, and sums follow the memory. Other loads are fused all the same where sums may
    add in another order (``reassociate``).
    """

    name: ClassVar[str] = "fuse-slices"
    anchors: ClassVar[tuple[Callable[..., Any], ...]] = GETTERS
    fed_by: ClassVar[tuple[Callable[..., Any], ...]] = GETTERS
    producers_first: ClassVar[bool] = True
    reassociate: bool = True

    def rewrite(self, task: Task, site: Site) -> Replacement | Missed | None:
        source = task.args[0] if task.args else None
        if type(source) is not TaskRef:
            return None
        key = source.key
        below = site.node(key)
        if type(below) is not Task or id(below.func) not in GETTER_IDS:
            return None
        if not site.used_once(key):
            return _SHARED
        outer, inner = _getter(task), _getter(below)
        if outer is None or inner is None:
            return None
        if not site.same_annotations(task.key, key):
            return Missed("annotations differ")
        if outer.lock and outer.lock is not inner.lock:
            return Missed("locks differ")
        if isinstance(_data(inner.source, site), np.matrix):
            return Missed("the source is a matrix, which keeps its dimensions when sliced")
        if not _composable(inner, outer):
            return Missed("indices of different kinds")
        if _meets_array(inner.index, outer.index):
            return _NO_COMPOSITION
        try:
            index = fuse_slice(inner.index, outer.index)
        except NotImplementedError:  # dask composes no such indices
            return _NO_COMPOSITION
        element = inner.func is not getitem and _is_element(index)
        anywhere = self.reassociate and inner.func is not getitem and not element and not _is_empty(index)
        if not anywhere and not _dask_fuses(task, below, site):
            return _IN_MEMORY
        func = getter if inner.func is getter_inline else inner.func
        asarray = outer.asarray or inner.asarray or element  # dask does not see options given by keyword
        source = inner.source
        if not isinstance(source, (GraphNode, TaskRef)):
            source = DataNode("source", source)  # dask's own rewriting of getters expects a node here
        args: tuple[Any, ...] = (source, index)
        if func is not getitem and not (asarray and not inner.lock):
            args = (*args, asarray, inner.lock)
        producer = task.data_producer or below.data_producer
        return {task.key: make_task(task.key, func, args, NO_KWARGS, needs_of((source,)), producer)}


def _getter(node: GraphNode) -> _Getter | None:
    if type(node) is not Task or not node.kwargs.keys() <= {"asarray", "lock"}:
        return None
    args = [literal(arg) for arg in node.args]
    if len(args) == 2:
        options = {"asarray": node.func is not getitem, "lock": None, **node.kwargs}
        return _Getter(node.func, args[0], args[1], options["asarray"], options["lock"])
    return _Getter(node.func, *args) if len(args) == 4 else None


def _dask_fuses(task: Task, below: Task, site: Site) -> bool:
    """Whether dask fuses a slice with the one below, too: in pairs, and within chains of tasks alone.

    An alias ends a pair. A slice that several tasks use is the end of a chain, or, where one of them uses
    nothing else, a chain of its own: dask comes across it from there.
    """
    key = task.key
    if below.func is getter_nofancy or below.key in site.graph.origin.aliased or below.key in site.replaced:
        return False
    users = site.consumers(key)
    alone = len(users) == 1 and not site.wanted(key)
    return alone or all(len(site.graph.nodes[user]._dependencies) > 1 for user in users)


def _is_element(index: Any) -> bool:
    """Whether an index takes a single element: a read makes an array of it, a slice a scalar."""
    return all(isinstance(i, Integral) for i in (index if type(index) is tuple else (index,)))


def _is_empty(index: Any) -> bool:
    """Whether an index takes nothing: what a source that is no array gives then may have lost its axes."""
    slices = [i for i in (index if type(index) is tuple else (index,)) if type(i) is slice]
    return any(i.start == i.stop and i.start is not None for i in slices)


def _data(source: Any, site: Site) -> Any:
    """What a getter reads from, where that stands in the graph as data."""
    node = site.node(source.key) if type(source) is TaskRef else source
    return literal(node)


def _meets_array(inner: Any, outer: Any) -> bool:
    """Whether dask's ``fuse_slice`` comes across an array, which it never composes: it finds out last."""
    if type(inner) is not tuple or type(outer) is not tuple:
        return False
    pairs = [(type(a), type(b)) for a, b in zip(inner, outer)]
    if not any(a is np.ndarray or b is np.ndarray for a, b in pairs):
        return False
    return all(_AXES.issuperset(pair) for pair in pairs)  # no axis is added or dropped before it


def _composable(inner: _Getter, outer: _Getter) -> bool:
    tuples = type(outer.index) is tuple
    if tuples != (type(inner.index) is tuple):
        return False
    both = (*inner.index, *outer.index) if tuples else (inner.index, outer.index)
    if any(isinstance(i, (GraphNode, TaskRef)) for i in both):
        return False
    if tuples and len(outer.index) != len(inner.index) and any(i is None for i in both):
        return False
    # a source without fancy indexing keeps its own getter, unless the composed index has lists
    return inner.func is not getter_nofancy or not any(isinstance(i, (list, np.ndarray)) for i in both)
