"""What calls of functions give, and what of a call is the same for all tasks that make it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

from dask._task_spec import GraphNode, List, Task, TaskRef, _identity_cast
from toolz import last, pipe

from dask_rewrite.analysis.fact_cache import intern, number_of, signature
from dask_rewrite.analysis.knowledge import known


class _Unknown:
    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


#: Stands for a value of which nothing is known.
UNKNOWN = _Unknown()


class Function(NamedTuple):
    """A function that tasks call."""

    func: Any  # kept alive, since it is named by identity
    is_known: bool  # it is worth looking below its tasks
    number: int | None  # None if it is not compared with others
    is_special: bool  # its tasks may be more than calls


class Keywords(NamedTuple):
    """The keywords of a task."""

    kwargs: Any  # kept alive, since they are named by identity
    has_blocks: bool
    signature: Any  # None if they are not compared with others


def function_of(func: Any, functions: dict[int, Function]) -> Function:
    """Look at a function, and remember it by its identity."""
    inner = func
    while type(inner) is partial:
        inner = inner.func
    is_frame = type(func) is MethodType or func is pipe
    is_known = (
        not _is_lost(func.__self__) if type(func) is MethodType else is_frame or known(inner) is not None
    )
    try:
        number = number_of(func) if is_known and not is_frame else None
    except TypeError:  # an argument that cannot be compared
        number = None
    found = Function(func, is_known, number, is_frame or func is last or func is _identity_cast)
    functions[id(func)] = found
    return found


def _is_lost(body: Any) -> bool:
    """Whether what an expression gives is unknown whatever its inputs are: one look for a whole layer."""
    if type(body) is Task:
        func = body.func
        if type(func) is MethodType or func is pipe or func is last:
            return False
        while type(func) is partial:
            func = func.func
        if func is not _identity_cast and known(func) is None:
            return True
    elif type(body) is not List:
        return False
    return any(map(_is_lost, body.args))


def keywords_of(kwargs: dict[str, Any], keywords: dict[int, Keywords]) -> Keywords:
    """Look at keywords, and remember them by their identity."""
    has_blocks = any(isinstance(arg, (GraphNode, TaskRef)) for arg in kwargs.values())
    try:
        signed = None if has_blocks else signature(kwargs)
    except TypeError:  # an argument that cannot be compared
        signed = None
    found = keywords[id(kwargs)] = Keywords(kwargs, has_blocks, signed)
    return found


def transferred(func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a call of a known function gives, found out by what is known of it."""
    transfer = known(func)
    if transfer is None or transfer.fact is None:
        return UNKNOWN
    try:
        found = transfer.fact(*args, **kwargs)
    except Exception:  # what would fail or is unusual: nothing is known
        return UNKNOWN
    return UNKNOWN if found is None else intern(found)


__all__ = ["UNKNOWN", "Function", "Keywords", "function_of", "keywords_of", "transferred"]
