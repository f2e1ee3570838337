"""Slices, reads, views and joins: a box of the result lies somewhere in the blocks that it is taken from."""

from __future__ import annotations

import operator
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import List
from dask.array import _shuffle, chunk, core, overlap
from dask.array.optimization import GETTERS
from dask.utils import methodcaller

from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.loading import Source, source_of, stores_plain_numbers
from dask_rewrite.analysis.knowledge.shards import asks_more
from dask_rewrite.graph.nodes import list_of
from dask_rewrite.passes.demand import rearranging
from dask_rewrite.passes.demand.boxes import Box, Shape, between, step_of, whole
from dask_rewrite.passes.demand.calls import Call, Narrowed, Part, Rule, Unreadable
from dask_rewrite.passes.demand.windows import expanded, slice_window, window
from dask_rewrite.passes.movement.emit import nested
from dask_rewrite.passes.movement.pieces import selection


def getitem(call: Call, box: Box) -> Narrowed | None:
    """``block[index]`` with an index of integers and slices, one of which may be a list of positions."""
    block, index = call.args
    shape = call.shape_of(block)
    if shape is None or (found := window(index, shape, box)) is None:
        return None
    return Narrowed(box, [Part(block, found[0]), found[1]])


def _shuffled(call: Call, box: Box) -> Narrowed | None:
    """``_shuffle._getitem``: the index is the second of a pair."""
    block, pair = call.args
    pair = call.value(pair)
    if type(pair) is not tuple or len(pair) != 2:
        return None
    inner = Call(chunk.getitem, [block, pair[1]], {}, call.shape, call.values)
    found = getitem(inner, box)
    return None if found is None else Narrowed(box, found.args, {}, chunk.getitem)


def read(call: Call, box: Box) -> Narrowed | None:
    """A getter: of a block of the graph, or of a file that knows its shape and reads slices as NumPy does."""
    source, index, *options = call.args
    value = call.value(source)
    if type(value) is Fact:
        found = slice_window(index, value.shape, box)
        return None if found is None else Narrowed(box, [Part(source, found[0]), found[1], *options])
    known = source_of(value)
    if not stores_plain_numbers(known):
        return None
    box = _skipping(known, index, box)
    found = slice_window(index, known.shape, box)
    if found is None:
        return None
    moved: list[Any] = []
    axes = iter(found[0])
    for item in found[1]:
        if item is None:
            moved.append(None)
            continue
        positions = next(axes)
        if type(item) is not slice:
            moved.append(positions[0])
        elif item.step == -1:
            return None
        else:
            moved.append(slice(*positions))
    before = [item for item in expanded(index, len(known.shape)) if item is not None]
    if asks_more(known, [list(map(_ends, before, known.shape))], [[each[:2] for each in found[0]]]):
        return None
    return Narrowed(box, [source, tuple(moved), *options])


def _skipping(known: Source, index: Any, box: Box) -> Box:
    """The box in steps where these pass over stored chunks; else what lies between is decoded anyway."""
    there = selection(index, known.shape)
    granted = [each[:2] for each in box]
    for (_, step, along), chunk_size in zip(there[1] if there else (), known.chunks or ()):
        if along >= 0 and abs(step) * step_of(box[along]) > chunk_size:
            granted[along] = box[along]
    return tuple(granted)


def _ends(item: Any, length: int) -> tuple[int, int]:
    """From where to where an index takes elements along one axis."""
    return item.indices(length)[:2] if type(item) is slice else (item, item + 1)


def view(call: Call, box: Box) -> Narrowed | None:
    """Functions that turn, add or drop axes: where each one goes is seen from strides of a stand-in."""
    block, *rest = call.args
    shape = call.block(block)
    steps = [1 << (2 * i + 4) for i in range(len(shape))]
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, "i1"), shape, steps)
    made = call.func(stand_in, *rest, **call.kwargs)
    if made.shape != call.shape:
        return None
    source = list(whole(shape))
    for n, step, (low, high, *every) in zip(made.shape, made.strides, box):
        if n == 1:
            continue
        axis = steps.index(abs(step)) if abs(step) in steps else -1
        if axis < 0 or shape[axis] != n:
            return None
        source[axis] = (low, high, *every) if step > 0 else (n - high, n - low, *every)
    return Narrowed(box, [Part(block, tuple(source)), *rest])


class _Asked:
    """Gives back what it is indexed with."""

    def __init__(self, ndim: int) -> None:
        self.ndim = ndim

    def __getitem__(self, index: Any) -> Any:
        return index


def _trimmed(call: Call, box: Box) -> Narrowed | None:
    """``overlap._trim``: a halo is cut off."""
    (block,) = call.args
    shape = call.block(block)
    found = slice_window(_TRIM(_Asked(len(shape)), **call.kwargs), shape, box)
    return None if found is None else Narrowed(box, [Part(block, found[0]), found[1]], {}, operator.getitem)


# -- joins ---------------------------------------------------------------------------------------


def _joined(call: Call, blocks: Any, axes: list[int], box: Box) -> Any:
    """Nested lists of blocks along these axes, without those that lie outside of the box."""
    axis, *inner = axes
    if type(blocks) is not List or not blocks.args:
        raise Unreadable
    sizes = [_first(call, each, len(inner))[axis] for each in blocks.args]
    kept = []
    for each, end, n in zip(blocks.args, accumulate(sizes), sizes):
        there = between(box[axis], end - n, end)
        if there is None:
            continue
        part = tuple([there if i == axis else ends for i, ends in enumerate(box)])
        kept.append(_joined(call, each, inner, part) if inner else _part(call, each, part))
    if not kept:
        raise Unreadable
    return list_of(kept)


def _part(call: Call, block: Any, box: Box) -> Part:
    if type(block) is List or len(call.block(block)) != len(box):
        raise Unreadable
    return Part(block, box)


def _first(call: Call, blocks: Any, depth: int) -> Shape:
    for _ in range(depth):
        if type(blocks) is not List or not blocks.args:
            raise Unreadable
        blocks = blocks.args[0]
    return call.block(blocks)


def _nested(call: Call, box: Box) -> Narrowed | None:
    """``core._concatenate2(arrays, axes)`` and the like; without axes, it is the first block as it is."""
    blocks, *rest = call.args
    axes = rest[0] if rest else call.kwargs.get("axes")
    if not axes or type(blocks) is not List:
        return None
    return Narrowed(box, [_joined(call, blocks, list(axes), box), *rest])


def _grid(call: Call, box: Box) -> Narrowed | None:
    """``core.concatenate3``: lists as deep as the blocks have axes."""
    (blocks,) = call.args
    return Narrowed(box, [_joined(call, blocks, list(range(len(box))), box)])


def _shaped(call: Call, box: Box) -> Narrowed | None:
    """``core.concatenate_shaped``: a flat list of blocks in the order of a grid."""
    blocks, grid = call.args
    if type(blocks) is not List or prod(grid) != len(blocks.args):
        return None
    joined = _joined(call, nested([*blocks.args], grid), list(range(len(box))), box)
    return Narrowed(box, [joined], {}, core.concatenate3)


def _concatenated(call: Call, box: Box) -> Narrowed | None:
    """``np.concatenate(arrays, axis)``."""
    blocks, *rest = call.args
    axis = rest[0] if rest else call.kwargs.get("axis", 0)
    return Narrowed(box, [_joined(call, blocks, [range(len(box))[axis]], box), *rest])


_TRIM = of_dask(overlap, "_trim")
_TURNING = (
    np.transpose,
    np.swapaxes,
    np.moveaxis,
    np.rollaxis,
    np.expand_dims,
    np.flip,
    np.fliplr,
    np.flipud,
)
_METHODS = tuple([methodcaller(name) for name in ("transpose", "swapaxes")])

#: Rules that give only a part of what they take, even where all of the result is wanted.
SELECTING: dict[Any, Rule] = {
    operator.getitem: getitem,
    chunk.getitem: getitem,
    of_dask(_shuffle, "_getitem"): _shuffled,
    rearranging.POINTS: rearranging.points,
    **{func: read for func in GETTERS if func is not chunk.getitem and func is not operator.getitem},
}
#: The same by identity.
SELECTING_IDS = frozenset(map(id, SELECTING))

TABLE: dict[Any, Rule] = {
    **SELECTING,
    **dict.fromkeys((*_TURNING, *_METHODS), view),
    _TRIM: _trimmed,
    **dict.fromkeys((np.reshape, methodcaller("reshape")), rearranging.reshaped),
    **rearranging.TABLE,
    of_dask(core, "_concatenate2"): _nested,
    of_dask(core, "concatenate_axes"): _nested,
    of_dask(core, "concatenate3"): _grid,
    of_dask(core, "concatenate_shaped"): _shaped,
    np.concatenate: _concatenated,
}
