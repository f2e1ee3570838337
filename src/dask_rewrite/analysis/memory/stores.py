"""Tasks that are there for what they do: they store blocks, or wait for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.array import core
from dask.graph_manipulation import chunks

from dask_rewrite.graph.batches import is_batch
from dask_rewrite.graph.nodes import keeps_name
from dask_rewrite.graph.templates import calls_frame, frame_of

#: Functions that wait for others and give nothing.
_WAITING = frozenset([chunks.checkpoint])
#: Functions that store blocks.
STORES = frozenset(getattr(core, name) for name in ("store_chunk", "load_store_chunk") if hasattr(core, name))
#: What sends a block to other workers, and what waits for all of these, among tasks of a shuffle.
_SENDING = ("rechunk_transfer", "p2p_barrier")


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
    """Whether a task is there for what it does: it waits, or sends or stores and does not give back.

    Examples
    --------
    >>> from dask._task_spec import TaskRef
    >>> options = {"return_stored": False}
    >>> gives_nothing(Task("y", core.load_store_chunk, TaskRef("x"), None, None, False, **options))
    True
    """
    if keeps_name(node) and getattr(node.func, "__name__", None) in _SENDING:
        return True
    given: Mapping[Any, Any] = {}
    while type(node) is Task:
        if is_batch(node):
            node = node.args[1].__self__
        elif calls_frame(node.func) and (frame := frame_of(node)) is not None:
            given, node = frame.inputs, frame.bodies[-1]
        else:
            break
    if type(node) is not Task or not is_store(node):
        return type(node) is Task and is_in(node.func, _WAITING)
    back = node.kwargs.get("return_stored")
    back = given.get(back.key) if type(back) is TaskRef else back
    return node.func is core.load_store_chunk and back is False
