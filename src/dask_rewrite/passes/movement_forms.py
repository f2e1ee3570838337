"""The normal form of each task that moves data: which blocks it is to be made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array import chunk
from dask.typing import Key

from dask_rewrite.graph import Graph
from dask_rewrite.mosaic import Fill, Mosaic, Piece, composed, cut, seen_through, whole
from dask_rewrite.passes.movement_read import GETITEMS, Reader, literal
from dask_rewrite.passes.movement_views import View, view_of
from dask_rewrite.passes.movement_views import seen_through as view_through
from dask_rewrite.rules import Site


class Form(NamedTuple):
    """What a task makes, and where its result lies in memory as it was built."""

    mosaic: Mosaic  # over the blocks that it is to be made from
    dtype: np.dtype[Any]
    nested: bool  # not a plain task over references: where its result lies is not looked into
    base: Key | None  # the block whose memory the result shows; None: memory of its own, in C order
    shown: Piece | None  # where in the base


class Forms:
    """Finds the forms of tasks, producers first.

    Parameters
    ----------
    graph : Graph
        The graph.
    site : Site
        What is known of it.
    moves : set of Key
        The tasks to look at.
    pinned : set of Key
        Those of them that others than they use.
    max_pieces : int
        Blocks that a task may be put together from, unless it was from as many before.
    """

    def __init__(self, graph: Graph, site: Site, moves: set[Key], pinned: set[Key], max_pieces: int) -> None:
        self.graph = graph
        self.site = site
        self.moves = moves
        self.pinned = pinned
        self.max_pieces = max_pieces
        self.users: Mapping[Key, int] = graph.users()
        self.reader = Reader(site.facts)
        self.forms: dict[Key, Form] = {}
        self.direct: dict[Key, Mosaic] = {}
        self.views: dict[Key, View] = {}
        self.unequal: set[Key] = set()  # annotated otherwise than what they use
        self.kept: set[Key] = set()  # stages that stay, since going around them costs more

    def learn(self) -> None:
        """Look at all tasks."""
        nodes = self.graph.nodes
        for key in producers_first(self.moves, nodes):
            task = nodes[key]
            assert type(task) is Task
            if self.graph.annotations and not all(
                self.site.same_annotations(key, dep) for dep in task._dependencies
            ):
                self.unequal.add(key)
                continue
            found = self.reader.read(task)
            if found is None:
                self._learn_view(key, task)
                continue
            mosaic, dtype = found
            self.direct[key] = mosaic
            self.forms[key] = Form(self._flat(key, mosaic), dtype, *self._memory(task, mosaic))
            constant = len(mosaic.pieces) == 1 and type(mosaic.pieces[0].source) is Fill
            self.reader.leaves[key] = (mosaic if constant else whole(key, mosaic.shape), dtype)

    def _learn_view(self, key: Key, task: Task) -> None:
        view = view_of(task)
        if view is None:
            return
        inner = self.views.get(view.source)
        if inner is not None:
            view = view_through(view, inner) or view
        self.views[key] = view

    def _flat(self, key: Key, direct: Mosaic) -> Mosaic:
        """The mosaic seen through the tasks that it uses, where that does not cost more."""
        forms = self.forms
        below: dict[Any, None] = dict.fromkeys([p.source for p in direct.pieces if p.source in forms])
        if not below:
            return direct

        def form(source: Key) -> Mosaic | None:
            return forms[source].mosaic if source in below else None

        flat = composed(direct, form)
        before, after = direct.parts, flat.parts
        if after > before:
            # the edges of a stage go only if nobody else needs it
            saved = sum(
                forms[dep].mosaic.parts / self.users[dep]
                for dep in below
                if dep not in self.pinned and dep not in self.kept
            )
            if after > before + saved or after > max(self.max_pieces, before):
                self.kept.update(dep for dep in below if forms[dep].mosaic.parts > 1)
                below = {dep: None for dep in below if forms[dep].mosaic.parts <= 1}
                flat = composed(direct, form) if below else direct
        return flat

    def _memory(self, task: Task, mosaic: Mosaic) -> tuple[bool, Key | None, Piece | None]:
        """Whether the task is nested, whose memory its result shows, and where."""
        if id(task.func) not in GETITEMS and task.func is not np.transpose:
            return False, None, None
        ref = task.args[0]
        if type(ref) is not TaskRef:
            return True, None, None
        pieces = mosaic.pieces
        if not pieces:
            return False, None, None
        if type(pieces[0].source) is Fill:  # a part of a constant lies where it lies, too
            leaf = self.reader.leaf(ref.key)
            part = (
                cut(whole(ref.key, leaf[0].shape), literal(task.args[1]))
                if leaf and len(task.args) > 1
                else None
            )
            if part is None:
                return True, None, None
            pieces = part.pieces
        (piece,) = pieces
        inner = self.forms.get(ref.key)
        if task.func is chunk.getitem:
            source = self.reader.leaf(ref.key)
            if source is not None and prod(source[0].shape) >= 2 * prod(piece.shape):
                return False, None, None  # it copies
        if inner is None or (inner.base is None and not inner.nested):
            return False, ref.key, piece
        if inner.nested or inner.shown is None:
            return True, None, None
        (shown,) = seen_through(piece, Mosaic(self.direct[ref.key].shape, (inner.shown,)))
        return False, inner.base, shown


def producers_first(keys: set[Key], nodes: Mapping[Key, Any]) -> Iterable[Key]:
    """The keys in an order in which each follows those that it uses; the same in every process."""
    done: set[Key] = set()
    place = {key: i for i, key in enumerate(nodes) if key in keys}
    for start in place:
        if start in done:
            continue
        stack = [start]
        opened: set[Key] = set()
        while stack:
            key = stack[-1]
            waiting = [] if key in done else [dep for dep in nodes[key]._dependencies if dep in keys]
            waiting = [dep for dep in waiting if dep not in done and dep not in opened]
            if waiting and key not in opened:
                opened.add(key)
                waiting.sort(key=place.__getitem__)
                stack.extend(waiting)
                continue
            stack.pop()
            if key not in done:
                done.add(key)
                yield key
