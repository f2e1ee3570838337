"""Blocks as rectangles of the blocks that they are cut from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.declared import Assumed, Symbol
from dask_rewrite.analysis.facts import Fact
from dask_rewrite.graph.graph import Nodes
from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.movement.memory_order import Order, lies_in_order
from dask_rewrite.passes.movement.moves import GETITEMS, DType, is_plain
from dask_rewrite.passes.movement.pieces import Fill, selection
from dask_rewrite.passes.regrid.work import works_by_element
from dask_rewrite.passes.site import Site

Shape: TypeAlias = tuple[int, ...]
#: Elementwise work on elementwise work is followed so far down.
_DEPTH = 8


class View(NamedTuple):
    """A rectangle of a block."""

    source: Any  # the key of a block, or a `Fill`
    start: Shape  # where in the block; of no meaning for a constant
    shape: Shape


class Source(NamedTuple):
    """A block that others are cut from."""

    shape: Shape
    dtype: DType
    in_order: bool  # it lies in memory in C order, but for gaps
    size: Shape  # what its size was meant to be: small errors do not add up


class Views:
    """Follows blocks down through slices.

    Parameters
    ----------
    site : Site
        The graph as it was.
    reassociate : bool
        Sums may add in another order.
    """

    def __init__(self, site: Site, reassociate: bool = False) -> None:
        self._facts = site.facts
        self._nodes: Nodes = site.graph.nodes
        self.order = Order(site, reassociate)
        self._views: dict[Key, View | None] = {}
        self._sources: dict[Key, Source] = {}

    def of(self, key: Key) -> View | None:
        """What a block is cut from; None if it is not known to be an array whose dtype joins keep."""
        views = self._views
        if key in views:
            return views[key]
        path = []
        here = key
        while here not in views:
            task: Any = self._nodes.get(here)
            if not is_slice(task):
                views[here] = self._leaf(here)
                break
            path.append((here, task.args[1]))
            here = task.args[0].key
        for here, index in reversed(path):
            below = views[self._nodes[here].args[0].key]  # type: ignore[attr-defined] # a path of tasks
            views[here] = (below and _cut(below, literal(index))) or self._leaf(here)
        return views[key]

    def source(self, key: Key) -> Source:
        """What is known of a block that views show."""
        return self._sources[key]

    def dtype(self, view: View) -> DType:
        """Of the elements that a view shows."""
        source = view.source
        found: DType = source.value.dtype if type(source) is Fill else self._sources[source].dtype
        return found

    def learn(self, source: Key, about: Source, parts: Mapping[Key, View]) -> None:
        """A new block, and those that are parts of it from now on."""
        self._sources[source] = about
        self._views.update(parts)

    def tell(self, name: Any, chunks: tuple[Shape, ...], dtype: DType) -> None:
        """The sizes of new blocks, where others are told these of other arrays."""
        if self._facts.declared is not None and isinstance(dtype, Symbol):
            self._facts.declared.tell(name, chunks, dtype)

    def _leaf(self, key: Key) -> View | None:
        fact = self._facts.of_or_assumed(key)
        dtype = dtype_of(fact)
        if fact is None or not fact.shape or 0 in fact.shape or dtype is None or not joins_keep(dtype):
            return None
        if (
            type(fact) is Fact
            and fact.fill is not None
            and fact.fill.dtype == fact.dtype
            and self._is_spread(key)
        ):
            return View(Fill(fact.fill), (0,) * len(fact.shape), fact.shape)
        if key not in self._sources:
            self._sources[key] = Source(fact.shape, dtype, self._in_order(key, _DEPTH), fact.shape)
        return View(key, (0,) * len(fact.shape), fact.shape)

    def _is_spread(self, key: Key) -> bool:
        """One element, broadcast, which lies in no order."""
        task = self._nodes.get(key)
        return type(task) is Task and task.func is np.broadcast_to

    def _in_order(self, key: Key, depth: int) -> bool:
        """Also work by element on an argument in C order that is broadcast nowhere."""
        if self.order.is_c(key):
            return True
        task: Any = self._nodes.get(key)
        if type(task) is DataNode:
            return lies_in_order(task)
        if not depth or type(task) is not Task:
            return False
        of = self._facts.of
        fact = of(key)
        if id(task.func) in GETITEMS:
            return is_slice(task) and self._in_order(task.args[0].key, depth - 1)
        if fact is None or not works_by_element(task):
            return False
        return any(
            other is not None and other.shape == fact.shape and self._in_order(dep, depth - 1)
            for dep, other in [(dep, of(dep)) for dep in task._dependencies]
        )


def dtype_of(found: Fact | Assumed | None) -> DType | None:
    """What the elements of a block are, or what stands for that."""
    if isinstance(found, Fact):
        return found.dtype
    return None if found is None else found.symbol


def joins_keep(dtype: DType) -> bool:
    """Whether a join of blocks of a dtype is of that dtype, and holds no objects, as far as it is known."""
    return isinstance(dtype, Symbol) or (is_plain(dtype) and dtype.kind in "biufcmM")


def is_slice(task: Any) -> bool:
    """``block[a:b, c:d]`` by slices alone."""
    if (
        type(task) is not Task
        or id(task.func) not in GETITEMS
        or len(task.args) != 2
        or type(task.args[0]) is not TaskRef
        or task.kwargs
    ):
        return False
    index = literal(task.args[1])
    return type(index) is tuple and all(type(item) is slice and (item.step or 1) == 1 for item in index)


def _cut(view: View, index: Any) -> View | None:
    found = selection(index, view.shape)
    if found is None or 0 in found[0]:
        return None
    shape, axes = found
    return View(view.source, tuple([at + axis[0] for at, axis in zip(view.start, axes)]), shape)
