"""Writing the forms of tasks that move data as tasks again."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import Alias, GraphNode, Task, TaskRef
from dask.array import chunk
from dask.array.core import concatenate3
from dask.typing import Key

from dask_rewrite.analysis.declared import Symbol
from dask_rewrite.graph.graph import producers_first
from dask_rewrite.graph.names import fingerprint, layer_name
from dask_rewrite.graph.nodes import under
from dask_rewrite.graph.program import operation
from dask_rewrite.passes.movement.emit import (
    Emitter,
    cut_out,
    filled,
    index_of,
    is_nearly_whole,
    is_straight,
    is_whole,
    nested,
    sliced,
)
from dask_rewrite.passes.movement.isolated import BORDER
from dask_rewrite.passes.movement.memory_order import OWN, Order, gaps, is_exact
from dask_rewrite.passes.movement.mosaic import Mosaic
from dask_rewrite.passes.movement.moves import JOINS, Block, DType
from dask_rewrite.passes.movement.normal_forms import Forms
from dask_rewrite.passes.movement.pieces import Fill, Piece
from dask_rewrite.passes.movement.unknown_blocks import LooseWriter
from dask_rewrite.passes.movement.written_alike import WrittenAlike

_IN_MEMORY = "the block would lie differently in memory"
_READ_ONLY = "somebody may write into the block, and it may be one that cannot be written into"


class Writer:
    """Makes the new task of each move that is still needed.

    Parameters
    ----------
    forms : Forms
        What the moves are.
    max_whole : int
        Bytes of a block that may travel as a whole where a slice of it is needed.
    """

    def __init__(self, forms: Forms, max_whole: int) -> None:
        self.forms = forms
        self.site = forms.site
        self.nodes = forms.graph.nodes
        self.max_whole = max_whole
        self.order = Order(self.site)
        self.cuts: dict[Key, Task] = {}  # slices of large blocks, made where the block is
        self.annotations: dict[Key, dict[str, Any]] = {}
        self._here: Key = ""
        self._whole: set[Any] = set()
        self._indexes: dict[Any, tuple[Any, ...]] = {}
        self._loose = LooseWriter(forms, max_whole)
        self._alike = WrittenAlike(self._shape, self.order.is_c)

    def task(self, key: Key) -> GraphNode | str:
        """The new task of a key; the old one if there is nothing to gain, or why it could not be had."""
        task = self.nodes[key]
        assert type(task) is Task
        form = self.forms.forms.get(key)
        if form is None:
            return "annotations differ" if key in self.forms.unequal else self._loose.task(key, task)
        mosaic, _ = form
        sources = set(mosaic.sources)
        if sources == task._dependencies or self._is_as_good(task, mosaic):
            return task
        name = self._alike.name_of(task, form)
        if (made := self._alike.task(key, task, form, name)) is not None:
            return made
        self._here = key
        self._whole = {p.source for p in mosaic.pieces if self._is_whole(p)}
        small = sources.difference(self._whole)
        if sum(map(self._nbytes, small)) <= max(self.max_whole, 4 * prod(mosaic.shape) * form[1].itemsize):
            self._whole.update([source for source in small if self._nbytes(source) <= self.max_whole])
        body = self._body(key, form)
        if not isinstance(body, GraphNode):
            return task if body is None else body
        if type(body) is not Task:
            return body
        if name is not None and self._whole >= sources:  # so that it is made of them
            self._alike.remember(name, form, body)
        return under(key, body, task.data_producer)

    def _body(self, key: Key, form: Block) -> GraphNode | str | None:
        mosaic, dtype = form
        pieces = mosaic.pieces
        if not pieces and type(dtype) is Symbol:
            return None  # nobody knows what an empty block is of
        if self.forms.shows_constant(key) and not self.site.read_only(key):
            return _READ_ONLY
        if len(pieces) == 1 and type(pieces[0].source) is Fill and is_exact(pieces[0].source.value):
            return filled(mosaic.shape, pieces[0].source.value, dtype)
        memory = self.forms.memory(key)
        if memory is None:
            if not self.order.is_unseen(key):
                return _IN_MEMORY
            memory = OWN
        own = memory.base is None or memory.shown is None
        if not own and not (len(pieces) == 1 and pieces[0].source == memory.base):
            # a view of a block that is not used any more: as good as its own memory if it has no gaps
            assert memory.base is not None
            assert memory.shown is not None
            before = gaps(memory.shown, self._shape(memory.base))
            own = before == frozenset() or self.order.has_unseen_gaps(key)
            if not own:
                return self._view(key, mosaic, before) or _IN_MEMORY
        if len(pieces) != 1 or type(pieces[0].source) is Fill:
            # not kept: it refers to this
            emitter = Emitter(self._shape, self._reference, self.order.is_c, self._indexes)
            return emitter.expression(mosaic, dtype) or "far more pieces than blocks"
        (piece,) = pieces
        ref, shape = TaskRef(piece.source), self._shape(piece.source)
        if not own:  # it was a view of this very block
            if is_whole(piece, shape) and self.site.read_only(key):
                return Alias(key, piece.source)
            return _part(ref, piece, shape, operator.getitem)
        if type(dtype) is Symbol and self.forms.is_view_of(key, piece.source):
            return _part(ref, piece, shape, chunk.getitem)  # joined alone, it would lose a mask of nothing
        if is_whole(piece, shape):
            if self._may_alias(key, piece.source) and self.order.is_c(piece.source):
                return Alias(key, piece.source)
            return self._copied(ref, mosaic, dtype)
        if is_straight(piece) and 2 * prod(piece.shape) <= prod(shape):
            return operation(chunk.getitem, (ref, index_of(piece, shape)))  # which copies
        return self._copied(sliced(ref, piece, shape), mosaic, dtype)

    def _copied(self, body: Any, mosaic: Mosaic, dtype: DType) -> Task:
        """A block in memory of its own, in C order."""
        if type(dtype) is not Symbol:
            return operation(np.array, (body,), {"order": "C"})
        # as dask joins blocks of any type
        return operation(concatenate3, (nested([body], (1,) * len(mosaic.shape)),))

    def _view(self, key: Key, mosaic: Mosaic, before: frozenset[int] | None) -> Task | None:
        """A view that has the same gaps as the one that it replaces."""
        if len(mosaic.pieces) != 1:
            return None
        (piece,) = mosaic.pieces
        if type(piece.source) is Fill or not self._may_alias(key, piece.source):
            return None
        shape = self._shape(piece.source)
        after = gaps(piece, shape)
        if before is None or before != after or not self.order.is_c(piece.source):
            return None
        return operation(operator.getitem, (TaskRef(piece.source), index_of(piece, shape)))

    def _may_alias(self, key: Key, source: Any) -> bool:
        return self.site.read_only(key) and self.site.read_only(source)

    def _shape(self, key: Key) -> tuple[int, ...]:
        leaf = self.forms.reader.leaf(key)
        assert leaf is not None
        return leaf[0].shape

    def _is_whole(self, piece: Piece) -> bool:
        return type(piece.source) is not Fill and is_nearly_whole(piece, self._shape(piece.source))

    # -- slices of large blocks ------------------------------------------------------------------

    @cached_property
    def _cut_keys(self) -> dict[Any, Key]:
        """Slices of large blocks that are tasks already."""
        found: dict[Any, Key] = {}
        forms, nodes = self.forms, self.nodes
        for key in producers_first([k for k in nodes if k in forms.moves or k in forms.still], nodes):
            task: Any = nodes[key]
            form = forms.reader.read(task) if key in forms.still else forms.forms.get(key)
            if form is None:
                continue
            pieces = form[0].pieces
            if len(pieces) == 1 and type(pieces[0].source) is not Fill:
                name = self._cut_name(key, pieces[0])
                if name is not None:
                    found.setdefault(name, key)
        return found

    def _nbytes(self, source: Key) -> int:
        leaf = self.forms.reader.leaf(source)
        assert leaf is not None
        return prod(leaf[0].shape) * leaf[1].itemsize

    def _is_as_good(self, task: Task, mosaic: Mosaic) -> bool:
        """A task that joins slices of blocks, nearly all of them large, that are tasks: as it should be."""
        forms, nodes = self.forms.forms, self.nodes
        deps = task._dependencies
        if id(task.func) not in JOINS or len(deps) != mosaic.count:
            return False
        small = 0  # blocks at the border, which could travel as they are
        for dep in deps:
            form = forms.get(dep)
            if form is None or form[0].count != 1 or len(nodes[dep]._dependencies) != 1:
                return False
            (source,) = nodes[dep]._dependencies
            if form[0].sources != (source,):
                return False
            small += self._nbytes(source) <= self.max_whole
        return small * BORDER <= len(deps)

    def cut_from(self, key: Key) -> Key | None:
        """The block that a slice made here is taken from."""
        task = self.cuts.get(key)
        return None if task is None else task.args[0].key

    def _cut_name(self, key: Key, piece: Piece) -> Any:
        if not is_straight(piece):
            return None
        index = tuple([str(item) for item in index_of(piece, self._shape(piece.source))])
        annotations = self.forms.graph.annotations
        return (piece.source, index, repr(annotations.get(key)) if annotations else "")

    def _reference(self, piece: Piece) -> TaskRef | None:
        """The task that has cut a piece out of a large block, so that only the piece travels."""
        source: Any = piece.source
        if source in self._whole:
            return None
        name = self._cut_name(self._here, piece)
        if name is None:
            return None
        key = self._cut_keys.get(name)
        # a slice that shows the piece may be one of what is made here, and may stay that
        if key is None or self.site.depth(key) > self.site.depth(self._here):
            token = fingerprint([self.forms.graph.origin.token, layer_name(source), name[2]])
            task = cut_out(f"movement-{token}", source, index_of(piece, self._shape(source)))
            key = task.key
            self.cuts[key] = task
            self._cut_keys[name] = key
            mine = self.forms.graph.annotations.get(self._here)
            if mine:
                self.annotations[key] = mine
        return TaskRef(key)


def _part(ref: TaskRef, piece: Piece, shape: tuple[int, ...], getitem: Callable[..., Any]) -> Task:
    """A part of a block of any type, a call also where it is all of it."""
    found = sliced(ref, piece, shape, getitem)
    return found if type(found) is Task else operation(getitem, (ref, index_of(piece, shape)))
