"""Values that nobody can write into: those may be shared whoever gets them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task, TaskRef

_FROZEN = frozenset([int, float, complex, bool, str, bytes, type(None), type(Ellipsis), slice])
#: Indexes whose parts are known; others, as those of several levels, equal only themselves.
_INDEXES = ("Index", "RangeIndex", "DatetimeIndex", "TimedeltaIndex")
_ADAPTER = ("xarray.core.indexing", "PandasIndexingAdapter")
MAX_ITEMS = 256


def index_parts(value: Any) -> tuple[Any, ...] | None:
    """What decides that a pandas index equals another: arrays and atoms; None for anything else.

    Examples
    --------
    >>> import pandas as pd
    >>> index_parts(pd.RangeIndex(3, name="x"))
    ('RangeIndex', 'x', 0, 3, 1)
    >>> index_parts([1, 2]) is None
    True
    """
    kind = type(value)
    pandas = sys.modules.get("pandas")
    if pandas is None or kind.__name__ not in _INDEXES or kind is not getattr(pandas, kind.__name__, None):
        return None
    name = value.name
    if type(name) not in _FROZEN:
        return None
    if kind.__name__ == "RangeIndex":
        return (kind.__name__, name, value.start, value.stop, value.step)
    dtype = value.dtype
    described = (kind.__name__, name, str(getattr(value, "freq", None)))
    if isinstance(dtype, np.dtype) and not dtype.hasobject:
        return (*described, value.values)  # which has its dtype
    if str(dtype) in ("str", "object") and len(value) <= MAX_ITEMS:
        items = tuple(value)
        return (*described, str(dtype), type(value.array), items) if set(map(type, items)) <= {str} else None
    return None


def adapted(value: Any) -> tuple[Any, Any] | None:
    """Dtype and index of xarray's wrapper of one; None for anything else."""
    kind = type(value)
    if (kind.__module__, kind.__name__) != _ADAPTER or getattr(value, "__dict__", None):
        return None
    return value._dtype, value.array


def is_frozen(value: Any, depth: int = 0) -> bool:
    """Whether a constant, or what a task makes of constants, is known to be out of reach of writers.

    Examples
    --------
    >>> is_frozen(("x", 1.5, slice(3))), is_frozen(np.ones(2)), is_frozen([1])
    (True, False, False)
    """
    kind = type(value)
    if kind in _FROZEN or isinstance(value, (np.dtype, np.generic)):
        return not isinstance(value, np.void)  # structured scalars can be written into
    if depth > 4:
        return False
    if kind is tuple:
        return all(is_frozen(item, depth + 1) for item in value)
    if kind is DataNode:
        return is_frozen(value.value, depth + 1)
    if kind is Task:
        return value.func is tuple and len(value.args) == 1 and _is_label(value.args[0])
    return index_parts(value) is not None or adapted(value) is not None


def _is_label(value: Any) -> bool:
    """Dimension, index and attributes, as xarray puts them down; it copies attributes that it uses."""
    if isinstance(value, (GraphNode, TaskRef)) or type(value) is not list or len(value) != 3:
        return False
    dims, index, attrs = value
    if type(attrs) is not dict or not all(map(is_frozen, attrs.values())):
        return False
    return is_frozen(dims) and adapted(index) is not None
