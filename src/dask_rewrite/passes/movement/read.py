"""Reading tasks that move data as mosaics over the blocks that they use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, product
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import Alias, GraphNode, Task, TaskRef
from dask.array.core import concatenate_shaped
from dask.typing import Key

from dask_rewrite.analysis.declared import Symbol
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.movement.mosaic import Mosaic, cut, joined, whole
from dask_rewrite.passes.movement.moves import (
    GETITEMS,
    JOINS,
    MOVES,
    Block,
    grid_shape,
    is_plain,
    items_of,
    leaf_of,
    nested_blocks,
    pad_of,
    transpose_of,
)
from dask_rewrite.passes.movement.pieces import Fill, Piece, lies_within, placed

#: Stands for a join of another kind.
NOT_TILED = object()


#: Nested tasks are read down to this depth.
_DEPTH = 8


class Reader:
    """Reads tasks as mosaics; all blocks must be of one dtype, known or assumed.

    Parameters
    ----------
    facts : Facts
        What is known of the blocks.
    """

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
        found = self._assumed(key) if fact is None else leaf_of(key, fact)
        if found is not None and fact is not None and fact.fill is not None:
            found = self.one(found)
        leaves[key] = found
        return found

    def _assumed(self, key: Key) -> Block | None:
        """A block of whatever type and dtype, whose shape is declared."""
        found = self.facts.assumed(key)
        return (whole(key, found.shape), found.symbol) if found is not None and found.shape else None

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
            return transpose_of(inner, node) if node.func is np.transpose else pad_of(inner, node)
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
        if type(inner[1]) is Symbol and not (type(index) is tuple and lies_within(index, inner[0].shape)):
            return None  # dask takes the block for a larger one, or for a tuple of several (``da.modf``)
        found = cut(inner[0], index)
        return None if found is None or not found.shape else (found, inner[1])

    def _join(self, task: Task, depth: int) -> Block | None:
        if task.func is concatenate_shaped:
            before = len(self.referred)
            tile: Block | None = self._tiled(task)
            if tile is not NOT_TILED:
                return tile
            del self.referred[before:]
        blocks = nested_blocks(task)
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
        refs, shape = items_of(task.args[0]), grid_shape(task)
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


def tiled(refs: Sequence[Any], shape: Sequence[int], reader: Reader) -> Any:
    """The mosaic, with its dtype, of a grid of pieces of sources that are all different.

    Parameters
    ----------
    refs : sequence
        What is joined, the last axis first.
    shape : sequence of int
        How many blocks there are along each axis.
    reader : Reader
        What is known of the blocks.

    Returns
    -------
    Block, None or NOT_TILED
        None if a block is not known.
    """
    leaves, of, referred = reader.leaves, reader.facts.of, reader.referred
    tiles: list[tuple[tuple[int, ...], Any, Any]] = []  # shape, and a key or a piece
    dtype: Any = None
    for ref in refs:
        if type(ref) is not TaskRef:
            return NOT_TILED
        key = ref.key
        fact = None if key in leaves else of(key)
        if fact is not None and fact.fill is None and not fact.scalar and 0 not in fact.shape:
            tiles.append((fact.shape, key, None))
            referred.append(key)
            made: Any = fact.dtype
        else:
            found = reader.reference(key)
            if found is None:
                return None  # nobody can tell
            if len(found[0].pieces) != 1:
                return NOT_TILED
            tiles.append((found[0].shape, found[0].pieces[0].source, found[0].pieces[0]))
            made = found[1]
        if made is not dtype:
            if dtype is not None and made != dtype:
                return NOT_TILED
            dtype = made
    return _grid(tiles, shape, dtype)


def _grid(tiles: list[tuple[tuple[int, ...], Any, Any]], shape: Sequence[int], dtype: Any) -> Any:
    """The mosaic of a grid of tiles, if their sizes agree along every axis."""
    ndim = len(shape)
    stride = len(tiles)
    starts, sizes = [], []
    for axis, count in enumerate(shape):
        line = tiles[: stride : stride // count]
        stride //= count
        lengths = [size[axis] for size, _, _ in line if len(size) == ndim]
        sizes.append(lengths)
        starts.append([0, *accumulate(lengths)])
    corners = product(*[ends[:-1] for ends in starts])
    pieces = []
    for (size, source, piece), expected, at in zip(tiles, product(*sizes), corners):
        if size != expected:
            return NOT_TILED
        if piece is None:
            pieces.append(Piece(at, size, source, tuple([(-a, 1, i) for i, a in enumerate(at)])))
        else:
            pieces.append(placed(piece, at))
    if len({piece.source for piece in pieces}) < len(pieces) or len(pieces) < len(tiles):
        return NOT_TILED
    return Mosaic(tuple([ends[-1] for ends in starts]), tuple(pieces)), dtype
