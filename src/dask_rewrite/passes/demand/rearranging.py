"""Functions that pick points, assign, repeat, or lay windows: where a box of what they give comes from."""

from __future__ import annotations

from math import lcm, prod
from typing import Any

import numpy as np
from dask.array import _shuffle, core, slicing

from dask_rewrite.analysis.knowledge.blocks import array, axes_of
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.passes.demand.boxes import Box, Range, between, length, lengths, step_of, whole
from dask_rewrite.passes.demand.calls import Call, Narrowed, Part, Rule, mapped
from dask_rewrite.passes.demand.windows import spread


def points(call: Call, box: Box) -> Narrowed | None:
    """``core._vindex_slice_and_transpose``: elements by lists of positions, and slices on the other axes."""
    block, places, axis = call.args
    shape = call.block(block)
    rest = iter(box[1:])
    source: list[Range] = []
    index: list[Any] = []
    for each, n in zip(places, shape, strict=True):
        if type(each) is slice:
            if each != slice(None):
                return None
            source.append(next(rest))
            index.append(each)
            continue
        picked = np.asarray(each)[slice(*box[0])].astype(np.intp)
        picked = np.where(picked < 0, picked + n, picked)
        if picked.ndim != 1 or not picked.size or picked.min() < 0 or picked.max() >= n:
            return None
        positions = spread(picked)
        source.append(positions)
        index.append((picked - positions[0]) // step_of(positions))
    return Narrowed(box, [Part(block, tuple(source)), index, axis])


def _assigned(call: Call, box: Box) -> Narrowed | None:
    """``slicing.setitem``: one value in a rectangle of the block; outside of it, a copy."""
    block, value, index = call.args
    given = array(call.value(value))
    if given is None or given.size != 1 or len(index) != len(box):
        return None
    inner = []
    for each, ends, n in zip(index, box, call.shape):
        if type(each) is not slice or len(range(*each.indices(n))) == 0 or each.step not in (None, 1):
            return None
        start, stop, _ = each.indices(n)
        there = between(ends, start, stop)
        if there is None:
            return Narrowed(box, [Part(block, box)], {"order": "C"}, np.array)
        first = max(0, -((ends[0] - start) // step_of(ends)))
        inner.append(slice(first, first + length(there)))
    return Narrowed(box, [Part(block, box), value, inner])


def _repeated(call: Call, box: Box) -> Narrowed | None:
    """``np.repeat`` by a number, along an axis."""
    block, times = call.args
    axis = call.kwargs["axis"]
    if type(times) is not int or times < 1 or type(axis) is not int:
        return None
    axis = range(len(box))[axis]
    low, high = box[axis][0] // times, -(-box[axis][1] // times)
    granted = _replaced(box, axis, (low * times, high * times))
    return Narrowed(granted, [Part(block, _replaced(box, axis, (low, high))), times])


def _windows(call: Call, box: Box) -> Narrowed | None:
    """``sliding_window_view`` along axes, each window as a whole."""
    (block,) = call.args
    shape = call.block(block)
    axes = axes_of(call.kwargs["axis"], len(shape))
    sizes = call.kwargs["window_shape"]
    sizes = sizes if type(sizes) is tuple else (sizes,)
    source = box[: len(shape)]
    for axis, size in zip(axes, sizes, strict=True):
        low, high, *_ = box[axis]
        box = _replaced(box, axis, (low, high))
        source = _replaced(source, axis, (low, high - 1 + size))
    return Narrowed((*box[: len(shape)], *whole(call.shape[len(shape) :])), [Part(block, source)])


def _reordered(call: Call, box: Box) -> Narrowed:
    """``_shuffle.concatenate_arrays``: joined along an axis, then taken in another order."""
    blocks, order, axis = call.args
    axis = range(len(box))[axis]
    part = mapped(call, blocks, lambda shape: _replaced(box, axis, (0, shape[axis])))
    return Narrowed(_replaced(box, axis, (0, call.shape[axis])), [part, order, axis])


def reshaped(call: Call, box: Box) -> Narrowed | None:
    """Axes that stay as they are, before and after those that do not; of these, a range of the first one."""
    block, *rest = call.args
    shape, made = call.block(block), call.shape
    order = call.kwargs.get("order", "C")
    if len(rest) != 1 or call.kwargs.keys() > {"order"} or order != "C" or 0 in made:
        return None
    before = 0
    while before < min(len(shape), len(made)) and shape[before] == made[before]:
        before += 1
    after = 0
    while after < min(len(shape), len(made)) - before and shape[-1 - after] == made[-1 - after]:
        after += 1
    old, new = shape[before : len(shape) - after], made[before : len(made) - after]
    source, granted = list(whole(old)), list(whole(new))
    if old and new:
        # Elements of the middle lie one after the other: whole rows of both shapes hold the range.
        of_old, of_new = prod(old[1:]), prod(new[1:])
        unit = lcm(of_old, of_new)
        low, high = box[before][0] * of_new // unit * unit, -(-box[before][1] * of_new // unit) * unit
        source[0], granted[0] = (low // of_old, high // of_old), (low // of_new, high // of_new)
    tail = box[len(made) - after :]
    there = (*box[:before], *granted, *tail)
    return Narrowed(there, [Part(block, (*box[:before], *source, *tail)), lengths(there)])


def _replaced(box: Box, axis: int, ends: tuple[int, int]) -> Box:
    return (*box[:axis], ends, *box[axis + 1 :])


#: Where points are picked: it gives only a part of what it takes.
POINTS = of_dask(core, "_vindex_slice_and_transpose")

TABLE: dict[Any, Rule] = {
    of_dask(slicing, "setitem"): _assigned,
    np.repeat: _repeated,
    np.lib.stride_tricks.sliding_window_view: _windows,
    of_dask(_shuffle, "concatenate_arrays"): _reordered,
}
