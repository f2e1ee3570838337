"""Annotations (priority, retries, resources, workers ...): from layers to the tasks that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dask.typing import Key

Annotations: TypeAlias = Mapping[str, Any]


def evaluate(annotations: Annotations, key: Key) -> dict[str, Any]:
    """The annotations of one task: callables are asked with the task's original key.

    Examples
    --------
    >>> evaluate({"priority": lambda key: key[1] * 10, "retries": 2}, ("x", 3))
    {'priority': 30, 'retries': 2}
    """
    return {name: value(key) if callable(value) else value for name, value in annotations.items()}


def group_key(annotations: Annotations) -> Any:
    """A hashable stand-in for an annotation set: equal sets give equal stand-ins."""
    return tuple((name, _frozen(annotations[name])) for name in sorted(annotations))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((k, _frozen(value[k])) for k in sorted(value, key=str))
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_frozen, value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return (type(value), value)
