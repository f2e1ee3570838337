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
