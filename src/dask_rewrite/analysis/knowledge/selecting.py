"""Selecting elements by value or by other blocks: the largest ones, positions that are computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dask.array import chunk, core
from dask.core import flatten
from toolz.functoolz import Compose

from dask_rewrite.analysis.knowledge.blocks import array
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.joining import concatenate
from dask_rewrite.analysis.knowledge.known import Known

_TOPK = of_dask(chunk, "topk")


def is_topk(func: Any) -> bool:
    """Whether what it gives is the end of a sorted copy of all of its block."""
    return type(func) is partial and func.func is _TOPK  # users' callables are asked for no attributes


def ends_in_topk(func: Any) -> bool:
    """The same, also of several blocks that are put together first."""
    return is_topk(func.funcs[-1] if type(func) is Compose else func)


def _largest(a: Any, k: int, axis: Any, keepdims: Any = True) -> Any:
    """``chunk.topk``: the same block where it has no more than k elements along the axis."""
    fact = array(a)
    return None if fact is None else _cut(fact, k, axis[0])


def _cut(fact: Fact, k: int, axis: int) -> Fact:
    axis = range(fact.ndim)[axis]
    length = min(abs(k), fact.shape[axis])
    return Fact((*fact.shape[:axis], length, *fact.shape[axis + 1 :]), fact.dtype)


def _with_positions(a: Any, idx: Any) -> Any:
    return a, idx


def _largest_positions(a_plus_idx: Any, k: int, axis: Any, keepdims: Any = True) -> Any:
    """``chunk.argtopk``: pairs of values and positions, put together where they come in a list."""
    axis = axis[0]
    if type(a_plus_idx) is list:
        pairs = list(flatten(a_plus_idx))
        values = concatenate([a for a, _ in pairs], axis)
        found = [(one, other) for a, i in pairs if (one := array(a)) and (other := array(i))]
        if len(found) < len(pairs):
            return None
        positions = concatenate([Fact(one.shape, other.dtype) for one, other in found], axis)
    else:
        values, positions = map(array, a_plus_idx)
    if values is None or positions is None:
        return None
    if abs(k) >= values.shape[axis]:
        return a_plus_idx
    shape = _cut(values, k, axis).shape
    return Fact(shape, values.dtype), Fact(shape, positions.dtype)


def _final_positions(a_plus_idx: Any, k: int, axis: Any, keepdims: Any = True) -> Any:
    pairs = a_plus_idx if len(a_plus_idx) > 1 else a_plus_idx[0]
    found = _largest_positions(pairs, k, axis)
    if type(found) is not tuple:
        return None
    values, positions = map(array, found)
    return None if values is None or positions is None else Fact(values.shape, positions.dtype)


def _picked_by_block(idx: Any, chunk_outputs: Any, x_chunks: Any, axis: int) -> Any:
    """``chunk.slice_with_int_dask_array_aggregate``: as many elements as there are positions."""
    positions, fact = array(idx), array(chunk_outputs)
    if positions is None or fact is None or positions.dtype.kind not in "iu" or positions.ndim != 1:
        return None
    return Fact((*fact.shape[:axis], *positions.shape, *fact.shape[axis + 1 :]), fact.dtype)


def _points(block: Any, points: Any, axis: int) -> Any:
    """``core._vindex_slice_and_transpose``: elements by their positions, and whole axes after these."""
    fact = array(block)
    places = [array(each) for each in points if type(each) is not slice]
    if fact is None or len(points) != fact.ndim or not places:
        return None
    counts = {each.shape for each in places if each is not None}
    if len(counts) > 1 or None in places or any(len(shape) != 1 for shape in counts):
        return None
    whole = [len(range(n)[each]) for n, each in zip(fact.shape, points) if type(each) is slice]
    return Fact((*counts.pop(), *whole), fact.dtype)


def _in_their_places(locations: Any, values: Any) -> Any:
    """``core._vindex_merge``: as many elements as there are places for them."""
    fact = concatenate(values, 0)
    first = array(values[0])
    if fact is None or first is None or fact.shape[0] != sum(map(len, locations)):
        return None
    return Fact(fact.shape, first.dtype)


#: What is known of functions that select elements.
SELECTIONS: dict[Callable[..., Any], Known] = {
    _TOPK: Known(_largest, fresh=False),
    of_dask(chunk, "topk_aggregate"): Known(_largest),
    of_dask(chunk, "argtopk_preprocess"): Known(_with_positions, fresh=False),
    of_dask(chunk, "argtopk"): Known(_largest_positions, fresh=False),
    of_dask(chunk, "argtopk_aggregate"): Known(_final_positions),
    of_dask(core, "_vindex_slice_and_transpose"): Known(_points),  # a list of positions always copies
    of_dask(core, "_vindex_merge"): Known(_in_their_places),
    of_dask(chunk, "slice_with_int_dask_array_aggregate"): Known(_picked_by_block),
}
