"""Reductions along axes, cumulative functions, and what dask calls on the way to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from dask.array import chunk, reductions, routines
from dask.array.dispatch import nannumel_lookup, numel_lookup

from dask_rewrite.analysis.knowledge.blocks import NUMBERS, DType, array, block, element, plain, reduced
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.elementwise import elementwise
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Known, calls_first, calls_two
from dask_rewrite.analysis.knowledge.lookup import fact_of_call
from dask_rewrite.analysis.knowledge.movement import viewed


def reduction(
    func: Any, a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, *, needs: bool = False
) -> Any:
    """The fact of ``func(a, axis, dtype, keepdims=keepdims)``; ``needs`` at least one element.

    Examples
    --------
    >>> reduction(np.sum, Fact((3, 4), np.dtype("i4")), axis=0)
    Fact(shape=(4,), dtype=dtype('int64'), fill=None, scalar=False)
    >>> reduction(np.sum, Fact((3, 4), np.dtype("i4"), np.int32(2))).fill
    np.int64(24)
    """
    fact = block(a)
    if fact is None or not plain(fact.dtype) or fact.dtype.kind in "SU":
        return None
    keepdims = bool(keepdims)
    shape, count = reduced(fact.shape, axis, keepdims)
    if needs and not count:
        return None
    found = _result_type(func, fact.dtype, None if dtype is None else np.dtype(dtype))
    if found is None:
        return None
    fill = None if fact.fill is None else _FILLS.get(func, _no_fill)(fact.fill, count, found)
    return Fact(shape, found, fill, not shape)


@lru_cache(maxsize=1024)
def _result_type(func: Any, dtype: DType, to: DType | None) -> DType | None:
    one = np.ones(1, dtype)
    with np.errstate(all="ignore"):
        try:
            made = func(one) if to is None else func(one, dtype=to)
        except Exception:  # what it does not take
            return None
    return made.dtype if plain(np.asarray(made).dtype) else None


def _no_fill(value: Any, count: int, dtype: DType) -> Any:
    return None


def _total(value: Any, count: int, dtype: DType) -> Any:
    """A sum of equal values, where it is exact and so does not depend on the order of additions."""
    if dtype.kind not in "iuf" or dtype.char == "g":
        return None
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        total = int(value) * count % (1 << bits) if value.dtype.kind in "biu" else None
        if total is None:
            return None
        if dtype.kind == "i" and total >> (bits - 1):
            total -= 1 << bits
        return dtype.type(total)
    if value.dtype.kind == "f" and (value.dtype.char == "g" or (np.signbit(value) and value == 0)):
        return None
    number = float(value)
    if not number.is_integer() or abs(number) * max(count, 1) > 2.0 ** np.finfo(dtype.type).nmant:
        return None
    return dtype.type(number * count) if number and count else dtype.type(0)


def _unchanged(value: Any, count: int, dtype: DType) -> Any:
    return value if value.dtype == dtype and dtype.kind in "biuf" and value == value else None


def _any(value: Any, count: int, dtype: DType) -> Any:
    return np.bool_(bool(value) and count > 0) if dtype.kind == "b" and value.dtype.kind in "biuf" else None


def _all(value: Any, count: int, dtype: DType) -> Any:
    return np.bool_(bool(value) or not count) if dtype.kind == "b" and value.dtype.kind in "biuf" else None


_FILLS: dict[Any, Callable[[Any, int, DType], Any]] = {
    np.sum: _total,
    np.add.reduce: _total,
    np.max: _unchanged,
    np.min: _unchanged,
    np.any: _any,
    np.all: _all,
}


def _extreme(func: Any, x: Any, axis: Any = None, keepdims: Any = None) -> Any:
    """``reductions.chunk_max`` skips empty blocks."""
    fact = block(x)
    if fact is None or not plain(fact.dtype):
        return None
    if not fact.size:
        return Fact((1,) * (fact.ndim - 1) + (0,), fact.dtype)
    return reduction(func, fact, axis, keepdims=keepdims, needs=True)


def _extreme_skipping(func: Any, x: Any, axis: Any, keepdims: Any) -> Any:
    """``reductions._nanmax_skip`` gives nothing for empty blocks."""
    fact = block(x)
    if fact is None or not plain(fact.dtype):
        return None
    return reduction(func, fact, axis, keepdims=keepdims) if fact.size else Fact((0,), fact.dtype)


def _from_ufunc(
    func: Any, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Any:
    """``ufunc.reduce`` of an array, or of a list of equal blocks."""
    if type(a) is list:
        facts = [block(each) for each in a]
        if not facts or facts[0] is None or any(fact != facts[0] for fact in facts):
            return None
        a = Fact((len(facts), *facts[0].shape), facts[0].dtype, facts[0].fill)
    return None if out is not None else reduction(func, a, axis, dtype, keepdims)


def cumulated(func: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    """``np.cumsum`` and the like along an axis."""
    fact = array(a)
    if fact is None or not fact.ndim or not plain(fact.dtype):
        return None
    found = _result_type(func, fact.dtype, None if dtype is None else np.dtype(dtype))
    if found is None:
        return None
    if axis is None:
        return Fact((fact.size,), found)
    range(fact.ndim)[axis]  # raises
    return Fact(fact.shape, found)


def _first_of_scan(func: Any, x: Any, axis: Any, dtype: Any) -> Any:
    return fact_of_call(func, (x,), {"axis": axis, "dtype": dtype})


def _rest_of_scan(func: Any, binop: Any, pre: Any, x: Any, axis: Any, dtype: Any) -> Any:
    found = _first_of_scan(func, x, axis, dtype)
    return None if found is None else fact_of_call(binop, (pre, found), {})


def count(lookup: Any, x: Any, axis: Any = None, keepdims: Any = False, **dtype: Any) -> Any:
    """``reductions.numel`` and ``nannumel``: how many elements go into each one of the result."""
    fact = array(x)
    if fact is None or fact.dtype.kind not in NUMBERS:
        return None
    found = _count_type(lookup, fact.ndim, axis is None, bool(keepdims), tuple(dtype.items()), fact.dtype)
    if found is None:
        return None
    shape, elements = reduced(fact.shape, axis, bool(keepdims))
    made, scalar = found
    return Fact(
        shape, made, element(elements, made) if lookup is numel_lookup else None, scalar and not shape
    )


@lru_cache(maxsize=1024)
def _count_type(
    lookup: Any, ndim: int, whole: bool, keepdims: bool, kwargs: Any, of: DType
) -> tuple[DType, bool] | None:
    axis = None if whole else tuple(range(ndim))
    made = lookup(np.ones((1,) * ndim, of), axis=axis, keepdims=keepdims, **dict(kwargs))
    if type(made) is not np.ndarray and not isinstance(made, np.generic):
        return None
    return made.dtype, type(made) is not np.ndarray


def _chunk_sum(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = None) -> Any:
    """``routines._chunk_sum``: terms added one by one; then their axis of length one goes."""
    terms = a if type(a) is list else [a]
    found = terms[0]
    for term in terms[1:]:
        found = elementwise(np.add, found, term, dtype=dtype)
    fact = block(found)
    return fact if fact is None or keepdims else viewed(np.squeeze, fact, axis[0])


def _of(func: Any, needs: bool = False, inputs: int = 3) -> Known:
    """A reduction whose third argument, if it has a third, is the dtype."""
    return Known(partial(reduction, func, needs=needs), inputs=inputs, writing=("out", "overwrite_input"))


def _without_dtype(func: Any, a: Any, axis: Any = None, *, keepdims: Any = False, **kwargs: Any) -> Any:
    if kwargs.get("out") is not None or kwargs.keys() - {"out"}:
        return None
    if isinstance(axis, tuple) and func in _ONE_AXIS:
        return None
    return reduction(func, a, axis, keepdims=keepdims, needs=True)


_ONE_AXIS = frozenset([np.argmax, np.argmin, np.nanargmax, np.nanargmin])
_WITH_DTYPE = (np.sum, np.prod, np.nansum, np.nanprod, np.mean, np.nanmean)
_PLAIN = (np.any, np.all, np.std, np.var, np.nanstd, np.nanvar)
_NONEMPTY = (np.max, np.min, np.nanmax, np.nanmin, np.argmax, np.argmin, np.nanargmax, np.nanargmin)
_MEDIANS = (np.median, np.nanmedian)
#: Positions of extremes as dask finds them block by block.
POSITIONS = (
    *(chunk.argmin, chunk.argmax, chunk.nanargmin, chunk.nanargmax),
    *(of_dask(reductions, "_nanargmin"), of_dask(reductions, "_nanargmax")),
)

#: What is known of reductions and cumulative functions.
REDUCTIONS: dict[Callable[..., Any], Known] = {
    **{func: _of(func) for func in _WITH_DTYPE},
    **{func: _of(func, inputs=2) for func in _PLAIN},
    **{
        func: Known(partial(_without_dtype, func), inputs=2, writing=("out", "overwrite_input"))
        for func in (*_NONEMPTY, *_MEDIANS)
    },
    **{func: Known(partial(_without_dtype, func)) for func in POSITIONS},
    **{
        func.reduce: Known(partial(_from_ufunc, func.reduce), inputs=3, writing=("out",))
        for func in (np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or)
    },
    **{
        func: Known(partial(cumulated, func), inputs=3, writing=("out",))
        for func in (np.cumsum, np.cumprod, np.nancumsum, np.nancumprod)
    },
    of_dask(reductions, "chunk_max"): Known(partial(_extreme, np.max)),
    of_dask(reductions, "chunk_min"): Known(partial(_extreme, np.min)),
    of_dask(reductions, "_nanmax_skip"): Known(partial(_extreme_skipping, np.nanmax)),
    of_dask(reductions, "_nanmin_skip"): Known(partial(_extreme_skipping, np.nanmin)),
    of_dask(reductions, "_prefixscan_first"): Known(_first_of_scan, calls=calls_first),
    of_dask(reductions, "_prefixscan_combine"): Known(_rest_of_scan, calls=calls_two),
    of_dask(reductions, "_cumsum_merge"): Known(partial(elementwise, np.add)),
    of_dask(reductions, "_cumprod_merge"): Known(partial(elementwise, np.multiply)),
    of_dask(reductions, "numel"): Known(partial(count, numel_lookup)),
    of_dask(reductions, "nannumel"): Known(partial(count, nannumel_lookup)),
    of_dask(routines, "_chunk_sum"): Known(_chunk_sum, fresh=False),
}
