"""Partial results of means, moments and positions of extremes: what dask passes from block to block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from dask.array import chunk, reductions

from dask_rewrite.analysis.knowledge.blocks import NUMBERS, axes_of, block, certain, reduced
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.elementwise import elementwise
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.joining import concatenate_nested
from dask_rewrite.analysis.knowledge.known import Call, Known, calls_first, calls_two
from dask_rewrite.analysis.knowledge.lookup import fact_of_call
from dask_rewrite.analysis.knowledge.reductions import reduction


def _mean_chunk(
    x: Any, sum: Any = chunk.sum, numel: Any = reductions.numel, dtype: Any = "f8", **kwargs: Any
) -> Any:
    given = {"dtype": dtype, **kwargs}
    return {name: certain(fact_of_call(func, (x,), given)) for name, func in (("n", numel), ("total", sum))}


def _mean_combine(
    pairs: Any, sum: Any = None, numel: Any = None, dtype: Any = "f8", axis: Any = None, **kwargs: Any
) -> Any:
    return {name: _summed(_joined(pairs, name, axis), axis, **kwargs) for name in ("n", "total")}


def _mean_agg(pairs: Any, dtype: Any = "f8", axis: Any = None, **kwargs: Any) -> Any:
    joined = [_joined(pairs, name, axis) for name in ("total", "n")]
    total, n = [_summed(each, axis, dtype=dtype, **kwargs) for each in joined]
    return _divided(total, n, dtype)


def _joined(pairs: Any, name: str, axis: Any) -> Fact:
    """One part of all partial results, put together."""
    return certain(block(concatenate_nested(_each(pairs if type(pairs) is list else [pairs], name), axis)))


def _each(pairs: Any, name: str) -> Any:
    return [_each(each, name) for each in pairs] if type(pairs) is list else pairs[name]


def _summed(fact: Fact, axis: Any, dtype: Any = None, keepdims: Any = False) -> Fact:
    return certain(reduction(np.sum, fact, axis, dtype, keepdims))


def _divided(one: Fact, other: Fact, dtype: Any = None) -> Any:
    """``reductions.divide``; fills are left out, as the division may be by zero."""
    return elementwise(np.divide, one, other, **({} if dtype is None else {"dtype": np.dtype(dtype)}))


def _moment_chunk(
    A: Any,
    order: int = 2,
    sum: Any = chunk.sum,
    numel: Any = reductions.numel,
    dtype: Any = "f8",
    implicit_complex_dtype: bool = False,
    **kwargs: Any,
) -> Any:
    fact, n = certain(block(A)), certain(fact_of_call(numel, (A,), kwargs))
    typed = {} if implicit_complex_dtype else {"dtype": dtype}
    total = certain(fact_of_call(sum, (A,), {**typed, **kwargs}))
    if fact.dtype.kind not in NUMBERS:
        return None
    count = Fact(n.shape, np.dtype(np.int64), None, n.scalar)
    distance = _absolute(elementwise(np.subtract, fact, elementwise(np.true_divide, total, count)), fact)
    power = fact_of_call(sum, (distance,), {"dtype": dtype, **kwargs})
    return {"total": total, "n": count, "M": _stacked(power, order)}


def _absolute(distance: Any, of: Fact) -> Any:
    return elementwise(np.absolute, distance) if of.dtype.kind == "c" else distance


def _stacked(power: Any, order: int) -> Fact | None:
    fact = block(power)
    return None if fact is None else Fact((*fact.shape, order - 1), fact.dtype)


def _moment_combine(
    pairs: Any,
    order: int = 2,
    ddof: int = 0,
    dtype: Any = "f8",
    sum: Any = np.sum,
    axis: Any = None,
    **kwargs: Any,
) -> Any:
    total, n, moment = _moment(pairs, order, dtype, sum, axis, None, True)
    return {"total": total, "n": n, "M": _stacked(moment, order)}


def _moment_agg(
    pairs: Any,
    order: int = 2,
    ddof: int = 0,
    dtype: Any = "f8",
    sum: Any = np.sum,
    axis: Any = None,
    keepdims: Any = False,
) -> Any:
    _, n, moment = _moment(pairs, order, dtype, sum, axis, dtype, keepdims)
    if np.dtype(dtype).kind not in "fc" or type(ddof) not in (int, float):
        return None
    denominator = elementwise(np.subtract, reduction(np.sum, n, axis, dtype, keepdims), ddof)
    return _divided(moment, certain(denominator), dtype)


def _moment(
    pairs: Any, order: int, dtype: Any, sum: Any, axis: Any, summed: Any, keepdims: Any
) -> tuple[Fact, Fact, Fact]:
    """Sum and count of all parts, and the type of ``_moment_helper``'s result: two sums, added."""
    ns, totals, powers = [_joined(pairs, name, axis) for name in ("n", "total", "M")]
    n, total = _summed(ns, axis, keepdims=True), _summed(totals, axis, keepdims=True)
    if axis is None or order < 2:
        raise TypeError("not known")
    dtype = None if totals.dtype.kind == "c" else dtype
    mean, means = _divided(total, n, dtype), _divided(totals, ns, dtype)
    inner = certain(_absolute(elementwise(np.subtract, means, mean), totals))
    one = reduction(np.sum, Fact(powers.shape[:-1], powers.dtype), axis, summed, keepdims)
    weighted = elementwise(np.multiply, ns, Fact(inner.shape, inner.dtype, None, inner.scalar))
    other = fact_of_call(sum, (weighted,), {"axis": axis, "dtype": summed, "keepdims": keepdims})
    return total, n, certain(elementwise(np.add, certain(one), certain(other)))


def _positions_of(func: Any, argfunc: Any, x: Any, axis: Any, offset_info: Any) -> Any:
    """``reductions.arg_chunk``: the extreme values of a block and where they are."""
    fact = block(x)
    if fact is None or fact.scalar or fact.dtype.kind not in "biuf" or not fact.size:
        return None
    along = None if len(axis) == fact.ndim or fact.ndim == 1 else axis[0]
    shape, _ = reduced(fact.shape, along, True)
    return Fact(shape, _pair(fact.dtype))


def _pair(dtype: Any) -> Any:
    return np.dtype([("vals", dtype), ("arg", np.intp)])


def _positions(argfunc: Any, data: Any, axis: Any = None, keepdims: Any = True, **kwargs: Any) -> Fact | None:
    fact = block(data)
    if fact is None or fact.dtype.names != ("vals", "arg") or not fact.size:
        return None
    along = None if len(axis) == fact.ndim or fact.ndim == 1 else axes_of(axis[0], fact.ndim)
    shape, _ = reduced(fact.shape, along, bool(keepdims))
    return Fact(shape, fact.dtype)


def _combined_positions(argfunc: Any, data: Any, axis: Any = None, **kwargs: Any) -> Any:
    return _positions(argfunc, data, axis)


def _final_positions(argfunc: Any, data: Any, axis: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
    found = _positions(argfunc, data, axis, keepdims)
    if found is None:
        return None
    return Fact(found.shape, found.dtype["arg"], None, not found.shape)


def _calls_sums(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    """The functions that are given in place of a sum and a count."""
    if len(args) > 1:
        raise TypeError
    return [(kwargs[name], (), {}) for name in ("sum", "numel") if name in kwargs]


#: What is known of functions that make or combine partial results.
PARTIALS: dict[Callable[..., Any], Known] = {
    of_dask(reductions, "mean_chunk"): Known(_mean_chunk, calls=_calls_sums),
    of_dask(reductions, "mean_combine"): Known(_mean_combine, calls=_calls_sums),
    of_dask(reductions, "mean_agg"): Known(_mean_agg),
    of_dask(reductions, "moment_chunk"): Known(_moment_chunk, calls=_calls_sums),
    of_dask(reductions, "moment_combine"): Known(_moment_combine, calls=_calls_sums),
    of_dask(reductions, "moment_agg"): Known(_moment_agg, calls=_calls_sums),
    of_dask(reductions, "arg_chunk"): Known(_positions_of, calls=calls_two),
    of_dask(reductions, "arg_combine"): Known(_combined_positions, calls=calls_first),
    of_dask(reductions, "arg_agg"): Known(_final_positions, calls=calls_first),
    of_dask(reductions, "nanarg_agg"): Known(_final_positions, calls=calls_first),
}
