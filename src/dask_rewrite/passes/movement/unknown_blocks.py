"""Moves of blocks of which nothing is known: what is right for any kind of block, of any length."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

from dask._task_spec import GraphNode, Task, TaskRef
from dask.array import chunk
from dask.typing import Key

from dask_rewrite.graph.nesting import survey
from dask_rewrite.graph.nodes import NO_KWARGS, make_task
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.movement.emit import filled, sliced
from dask_rewrite.passes.movement.moves import JOINS
from dask_rewrite.passes.movement.normal_forms import Forms
from dask_rewrite.passes.movement.pieces import Fill
from dask_rewrite.passes.movement.slices import FULL, View, within


class LooseWriter:
    """Makes the new task of a move whose blocks are not all known.

    Slices of slices become slices of their source; a join makes constants itself, and cuts what it can out
    of the blocks and slices that it gets anyway.

    Parameters
    ----------
    forms : Forms
        What the moves are.
    max_whole : int
        Bytes of a block that may travel as a whole where a slice of it is needed.
    """

    def __init__(self, forms: Forms, max_whole: int) -> None:
        self.forms = forms
        self.nodes = forms.graph.nodes
        self.max_whole = max_whole
        self._view_keys: dict[View, Key] = {}

    def task(self, key: Key, task: Task) -> GraphNode:
        """The new task of a key, or the old one."""
        if id(task.func) in JOINS:
            return self._join(task)
        view = self.forms.views.get(key)
        if view is None or view.source == task.args[0].key:
            return task
        below: Any = self.nodes.get(task.args[0].key)
        plain = task.func is operator.getitem and below.func is operator.getitem
        if not plain and not self._only_joined(key):
            return task  # dask's own slice may be a copy, and then it lies differently in memory
        func = operator.getitem if plain else chunk.getitem
        args = (TaskRef(view.source), view.slices)
        return make_task(key, func, args, NO_KWARGS, frozenset((view.source,)), task.data_producer)

    def _only_joined(self, key: Key) -> bool:
        users = map(self.nodes.__getitem__, self.forms.site.consumers(key))
        return key not in self.forms.pinned and all(type(u) is Task and id(u.func) in JOINS for u in users)

    def _join(self, task: Task) -> GraphNode:
        """The same join with what can be cut out, or made, in the task itself."""
        views = self.forms.views
        refs = list(dict.fromkeys(survey(task)[1]))
        here = set(refs)
        values: dict[Key, Any] = {}
        groups: dict[Key, list[tuple[Key, View]]] = {}
        for ref in refs:
            view = views.get(ref)
            if view is None:
                value = self._small(ref)
                if value is not None:
                    values[ref] = value
            elif view.source in here and view.source not in views:
                values[ref] = operation(operator.getitem, (TaskRef(view.source), view.slices))
            else:
                same = self._view_keys.setdefault(view, ref)
                groups.setdefault(view.source, []).append((same, view))
                if same != ref:
                    values[ref] = TaskRef(same)
        for members in groups.values():
            if len(members) > 1:
                self._nest(dict.fromkeys(members), values)
        return with_values(task, values) if values else task

    def _small(self, ref: Key) -> Any:
        """A constant, or a part of a small block, as an expression."""
        form = self.forms.forms.get(ref)
        if form is None:
            leaf = self.forms.reader.leaf(ref)
            if leaf is None or len(leaf[0].pieces) != 1 or type(leaf[0].pieces[0].source) is not Fill:
                return None
            return filled(leaf[0].shape, leaf[0].pieces[0].source.value, leaf[1])
        mosaic, dtype = form
        if len(mosaic.pieces) != 1:
            return None
        (piece,) = mosaic.pieces
        if type(piece.source) is Fill:
            return filled(mosaic.shape, piece.source.value, dtype)
        leaf = self.forms.reader.leaf(piece.source)
        if leaf is None or prod(leaf[0].shape) * dtype.itemsize > self.max_whole // 8:
            return None
        shape = leaf[0].shape
        return sliced(TaskRef(piece.source), piece, shape)

    def _nest(self, members: Any, values: dict[Key, Any]) -> None:
        """Of slices of one block, those that lie within another come out of that one."""
        members = sorted(members, key=lambda m: sum(r == FULL for r in m[1].ranges), reverse=True)
        outer: list[tuple[Key, View]] = []
        for ref, view in members:
            for other, wider in outer:
                index = within(view, wider)
                if index is not None:
                    values[ref] = operation(operator.getitem, (TaskRef(other), index))
                    break
            else:
                outer.append((ref, view))
