"""The record of what is known of one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Task


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a function; that it never writes into its arguments is known of all of them.

    Parameters
    ----------
    fact : callable or None
        From arguments to the `Fact` of the result, or None where that is not certain. Blocks are given
        as facts, lists as lists, all else as it is; unknown blocks are never given.
    pure : bool
        Same arguments, same result, and no other effect.
    fresh : bool or callable
        The result shares no memory with an argument. A callable is asked with the task.
    """

    fact: Callable[..., Any] | None = None
    pure: bool = True
    fresh: bool | Callable[[Task], bool] = True
