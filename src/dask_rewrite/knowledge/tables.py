"""All tables of known functions, put together."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_rewrite.knowledge.fact import Fact
from dask_rewrite.knowledge.known import Known


def _elementwise(ufunc: np.ufunc) -> Callable[..., Fact | None]:
    def fact(*args: Any) -> Fact | None:
        if not all(type(arg) is Fact for arg in args):
            return None
        dtype = ufunc.resolve_dtypes((*(arg.dtype for arg in args), None))[-1]
        shape = np.broadcast_shapes(*(arg.shape for arg in args))
        return Fact(shape, dtype) if shape else None

    return fact


def _getitem(block: Any, index: Any) -> Fact | None:
    if type(block) is not Fact:
        return None
    shape = np.broadcast_to(np.empty((), "i1"), block.shape)[index].shape
    return Fact(shape, block.dtype, block.fill) if shape else None


#: What is known, by function.
KNOWN: dict[Callable[..., Any], Known] = {
    operator.add: Known(_elementwise(np.add)),
    operator.getitem: Known(_getitem, fresh=False),
}


def known_ufunc(func: np.ufunc) -> Known | None:
    """NumPy's own ufuncs; others may be anything."""
    return None
