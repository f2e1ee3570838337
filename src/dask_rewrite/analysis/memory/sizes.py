"""Bytes of values: of those at hand, and of what is known of those to come."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.sizeof import sizeof

from dask_rewrite.analysis.facts import Fact

#: Bytes of what is small and known: numbers, indices, names.
SMALL = 32


def nbytes_of_fact(value: Any) -> int | None:
    """Bytes of what facts say of a value; None where they say nothing."""
    if type(value) is Fact:
        return value.nbytes + (SMALL if value.scalar else 0)
    if type(value) in (list, tuple):
        parts = [nbytes_of_fact(each) for each in value]
    elif type(value) is dict:
        parts = [nbytes_of_fact(each) for each in value.values()]
    else:
        return SMALL if isinstance(value, (int, float, complex, str, slice, type(None))) else None
    return None if None in parts else sum(part or 0 for part in parts)


def nbytes_of(value: Any) -> int:
    """Bytes of a value at hand."""
    nbytes = getattr(value, "nbytes", None) if isinstance(value, np.ndarray) else None
    if nbytes is not None:
        return int(nbytes)
    try:
        return int(sizeof(value))
    except Exception:
        return SMALL
