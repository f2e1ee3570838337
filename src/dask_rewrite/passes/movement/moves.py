"""The functions that only move data, and how their arguments are read."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from dask._task_spec import List, Task, TaskRef
from dask.array import chunk
from dask.array.core import concatenate3, concatenate_shaped
from dask.array.optimization import GETTERS
from dask.typing import Key

from dask_rewrite.analysis.declared import Symbol
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.graph.lists import parts_of
from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.movement.mosaic import Mosaic, constant, padded, transposed, whole

GETITEMS = frozenset(map(id, (chunk.getitem, operator.getitem)))
#: Functions that take a part of a file or of an array, by identity.
GETTER_IDS = frozenset(map(id, GETTERS))
JOINS = frozenset(map(id, (concatenate_shaped, concatenate3, np.concatenate)))
#: Functions that only move data, by identity.
MOVES = GETITEMS | JOINS | frozenset(map(id, (np.transpose, np.pad)))
#: What the elements of a block are, known or assumed to be the same as in other blocks.
DType: TypeAlias = np.dtype[Any] | Symbol
#: A mosaic and its dtype.
Block: TypeAlias = tuple[Mosaic, DType]
_ENDS, _REFERENCES = {int, type(None)}, {TaskRef}


def leaf_of(key: Key | None, fact: Fact) -> Block | None:
    """The mosaic of a block from its fact; constants need no source."""
    if fact.scalar or not fact.shape:
        return None
    if fact.fill is not None:
        if fact.fill.dtype != fact.dtype:
            return None
        return constant(fact.fill, fact.shape), fact.dtype
    return whole(key, fact.shape), fact.dtype


def is_plain(dtype: DType) -> bool:
    """Whether NumPy's own ``concatenate`` keeps the dtype: it changes byte orders and records."""
    if isinstance(dtype, Symbol):
        return False
    return bool(dtype.isnative and dtype.names is None and dtype.subdtype is None and dtype.metadata is None)


def items_of(node: Any) -> list[Any] | None:
    """The elements of a list in a task's arguments."""
    if type(node) is list:
        return node
    parts = parts_of(node)
    return None if parts is None else list(parts)


def nested_blocks(task: Task) -> list[Any] | None:
    """The blocks that a task joins, in nested lists as ``concatenate3`` takes them."""
    blocks = _lists(task.args[0], 6) if task.args else None
    if type(blocks) is not list or not blocks:
        return None
    if task.func is not concatenate_shaped:
        if task.func is concatenate3 and (len(task.args) > 1 or task.kwargs):
            return None
        return blocks
    shape = grid_shape(task)
    if shape is None or any(type(block) is list for block in blocks):
        return None
    for count in reversed(shape[1:]):
        if len(blocks) % count:
            return None
        blocks = [blocks[i : i + count] for i in range(0, len(blocks), count)]
    return blocks if len(blocks) == shape[0] else None


def grid_shape(task: Task) -> Sequence[int] | None:
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


def transpose_of(inner: Block, task: Task) -> Block | None:
    ndim = len(inner[0].shape)
    order: Any = literal(task.args[1]) if len(task.args) > 1 else literal(task.kwargs.get("axes"))
    if len(task.args) > 2 or not task.kwargs.keys() <= {"axes"}:
        return None
    if order is None:
        order = tuple(reversed(range(ndim)))
    if type(order) not in (tuple, list) or not all(type(i) is int and -ndim <= i < ndim for i in order):
        return None
    order = [i % ndim for i in order]
    if order == list(range(ndim)) and isinstance(inner[1], Symbol):
        return None  # what else NumPy makes of such a block is its own business: it stays, with its producer
    return (transposed(inner[0], order), inner[1]) if sorted(order) == list(range(ndim)) else None


def pad_of(inner: Block, task: Task) -> Block | None:
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


def operation_of(task: Task) -> tuple[Any, list[Key]] | None:
    """What a task does, in a form that can be looked up, and to which blocks; None for what is not usual."""
    args, func = task.args, id(task.func)
    if task.kwargs or not 1 <= len(args) <= 2:
        return None
    if type(args[0]) is TaskRef:
        if func not in GETITEMS or len(args) == 1 or type(args[1]) is not tuple:
            return None
        ends: list[Any] = []
        for item in args[1]:
            if type(item) is not slice:  # a range has the same three numbers, and picks other elements
                return None
            ends += (item.start, item.stop, item.step)
        return (tuple(ends), [args[0].key]) if _ENDS.issuperset(map(type, ends)) else None
    refs = items_of(args[0]) if func in JOINS else None
    counts: Any = args[1] if len(args) == 2 else ()
    if refs is None or type(counts) not in (tuple, list) or not _ENDS.issuperset(map(type, counts)):
        return None
    if not _REFERENCES.issuperset(map(type, refs)):  # what other expressions give is not known from keys
        return None
    return (func, len(args), *counts), [ref.key for ref in refs]
