"""What the tables share: blocks from arguments, stand-ins of the same type, shapes that broadcast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dask_rewrite.analysis.knowledge.fact import Fact

Shape: TypeAlias = tuple[int, ...]
DType: TypeAlias = np.dtype[Any]

#: NumPy's own scalar types; those of structured and object arrays are something else.
SCALARS = frozenset(np.dtype(code).type for code in "?bBhHiIlLqQefdgFDGSUmM")

#: Kinds of dtypes that hold plain numbers.
NUMBERS = "biufc"

_BYTES = bytes(1024)


def block(value: Any) -> Fact | None:
    """The fact of an argument, None if it is not an array or NumPy scalar.

    Examples
    --------
    >>> block(np.float32(2))
    Fact(shape=(), dtype=dtype('float32'), fill=np.float32(2.0), scalar=True)
    >>> block(2) is None
    True
    """
    kind = type(value)
    if isinstance(value, Fact):
        return value
    if kind is np.ndarray:
        return Fact(value.shape, value.dtype)
    return Fact((), value.dtype, value, True) if kind in SCALARS else None


def array(value: Any) -> Fact | None:
    """The fact of an argument that is an array, None for anything else."""
    found = block(value)
    return None if found is None or found.scalar else found


def certain(found: Any) -> Fact:
    """A fact; where there is none, nothing is known of what follows from it.

    Raises
    ------
    TypeError
        For anything else: what raises while facts are found out is unknown.
    """
    if type(found) is not Fact:
        raise TypeError("not known")
    return found


def plain(dtype: DType) -> bool:
    """Neither object nor structured: elements are values with bits of their own."""
    return dtype.kind != "O" and dtype.kind != "V"


def stand_in(fact: Fact) -> Any:
    """An array of this shape and dtype that takes no memory, for functions that only look at these.

    Examples
    --------
    >>> stand_in(Fact((1000, 1000), np.dtype("f4")))[2:4].shape
    (2, 1000)
    """
    dtype, shape = fact.dtype, fact.shape
    if fact.scalar:
        return np.zeros((), dtype)[()]
    if dtype.hasobject or dtype.itemsize > len(_BYTES):
        return np.broadcast_to(np.zeros((), dtype), shape)
    return np.ndarray(shape, dtype, _BYTES, 0, (0,) * len(shape))


def like(result: Any, fill: np.generic | None = None) -> Fact | None:
    """The fact of what a function made of stand-ins; all elements of the block had the bits of ``fill``."""
    kind = type(result)
    if kind is np.ndarray:
        return Fact(result.shape, result.dtype, fill)
    if kind in SCALARS and is_scalar_type(result.dtype):
        return Fact((), result.dtype, fill, True)
    return None


def is_scalar_type(dtype: DType) -> bool:
    """Whether scalars have the dtype of the array that they come from: those of text are as long as it."""
    return dtype.kind not in "OVSU" and dtype.isnative


def one_of(fact: Fact) -> Any:
    """A single element of the same type, to try functions on: an array of the same kind, of ones."""
    if fact.scalar or not fact.shape:
        one = np.ones((), fact.dtype)
        return one[()] if fact.scalar else one
    return np.ones((1,) * len(fact.shape), fact.dtype)


def element(value: Any, dtype: DType) -> np.generic | None:
    """A fill of this dtype, None if its bits are not certain."""
    if not is_scalar_type(dtype) or dtype.char in "gG":  # the bits of extended precision include padding
        return None
    found: Any = np.asarray(value).astype(dtype)[()]
    scalar: np.generic = found
    return scalar


def cast(fill: np.generic | None, dtype: DType) -> np.generic | None:
    """A fill in another dtype, None if the conversion is not exact everywhere."""
    if fill is None or fill.dtype == dtype:
        return fill
    return element(fill, dtype) if np.can_cast(fill.dtype, dtype, "safe") and plain(dtype) else None


def warns(dtype: DType, to: DType) -> bool:
    """Whether NumPy warns of a cast that drops imaginary parts: it must run, however little is used of it."""
    return dtype.kind == "c" and to.kind in "iuf"


def same_fill(facts: Iterable[Fact], dtype: DType) -> np.generic | None:
    """The fill that all blocks share after conversion to ``dtype``; empty blocks have any."""
    found: np.generic | None = None
    for fact in facts:
        if fact.fill is None:
            if fact.size:
                return None
            continue
        if not fact.size:
            continue
        fill = cast(fact.fill, dtype)
        if fill is None or (found is not None and found.tobytes() != fill.tobytes()):
            return None
        found = fill
    return found


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes broadcast to.

    Examples
    --------
    >>> broadcast([(3, 1), (), (4,)])
    (3, 4)
    """
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    return np.broadcast_shapes(*shapes)


def reduced(shape: Shape, axis: Any, keepdims: bool) -> tuple[Shape, int]:
    """The shape after a reduction, and how many elements go into one.

    Examples
    --------
    >>> reduced((2, 3, 4), (0, -1), False)
    ((3,), 8)
    """
    axes = axes_of(axis, len(shape))
    folded = math.prod([shape[i] for i in axes])
    if keepdims:
        return tuple([1 if i in axes else n for i, n in enumerate(shape)]), folded
    return tuple([n for i, n in enumerate(shape) if i not in axes]), folded


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes as distinct numbers that are not negative; None stands for all."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = tuple([int(a.__index__()) + (ndim if a < 0 else 0) for a in given])
    if any(not 0 <= a < ndim for a in found) or len(set(found)) < len(found):
        raise ValueError("no such axis")
    return found


def flat(shape: Any) -> Shape:
    """A shape as creation functions take it: a number, or a sequence of them."""
    if isinstance(shape, (tuple, list)):
        found = tuple([int(n.__index__()) for n in shape])
    else:
        found = (int(shape.__index__()),)
    if any(n < 0 for n in found):
        raise ValueError("negative length")
    return found
