"""What calls give, remembered for as long as the process lives: graphs are made of the same few."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from toolz import functoolz

from dask_rewrite.knowledge.fact import Fact

#: Results that are kept; all are dropped when there are more.
MOST = 20_000

#: Equal facts are one object, so that arguments can be told apart by identity.
_interned: dict[Fact, Fact] = {}
_results: dict[Any, Any] = {}
_arrays: dict[Any, Fact] = {}

#: Values that are equal only if they are the same, among values of one type.
_BY_VALUE = frozenset([int, bool, str, bytes, type(None), type(Ellipsis), type])

#: Stands for a call that was not seen.
NOTHING = object()
_NEVER = (NOTHING, None)


def tidy() -> None:
    """Forget everything if it has become much; whoever names a fact by identity must hold on to it."""
    if len(_results) > MOST or len(_interned) > MOST or len(_arrays) > MOST:
        _results.clear()
        _interned.clear()
        _arrays.clear()


def intern(found: Any) -> Any:
    """The same value, with its facts replaced by the ones that stand for all that are equal."""
    kind = type(found)
    if kind is Fact:
        return _interned.setdefault(found, found)
    if kind is tuple or kind is list:
        return kind(map(intern, found))
    return {name: intern(value) for name, value in found.items()} if kind is dict else found


def fact_of_array(array: np.ndarray[Any, Any]) -> Fact:
    """The fact of an array at hand.

    Examples
    --------
    >>> fact_of_array(np.zeros((2, 3))) is fact_of_array(np.ones((2, 3)))
    True
    """
    form = array.shape, array.dtype
    fact = _arrays.get(form)
    if fact is None:
        fact = _arrays[form] = intern(Fact.of_array(array))
    return fact


def signature(value: Any) -> Any:
    """Something hashable that is equal for equal values only: 1 is not True, and 0.0 is not -0.0.

    Facts must be interned.

    Examples
    --------
    >>> signature((1, 2.5)) == signature((1, 2.5)), signature(0.0) == signature(-0.0)
    (True, False)
    """
    kind = type(value)
    if kind is Fact:
        return id(value)
    if kind in _BY_VALUE or isinstance(value, np.dtype):
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is tuple or kind is list:
        return kind, *map(signature, value)
    if kind is slice:
        return kind, *map(signature, (value.start, value.stop, value.step))
    if kind is dict:
        return kind, *map(signature, value.items())
    raise TypeError(f"{kind} is not compared")


def call_signature(func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A signature of a call of a known function, the same for every object that stands for that call."""
    named = [(name, signature(value)) for name, value in kwargs.items()]
    return (_function(func), *map(signature, args), *named)


def _function(func: Any) -> Any:
    kind = type(func)
    if kind is partial:
        named = [(name, signature(value)) for name, value in func.keywords.items()]
        return (kind, _function(func.func), *map(signature, func.args), *named)
    if kind is functoolz.Compose:
        return (kind, *map(_function, (func.first, *func.funcs)))
    return func


def recall(call: Any) -> Any:
    """What a call gave before; `NOTHING` if it was not seen."""
    return _results.get(call, _NEVER)[0]


def remember(call: Any, found: Any, args: Any) -> Any:
    """Keep and return what a call gave; the arguments are kept too, since they are named by identity."""
    _results[call] = (found, args)
    return found
