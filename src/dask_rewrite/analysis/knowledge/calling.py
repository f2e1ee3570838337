"""Functions that call another function that they are given, and containers."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import toolz
from dask import utils
from dask._task_spec import Dict, List, Task, Tuple
from dask._task_spec import _identity_cast as identity_cast
from dask.array import core

from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.elementwise import astype
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Call, Known
from dask_rewrite.analysis.knowledge.lookup import fact_of_call
from dask_rewrite.graph.nodes import literal


def _apply(func: Any, args: Any, kwargs: Any = None) -> Any:
    return fact_of_call(func, args, kwargs or {})


def _applied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    func, given, *more = args
    return [(func, _items(given), keywords_in(more[0]) if more else {})]


def _items(node: Any) -> Sequence[Any]:
    """The elements of a list as it stands in a task."""
    found: Sequence[Any]
    if type(node) in (List, Tuple) or (type(node) is Task and node.func is identity_cast):
        found = node.args
        return found
    found = literal(node)
    if type(found) not in (list, tuple):
        raise TypeError("not a list")
    return found


def keywords_in(node: Any) -> Mapping[str, Any]:
    """The keywords in a dict as it stands in a task."""
    if type(node) is Dict:
        return dict(zip(map(literal, node.args[::2]), node.args[1::2]))
    if type(node) is Task and node.func is dict:
        pairs = [_items(pair) for pair in _items(node.args[0])] if node.args else []
        return {**{literal(name): value for name, value in pairs}, **node.kwargs}
    found = literal(node)
    if found is not None and type(found) is not dict:
        raise TypeError("not a dict")
    return found or {}


def _enforced(*args: Any, enforce_dtype: Any, enforce_dtype_function: Any, **kwargs: Any) -> Any:
    """``core._enforce_dtype``: calls the function and converts what comes out."""
    found = fact_of_call(enforce_dtype_function, args, kwargs)
    dtype = np.dtype(enforce_dtype)
    if type(found) is not Fact or found.dtype == dtype or dtype.kind == "O":
        return found
    return astype(found, dtype, casting="same_kind")


def _enforces(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    rest = {name: value for name, value in kwargs.items() if not name.startswith("enforce_dtype")}
    return [(literal(kwargs["enforce_dtype_function"]), args, rest)]


def _passed(func: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    """``core._pass_extra_kwargs``: the first arguments become keywords."""
    return fact_of_call(func, args[len(keys) :], {**kwargs, **dict(zip(keys, args))})


def _passes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    func, keys, *rest = args
    keys = _items(keys)
    return [(literal(func), rest[len(keys) :], {**kwargs, **dict(zip(map(literal, keys), rest))})]


def _where_calls(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call]:
    """``core._elemwise_handle_where`` copies what it writes into; without that the rest is undefined."""
    rest = {name: value for name, value in kwargs.items() if name != "elemwise_where_function"}
    return [(literal(kwargs["elemwise_where_function"]), args[:-2], rest)]


def _cast(*args: Any, typ: Any) -> Any:
    return typ(args) if typ in (list, tuple) else None


def _tuple(values: Any) -> Any:
    return tuple(values) if type(values) in (list, tuple) else None


#: What is known of functions that call others, and of containers.
CALLING: dict[Callable[..., Any], Known] = {
    of_dask(utils, "apply"): Known(_apply, calls=_applied),
    of_dask(core, "_enforce_dtype"): Known(_enforced, calls=_enforces),
    of_dask(core, "_pass_extra_kwargs"): Known(_passed, calls=_passes),
    of_dask(core, "_elemwise_handle_where"): Known(pure=False, calls=_where_calls),
    identity_cast: Known(_cast, fresh=False),
    toolz.identity: Known(toolz.identity, fresh=False),
    builtins.dict: Known(dict, fresh=False),
    builtins.tuple: Known(_tuple, fresh=False),
}
