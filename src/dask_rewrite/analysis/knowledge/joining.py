"""Functions that put blocks together: concatenation and stacking, plain and of nested lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from dask._task_spec import List, Task, _identity_cast
from dask.array import _shuffle, core
from dask.array.dispatch import concatenate_lookup, take_lookup

from dask_rewrite.analysis.knowledge.blocks import DType, array, axes_of, block, same_fill
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Call, Known
from dask_rewrite.analysis.knowledge.movement import take


def concatenate(arrays: Any, axis: int | None = 0) -> Any:
    """``np.concatenate`` of exact arrays.

    Examples
    --------
    >>> concatenate([Fact((2, 3), np.dtype("i4")), Fact((2, 1), np.dtype("f4"))], axis=1)
    Fact(shape=(2, 4), dtype=dtype('float64'), fill=None, scalar=False)
    """
    if axis is None or type(arrays) not in (list, tuple):
        return None
    facts = _arrays(arrays)
    if not facts:
        return None
    first = facts[0].shape
    (axis,) = axes_of(axis, len(first))
    before, after = first[:axis], first[axis + 1 :]
    length = 0
    for fact in facts:
        shape = fact.shape
        if len(shape) != len(first) or shape[:axis] != before or shape[axis + 1 :] != after:
            return None
        length += shape[axis]
    dtype = _joined_type(tuple(dict.fromkeys([fact.dtype for fact in facts])), len(facts) > 1)
    return Fact((*before, length, *after), dtype, same_fill(facts, dtype))


def _arrays(values: Iterable[Any]) -> list[Fact]:
    """The facts of arrays, nothing if one of them is not known to be one."""
    facts: list[Fact] = []
    for value in values:
        fact = array(value)
        if fact is None:
            return []
        facts.append(fact)
    return facts


@lru_cache(maxsize=1024)
def _joined_type(dtypes: tuple[DType, ...], several: bool) -> DType:
    """What NumPy makes of arrays of these dtypes when it puts them together."""
    if len(dtypes) == 1 and several:
        dtypes *= 2
    return np.concatenate([np.empty(0, dtype) for dtype in dtypes]).dtype


def _is_plain() -> bool:
    """Whether dask joins arrays with NumPy's own function, as it does unless told otherwise."""
    return concatenate_lookup.dispatch(np.ndarray) is np.concatenate


def concatenate_nested(arrays: Any, axes: Any = None) -> Any:
    """``core._concatenate2``: level by level of a nested list."""
    axes = [] if axes is None else axes
    if type(axes) is tuple and not axes:
        return arrays[0] if type(arrays) is list else arrays
    if type(arrays) not in (list, tuple):
        return arrays
    if len(axes) > 1:
        arrays = [concatenate_nested(each, axes[1:]) for each in arrays]
    return concatenate(arrays, axes[0]) if _is_plain() else None


def merge(arrays: Any, axes: Sequence[int]) -> Any:
    """``core.concatenate_axes``: blocks in a list of lists, whose levels lie along ``axes``, as one.

    The first gives the dtype.
    """
    lists, lengths = arrays, []
    while type(lists) is list and lists:
        lengths.append(len(lists))
        lists = lists[0]
    facts = _arrays(_leaves(arrays, len(lengths)))
    if not facts or len(lengths) != len(axes) or not _is_plain():
        return None
    if len(facts) != math.prod(lengths) or any(fact.ndim != facts[0].ndim for fact in facts):
        return None
    if len(set(axes)) < len(axes) or any(not 0 <= axis < facts[0].ndim for axis in axes):
        return None
    shape = list(facts[0].shape)
    step = len(facts)
    for count, axis in zip(lengths, axes):
        step //= count  # the first block of each entry of this level
        shape[axis] = sum(fact.shape[axis] for fact in facts[: step * count : step])
    if sum(fact.size for fact in facts) != math.prod(shape):
        return None
    dtype = facts[0].dtype
    return Fact(tuple(shape), dtype, same_fill(facts, dtype))


def _leaves(arrays: Any, depth: int) -> Any:
    level = [arrays]
    for _ in range(depth):
        if any(type(each) is not list for each in level):
            return [None]
        level = [inner for each in level for inner in each]
    return level


def _merged(arrays: Any) -> Any:
    """``core.concatenate3``."""
    depth, inner = 0, arrays
    while type(inner) is list and inner:
        depth, inner = depth + 1, inner[0]
    first = array(inner)
    if first is None or first.ndim != depth:
        return None
    return merge(arrays, range(depth)) if depth else first


def _merged_shaped(arrays: Any, shape: Any) -> Any:
    """``core.concatenate_shaped``: a flat list of blocks in the order of a grid."""
    grid = list(arrays)
    if math.prod(shape) != len(grid):
        return None
    for count in shape[:0:-1]:
        grid = [grid[i : i + count] for i in range(0, len(grid), count)]
    return _merged(grid)


def _finalized(results: Any) -> Any:
    """``core.finalize``: all blocks of an array as one."""
    inner = results
    while type(inner) is list and len(inner) == 1:
        inner = inner[0]
    return _merged(results) if type(inner) is list else block(inner)


def _finalizes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether there are several blocks to join: older dask returns a single one as it is."""
    inner = args[0] if args else None
    while type(inner) is List and len(inner.args) == 1:
        inner = inner.args[0]
    return type(inner) is List


def _stacked(arrays: Any, axis: int = 0) -> Any:
    facts = _arrays(arrays)
    if not facts or any(fact.shape != facts[0].shape for fact in facts):
        return None
    shape = facts[0].shape
    axis = range(len(shape) + 1)[axis]
    longer = (*shape[:axis], 1, *shape[axis:])
    return concatenate([Fact(longer, fact.dtype, fact.fill) for fact in facts], axis)


def _vstacked(arrays: Any) -> Any:
    facts = _arrays(arrays)
    rows = [Fact((1, fact.size), fact.dtype, fact.fill) if fact.ndim < 2 else fact for fact in facts]
    return concatenate(rows, 0)


def _hstacked(arrays: Any) -> Any:
    facts = _arrays(arrays)
    if any(not fact.ndim for fact in facts):
        return None
    return concatenate(facts, 0 if facts[0].ndim == 1 else 1)


def _reordered(arrays: Any, sorter: Any, axis: int) -> Any:
    """``_shuffle.concatenate_arrays``: joined, then taken in another order."""
    joined = concatenate(arrays, axis)
    if joined is None or not _is_plain() or take_lookup.dispatch(np.ndarray) is not np.take:
        return None
    order = array(sorter[1])
    return None if order is None else take(joined, Fact(order.shape, np.dtype(np.intp)), axis)


def _padded(a: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    fact = array(a)
    if fact is None or type(mode) is not str or mode == "empty" or fact.dtype.hasobject:
        return None
    widths = np.broadcast_to(np.asarray(pad_width), (fact.ndim, 2)).tolist()
    shape = tuple([n + before + after for n, (before, after) in zip(fact.shape, widths)])
    return Fact(shape, fact.dtype)


def _pads(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Call]:
    """With a function as its mode it is not known."""
    if type(kwargs.get("mode", args[2] if len(args) > 2 else "constant")) is not str:
        raise TypeError
    return ()


def _joins(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether it is seen that there is a list to join: a single block comes back as it is."""
    first = args[0] if args else None
    if type(first) is Task and first.func is _identity_cast:
        return first.kwargs.get("typ") is list
    return type(first) is List or type(first) is list


#: What is known of functions that join blocks.
JOINING: dict[Callable[..., Any], Known] = {
    np.concatenate: Known(concatenate, inputs=2, writing=("out",)),
    np.stack: Known(_stacked, inputs=2, writing=("out",)),
    np.vstack: Known(_vstacked),
    np.hstack: Known(_hstacked),
    np.pad: Known(_padded, calls=_pads),
    of_dask(core, "_concatenate2"): Known(concatenate_nested, fresh=False),
    of_dask(core, "concatenate3"): Known(_merged, fresh=_joins),
    of_dask(core, "concatenate_shaped"): Known(_merged_shaped, fresh=_joins),
    of_dask(core, "concatenate_axes"): Known(merge, fresh=_joins),
    of_dask(core, "finalize"): Known(_finalized, fresh=_finalizes),
    of_dask(_shuffle, "concatenate_arrays"): Known(_reordered),
}
