"""Functions that broadcast their arguments: ufuncs, operators, and those that behave like them.

Which type comes out is found out by calling the function itself on single elements of the types that go
in, so that promotion is the installed NumPy's own.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
from dask.array import chunk, reductions, routines
from dask.utils import methodcaller

from dask_rewrite.analysis.knowledge.blocks import (
    NUMBERS,
    array,
    block,
    broadcast,
    cast,
    is_scalar_type,
    one_of,
    plain,
    warns,
)
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Call, Known

#: What makes two arguments the same for the type of the result.
Kind: TypeAlias = tuple[Any, ...]

#: Before NumPy 2 the type of a result may depend on the values of scalars and 0-d arrays.
BY_VALUE = int(np.__version__.split(".")[0]) < 2

_LITERALS = frozenset([bool, int, float, complex, type(None)])

#: Elementwise functions of which every machine gives the same bits, where no nan comes out.
_EXACT = frozenset(
    (
        *(np.add, np.subtract, np.multiply, np.true_divide, np.sqrt, np.square, np.negative, np.positive),
        *(np.absolute, np.fabs, np.sign, np.floor, np.ceil, np.trunc, np.rint, np.maximum, np.minimum),
        *(np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal),
        *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
        *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift),
        *(np.isnan, np.isinf, np.isfinite, np.signbit),
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.and_, operator.or_),
        *(operator.xor, operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge),
        *(operator.neg, operator.pos, operator.invert, operator.abs, builtins.abs),
    )
)


def elementwise(func: Any, *args: Any, exact: bool = False, **kwargs: Any) -> Any:
    """The fact of ``func(*args, **kwargs)`` for a function that works element by element.

    Examples
    --------
    >>> elementwise(np.add, Fact((3, 1), np.dtype("i4")), Fact((4,), np.dtype("f4")))
    Fact(shape=(3, 4), dtype=dtype('float64'), fill=None, scalar=False)
    """
    kinds: list[Kind] = []
    shapes = []
    facts: list[Fact | None] = []
    for arg in args:
        fact = block(arg)
        facts.append(fact)
        if fact is not None:
            if not plain(fact.dtype):
                return None
            shapes.append(fact.shape)
            kinds.append((fact.dtype, "scalar" if fact.scalar else bool(fact.shape)))
        elif type(arg) in _LITERALS:
            kinds.append((type(arg), arg))
        else:
            return None
    if not shapes:
        return None
    shape = broadcast(shapes)
    if BY_VALUE and shape and not all(shapes):
        return None
    found = _result_type(func, tuple(kinds), tuple(kwargs.items()))
    if found is None:
        return None
    if not shape and any(scalar and not is_scalar_type(dtype) for dtype, scalar in found):
        return None
    fill = None
    if exact and not kwargs and len(found) == 1:
        fill = _fill(func, args, facts, found[0][0])
    results = [Fact(shape, dtype, fill, scalar and not shape) for dtype, scalar in found]
    return results[0] if len(results) == 1 else tuple(results)


@lru_cache(maxsize=4096, typed=True)
def _result_type(func: Any, kinds: tuple[Kind, ...], kwargs: Any) -> tuple[tuple[Any, bool], ...] | None:
    """Dtype of each result, and whether it is a scalar where all arguments are without axes."""
    samples: list[Any] = []
    for what, how in kinds:
        if isinstance(what, np.dtype):
            samples.append(one_of(Fact((1,) if how is True else (), what, None, how == "scalar")))
        else:
            samples.append(how)
    with np.errstate(all="ignore"):
        try:
            made = func(*samples, **dict(kwargs))
        except Exception:  # what it does not take
            return None
    results = made if type(made) is tuple else (made,)
    if any(type(each) is not np.ndarray and not isinstance(each, np.generic) for each in results):
        return None
    if any(not plain(each.dtype) or each.size != 1 for each in results):
        return None
    return tuple([(each.dtype, type(each) is not np.ndarray) for each in results])


def _fill(func: Any, args: Any, facts: list[Fact | None], dtype: np.dtype[Any]) -> np.generic | None:
    if dtype.kind not in "biuf" or dtype.char == "g":
        return None
    values: list[Any] = []
    for arg, fact in zip(args, facts):
        if fact is None:
            values.append(arg)
        elif fact.fill is None or fact.dtype.kind not in "biuf":
            return None
        elif fact.shape:
            values.append(np.full(1, fact.fill, fact.dtype))
        else:
            values.append(fact.fill)
    with np.errstate(all="ignore"):
        value: Any = np.asarray(func(*values)).ravel()[0]
    if dtype.kind == "f" and (value != value or (value == 0 and func in (np.maximum, np.minimum))):
        return None  # the bits of a new nan, and the sign of the greater zero, depend on the machine
    return value if value.dtype == dtype else None


def where(condition: Any, *choices: Any) -> Any:
    """``np.where`` with three arguments; it never gives a scalar."""
    if len(choices) != 2:
        return None
    found = elementwise(np.where, condition, *choices)
    chosen = block(condition)
    if found is None or chosen is None or chosen.fill is None:
        return found
    taken = block(choices[0] if chosen.fill else choices[1])
    return Fact(found.shape, found.dtype, None if taken is None else cast(taken.fill, found.dtype))


def astype(
    x: Any, astype_dtype: Any = None, *, casting: str = "unsafe", copy: bool = True, **kwargs: Any
) -> Any:
    """``x.astype(dtype)``."""
    fact = block(x)
    dtype = np.dtype(astype_dtype)
    if fact is None or not kwargs.keys() <= {"order", "subok"}:
        return None
    if dtype != fact.dtype and (not plain(dtype) or not plain(fact.dtype) or not dtype.itemsize):
        return None
    if dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic":
        return None
    if warns(fact.dtype, dtype):
        return None
    if not np.can_cast(fact.dtype, dtype, casting):  # type: ignore[arg-type] # any str here
        return None
    return Fact(fact.shape, dtype, cast(fact.fill, dtype), fact.scalar)


def folded(terms: Any, start: Any = 0, *, func: Any = operator.add) -> Any:
    """``sum(terms)`` and ``functools.reduce(func, terms)``: two by two, from the left."""
    if type(terms) not in (list, tuple):
        return None
    found = start
    for term in terms:
        found = elementwise(func, found, term)
        if found is None:
            return None
    return found


def reduce(func: Any, terms: Any) -> Any:
    """``functools.reduce`` with a ufunc or an operator."""
    if func not in _OPERATORS and func not in _UFUNCS:
        return None
    if type(terms) not in (list, tuple) or not terms:
        return None
    return folded(terms[1:], terms[0], func=func)


def _copies(args: Any, kwargs: Any) -> bool:
    """A conversion is a copy unless the task says otherwise."""
    return "copy" not in kwargs


def _has_terms(args: Any, kwargs: Any) -> bool:
    """Whether there are terms to fold: a single one comes back as it is."""
    return len(args) == 2 and len(getattr(args[1], "args", ())) > 1


def _folds_with(args: Any, kwargs: Any) -> list[Call]:
    return [(getattr(args[0], "value", args[0]), (None, None), {})]


def _ufunc(
    func: np.ufunc, exact: bool, *args: Any, dtype: Any = None, where: Any = True, out: Any = None
) -> Any:
    if where is not True or out is not None or len(args) != func.nin:
        return None
    if dtype is None:
        return elementwise(func, *args, exact=exact)
    return elementwise(func, *args, dtype=np.dtype(dtype))


def of_ufunc(func: np.ufunc) -> Known:
    """What is known of a ufunc that works element by element."""
    return Known(partial(_ufunc, func, func in _EXACT), inputs=func.nin, writing=("out", "where"))


def _of_operator(func: Any) -> Known:
    return Known(partial(elementwise, func, exact=func in _EXACT))


def _of_function(func: Any, fresh: bool = True, inputs: int | None = None) -> Known:
    return Known(partial(elementwise, func), fresh=fresh, inputs=inputs, writing=("out", "copy"))


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    fact = array(x)
    if fact is None or not fact.shape or fact.dtype.kind not in "biuf" or array(bins) is None:
        return None
    return Fact(fact.shape, np.dtype(np.intp))


def _isin(element: Any, test_elements: Any, assume_unique: bool = False) -> Any:
    """``routines._isin_kernel``: an axis of length one for each axis of the test elements."""
    fact, tests = array(element), array(test_elements)
    if fact is None or tests is None or fact.dtype.kind not in NUMBERS or tests.dtype.kind not in NUMBERS:
        return None
    return Fact(fact.shape + (1,) * len(tests.shape), np.dtype(bool))


_OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    *(operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge),
    *(operator.neg, operator.pos, operator.invert, operator.abs, builtins.abs, builtins.divmod),
)

#: Every ufunc that NumPy has: others may do anything.
_UFUNCS = tuple({id(each): each for each in vars(np).values() if type(each) is np.ufunc}.values())

#: What is known of functions that work element by element.
ELEMENTWISE: dict[Callable[..., Any], Known] = {
    **{func: of_ufunc(func) for func in _UFUNCS if not func.signature},
    **{func: _of_operator(func) for func in _OPERATORS},
    **{func: _of_function(func) for func in (np.isclose, np.sinc, np.i0, np.angle, np.isreal, np.iscomplex)},
    # what is real, or whole, already may come back as it is
    **{func: _of_function(func, fresh=False) for func in (np.real, np.imag)},
    np.round: _of_function(np.round, fresh=False, inputs=2),
    np.around: _of_function(np.around, fresh=False, inputs=2),
    np.clip: _of_function(np.clip, inputs=3),
    np.fix: _of_function(np.fix, fresh=False, inputs=1),
    np.nan_to_num: _of_function(np.nan_to_num, inputs=1),
    np.where: Known(where),
    np.digitize: Known(_digitize),
    **{
        func: _of_function(func)
        for func in (of_dask(routines, "_select"), of_dask(routines, "variadic_choose"))
    },
    of_dask(routines, "_isin_kernel"): Known(_isin),
    of_dask(chunk, "astype"): Known(astype, fresh=_copies),
    methodcaller("astype"): Known(astype, fresh=_copies),
    of_dask(reductions, "_sqrt"): Known(partial(elementwise, np.sqrt, exact=True)),
    builtins.sum: Known(folded),
    functools.reduce: Known(reduce, fresh=_has_terms, calls=_folds_with),
}
