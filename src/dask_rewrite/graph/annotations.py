"""Annotations (priority, retries, resources, workers ...): from layers to the tasks that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dask._expr import _AnnotationsTombstone
from dask.typing import Key

Annotations: TypeAlias = Mapping[str, Any]


def evaluate(annotations: Annotations, key: Key) -> dict[str, Any]:
    """The annotations of one task: callables are asked with the task's original key.

    What stands in a list that was given to `dask.delayed` has annotations that say for some keys that
    there are none.

    Examples
    --------
    >>> evaluate({"priority": lambda key: key[1] * 10, "retries": 2}, ("x", 3))
    {'priority': 30, 'retries': 2}
    """
    found = {name: value(key) if callable(value) else value for name, value in annotations.items()}
    return {name: value for name, value in found.items() if type(value) is not _AnnotationsTombstone}


def merged(one: Annotations | None, other: Annotations | None) -> dict[str, Any] | None:
    """The annotations of one task made of two, or None if they must stay apart.

    The larger priority and the larger number of retries hold for both; anything else, resources and
    workers above all, has to be the same.

    Examples
    --------
    >>> merged({"priority": 1, "retries": 2}, {"priority": 5})
    {'priority': 5, 'retries': 2}
    >>> merged({"resources": {"GPU": 1}}, None) is None
    True
    """
    if not one and not other:
        return {}
    one, other = one or {}, other or {}
    result = dict(one)
    for name in {**one, **other}:
        mine, theirs = one.get(name, 0), other.get(name, 0)
        if name not in _LARGER:
            # A callable may say something else for each of the two keys.
            if name not in one or name not in other or mine != theirs or callable(mine):
                return None
        elif mine != theirs:
            if callable(mine) or callable(theirs):
                return None
            result[name] = max(mine, theirs)
    return result


#: Annotations of which the larger value serves both.
_LARGER = ("priority", "retries")


def described(annotations: Annotations) -> str:
    """Annotations as text that is the same in every process.

    Examples
    --------
    >>> described({"workers": ["alice"], "priority": max})
    "priority=max workers=['alice']"
    """
    parts = []
    for name in sorted(annotations):
        value = annotations[name]
        parts.append(f"{name}={getattr(value, '__qualname__', type(value)) if callable(value) else value}")
    return " ".join(parts)
