"""Which values are the same whenever a function is given them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from types import EllipsisType, NoneType
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, TaskRef

from dask_rewrite.analysis.knowledge import known

_PLAIN = (str, bytes, int, float, complex, NoneType, EllipsisType, np.generic, np.dtype, range, os.PathLike)
_ARRAYS = (np.ndarray, np.ma.MaskedArray)


def is_steady(value: Any, lists: Callable[[], bool] = bool) -> bool:
    """Whether a function that is given a value twice is given the same.

    Numbers, texts, arrays, and what is made of these alone; what reads like an array (it has a shape, a
    dtype and items); functions of which it is known that they are pure. Other objects may be used up, or
    answer differently when they are asked again. References are left to whoever follows them.

    Parameters
    ----------
    value : object
        As it stands in a task or in the graph.
    lists : callable
        Whether lists, dicts and sets stay as they are; asked if there are any.

    Examples
    --------
    >>> is_steady((slice(0, 5), np.arange(3), np.sqrt)), is_steady(iter([1])), is_steady([1])
    (True, False, False)
    """
    stack = [value]
    while stack:
        here = stack.pop()
        kind = type(here)
        if isinstance(here, (*_PLAIN, GraphNode, TaskRef)):
            continue
        if kind is tuple or kind is frozenset:
            stack.extend([each for each in here if type(each) is not int])
        elif kind is slice:
            stack.extend((here.start, here.stop, here.step))
        elif kind in (list, set, dict):
            if not lists():
                return False
            stack.extend(
                [each for each in (here.values() if kind is dict else here) if type(each) is not int]
            )
        elif kind is partial:
            stack.extend((here.func, *here.args, *here.keywords.values()))
        elif isinstance(here, type):
            if here.__module__.partition(".")[0] not in ("builtins", "numpy"):
                return False
        elif kind in _ARRAYS:
            if here.dtype.hasobject:
                return False
        elif callable(here):
            if (found := known(here)) is None or not found.pure:
                return False
        elif not (_reads_like_an_array(here) or kind.__module__.startswith("numpy.random")):
            return False
    return True


def _reads_like_an_array(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("shape", "dtype", "__getitem__"))
