"""Finding what is known of a function or of a call, through ``partial``, ``compose`` and forwarders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from toolz.functoolz import Compose

from dask_rewrite.analysis.knowledge.imported import imported
from dask_rewrite.analysis.knowledge.known import Known, through_partials

#: What is known, by function; filled from the tables when the package is imported.
KNOWN: dict[Callable[..., Any], Known] = {}

#: By name, the modules that have such a function, and what makes the record once the module is there.
LATE: dict[str, list[tuple[str, Callable[[Any], Known]]]] = {}


#: What is known of partials: the blocks of a layer share one.
_partials: WeakKeyDictionary[Any, Known | None] = WeakKeyDictionary()


def known(func: Any) -> Known | None:
    """What is known of a function; sees through ``partial`` and ``compose``.

    Examples
    --------
    >>> import operator
    >>> known(operator.add).pure
    True
    >>> known(lambda x: x) is None
    True
    """
    try:
        found = KNOWN.get(func)
    except TypeError:  # not hashable
        return None
    if found is not None:
        return found
    kind = type(func)
    if kind is partial:
        if func not in _partials:
            _partials[func] = _partial(func)
        return _partials[func]
    if kind is Compose:
        return _composed(func)
    return _late(func)


def known_call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Known | None:
    """What is known of a call: None also where it writes, or calls, what is not known.

    Parameters
    ----------
    func : callable
        As it stands in a task.
    args, kwargs
        Arguments as they stand in a task.

    Returns
    -------
    Known or None
        ``fresh`` is a bool.

    Examples
    --------
    >>> import numpy as np
    >>> known_call(np.add, (1, 2), {}).fresh
    True
    >>> known_call(np.add, (1, 2), {"out": np.zeros(())}) is None
    True
    """
    if type(func) is partial:
        func, args, kwargs = through_partials(func, args, kwargs)
    if type(func) is Compose:
        return _composed_call(func, args, kwargs)
    found = known(func)
    if found is None or (found.inputs is not None and len(args) > found.inputs):
        return None
    if not kwargs.keys().isdisjoint(found.writing):
        if any(kwargs.get(name) is not None for name in found.writing):
            return None
    fresh, pure = found.fresh, found.pure
    if not isinstance(fresh, bool):
        fresh = fresh(args, kwargs)
    if found.calls is not None:
        try:
            calls = [known_call(*call) for call in found.calls(args, kwargs)]
        except Exception:  # called in a way that we have not seen
            return None
        inner = [each for each in calls if each is not None]
        if len(inner) < len(calls):
            return None
        fresh = fresh and all(each.fresh is True for each in inner)
        pure = pure and all(each.pure for each in inner)
    return found.settled(fresh, pure)


def fact_of_call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a function with known arguments gives, None if that is not known."""
    found = known(func)
    if found is None or found.fact is None:
        return None
    return found.fact(*args, **kwargs)


def _late(func: Any) -> Known | None:
    """Functions of modules that are not imported only to be known."""
    name = getattr(func, "__name__", "")
    for module, make in LATE.get(name, ()):
        if func is imported(module, name):
            KNOWN[func] = found = make(func)
            return found
    return None


def _partial(func: partial[Any]) -> Known | None:
    inner = known(func.func)
    if inner is None or inner.fact is None:
        return inner
    return replace(inner, fact=partial(inner.fact, *func.args, **func.keywords))


def _composed(func: Any) -> Known | None:
    functions = (func.first, *func.funcs)
    steps = [step for step in map(known, functions) if step is not None]
    if len(steps) < len(functions):
        return None
    facts = [step.fact for step in steps]

    def fact(*args: Any, **kwargs: Any) -> Any:
        first, *rest = facts
        value = first(*args, **kwargs) if first else None
        for step in rest:
            if value is None or step is None:
                return None
            value = step(value)
        return value

    return Known(fact if all(facts) else None)


def _composed_call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Known | None:
    found = [known_call(func.first, args, kwargs)]
    found += [known_call(each, (None,), {}) for each in func.funcs]
    steps = [step for step in found if step is not None]
    if len(steps) < len(found):
        return None
    return Known(pure=all(step.pure for step in steps), fresh=any(step.fresh is True for step in steps))
