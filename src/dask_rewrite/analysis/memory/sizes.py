"""Bytes of values: of those at hand, and of what is known of those to come."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask._task_spec import Task
from dask.array import reductions
from dask.sizeof import sizeof

from dask_rewrite.analysis.facts import Fact
from dask_rewrite.analysis.knowledge.known import through_partials
from dask_rewrite.graph.templates import frame_of

#: Bytes of what is small and known: numbers, indices, names.
SMALL = 32
#: A count of numbers, as partial means have it.
_COUNT = Fact((), np.dtype("i8"))


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


def without_counts(node: Any, value: Any) -> Any:
    """A partial mean with one number for its counts, which is shown as an array (``np.broadcast_to``).

    Where numbers that are missing do not count, counts are an array of their own.
    """
    if type(value) is not dict or "n" not in value or type(node) is not Task:
        return value
    frame = frame_of(node)
    last: Any = node if frame is None else frame.bodies[-1]
    func, _, given = through_partials(getattr(last, "func", None), (), getattr(last, "kwargs", {}))
    counted = given.get("numel", reductions.numel)
    plain = func is reductions.mean_chunk and counted is reductions.numel
    return {**value, "n": _COUNT} if plain else value
