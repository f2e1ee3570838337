"""Functions that make blocks out of nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dask.array import chunk, wrap

from dask_rewrite.analysis.knowledge.blocks import block, certain, element, flat, plain
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Known


def _filled(value: Any, shape: Any, dtype: Any = float, order: str = "C") -> Any:
    made = np.dtype(float if dtype is None else dtype)
    if not plain(made):
        return Fact(flat(shape), made)
    return Fact(flat(shape), made, None if value is None else element(value, made))


_ATOMS = (int, float, complex, bool, str, bytes)


def _full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Any:
    fact = block(fill_value)
    if fact is not None and (fact.shape or fact.fill is None):
        return None
    if type(fill_value) not in _ATOMS and not isinstance(fill_value, np.generic):
        return None  # what is an array of some kind, or lazy, must not be looked at
    given = np.array(fill_value)
    made = given.dtype if dtype is None else np.dtype(dtype)
    if given.ndim or not plain(made) or not made.itemsize:
        return None
    with np.errstate(all="raise"):
        filled = np.full((), fill_value, made)  # raises for what does not fit
    return Fact(flat(shape), made, element(filled, made))


def _filled_like(
    value: Any, a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Any:
    fact = certain(block(a))
    return _filled(value, fact.shape if shape is None else shape, fact.dtype if dtype is None else dtype)


def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Any:
    fact = certain(block(a))
    return _full(fact.shape if shape is None else shape, fill_value, fact.dtype if dtype is None else dtype)


def _broadcast_trick(like: Any, shape: Any, meta: Any = (), *args: Any, **kwargs: Any) -> Any:
    """``wrap._broadcast_trick_inner``: one element, broadcast; a plain array whatever ``like`` makes."""
    if type(meta) is tuple and not meta:
        meta = Fact((), np.dtype(float))
    return like(meta, *args, shape=shape, **kwargs)


def _eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C") -> Any:
    made = np.dtype(dtype)
    return Fact((N, N if M is None else M), made) if plain(made) else None


def _arange(start: Any, stop: Any, step: Any, length: int, dtype: Any, like: Any = None) -> Any:
    """``chunk.arange`` drops one element too many."""
    if not {type(start), type(stop), type(step)} <= _ARANGE_NUMBERS or dtype is None:
        return None
    if like is not None and type(like) is not np.ndarray:
        return None
    made = np.dtype(dtype)
    found = max(0, math.ceil((stop - start) / step))
    return Fact((found - 1 if found > length else found,), made) if made.kind in "iuf" else None


_ARANGE_NUMBERS = frozenset([int, float, np.int64, np.float64])


def _linspace(start: Any, stop: Any, num: int, endpoint: bool = True, dtype: Any = None) -> Any:
    made = np.dtype(dtype) if dtype is not None else None
    if made is None or made.kind not in "iufc" or {type(start), type(stop)} - _ARANGE_NUMBERS:
        return None
    return Fact((int(num),), made)


_LIKE: dict[Any, Callable[..., Any]] = {
    np.zeros_like: partial(_filled_like, 0),
    np.ones_like: partial(_filled_like, 1),
    np.empty_like: partial(_filled_like, None),
    np.full_like: _full_like,
}

#: What is known of functions that create blocks.
CREATION: dict[Callable[..., Any], Known] = {
    np.zeros: Known(partial(_filled, 0)),
    np.ones: Known(partial(_filled, 1)),
    np.empty: Known(partial(_filled, None), pure=False),
    np.full: Known(_full),
    **{func: Known(fact, pure=func is not np.empty_like) for func, fact in _LIKE.items()},
    **{
        wrap._broadcast_trick_inner(func): Known(
            partial(_broadcast_trick, fact), pure=func is not np.empty_like
        )
        for func, fact in _LIKE.items()
    },
    np.eye: Known(_eye),
    of_dask(chunk, "arange"): Known(_arange),
    of_dask(chunk, "linspace"): Known(_linspace),
}
