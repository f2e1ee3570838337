"""Products of blocks, and what linear algebra calls on blocks."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from dask.array import chunk, core, einsumfuncs, linalg, routines, utils
from dask.array.dispatch import einsum_lookup, tensordot_lookup

from dask_rewrite.analysis.knowledge.blocks import NUMBERS, DType, Shape, array, axes_of, broadcast, certain
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.elementwise import elementwise, folded
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Call, Known
from dask_rewrite.analysis.knowledge.lookup import fact_of_call
from dask_rewrite.analysis.knowledge.movement import getitem

SUMS = (np.sum, chunk.sum)
#: Block functions of dask's products, by identity; what they return belongs to nobody else.
PRODUCTS = frozenset(map(id, (routines._tensordot, routines._matmul, einsumfuncs.chunk_einsum)))


def _pair(a: Any, b: Any) -> tuple[Fact, Fact]:
    """Both arguments as arrays of numbers; of all else nothing is known."""
    one, other = certain(array(a)), certain(array(b))
    if one.dtype.kind not in NUMBERS or other.dtype.kind not in NUMBERS:
        raise TypeError("not arrays of numbers")
    return one, other


@lru_cache(maxsize=1024)
def _product_type(func: Any, *dtypes: DType) -> DType:
    """What products of these dtypes are: the function itself says it."""
    product: DType = func(*[np.ones(1, dtype) for dtype in dtypes]).dtype
    return product


def dot(a: Any, b: Any) -> Any:
    """``np.dot``.

    Examples
    --------
    >>> dot(Fact((3, 4), np.dtype("f4")), Fact((4, 5), np.dtype("f4")))
    Fact(shape=(3, 5), dtype=dtype('float32'), fill=None, scalar=False)
    """
    one, other = _pair(a, b)
    if not one.shape or not other.shape:
        return elementwise(np.dot, one, other)
    if one.shape[-1] != other.shape[-2 if other.ndim > 1 else 0]:
        return None
    shape = one.shape[:-1] + other.shape[:-2] + (other.shape[-1:] if other.ndim > 1 else ())
    return Fact(shape, _product_type(np.dot, one.dtype, other.dtype), None, not shape)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """``np.tensordot``; never a scalar."""
    one, other = _pair(a, b)
    if isinstance(axes, (tuple, list)):
        left, right = axes
    else:
        left, right = range(one.ndim - axes, one.ndim), range(axes)
    left = axes_of(tuple(left) if not isinstance(left, int) else left, one.ndim)
    right = axes_of(tuple(right) if not isinstance(right, int) else right, other.ndim)
    if [one.shape[i] for i in left] != [other.shape[i] for i in right]:
        return None
    shape = [n for i, n in enumerate(one.shape) if i not in left]
    shape += [n for i, n in enumerate(other.shape) if i not in right]
    return Fact(tuple(shape), _product_type(np.dot, one.dtype, other.dtype))


def _tensordot(a: Any, b: Any, axes: Any, is_sparse: bool) -> Any:
    """``routines._tensordot`` leaves an axis of length one for each that is contracted."""
    if tensordot_lookup.dispatch(np.ndarray) is not np.tensordot:
        return None
    found = tensordot(a, b, axes)
    if found is None or (is_sparse and len(axes[0]) == 1):
        return found
    index: list[Any] = [slice(None)] * found.ndim
    for axis in sorted(axes[0]):
        index.insert(axis, None)
    return getitem(found, tuple(index))


def matmul(a: Any, b: Any) -> Any:
    """``np.matmul`` and the operator."""
    one, other = _pair(a, b)
    if not one.shape or not other.shape or one.shape[-1] != other.shape[-2 if other.ndim > 1 else 0]:
        return None
    shape = broadcast([one.shape[:-2], other.shape[:-2]])
    shape += (one.shape[-2:-1] if one.ndim > 1 else ()) + (other.shape[-1:] if other.ndim > 1 else ())
    return Fact(shape, _product_type(np.matmul, one.dtype, other.dtype), None, not shape)


def _matmul(a: Any, b: Any) -> Any:
    return getitem(matmul(a, b), (..., None, slice(None)))


def _einsum(*operands: Any, subscripts: str, ncontract_inds: int, kernel_dtype: Any, **kwargs: Any) -> Any:
    """``einsumfuncs.chunk_einsum``: an axis of length one for each that is contracted."""
    facts = [array(each) for each in operands]
    if None in facts or not kwargs.keys() <= {"order", "casting", "optimize"}:
        return None
    inputs, _, output = subscripts.replace(" ", "").partition("->")
    names = inputs.split(",")
    if "." in subscripts or "->" not in subscripts or len(names) != len(facts):
        return None
    if einsum_lookup.dispatch(np.ndarray) is not np.einsum:
        return None
    lengths: dict[str, int] = {}
    for name, fact in zip(names, facts):
        if fact is None or fact.dtype.kind not in NUMBERS or len(name) != fact.ndim:
            return None
        for letter, length in zip(name, fact.shape):
            if lengths.setdefault(letter, length) not in (1, length):
                return None
            lengths[letter] = max(lengths[letter], length) if length else 0
    shape = tuple([lengths[letter] for letter in output]) + (1,) * ncontract_inds
    dtypes = tuple([fact.dtype for fact in facts if fact is not None])
    dtype = _einsum_type(subscripts, dtypes, None if kernel_dtype is None else np.dtype(kernel_dtype))
    return Fact(shape, dtype) if shape else None


@lru_cache(maxsize=1024)
def _einsum_type(subscripts: str, dtypes: tuple[DType, ...], to: DType | None) -> DType:
    names = subscripts.replace(" ", "").partition("->")[0].split(",")
    ones = [np.ones((1,) * len(name), dtype) for name, dtype in zip(names, dtypes)]
    return np.asarray(np.einsum(subscripts, *ones, dtype=to)).dtype


def _several(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Of one operand it may be a view."""
    return len(args) > 1


def _outer(a: Any, b: Any) -> Any:
    one, other = _pair(a, b)
    return Fact((one.size, other.size), _product_type(np.multiply, one.dtype, other.dtype))


def _vdot(a: Any, b: Any) -> Any:
    one, other = _pair(a, b)
    if one.size != other.size:
        return None
    return Fact((), _product_type(np.vdot, one.dtype, other.dtype), None, True)


def _dots(A: Any, B: Any, leftfunc: Any = None, rightfunc: Any = None) -> Any:
    """``core.dotmany``: a sum of products."""
    if leftfunc:
        A = [fact_of_call(leftfunc, (each,), {}) for each in A]
    if rightfunc:
        B = [fact_of_call(rightfunc, (each,), {}) for each in B]
    return folded([dot(one, other) for one, other in zip(A, B)])


def _dots_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    if len(args) > 2 or kwargs.keys() - {"leftfunc", "rightfunc"}:
        raise TypeError
    return [(func, (None,), {}) for func in kwargs.values() if func]


def _matrix(a: Any) -> Fact:
    """A matrix with elements that LAPACK is given; of all else nothing is known."""
    fact = array(a)
    if fact is None or fact.ndim != 2 or fact.dtype.kind not in NUMBERS or not fact.size:
        raise TypeError("not a matrix of numbers")
    return fact


@lru_cache(maxsize=256)
def _types(func: Any, *like: tuple[Shape, DType], **kwargs: Any) -> tuple[DType, ...]:
    """Dtypes of the results, tried on the smallest matrices that are not special."""
    smallest = [np.ones([min(n, 2) for n in shape], dtype) for shape, dtype in like]
    for each in smallest:
        if each.ndim == 2 and each.shape[0] == each.shape[1]:
            each[...] = np.eye(each.shape[0])
    made = func(*smallest, **kwargs)
    return tuple([each.dtype for each in made]) if isinstance(made, tuple) else (made.dtype,)


def _factored(func: Any, shapes: Callable[..., Any], a: Any, **kwargs: Any) -> Any:
    """A factorization of one matrix into several."""
    fact = _matrix(a)
    m, n = fact.shape
    found = shapes(m, n, min(m, n), **kwargs)
    dtypes = _types(func, (fact.shape, fact.dtype), **kwargs)
    facts = tuple([Fact(shape, dtype) for shape, dtype in zip(found, dtypes, strict=True)])
    return facts if len(facts) > 1 else facts[0]


def _qr(m: int, n: int, k: int) -> Any:
    return (m, k), (k, n)


def _svd(m: int, n: int, k: int, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    if not compute_uv:
        return ((k,),)
    return ((m, m), (k,), (n, n)) if full_matrices else ((m, k), (k,), (k, n))


def _lu(m: int, n: int, k: int) -> Any:
    return (m, m), (m, k), (k, n)


def _square(m: int, n: int, k: int) -> Any:
    if m != n:
        raise ValueError("not square")
    return ((n, n),)


def _wrapped_qr(a: Any) -> Any:
    """``linalg._wrapped_qr`` does what NumPy refuses: no rows."""
    fact = array(a)
    if fact is not None and fact.ndim == 2 and not fact.shape[0]:
        return Fact((0, 0), fact.dtype), Fact((0, fact.shape[1]), fact.dtype)
    return _factored(np.linalg.qr, _qr, a)


def _solved(func: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    """The solution has the shape of the right-hand side."""
    matrix, right = _matrix(a), array(b)
    if right is None or right.dtype.kind not in NUMBERS or not right.size:
        return None
    if matrix.shape[0] != matrix.shape[1] or right.ndim > 2 or right.shape[0] != matrix.shape[0]:
        return None
    if func is not np.linalg.solve:
        if matrix.dtype.char in "fdFD" and right.dtype.char in "fdFD":  # known without loading SciPy
            return Fact(right.shape, np.result_type(matrix.dtype, right.dtype).newbyteorder("="))
        if "scipy.linalg" not in sys.modules:
            return None
    (dtype,) = _types(func, (matrix.shape, matrix.dtype), (right.shape, right.dtype), **kwargs)
    return Fact(right.shape, dtype)


_TRIANGULAR = (of_dask(linalg, "_solve_triangular_lower"), of_dask(utils, "solve_triangular_safe"))

#: What is known of products and of linear algebra.
LINEAR_ALGEBRA: dict[Callable[..., Any], Known] = {
    np.dot: Known(dot, inputs=2, writing=("out",)),
    np.tensordot: Known(tensordot),
    np.matmul: Known(matmul, inputs=2, writing=("out",)),
    operator.matmul: Known(matmul),
    np.outer: Known(_outer, inputs=2, writing=("out",)),
    np.vdot: Known(_vdot),
    of_dask(core, "dotmany"): Known(_dots, calls=_dots_call),
    of_dask(routines, "_tensordot"): Known(_tensordot),
    of_dask(routines, "_matmul"): Known(_matmul),
    of_dask(einsumfuncs, "chunk_einsum"): Known(_einsum, fresh=_several, writing=("out",)),
    np.linalg.qr: Known(partial(_factored, np.linalg.qr, _qr)),
    np.linalg.svd: Known(partial(_factored, np.linalg.svd, _svd)),
    np.linalg.inv: Known(partial(_factored, np.linalg.inv, _square)),
    np.linalg.cholesky: Known(partial(_factored, np.linalg.cholesky, _square)),
    np.linalg.solve: Known(partial(_solved, np.linalg.solve)),
    of_dask(linalg, "_wrapped_qr"): Known(_wrapped_qr),
    of_dask(linalg, "_cholesky_lower"): Known(partial(_factored, np.linalg.cholesky, _square)),
    **{func: Known(partial(_solved, func)) for func in _TRIANGULAR},
}


#: The same for functions of modules that are not imported only to be known.
LATE_LINEAR_ALGEBRA: dict[tuple[str, str], Callable[[Any], Known]] = {
    ("scipy.linalg", "lu"): lambda lu: Known(partial(_factored, lu, _lu), inputs=1, writing=("overwrite_a",))
}
