"""What is known of the functions that real graphs call; nothing is known of all others.

Every function in the tables returns without having written into its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from toolz import functoolz

from dask_rewrite.knowledge.known import Known
from dask_rewrite.knowledge.tables import KNOWN, known_ufunc

_compose = functoolz.Compose


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
    if kind is np.ufunc:
        return known_ufunc(func)
    if kind is partial:
        return _partial(func)
    if kind is _compose:
        return _composed(func)
    return None


def _partial(func: partial[Any]) -> Known | None:
    inner = known(func.func)
    if inner is None or inner.fact is None:
        return inner
    fact = partial(inner.fact, *func.args, **func.keywords)
    return Known(fact, pure=inner.pure, fresh=inner.fresh)


def _composed(func: Any) -> Known | None:
    steps = [known(each) for each in (func.first, *func.funcs)]
    if any(step is None for step in steps):
        return None

    def fact(*args: Any, **kwargs: Any) -> Any:
        first, *rest = steps
        value = first.fact(*args, **kwargs) if first.fact else None  # type: ignore[union-attr]
        for step in rest:
            if value is None or step.fact is None:  # type: ignore[union-attr]
                return None
            value = step.fact(value)  # type: ignore[union-attr]
        return value

    pure = all(step.pure for step in steps)  # type: ignore[union-attr]
    return Known(fact, pure=pure, fresh=any(step.fresh is True for step in steps))  # type: ignore[union-attr]


__all__ = ["Callable", "Known", "known"]
