"""Reductions: a box of the axes that are kept, and all of those that are not."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from dask.array import chunk, reductions, routines
from dask.array.reductions import arg_agg, arg_chunk, arg_combine

from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.analysis.knowledge.blocks import axes_of
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.reductions import POSITIONS
from dask_rewrite.passes.demand.boxes import Box, Shape, whole
from dask_rewrite.passes.demand.calls import Call, Narrowed, Part, Rule, Unreadable, mapped


def _over(box: Box, axis: Any, keeps: bool, shape: Shape) -> Box:
    """The box of an argument of this shape, of which some axes are reduced."""
    axes = axes_of(axis, len(shape))
    rest = iter([ends for i, ends in enumerate(box) if not keeps or i not in axes])
    found = tuple([(0, n) if i in axes else next(rest) for i, n in enumerate(shape)])
    if next(rest, None) is not None:
        raise Unreadable
    return found


def _kept(call: Call, box: Box, axis: Any, shape: Shape) -> Box:
    """Whether axes are kept is seen from the shapes."""
    return _over(box, axis, len(call.shape) == len(shape), shape)


def _axis(call: Call, place: int) -> Any:
    return call.args[place] if len(call.args) > place else call.kwargs.get("axis")


def _reduction(call: Call, box: Box, at: int = 0) -> Narrowed | None:
    """The block, or nested lists of them, stands at a place; the axis follows it, or is a keyword."""
    return _along(call, box, _axis(call, at + 1), at)


def _along(call: Call, box: Box, axis: Any, at: int) -> Narrowed | None:
    if axis is None:
        return None
    args = list(call.args)
    args[at] = mapped(call, args[at], partial(_kept, call, box, axis))
    return Narrowed(box, args)


def _positions(call: Call, box: Box, at: int) -> Narrowed | None:
    """Positions of extremes: counted along one axis, or along all of them."""
    axis = _axis(call, at + 1)
    return _reduction(call, box, at) if len(axis) == 1 else None


def _combined(call: Call, box: Box) -> Narrowed | None:
    """Partial results in nested lists, or terms added one by one: the axis is a keyword."""
    return _along(call, box, call.kwargs.get("axis"), 0)


def _cumulated(call: Call, box: Box) -> Narrowed | None:
    """``np.cumsum`` and the like need all that comes before on their axis."""
    axis = _axis(call, 1)
    if axis is None:
        return None
    axis = range(len(call.shape))[axis]
    grown = tuple([(0, ends[1]) if i == axis else ends for i, ends in enumerate(box)])
    first, *rest = call.args
    return Narrowed(grown, [mapped(call, first, lambda shape: grown), *rest])


def _largest(call: Call, box: Box) -> Narrowed | None:
    """``chunk.topk``: no more than k elements along one axis, in no order."""
    return _lanes(call, box, call.kwargs["axis"][0])


def _lanes(call: Call, box: Box, axis: int) -> Narrowed:
    """What is done along one axis, and gives as many elements as it likes there."""
    axis = range(len(call.shape))[axis]

    def all_along(shape: Shape) -> Box:
        return tuple([(0, n) if i == axis else ends for i, (n, ends) in enumerate(zip(shape, box))])

    first, *rest = call.args
    return Narrowed(all_along(call.shape), [mapped(call, first, all_along), *rest])


def _quantiles(call: Call, box: Box) -> Narrowed | None:
    """``np.quantile`` along axes: an axis of several quantiles comes first."""
    block, *rest = call.args
    levels = call.value(rest[0] if rest else call.kwargs["q"])
    shape, axis = call.block(block), call.kwargs.get("axis")
    several = levels.ndim if type(levels) is Fact else np.ndim(levels)
    if len(rest) > 1 or axis is None:
        return None
    kept = box[several:]
    part = _over(kept, axis, bool(call.kwargs.get("keepdims", False)), shape)
    return Narrowed((*whole(call.shape[:several]), *kept), [Part(block, part), *rest])


def _gradient(call: Call, box: Box) -> Narrowed:
    """``routines._gradient_kernel``."""
    return _lanes(call, box, call.kwargs["axis"])


def regroups(call: Call, value: Any) -> bool:
    """Whether other sums may come out: NumPy adds floats in groups, which depend on the shape of a block."""
    if call.func in _EXACT:
        return False
    facts = value.values() if type(value) is dict else (value,)
    return any(type(fact) is Fact and fact.dtype.kind not in "biu" for fact in facts)


_EXTREMES = (np.max, np.min, np.nanmax, np.nanmin, np.any, np.all)
_POSITIONS = (np.argmax, np.argmin, np.nanargmax, np.nanargmin, *POSITIONS)
_SUMS = (np.sum, np.prod, np.nansum, np.nanprod, np.mean, np.nanmean, np.std, np.var, np.nanstd, np.nanvar)
_MEDIANS = (np.median, np.nanmedian)
_LARGEST = (of_dask(chunk, "topk"), of_dask(chunk, "topk_aggregate"))
_QUANTILES = (
    *(np.quantile, np.nanquantile),
    *(of_dask(reductions, "_custom_nanquantile"), of_dask(reductions, "_custom_quantile")),
)
_GRADIENT = of_dask(routines, "_gradient_kernel")
_METHODS = (np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or)
_SCANS = (np.cumsum, np.cumprod, np.nancumsum, np.nancumprod)
_COUNTS = tuple([of_dask(reductions, name) for name in ("numel", "nannumel")])
_SKIPPING = tuple(
    [of_dask(reductions, name) for name in ("chunk_max", "chunk_min", "_nanmax_skip", "_nanmin_skip")]
)
_MOMENTS = ("mean_chunk", "mean_combine", "mean_agg", "moment_chunk", "moment_combine", "moment_agg")

TABLE: dict[Any, Rule] = {
    **dict.fromkeys((*_EXTREMES, *_POSITIONS, *_SUMS, *_COUNTS, *_MEDIANS, *_SKIPPING), _reduction),
    **{func.reduce: _reduction for func in _METHODS},
    **dict.fromkeys(_SCANS, _cumulated),
    **dict.fromkeys(_LARGEST, _largest),
    **dict.fromkeys(_QUANTILES, _quantiles),
    _GRADIENT: _gradient,
    **{of_dask(reductions, name): _combined for name in _MOMENTS},
    of_dask(routines, "_chunk_sum"): _combined,
    arg_chunk: partial(_positions, at=2),
    arg_combine: partial(_positions, at=1),
    arg_agg: partial(_positions, at=1),
}

#: The same for any grouping.
_EXACT = frozenset(
    (
        *(*_EXTREMES, *_POSITIONS, *_COUNTS, *_SCANS, *_MEDIANS, *_LARGEST, *_QUANTILES, _GRADIENT),
        *(func.reduce for func in _METHODS[2:]),
        *(arg_chunk, arg_combine, arg_agg, *_SKIPPING),
    )
)
