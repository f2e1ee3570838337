"""Reshapes that give a block back the shape that it had before others."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.typing import Key
from dask.utils import methodcaller

from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.movement.mosaic import whole
from dask_rewrite.passes.movement.moves import GETITEMS, Block, items_of
from dask_rewrite.passes.movement.read import Reader

#: Kept alive, since dask remembers callers of methods weakly.
_METHOD = methodcaller("reshape")
RESHAPES = frozenset(map(id, (_METHOD, np.reshape)))
#: What shows the block that it is called on.
VIEWS = GETITEMS | RESHAPES | {id(np.transpose)}


class Below(NamedTuple):
    """A block before it was reshaped."""

    key: Key
    block: Block


class Reshapes:
    """Remembers what was reshaped; any number of reshapes in C order are one.

    Parameters
    ----------
    reader : Reader
        What is known of the blocks.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._below: dict[Key, Below] = {}

    def undone(self, task: Task) -> Below | None:
        """The block that a reshape gives back as it was; None where it has another shape now."""
        shape = _new_shape(task)
        if shape is None:
            return None
        ref: Any = task.args[0]
        below = self._below.get(ref.key)
        if below is None:
            block = self._reader.leaf(ref.key)
            if block is None:
                return None
            below = Below(ref.key, block)
        before = below.block[0].shape
        if 0 in before or prod(before) != prod(shape):
            return None
        if before != shape:
            self._below[task.key] = below
            return None
        return below


def standing(below: Below) -> Block:
    """The block as it stands, whatever it is made of."""
    mosaic, dtype = below.block
    return whole(below.key, mosaic.shape), dtype


def _new_shape(task: Task) -> tuple[int, ...] | None:
    """The shape that a task gives to the one block that it refers to."""
    if len(task.args) != 2 or task.kwargs or type(task.args[0]) is not TaskRef:
        return None
    shape = literal(task.args[1])
    items = list(shape) if type(shape) is tuple else items_of(shape)
    items = None if items is None else [literal(item) for item in items]
    return tuple(items) if items and all(type(n) is int and n > 0 for n in items) else None
