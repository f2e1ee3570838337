"""Functions of NumPy and dask of whose results little is known in advance, but that they only read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from dask.array import chunk, core, overlap, reductions, routines
from dask.array.percentile import _percentile, merge_percentiles

from dask_rewrite.analysis.knowledge.blocks import NUMBERS, array, axes_of, certain, plain, reduced
from dask_rewrite.analysis.knowledge.calling import keywords_in
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.elementwise import elementwise
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Call, Known, calls_first
from dask_rewrite.analysis.knowledge.lookup import fact_of_call
from dask_rewrite.analysis.knowledge.movement import viewed

#: Arguments that make a function write into what it is given.
_WRITING = ("out", "output", "overwrite_input", "overwrite_x", "overwrite_data", "copy")


def reads(func: Callable[..., Any], fact: Any = None, fresh: bool = True) -> Known:
    """It only reads, unless an argument of its signature says where to write, or that it may.

    Examples
    --------
    >>> reads(np.ma.masked_where).writing, reads(np.ma.masked_where).inputs
    (('copy',), 2)
    """
    try:
        names = list(inspect.signature(func).parameters)
    except ValueError:  # older versions have none for functions in C: what is in the tables has no such place
        return Known(fact, fresh=fresh, writing=_WRITING)
    writing = tuple([name for name in names if name in _WRITING])
    return Known(fact, fresh=fresh, inputs=min(map(names.index, writing), default=None), writing=writing)


def _sorted(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    fact = array(a)
    if fact is None or axis is None or not fact.ndim or not plain(fact.dtype):
        return None
    axes_of(axis, fact.ndim)  # raises
    return Fact(fact.shape, fact.dtype, fact.fill)


def _arg_sorted(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    fact = _sorted(a, axis)
    return None if fact is None else Fact(fact.shape, np.dtype(np.intp))


def _searched(a: Any, v: Any, side: str = "left") -> Any:
    fact, values = array(a), array(v)
    if fact is None or values is None or fact.ndim != 1 or not values.ndim or not plain(fact.dtype):
        return None
    return Fact(values.shape, np.dtype(np.intp)) if plain(values.dtype) else None


def _searched_row(x: Any, y: Any, side: Any) -> Any:
    """``routines._searchsorted_block``."""
    found = _searched(x, y)
    return None if found is None or found.ndim != 1 else Fact((1, *found.shape), found.dtype)


def _is_null(values: Any) -> Any:
    fact = array(values)
    return elementwise(np.isnan, fact) if fact is not None and fact.dtype.kind in NUMBERS else None


def _gradient(
    x: Any, block_id: Any, coord: Any, axis: int, array_locs: Any, grad_kwargs: Mapping[str, Any]
) -> Any:
    """``routines._gradient_kernel``: along one axis, at even distances."""
    fact = array(x)
    if fact is None or fact.dtype not in (np.dtype("f4"), np.dtype("f8")) or array_locs is not None:
        return None
    if type(coord) not in (int, float) or fact.shape[axis] < 2 + grad_kwargs.get("edge_order", 1):
        return None
    return Fact(fact.shape, fact.dtype)


def _coarsened(
    reduction: Any, x: Any, axes: Mapping[int, int], trim_excess: bool = False, **kwargs: Any
) -> Any:
    """``chunk.coarsen``: reduces every other axis of a reshaped block."""
    fact = certain(array(x))
    factors = [axes.get(i, 1) for i in range(fact.ndim)]
    if any(n % by and not trim_excess for n, by in zip(fact.shape, factors)):
        return None
    split = tuple([part for n, by in zip(fact.shape, factors) for part in (n // by, by)])
    view = Fact(split, fact.dtype, fact.fill)
    return fact_of_call(reduction, (view,), {"axis": tuple(range(1, 2 * fact.ndim, 2)), **kwargs})


def _of_pieces(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    """``routines._int_piecewise``: constants or functions."""
    pieces = kwargs["funclist"]
    return [(piece, (), {}) for piece in getattr(pieces, "value", pieces) if callable(piece)]


def _along_axis(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    """``routines._inner_apply_along_axis``."""
    given = dict(zip(("arr", "func1d", "func1d_axis", "func1d_args", "func1d_kwargs"), args)) | dict(kwargs)
    return [(given["func1d"], (None,), keywords_in(given["func1d_kwargs"]))]


def _quantiles(
    func: Any,
    a: Any,
    q: Any,
    axis: Any = None,
    *,
    method: Any = "linear",
    keepdims: Any = False,
    weights: Any = None,
    interpolation: Any = None,
) -> Any:
    """One quantile, or several along a first axis."""
    fact, levels = array(a), array(np.asarray(q) if type(q) is list else q)
    if fact is None or axis is None or fact.dtype.kind not in "iuf":
        return None
    if (levels is None and type(q) is not float) or (levels is not None and levels.ndim > 1):
        return None
    if weights is not None or interpolation is not None:
        return None
    shape, count = reduced(fact.shape, axis, bool(keepdims))
    axes = axes_of(axis, fact.ndim)
    if not count or not shape:
        return None
    # Which way dask's own goes depends on the place and on the length of the axis: at most a thousand.
    tried = tuple([min(n, 1001) if i in axes else 1 for i, n in enumerate(fact.shape)])
    several, level = ((), None) if levels is None else (levels.shape, levels.dtype)
    return Fact(
        (*several, *shape), _quantile_type(func, tried, fact.dtype, len(several), level, axes, method)
    )


@lru_cache(maxsize=1024)
def _quantile_type(
    func: Any, shape: Any, dtype: Any, several: int, level: Any, axes: Any, method: Any
) -> np.dtype[Any]:
    levels = 0.5 if level is None else np.full((1,) * several, 0.5, level)
    made = func(np.ones(shape, dtype), levels, axis=axes, method=method)
    found: np.dtype[Any] = made.dtype
    return found


#: Of quantiles; the last one is dask's own of older versions.
_QUANTILES = (
    *(np.quantile, np.nanquantile),
    *(of_dask(reductions, "_custom_nanquantile"), of_dask(reductions, "_custom_quantile")),
)
_READERS = (
    *(np.bincount, np.unique, np.nonzero, np.flatnonzero, np.argwhere, np.lexsort, np.argpartition),
    *(np.count_nonzero, np.allclose, np.array_equal, np.gradient, np.interp, np.cov, np.corrcoef, np.average),
    *(np.isin, np.choose, np.select, np.unravel_index, np.ravel_multi_index, np.cross, np.kron, np.trace),
    *(np.convolve, np.correlate, np.inner, np.insert, np.delete, np.append, np.take_along_axis, np.tile),
    *(np.polyfit, np.polyval, np.ediff1d, np.intersect1d, np.union1d, np.setdiff1d, np.ptp, np.partition),
    *(np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft, np.fft.hfft, np.fft.ihfft, np.fft.rfftn),
    *(np.fft.irfftn, np.fft.rfft2, np.fft.irfft2),
    *(np.linalg.norm, np.linalg.det, np.linalg.eigvalsh, np.linalg.eigvals, np.linalg.eig, np.linalg.eigh),
    *(np.linalg.lstsq, np.linalg.pinv, np.linalg.slogdet, np.linalg.cond, np.linalg.matrix_rank),
    *(np.percentile, np.nanpercentile, merge_percentiles, _percentile),
)
#: What they give may share memory with an argument: bins that are given, a mask, all of it along no axes.
_SHARING = (
    *(np.histogram, np.histogramdd, np.histogram2d, np.diff, np.polyder, np.linalg.matrix_power),
    *(np.fft.fftn, np.fft.ifftn, np.fft.fft2, np.fft.ifft2),
    *(np.ma.masked_where, np.ma.masked_invalid, np.ma.masked_equal, np.ma.masked_not_equal),
    *(np.ma.masked_greater, np.ma.masked_greater_equal, np.ma.masked_less, np.ma.masked_less_equal),
    *(np.ma.masked_inside, np.ma.masked_outside, np.ma.masked_values, np.ma.fix_invalid, np.ma.filled),
)
_DASK_READERS = (
    *((routines, name) for name in ("_block_hist", "_block_histogramdd_rect", "_block_histogramdd_multiarg")),
    *((routines, name) for name in ("_unique_internal", "_unravel_index_kernel")),
    (chunk, "slice_with_int_dask_array"),
)

#: What is known of functions that only read; the results of most are as their values are.
HARMLESS: dict[Callable[..., Any], Known] = {
    **{func: reads(func) for func in _READERS},
    **{func: reads(func, fresh=False) for func in _SHARING},
    **{of_dask(*named): Known() for named in _DASK_READERS},
    of_dask(core, "_numpy_vindex"): Known(fresh=False),
    of_dask(routines, "_bincount_agg"): Known(fresh=False),
    of_dask(routines, "_int_piecewise"): Known(calls=_of_pieces),
    of_dask(routines, "_inner_apply_along_axis"): Known(fresh=False, calls=_along_axis),
    of_dask(routines, "_searchsorted_block"): Known(_searched_row),
    of_dask(routines, "_gradient_kernel"): Known(_gradient),
    of_dask(routines, "_asarray_isnull"): Known(_is_null),
    of_dask(overlap, "_trim"): Known(partial(viewed, of_dask(overlap, "_trim")), fresh=False),
    of_dask(chunk, "trim"): Known(partial(viewed, chunk.trim), fresh=False),
    of_dask(chunk, "view"): Known(fresh=False),
    of_dask(chunk, "coarsen"): Known(_coarsened, calls=calls_first),
    np.sort: Known(_sorted),
    np.argsort: Known(_arg_sorted),
    np.searchsorted: Known(_searched),
    **{func: reads(func, partial(_quantiles, func)) for func in _QUANTILES},
}
