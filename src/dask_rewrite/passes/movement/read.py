"""Reading tasks that move data as mosaics over the blocks that they use."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef, _identity_cast
from dask.array import chunk
from dask.array.core import concatenate3, concatenate_shaped
from dask.typing import Key

from dask_rewrite.analysis.facts import Facts
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.passes.movement.mosaic import Fill, Mosaic, constant, cut, joined, padded, transposed, whole
from dask_rewrite.passes.movement.tiles import NOT_TILED, tiled

GETITEMS = frozenset(map(id, (chunk.getitem, operator.getitem)))
JOINS = frozenset(map(id, (concatenate_shaped, concatenate3, np.concatenate)))
#: Functions that only move data, by identity.
MOVES = GETITEMS | JOINS | frozenset(map(id, (np.transpose, np.pad)))

#: A mosaic and its dtype.
Block: TypeAlias = tuple[Mosaic, np.dtype[Any]]

#: Nested tasks are read down to this depth.
_DEPTH = 8


class Reader:
    """Reads tasks as mosaics; all blocks must be known to be NumPy arrays of one dtype.

    Parameters
    ----------
    facts : Facts
        What is known of the blocks.
    """

    __slots__ = ("_blocks", "facts", "leaves", "referred", "stages")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.leaves: dict[Key, Block | None] = {}  # what stands for each block looked at so far
        self._blocks: dict[Any, Block] = {}
        self.referred: list[Key] = []  # blocks that the task read last refers to, constants left out
        self.stages: set[Key] | None = None  # blocks that stand for themselves in the task being read

    def read(self, task: Task, stages: set[Key] | None = None) -> Block | None:
        """The task's block as a mosaic, with its dtype; None if it is not known exactly.

        Parameters
        ----------
        task : Task
            The task to read.
        stages : set of Key, optional
            Blocks that stand for themselves, though more is known of them.
        """
        self.referred = []
        self.stages = stages
        return self._expression(task, _DEPTH)

    def leaf(self, key: Key) -> Block | None:
        """What stands for the block of a key: another mosaic, a constant, or the block itself."""
        leaves = self.leaves
        if key in leaves:
            return leaves[key]
        fact = self.facts.of(key)
        found = None if fact is None else leaf_of(key, fact)
        if found is not None and fact is not None and fact.fill is not None:
            found = self.one(found)
        leaves[key] = found
        return found

    def one(self, block: Block) -> Block:
        """The same object for equal blocks, nearly always: their first and last pieces tell them apart."""
        mosaic = block[0]
        pieces = mosaic.pieces
        if not pieces:
            return block
        known = self._blocks.setdefault((mosaic.shape, len(pieces), pieces[0], pieces[-1]), block)
        return known if known is block or known[0].pieces == pieces else block

    def reference(self, key: Key) -> Block | None:
        """What stands for a block that the task being read refers to."""
        found = self.leaf(key)
        if found is None:
            return None
        mosaic, dtype = found
        if len(mosaic.pieces) != 1 or type(mosaic.pieces[0].source) is not Fill:
            self.referred.append(key)
            if self.stages is not None and key in self.stages:
                return whole(key, mosaic.shape), dtype
        return found

    def _expression(self, node: Any, depth: int) -> Block | None:
        kind = type(node)
        if kind is TaskRef:
            return self.reference(node.key)
        if kind is Alias:
            return self.reference(node.target)
        if kind is not Task or not depth:
            return None
        func = id(node.func)
        if func in MOVES:
            args = node.args
            if func in GETITEMS:
                return self._getitem(args, depth) if len(args) == 2 and not node.kwargs else None
            if func in JOINS:
                return self._join(node, depth)
            inner = self._expression(args[0], depth - 1) if args else None
            if inner is None:
                return None
            return _transpose(inner, node) if node.func is np.transpose else _pad(inner, node)
        if not node.dependencies:
            fact = self.facts.of_node(node)
            return leaf_of(None, fact) if fact is not None and fact.fill is not None else None
        return None

    def _getitem(self, args: Sequence[Any], depth: int) -> Block | None:
        inner = self._expression(args[0], depth - 1)
        if inner is None:
            return None
        index = literal(args[1])
        if isinstance(index, GraphNode):
            return None
        found = cut(inner[0], index)
        return None if found is None or not found.shape else (found, inner[1])

    def _join(self, task: Task, depth: int) -> Block | None:
        if task.func is concatenate_shaped:
            before = len(self.referred)
            tile: Block | None = self._tiled(task)
            if tile is not NOT_TILED:
                return tile
            del self.referred[before:]
        blocks = _nested_blocks(task)
        if blocks is None:
            return None
        if task.func is np.concatenate:
            return self._concatenate(blocks, task, depth)
        levels = 0
        first: Any = blocks
        while type(first) is list:
            levels += 1
            first = first[0] if first else None
        made = self._grid(blocks, 0, levels, depth)
        return None if made is None else made[:2]

    def _tiled(self, task: Task) -> Any:
        refs, shape = items_of(task.args[0]), _grid_shape(task)
        if not refs or shape is None or prod(shape) != len(refs):
            return NOT_TILED
        return tiled(refs, shape, self)

    def _grid(self, blocks: Any, axis: int, ndim: int, depth: int) -> Any:
        """(mosaic, dtype, cuts along this axis and the following) of nested lists."""
        if type(blocks) is not list:
            found = (
                self.reference(blocks.key) if type(blocks) is TaskRef else self._expression(blocks, depth - 1)
            )
            if found is None or axis != ndim or len(found[0].shape) != ndim:
                return None
            return (*found, ())
        if axis == ndim:
            return None
        made: list[Any] = []
        for block in blocks:
            each = self._grid(block, axis + 1, ndim, depth)
            if each is None or (made and (each[1] != made[0][1] or each[2] != made[0][2])):
                return None
            made.append(each)
        mosaic = joined([each[0] for each in made], axis) if made else None
        if mosaic is None:
            return None
        return mosaic, made[0][1], (tuple([each[0].shape[axis] for each in made]), *made[0][2])

    def _concatenate(self, blocks: list[Any], task: Task, depth: int) -> Block | None:
        axis = task.args[1] if len(task.args) > 1 else task.kwargs.get("axis", 0)
        if type(axis) is not int or len(task.args) > 2 or not task.kwargs.keys() <= {"axis"}:
            return None
        made: list[Any] = []
        for block in blocks:
            each = None if type(block) is list else self._expression(block, depth - 1)
            if each is None or (made and each[1] != made[0][1]):
                return None
            made.append(each)
        ndim = len(made[0][0].shape) if made else 0
        if not -ndim <= axis < ndim:
            return None
        if not is_plain(made[0][1]):
            return None
        mosaic = joined([each[0] for each in made], axis % ndim)
        return None if mosaic is None else (mosaic, made[0][1])


def leaf_of(key: Key | None, fact: Fact) -> Block | None:
    """The mosaic of a block from its fact; constants need no source."""
    if fact.scalar or not fact.shape:
        return None
    if fact.fill is not None:
        if fact.fill.dtype != fact.dtype:
            return None
        return constant(fact.fill, fact.shape), fact.dtype
    return whole(key, fact.shape), fact.dtype


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy's own ``concatenate`` keeps the dtype: it changes byte orders and records."""
    return bool(dtype.isnative and dtype.names is None and dtype.subdtype is None and dtype.metadata is None)


def literal(arg: Any) -> Any:
    """The value of an argument that stands in the task as data."""
    return arg.value if type(arg) is DataNode else arg


def items_of(node: Any) -> list[Any] | None:
    """The elements of a list in a task's arguments."""
    if type(node) is list:
        return node
    if type(node) is List:
        return list(node.args)
    if type(node) is Task and node.func is _identity_cast and node.kwargs.get("typ") is list:
        return list(node.args)
    return None


def _nested_blocks(task: Task) -> list[Any] | None:
    """The blocks that a task joins, in nested lists as ``concatenate3`` takes them."""
    blocks = _lists(task.args[0], 6) if task.args else None
    if type(blocks) is not list or not blocks:
        return None
    if task.func is not concatenate_shaped:
        if task.func is concatenate3 and (len(task.args) > 1 or task.kwargs):
            return None
        return blocks
    shape = _grid_shape(task)
    if shape is None or any(type(block) is list for block in blocks):
        return None
    for count in reversed(shape[1:]):
        if len(blocks) % count:
            return None
        blocks = [blocks[i : i + count] for i in range(0, len(blocks), count)]
    return blocks if len(blocks) == shape[0] else None


def _grid_shape(task: Task) -> Sequence[int] | None:
    """How many blocks along each axis ``concatenate_shaped`` joins."""
    shape: Any = literal(task.args[1]) if len(task.args) == 2 and not task.kwargs else None
    if type(shape) is List:
        shape = [literal(item) for item in shape.args]
    if type(shape) not in (list, tuple) or not shape or not all(type(n) is int and n > 0 for n in shape):
        return None
    counts: Sequence[int] = shape
    return counts


def _lists(node: Any, depth: int) -> Any:
    items = items_of(node) if depth else None
    return node if items is None else [_lists(item, depth - 1) for item in items]


def _transpose(inner: Block, task: Task) -> Block | None:
    ndim = len(inner[0].shape)
    order: Any = literal(task.args[1]) if len(task.args) > 1 else literal(task.kwargs.get("axes"))
    if len(task.args) > 2 or not task.kwargs.keys() <= {"axes"}:
        return None
    if order is None:
        order = tuple(reversed(range(ndim)))
    if type(order) not in (tuple, list) or not all(type(i) is int and -ndim <= i < ndim for i in order):
        return None
    order = [i % ndim for i in order]
    return (transposed(inner[0], order), inner[1]) if sorted(order) == list(range(ndim)) else None


def _pad(inner: Block, task: Task) -> Block | None:
    """Pads as this pass emits them: widths per axis, and a value of the block's own dtype."""
    mosaic, dtype = inner
    if len(task.args) != 2 or task.kwargs.keys() != {"mode", "constant_values"}:
        return None
    widths, value = literal(task.args[1]), task.kwargs["constant_values"]
    if task.kwargs["mode"] != "constant" or not isinstance(value, np.generic) or value.dtype != dtype:
        return None
    plain = type(widths) in (tuple, list) and len(widths) == len(mosaic.shape)
    if not plain or not all(_is_width(width) for width in widths):
        return None
    return padded(mosaic, widths, value), dtype


def _is_width(width: Any) -> bool:
    return type(width) in (tuple, list) and len(width) == 2 and all(type(n) is int and n >= 0 for n in width)
