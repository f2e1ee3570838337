"""The normal form of each task that moves data: which blocks it is to be made from."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import chunk
from dask.typing import Key

from dask_rewrite.graph.graph import producers_first
from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.movement.likeness import Likeness
from dask_rewrite.passes.movement.memory_order import OWN, Memory
from dask_rewrite.passes.movement.mosaic import Mosaic, cut, seen_through, whole
from dask_rewrite.passes.movement.moves import GETITEMS, Block
from dask_rewrite.passes.movement.pieces import Fill, Piece, merged, selection
from dask_rewrite.passes.movement.read import Reader
from dask_rewrite.passes.movement.reshapes import RESHAPES, VIEWS, Below, Reshapes, standing
from dask_rewrite.passes.movement.slices import View, view_of
from dask_rewrite.passes.movement.slices import seen_through as view_through
from dask_rewrite.passes.site import Site

#: A block that is put together and cut again is not made, if each piece of it that goes from where it was to
#: where it is needed has so many bytes, and it is made of at most so many blocks.
_IDLE_BYTES, _IDLE_PIECES = 262_144, 64


class Forms:
    """Finds the forms of tasks, producers first.

    Parameters
    ----------
    site : Site
        What is known of the graph.
    moves : set of Key
        The tasks to look at.
    pinned : set of Key
        Those of them that others than they use.
    max_pieces : int
        Blocks that a task may be put together from, unless it was from as many before.
    still : frozenset of Key
        Other tasks that move data, which stay as they are.
    """

    def __init__(
        self,
        site: Site,
        moves: set[Key],
        pinned: set[Key],
        max_pieces: int,
        still: frozenset[Key] = frozenset(),
    ) -> None:
        self.graph = site.graph
        self.site = site
        self.moves = moves
        self.still = still
        self.pinned = pinned
        self.max_pieces = max_pieces
        self.reader = Reader(site.facts)
        self.forms: dict[Key, Block] = {}
        self.views: dict[Key, View] = {}
        self.unequal: set[Key] = set()  # annotated otherwise than what they use
        self._reshapes = Reshapes(self.reader)
        self._kept: set[Key] = set()  # stages that stay, since going around them costs more
        self._memory: dict[Key, Memory | None] = {}
        self._constant: dict[Key, bool] = {}
        self._views: dict[Key, dict[Key, bool]] = {}  # by what is shown

    def learn(self) -> None:
        """Look at all tasks."""
        nodes, forms, leaves = self.graph.nodes, self.forms, self.reader.leaves
        annotated = bool(self.graph.annotations)
        users = self.site.context.users(self.graph)
        alike = Likeness(forms, self.reader, self.pinned, self._kept, users)
        for key in producers_first([key for key in nodes if key in self.moves], nodes):
            task: Any = nodes[key]
            if annotated and not all(self.site.same_annotations(key, dep) for dep in task._dependencies):
                self.unequal.add(key)
                continue
            if id(task.func) in RESHAPES:
                if below := self._reshapes.undone(task):
                    forms[key] = leaves[key] = self._given_back(key, below)
                continue
            found, operation = alike.of(task)
            if found is None:
                first = task.args[0] if id(task.func) in GETITEMS and task.args else None
                hopeless = type(first) is TaskRef and self.reader.leaf(first.key) is None
                found = None if hopeless else self._read(task)
                if found is None:
                    self._learn_view(key, task)
                    continue
                found = self.reader.one(self._around_stages(found) if self._kept else found)
                if operation is not None:
                    alike.remember(operation, found, len(self.reader.referred) >= found[0].parts)
            forms[key] = leaves[key] = found

    def _read(self, task: Task) -> Block | None:
        """The task's block, seen through the tasks that it uses where that does not cost more."""
        reader = self.reader
        if id(task.func) in GETITEMS and self._is_stage(task):
            return reader.read(task, {task.args[0].key})
        found = reader.read(task)
        if found is None:
            return None
        before, after = len(reader.referred), found[0].parts
        if after <= before:
            return found
        below = {key: None for key in reader.referred if key in self.forms}
        parts = {key: self.forms[key][0].parts for key in below}
        if after <= self._allowed(before, parts):
            return found
        stages = {key for key in below if parts[key] > 1}
        self._kept |= stages
        return reader.read(task, stages)

    def _around_stages(self, found: Block) -> Block:
        """Slices of stages that lie in one of their blocks are slices of that block: no more edges."""
        pieces, kept, changed = found[0].pieces, self._kept, False
        made = list(pieces)
        for i, piece in enumerate(pieces):
            while type(piece.source) is not Fill and piece.source in kept:
                stage = self.forms[piece.source][0]
                if prod(piece.shape) >= prod(stage.shape):
                    break
                parts = list(islice(seen_through(piece, stage), 2))
                if len(parts) != 1:
                    break
                made[i], changed = (piece := parts[0]), True
        if not changed:
            return found
        return Mosaic(found[0].shape, tuple(merged(made, len(found[0].shape)))), found[1]

    def _allowed(self, before: int, parts: Mapping[Key, int]) -> float:
        """How many pieces are no worse than ``before`` references to blocks of so many parts."""
        users = self.site.context.users(self.graph)
        if before == 1 and len(parts) == 1 and all(map(self._is_idle, parts)):
            return _IDLE_PIECES
        # the edges of a stage go only if nobody else needs it
        gone = [key for key in parts if key not in self.pinned and key not in self._kept]
        saved = sum([parts[key] / users[key] for key in gone])
        return min(before + saved, max(self.max_pieces, before))

    def _is_idle(self, key: Key) -> bool:
        """A large block that is put together only to be cut into large blocks again."""
        mosaic, dtype = self.forms[key]
        if key in self.pinned or key in self._kept or mosaic.parts > _IDLE_PIECES:
            return False
        edges = mosaic.parts * self.site.context.users(self.graph)[key]
        return prod(mosaic.shape) * dtype.itemsize >= _IDLE_BYTES * edges

    def _is_stage(self, task: Task) -> bool:
        """To go around the block that the task takes a slice of would cost more."""
        ref: Any = task.args[0] if len(task.args) == 2 else None
        form = self.forms.get(ref.key) if type(ref) is TaskRef else None
        if form is None or len(form[0].pieces) <= 4:
            return False
        if (found := selection(literal(task.args[1]), form[0].shape)) is None or 0 in found[0]:
            return False
        shape, axes = found
        shown = seen_through(Piece((0,) * len(shape), shape, None, axes), form[0])
        allowed = max(1, int(self._allowed(1, {ref.key: form[0].parts})))
        # no more are looked at: many slices of many pieces each would take long
        if not any(islice((piece for piece in shown if type(piece.source) is not Fill), allowed, None)):
            return False
        self._kept.add(ref.key)
        return True

    def _given_back(self, key: Key, below: Below) -> Block:
        """What a reshape gives back: it lies in memory of its own if that did before the first reshape."""
        self._memory[key] = OWN if self.memory(below.key) == OWN else None
        source = below.key in self.pinned or below.key in self._kept or below.key not in self.forms
        return standing(below) if source else below.block

    def _learn_view(self, key: Key, task: Task) -> None:
        if (view := view_of(task)) is None:
            return
        inner = self.views.get(view.source)
        if inner is not None:
            view = view_through(view, inner) or view
        self.views[key] = view

    # -- memory ----------------------------------------------------------------------------------

    def memory(self, key: Key) -> Memory | None:
        """Where the result of a task lies; None if that cannot be told."""
        known = self._memory
        path = []
        here = key
        while here not in known:
            path.append(here)
            task: Any = self.graph.nodes.get(here)
            if here not in self.forms or not self._is_view(task) or self._copies(here, task):
                break
            here = task.args[0].key
        for here in reversed(path):
            known[here] = self._lies(here)
        return known[key]

    def shows_constant(self, key: Key) -> bool:
        """A view of a constant block: dask makes these of one element, and they cannot be written into."""
        known, facts = self._constant, self.site.facts
        path = []
        here: Any = key
        while here not in known:
            path.append(here)
            task: Any = self.graph.nodes.get(here)
            if here not in self.forms:
                fact = None if type(task) is DataNode else facts.of(here)
                known[here] = fact is not None and fact.fill is not None
                break
            shown = task
            if not self._copies(here, task):
                while type(shown) is Task and id(shown.func) in VIEWS:
                    shown = shown.args[0]
            if type(shown) is TaskRef:
                here = shown.key
                continue
            fact = facts.of_node(shown) if shown is not task and type(shown) is Task else None
            known[here] = fact is not None and fact.fill is not None
        known.update(dict.fromkeys(path, known[here]))
        return known[key]

    def is_view_of(self, key: Key, source: Key) -> bool:
        """A task shows, or copies, a part of a block, and nothing in between joins blocks."""
        known = self._views.setdefault(source, {source: True})
        path: list[Key] = []
        here = key
        while here not in known:
            path.append(here)
            below: Any = self.graph.nodes.get(here)
            while type(below) is Task and id(below.func) in VIEWS and below.args:
                below = below.args[0]
            if type(below) is not TaskRef:
                known[here] = False
                break
            here = below.key
        known.update(dict.fromkeys(path, known[here]))
        return known[key]

    def _is_view(self, task: Any) -> bool:
        moves = id(task.func) in GETITEMS or task.func is np.transpose
        return moves and type(task.args[0]) is TaskRef

    def _copies(self, key: Key, task: Any) -> bool:
        """Dask's own slice copies what is at most half of its source."""
        if task.func is not chunk.getitem or type(task.args[0]) is not TaskRef:
            return False
        source = self.reader.leaf(task.args[0].key)
        return source is not None and prod(source[0].shape) >= 2 * prod(self.forms[key][0].shape)

    def _lies(self, key: Key) -> Memory | None:
        if key not in self.forms:
            return Memory(key, None)
        task: Any = self.graph.nodes[key]
        if not self._is_view(task):
            return OWN if id(task.func) not in GETITEMS and task.func is not np.transpose else None
        source = task.args[0].key
        leaf = self.reader.leaf(source)
        if leaf is None or task.func is np.transpose:
            return None
        if self._copies(key, task):
            return OWN
        view = cut(whole(source, leaf[0].shape), literal(task.args[1]))
        if view is None or not view.pieces:
            return OWN
        below = self._memory.get(source)
        if below is None:
            return None
        (piece,) = view.pieces
        if below.base is None or below.shown is None:
            return Memory(source, piece)
        (shown,) = seen_through(piece, Mosaic(leaf[0].shape, (below.shown,)))
        return Memory(below.base, shown)
