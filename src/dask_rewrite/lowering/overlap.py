"""Blocks of an overlap layer one by one, instead of the whole layer at once."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable
from itertools import product
from math import inf, prod
from typing import Any, TypeGuard

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array.core import concatenate_shaped
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.layers import ArrayOverlapLayer
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import file_of
from dask_rewrite.analysis.layers import NUMPYS, is_unknown, said_of
from dask_rewrite.graph.nodes import NO_KWARGS, cast_to, literal, make_task, needs_of

_FULL = slice(None, None, None)
#: Along one axis: the number that dask's key holds, the block it comes from, and its part.
_Neighbour = tuple[float, int, slice]


class OverlapBlocks:
    """What `dask.layers.ArrayOverlapLayer` would make, for one output block at a time.

    Parameters
    ----------
    layer : ArrayOverlapLayer
        The layer; its names are kept.
    """

    def __init__(self, layer: ArrayOverlapLayer) -> None:
        self.annotations = layer.annotations
        self.nests = False  #: edges of blocks stand in the task that joins them
        self.largest = prod(inf if is_unknown(sizes) else max(sizes) for sizes in layer.chunks)
        self.source: str = layer.name
        self.getitem = f"getitem-{layer.token}"
        self.axes: list[list[list[_Neighbour]]] = [
            [_neighbours(i, len(chunks), layer.axes.get(axis, 0)) for i in range(len(chunks))]
            for axis, chunks in enumerate(layer.chunks)
        ]

    @property
    def tasks(self) -> int:
        """How many tasks dask makes of the whole layer: one for each block, and one for each part of it."""
        return prod(self.numblocks) + self.made

    @property
    def made(self) -> int:
        """How many tasks are made here: a whole block is no part of its own."""
        return prod(sum(map(len, axis)) for axis in self.axes)

    @property
    def least(self) -> int:
        """How many tasks are made for one block, at least."""
        return prod(min(map(len, axis), default=1) for axis in self.axes)

    @property
    def numblocks(self) -> tuple[int, ...]:
        """Blocks along each axis."""
        return tuple(map(len, self.axes))

    @staticmethod
    def fits(layer: Layer) -> TypeGuard[ArrayOverlapLayer]:
        """Whether this is such a layer and not yet materialized."""
        return type(layer) is ArrayOverlapLayer and not layer.is_materialized()

    def values(self, key: tuple[Any, ...]) -> dict[Key, Any]:
        """The tasks for one output block: a concatenation of its neighbours' edges."""
        around = [axis[i] for axis, i in zip(self.axes, key[1:])]
        made: dict[Any, Any] = {}
        parts: list[TaskRef | Task] = []
        for neighbours in product(*around):
            part = (self.getitem, *[where for where, _, _ in neighbours])
            source = (self.source, *[i for _, i, _ in neighbours])
            index = tuple([edge for _, _, edge in neighbours])
            if all(edge is _FULL for edge in index):
                parts.append(TaskRef(source))
                continue
            args, needs = (TaskRef(source), index), frozenset((source,))
            if self.nests:
                parts.append(make_task(None, operator.getitem, args, NO_KWARGS, needs))
                continue
            made[part] = make_task(part, operator.getitem, args, NO_KWARGS, needs)
            parts.append(TaskRef(part))
        deps = needs_of(parts)
        listed = cast_to(list, None, tuple(parts), deps)
        shape = tuple([len(neighbours) for neighbours in around])
        made[key] = make_task(key, concatenate_shaped, (listed, shape), NO_KWARGS, deps)
        return made


def nest_edges(lazy: Iterable[Any], plans: Container[str], hlg: HighLevelGraph, small: int) -> None:
    """Let edges of small blocks that Blockwise layers make stand in the tasks that join them.

    Not where files are read: who needs less of a block reads less, which is seen from tasks of their own.
    """
    overlaps = [blocks for blocks in lazy if isinstance(blocks, OverlapBlocks) and not blocks.annotations]
    if not overlaps or any(map(_is_file, hlg.layers.values())):
        return
    for blocks in overlaps:
        said = said_of(hlg.layers.get(blocks.source)) if blocks.source in plans else None
        if said is not None and said.get("chunk_type") in NUMPYS:
            blocks.nests = blocks.largest * np.dtype(said["dtype"]).itemsize <= small


def _is_file(layer: Layer) -> bool:
    if not isinstance(layer, MaterializedLayer) or len(layer) != 1:
        return False
    (value,) = layer.values()
    return file_of(literal(value)) is not None


def _neighbours(i: int, count: int, depth: Any) -> list[_Neighbour]:
    before, after = depth if isinstance(depth, tuple) else (depth, depth)
    found: list[_Neighbour] = []
    if i > 0 and before:
        found.append((i - 0.9, i - 1, slice(-before, None)))
    found.append((i, i, _FULL))
    if i < count - 1 and after:
        found.append((i + 0.9, i + 1, slice(0, after)))
    return found
