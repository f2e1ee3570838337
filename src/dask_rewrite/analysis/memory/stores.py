"""Tasks that are there for what they do: they store blocks, or wait for others."""

from __future__ import annotations

from typing import Any

from dask._task_spec import Task
from dask.array import core
from dask.graph_manipulation import chunks

from dask_rewrite.graph.templates import opened

#: Functions that wait for others and give nothing.
_WAITING = frozenset([chunks.checkpoint])
#: Functions that store blocks.
STORES = frozenset(getattr(core, name) for name in ("store_chunk", "load_store_chunk") if hasattr(core, name))


def is_in(func: Any, functions: Any) -> bool:
    """Whether a function is one of these; what cannot be hashed is none."""
    try:
        return func in functions
    except TypeError:  # not hashable
        return False


def is_store(call: Task) -> bool:
    """Whether a call stores a block."""
    return is_in(call.func, STORES)


def gives_nothing(node: Any) -> bool:
    """Whether a task is there for what it does: it waits, or stores and does not give back."""
    body = getattr(node.func, "__self__", None) if type(node) is Task else None
    if type(body) is Task and is_in(body.func, STORES | _WAITING):
        node = opened(node)
    if type(node) is not Task or not is_store(node):
        return type(node) is Task and is_in(node.func, _WAITING)
    return node.func is core.load_store_chunk and node.kwargs.get("return_stored") is False
