"""Functions that pick, move or repeat elements of one block: which, is worked out on stand-ins."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import EllipsisType, NoneType
from typing import Any

import numpy as np
from dask.array import _shuffle, chunk, creation, linalg, slicing, utils
from dask.utils import methodcaller

from dask_rewrite.analysis.knowledge.blocks import (
    NUMBERS,
    array,
    axes_of,
    block,
    flat,
    is_scalar_type,
    like,
    plain,
    stand_in,
    warns,
)
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Known

_reshape = import_module("dask.array.reshape")  # in its package a function has this name
_ENDS = (int, NoneType, np.int64, np.int32, np.intp)
#: Masks larger than this are not counted.
_COUNTED = 10_000


def getitem(obj: Any, index: Any) -> Any:
    """``obj[index]``: of blocks, and of the lists, tuples and dicts that functions give.

    Examples
    --------
    >>> getitem(Fact((4, 6), np.dtype("f4")), (slice(1, None), None, 2))
    Fact(shape=(3, 1), dtype=dtype('float32'), fill=None, scalar=False)
    >>> getitem(Fact((4, 6), np.dtype("f4")), ([0, 0, 3],))
    Fact(shape=(3, 6), dtype=dtype('float32'), fill=None, scalar=False)
    """
    fact = block(obj)
    if fact is None:
        return obj[index] if type(obj) in (list, tuple, dict) and type(index) in (int, str) else None
    if type(index) is not tuple:
        index = (index,)
    if len(index) == 1 and type(index[0]) is str:
        return like(stand_in(fact)[index[0]])  # a field
    if not all(map(_is_basic, index)):
        return _picked(fact, index)
    found = like(stand_in(fact)[index], fact.fill)
    return None if found is not None and found.scalar and not plain(found.dtype) else found


def _is_basic(index: Any) -> bool:
    kind = type(index)
    if kind is slice:
        return type(index.start) in _ENDS and type(index.stop) in _ENDS and type(index.step) in _ENDS
    return kind in _ENDS or kind is EllipsisType


def _picked(fact: Fact, index: tuple[Any, ...]) -> Fact | None:
    """One list or array of positions among slices; picking makes a copy."""
    if fact.scalar or any(each is None or each is Ellipsis for each in index):
        return None
    index += (slice(None),) * (fact.ndim - len(index))
    picks = [i for i, each in enumerate(index) if type(each) is not slice]
    if len(picks) != 1 or len(index) != fact.ndim:
        return None
    place = picks[0]
    picked = _positions(index[place], fact.shape[place])
    if picked is None:
        return None
    rest = stand_in(fact)[tuple([slice(None) if i == place else each for i, each in enumerate(index)])].shape
    return Fact(rest[:place] + picked + rest[place + 1 :], fact.dtype, fact.fill)


def _positions(given: Any, length: int) -> tuple[int, ...] | None:
    """The shape of what a list or array of positions picks from an axis."""
    if type(given) is list:
        given = np.array(given) if len(given) <= _COUNTED else None
        if given is not None and not given.size:
            given = given.astype(int)
    positions = array(given)
    if positions is None or not positions.shape:
        return None
    if positions.dtype.kind == "b":
        if type(given) is not np.ndarray or given.size > _COUNTED or given.shape != (length,):
            return None
        return (int(np.count_nonzero(given)),)
    if positions.dtype.kind not in "iu":
        return None
    if type(given) is np.ndarray and given.size and given.size <= _COUNTED:
        if given.min() < -length or given.max() >= length:
            return None
    return positions.shape


def take(a: Any, indices: Any, axis: int | None = None) -> Any:
    """``np.take`` along an axis."""
    fact = array(a)
    if fact is None or axis is None:
        return None
    axis = range(fact.ndim)[axis]
    if type(indices) in _ENDS and indices is not None:
        return getitem(fact, (slice(None),) * axis + (indices,))
    return _picked(fact, (slice(None),) * axis + (indices,))


def _shuffled(obj: Any, index: Any) -> Any:
    return getitem(obj, index[1])


def _variadic(x: Any, *index: Any) -> Any:
    return getitem(x, index)


def viewed(func: Callable[..., Any], a: Any, *args: Any, **kwargs: Any) -> Any:
    """The fact of ``func(a)``, a view of ``a`` in another shape."""
    fact = block(a)
    return None if fact is None else like(func(stand_in(fact), *args, **kwargs), fact.fill)


def _adjoint(a: Any) -> Any:
    """``linalg._conj_transpose``."""
    fact = array(a)
    if fact is None or fact.dtype.kind not in NUMBERS:
        return None
    return Fact(fact.shape[::-1], fact.dtype, None if fact.dtype.kind == "c" else fact.fill)


def _ravelled(a: Any, order: str = "C") -> Any:
    fact = block(a)
    return None if fact is None else Fact((fact.size,), fact.dtype, fact.fill)


def _copied(a: Any, order: str = "K", subok: bool = False) -> Any:
    """A copy; those of scalars are arrays."""
    fact = block(a)
    return None if fact is None else Fact(fact.shape, fact.dtype, fact.fill)


def _as_array(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, like: Any = None) -> Any:
    fact = block(a)
    if fact is None or (like is not None and array(like) is None):
        return None
    if dtype is not None and np.dtype(dtype) != fact.dtype:
        to = np.dtype(dtype)
        numbers = {to.kind, fact.dtype.kind} <= set(NUMBERS)
        return Fact(fact.shape, to) if numbers and not warns(fact.dtype, to) else None
    return Fact(fact.shape, fact.dtype, fact.fill)


def _safe_array(a: Any, like: Any, **kwargs: Any) -> Any:
    """``utils.asanyarray_safe``: as it is, if it is an array; an array of no axes, if it is a scalar."""
    return _as_array(a, like=like, **kwargs) if array(like) is not None else None


def _rolled(a: Any, shift: Any, axis: Any = None) -> Any:
    fact = array(a)
    if fact is not None and axis is not None:
        axes_of(axis, fact.ndim)  # raises
    return fact


def _repeated(a: Any, repeats: Any, axis: int | None = None) -> Any:
    fact = array(a)
    if fact is None or axis is None or type(repeats) is not int:
        return None
    axis = range(fact.ndim)[axis]
    shape = (*fact.shape[:axis], fact.shape[axis] * repeats, *fact.shape[axis + 1 :])
    return Fact(flat(shape), fact.dtype, fact.fill)


def _triangle(m: Any, k: int = 0) -> Any:
    fact = array(m)
    if fact is None or fact.ndim < 2 or not is_scalar_type(fact.dtype):
        return None
    return Fact(fact.shape, fact.dtype)


def _diagonal_of(v: Any, k: int = 0) -> Any:
    """``np.diag``: a matrix around a vector, or a view of the diagonal of a matrix."""
    fact = array(v)
    if fact is None or not plain(fact.dtype):
        return None
    if fact.ndim == 1:
        return Fact((fact.shape[0] + abs(k),) * 2, fact.dtype)
    return viewed(np.diagonal, fact, k) if fact.ndim == 2 else None


def _assigned(x: Any, v: Any, indices: Any) -> Any:
    """``slicing.setitem``: a copy with other values in it, unless there are none."""
    fact, values = block(x), block(v)
    if fact is None or values is None:
        return None
    if values.size and warns(values.dtype, fact.dtype):
        return None
    return Fact(fact.shape, fact.dtype) if values.size else Fact(fact.shape, fact.dtype, None, fact.scalar)


def _assigns(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether it is seen that there are values, so that the block is copied."""
    values = block(getattr(args[1], "value", args[1])) if len(args) > 1 else None
    return values is not None and values.size > 0


def _linear_ramp(start: Any, stop: Any, num: int, dim: int, step: Any) -> Any:
    fact = array(start)
    if fact is None or fact.dtype.kind not in "iufc":
        return None
    return Fact((*fact.shape[:dim], num, *fact.shape[dim + 1 :]), fact.dtype)


_VIEWS = (
    *(np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.squeeze, np.expand_dims, np.broadcast_to),
    *(np.flip, np.fliplr, np.flipud, np.rot90, np.diagonal, np.reshape),
    *(np.atleast_1d, np.atleast_2d, np.atleast_3d, np.lib.stride_tricks.sliding_window_view),
)
_METHODS = ("reshape", "transpose", "squeeze", "swapaxes")

#: What is known of functions that move elements within one block.
MOVEMENT: dict[Callable[..., Any], Known] = {
    operator.getitem: Known(getitem, fresh=False),
    of_dask(chunk, "getitem"): Known(getitem, fresh=False),
    of_dask(slicing, "getitem_variadic"): Known(_variadic, fresh=False),
    of_dask(_shuffle, "_getitem"): Known(_shuffled, fresh=False),
    np.take: Known(take, inputs=3, writing=("out",)),
    **{func: Known(partial(viewed, func), fresh=False) for func in _VIEWS},
    **{methodcaller(name): Known(partial(viewed, methodcaller(name)), fresh=False) for name in _METHODS},
    of_dask(_reshape, "_reshape_blockwise"): Known(partial(viewed, methodcaller("reshape")), fresh=False),
    methodcaller("copy"): Known(block),
    methodcaller("ravel"): Known(_ravelled, fresh=False),
    methodcaller("flatten"): Known(_ravelled),
    of_dask(linalg, "_conj_transpose"): Known(_adjoint, fresh=False),
    np.ravel: Known(_ravelled, fresh=False),
    np.copy: Known(_copied),
    copy.copy: Known(block, fresh=False),  # of a list it is one of the same blocks
    np.array: Known(_as_array, fresh=lambda args, kwargs: "copy" not in kwargs),
    np.asarray: Known(_as_array, fresh=False),
    np.asanyarray: Known(_as_array, fresh=False),
    np.ascontiguousarray: Known(_as_array, fresh=False),
    of_dask(utils, "asarray_safe"): Known(_safe_array, fresh=False),
    of_dask(utils, "asanyarray_safe"): Known(_safe_array, fresh=False),
    np.roll: Known(_rolled),
    np.repeat: Known(_repeated),
    np.tril: Known(_triangle),
    np.triu: Known(_triangle),
    np.diag: Known(_diagonal_of, fresh=False),
    of_dask(slicing, "setitem"): Known(_assigned, fresh=_assigns),
    of_dask(creation, "linear_ramp_chunk"): Known(_linear_ramp),
}
