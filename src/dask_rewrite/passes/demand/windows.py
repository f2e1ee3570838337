"""Where the elements of an index lie in a block, as boxes."""

from __future__ import annotations

from math import gcd
from typing import Any, TypeVar

import numpy as np

from dask_rewrite.passes.demand.boxes import Box, Range, Shape, length, step_of, stepped
from dask_rewrite.passes.movement.pieces import selection

Item = TypeVar("Item")


def taken(index: Any, shape: Shape) -> Box | None:
    """The smallest box of a block that holds ``block[index]``; None if that is empty or cannot be told.

    >>> taken((slice(2, 8, 3), [0, 5, 2]), (9, 9))
    ((2, 6, 3), (0, 6))
    """
    if (plain := _plain(index, shape)) is not None:
        return plain
    found = selection(index, shape)
    if found is None:
        listed = _listed(index, shape)
        if listed is None or (around := taken(listed[0], shape)) is None:
            return None
        at, picked = listed[1:]
        return _replaced(around, at, spread(picked))
    counts, axes = found
    if 0 in counts:
        return None
    ends = []
    for offset, step, along in axes:
        last = offset + step * (counts[along] - 1) if along >= 0 else offset
        ends.append(stepped(min(offset, last), max(offset, last), abs(step) or 1))
    return tuple(ends)


def box_of(index: Any, shape: Shape) -> Box | None:
    """The box that an index of slices takes, one for each axis; None for any other index."""
    if type(index) is not tuple or len(index) != len(shape):
        return None
    plain = all(type(item) is slice and item.step in (None, 1) for item in index)
    return taken(index, shape) if plain else None


def _plain(index: Any, shape: Shape) -> Box | None:
    """The box of an index of one slice per axis that ends inside of it, as nearly all of dask's do."""
    if type(index) is not tuple or len(index) != len(shape):
        return None
    box = []
    for item, size in zip(index, shape):
        if type(item) is not slice:
            return None
        start, stop, step = item.start, item.stop, item.step
        if step is not None and (type(step) is not int or step != 1):
            return None
        if type(start) is not int or type(stop) is not int or not 0 <= start < stop <= size:
            return None
        box.append((start, stop))
    return tuple(box)


def window(index: Any, shape: Shape, box: Box) -> tuple[Box, tuple[Any, ...]] | None:
    """The box of a block in which ``block[index]`` has a box, and the index that takes it from there.

    >>> window((slice(2, None), [0, 5, 2]), (9, 9), ((0, 4), (1, 3)))
    (((2, 6), (2, 6, 3)), (slice(0, 4, None), array([1, 0])))
    """
    listed = _listed(index, shape)
    if listed is None:
        return slice_window(index, shape, box)
    rest, at, picked = listed
    if len(box) != len(shape):
        return None
    picked = picked[slice(*box[at])]
    around = slice_window(rest, shape, _replaced(box, at, (0, shape[at])))
    if around is None or not picked.size:
        return None
    positions = spread(picked)
    picked = (picked - positions[0]) // step_of(positions)
    return _replaced(around[0], at, positions), _replaced(around[1], at, picked)


def spread(picked: np.ndarray[Any, Any]) -> Range:
    """The smallest range that holds all positions of a list."""
    first, last = int(picked.min()), int(picked.max())
    step = gcd(*(picked[:4] - first).tolist())  # mostly that of all
    return stepped(first, last, step if step == 1 else int(np.gcd.reduce(picked - first)) or 1)


def _replaced(items: tuple[Item, ...], at: int, item: Item) -> tuple[Item, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _listed(index: Any, shape: Shape) -> tuple[tuple[slice, ...], int, np.ndarray[Any, Any]] | None:
    """An index of slices and one list: with all of its axis in its place, that axis, and the positions."""
    items = index if type(index) is tuple else (index,)
    lists = [i for i, item in enumerate(items) if type(item) is not slice]
    if len(items) > len(shape) or len(lists) != 1:
        return None
    (at,) = lists
    picked = np.asarray(items[at])
    if picked.ndim != 1 or picked.dtype.kind not in "iu" or not picked.size:
        return None
    picked = picked.astype(np.intp)
    picked = np.where(picked < 0, picked + shape[at], picked)
    if picked.min() < 0 or picked.max() >= shape[at]:
        return None
    rest = [slice(None)] * (len(shape) - len(items))
    return (*_replaced(items, at, slice(None)), *rest), at, picked


def expanded(index: Any, ndim: int) -> list[Any]:
    """One item for each axis of the block, and None for each new axis."""
    items = list(index) if type(index) is tuple else [index]
    given = sum(item is not None and item is not Ellipsis for item in items)
    rest = [slice(None)] * (ndim - given)
    for i, item in enumerate(items):
        if item is Ellipsis:
            return [*items[:i], *rest, *items[i + 1 :]]
    return [*items, *rest]


def slice_window(index: Any, shape: Shape, box: Box) -> tuple[Box, tuple[Any, ...]] | None:
    """`window` for an index of integers and slices only."""
    found = selection(index, shape)
    if found is None or len(found[0]) != len(box):
        return None
    source: list[Range] = []
    for offset, step, along in found[1]:
        if along < 0:
            source.append((offset, offset + 1))
            continue
        low, high, *_ = box[along]
        if low >= high:
            return None
        first, last = sorted((offset + step * low, offset + step * (high - 1)))
        source.append(stepped(first, last, abs(step) * step_of(box[along])))
    axes = iter(zip(found[1], source))
    items: list[Any] = []
    for item in expanded(index, len(shape)):
        if item is None:
            items.append(None)
            continue
        (_, step, along), positions = next(axes)
        if along < 0:
            items.append(0)
        else:
            n = length(positions)
            items.append(slice(n - 1, None, -1) if step < 0 else slice(0, n))
    return tuple(source), tuple(items)
