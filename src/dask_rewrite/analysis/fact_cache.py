"""What calls give, kept for as long as the process lives: graphs are made of the same few."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from types import NoneType
from typing import Any

import numpy as np
from dask._task_spec import GraphNode
from toolz import functoolz

from dask_rewrite.analysis.knowledge import known
from dask_rewrite.analysis.knowledge.blocks import SCALARS
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.loading import Source
from dask_rewrite.analysis.knowledge.lookup import KNOWN
from dask_rewrite.graph.by_identity import ByIdentity

#: Results that are kept; all are dropped when there are more.
MOST = 20_000
#: Larger arrays in arguments are not compared.
_FEW_BYTES = 256
#: What calls gave.
RESULTS: dict[Any, Any] = {}
#: Equal facts are one object with a number that no other fact ever has.
_interned: dict[Fact, Fact] = {}
_arrays: dict[Any, Fact] = {}
_functions: dict[Any, int] = {}
#: Signatures of dicts of facts, which steps of means pass on.
_dicts = ByIdentity[Any]()
_TABLES: tuple[dict[Any, Any] | ByIdentity[Any], ...] = (RESULTS, _interned, _arrays, _functions, _dicts)
_numbers = count(1)

#: Values that are equal only if they are the same, among values of one type.
_BY_VALUE = frozenset([int, bool, str, bytes, NoneType, type(Ellipsis), type])
_ENDS = frozenset([int, NoneType])
#: Stands for a call that was not seen.
NOTHING = object()


def tidy() -> None:
    """Forget everything if it has become much."""
    if max(map(len, _TABLES)) > MOST:
        for table in _TABLES:
            table.clear()


def intern(found: Any) -> Any:
    """The same value, with its facts replaced by the ones that stand for all that are equal.

    Of arrays whose dtype has metadata nothing is known: such dtypes are equal to those without.
    """
    kind = type(found)
    if kind is Fact:
        if found.dtype.metadata is not None:
            return UNKNOWN
        known = _interned.get(found)
        if known is None:
            found.be_numbered(next(_numbers))
            known = _interned.setdefault(found, found)
        return known
    if kind is tuple or kind is list:
        return kind(map(intern, found))
    return {name: intern(value) for name, value in found.items()} if kind is dict else found


def fact_of_array(array: np.ndarray[Any, Any]) -> Any:
    """The fact of an array at hand.

    Examples
    --------
    >>> fact_of_array(np.zeros((2, 3))) is fact_of_array(np.ones((2, 3)))
    True
    """
    if array.dtype.metadata is not None:
        return UNKNOWN
    form = array.shape, array.dtype
    fact = _arrays.get(form)
    if fact is None:
        fact = _arrays[form] = intern(Fact.of_array(array))
    return fact


def signature(value: Any) -> Any:
    """Something hashable that is equal for equal values only: 1 is not True, and 0.0 is not -0.0.

    Examples
    --------
    >>> signature((1, 2.5)) == signature((1, 2.5)), signature(0.0) == signature(-0.0)
    (True, False)

    Raises
    ------
    TypeError
        For what is not compared.
    """
    kind = type(value)
    if kind is Fact:
        return value.number or intern(value).number
    if kind is tuple or kind is list:
        found: list[Any] = [kind]
        for item in value:
            inner = type(item)
            if inner is Fact and item.number:
                found.append(item.number)
                continue
            if inner is slice:  # most tuples are indices
                start, stop, step = item.start, item.stop, item.step
                if type(start) in _ENDS and type(stop) in _ENDS and type(step) in _ENDS:
                    found.append((slice, start, stop, step))
                    continue
            found.append(signature(item))
        return tuple(found)
    if kind in _BY_VALUE:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is slice:
        return kind, signature(value.start), signature(value.stop), signature(value.step)
    return _of_dict(value) if kind is dict else _rare(kind, value)


def _of_dict(value: dict[Any, Any]) -> Any:
    """Kept for dicts of facts: nobody else has them, and so nobody changes them."""
    return _dicts.of(value, _of_items) if Fact in map(type, value.values()) else _of_items(value)


def _of_items(value: dict[Any, Any]) -> Any:
    return dict, *map(signature, value.items())


def _rare(kind: Any, value: Any) -> Any:
    if isinstance(value, np.dtype) and value.metadata is None:
        return kind, value
    if getattr(getattr(value, "dtype", None), "metadata", None) is not None:
        raise TypeError("equal dtypes may have other metadata")
    if kind in SCALARS:
        return kind, value.dtype, value.tobytes()
    if kind is np.ndarray and value.nbytes <= _FEW_BYTES and not value.dtype.hasobject:
        return kind, value.shape, value.dtype, value.tobytes()
    if kind is Source:
        return kind, *value
    if kind is np.random.SeedSequence:  # two seeds draw other numbers, but of the same kind
        return (kind,)
    if callable(value) and not isinstance(value, GraphNode) and value in KNOWN:  # tasks pickle to be hashed
        return "function", value
    raise TypeError(f"{kind} is not compared")


def name_here(value: Any) -> Any:
    """A signature in which what is not compared is named by identity, to be used while that lives."""
    try:
        return signature(value)
    except TypeError:
        kind = type(value)
        if kind is dict:
            value = value.items()
        return (kind, *map(name_here, value)) if kind in (tuple, list, dict) else ("at", id(value))


def number_of(func: Callable[..., Any]) -> int:
    """A number for a function, the same for every object that stands for the same call.

    Examples
    --------
    >>> number_of(partial(np.zeros, (2, 3))) == number_of(partial(np.zeros, (2, 3)))
    True
    """
    named = _function(func)
    number = _functions.get(named)
    return _functions.setdefault(named, next(_numbers)) if number is None else number


def _function(func: Any) -> Any:
    kind = type(func)
    if kind is partial:
        named = [(name, signature(value)) for name, value in func.keywords.items()]
        return (kind, _function(func.func), *map(signature, func.args), *named)
    if kind is functoolz.Compose:
        return (kind, *map(_function, (func.first, *func.funcs)))
    return func


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


#: Stands for a value of which nothing is known.
UNKNOWN = _Unknown()


def transferred(func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a call of a known function gives, found out by what is known of it."""
    transfer = known(func)
    if transfer is None or transfer.fact is None:
        return UNKNOWN
    try:
        found = transfer.fact(*args, **kwargs)
    except Exception:  # what would fail or is unusual: nothing is known
        return UNKNOWN
    return UNKNOWN if found is None else intern(found)
