"""Arrays that a graph may overwrite while it reads them: where it stores, and where these live."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MethodType
from typing import Any

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.memory.calls import calls_of
from dask_rewrite.analysis.memory.stores import is_store
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.held import unheld

#: Wrappers that stand in each other, at most.
_WRAPPED = 8
#: Modules whose arrays are files.
_FILES = frozenset(["zarr", "h5py", "h5netcdf", "netCDF4", "tables"])


class Overwritten:
    """Which arrays the tasks of a graph may store into.

    Two handles of a file are two objects: an array is what is stored into unless it is known to live
    somewhere else.

    Parameters
    ----------
    nodes : mapping of Key to GraphNode
        The graph.

    Examples
    --------
    >>> from dask.array.core import load_store_chunk
    >>> x, y = np.ones(3), np.ones(3)
    >>> nodes = {"y": Task("y", load_store_chunk, TaskRef("x"), y, slice(3))}
    >>> [Overwritten(nodes).is_taken_by(Task("z", np.negative, each), nodes) for each in (x, y, y[1:])]
    [False, True, True]
    """

    def __init__(self, nodes: Mapping[Key, GraphNode]) -> None:
        self._nodes = nodes
        self._bodies, self._known = ByIdentity[bool](), ByIdentity[bool]()

    def is_taken_by(self, task: Task, nodes: Mapping[Key, GraphNode]) -> bool:
        """Whether a task takes an array which may be stored into, as far as anybody knows.

        What it refers to stands in ``nodes``, which may be another form of the graph.
        """
        if not self._targets:
            return False
        given = [each for call in calls_of(task) for each in (*call.args, *call.kwargs.values())]
        return any(self._known.of(_value(each, nodes), self._may_be) for each in given)

    @cached_property
    def may_be_files(self) -> bool:
        """Whether files that somebody reads by path may be stored into, as far as anybody knows."""
        return any(type(each) is not np.ndarray and _place(each) is None for each in self._targets)

    def _may_be(self, source: Any) -> bool:
        if source is not None and not _is_array(source):
            return False
        return any(_may_be_same(_unwrapped(source), target) for target in self._targets)

    @cached_property
    def _targets(self) -> list[Any]:
        found = {id(each): each for node in self._nodes.values() for each in self._targets_of(node)}
        return list(map(_unwrapped, found.values()))

    def _targets_of(self, node: Any) -> Iterator[Any]:
        task = unheld(node, self._nodes.get)
        if type(task) is not Task:
            return
        if type(task.func) is MethodType and not self._bodies.of(task.func.__self__, _stores):
            task = Task(None, tuple, *task.args)  # only what it is given
        for call in calls_of(task):
            if is_store(call):
                yield _value(call.args[1], self._nodes) if len(call.args) > 1 else None


def _value(given: Any, nodes: Mapping[Key, GraphNode]) -> Any:
    """An argument, or what it refers to; None if nobody knows what that is."""
    node = nodes.get(given.key) if isinstance(given, TaskRef) else given
    if type(node) is DataNode:
        return node.value
    return () if given is None else node


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and not isinstance(value, (np.generic, GraphNode))


def _stores(body: Any) -> bool:
    return any(map(is_store, calls_of(body)))


def _unwrapped(value: Any) -> Any:
    """The array in layers of adapters, such as those of xarray."""
    for _ in range(_WRAPPED):
        if isinstance(value, np.ndarray) or _place(value) is not None:
            break
        inner = getattr(value, "array", None)
        inner = getattr(value, "_array", None) if inner is None else inner
        if inner is None:
            break
        value = inner
    return value


def _place(value: Any) -> str | None:
    """Where a Zarr array lives; None for anything else."""
    if type(value).__module__.partition(".")[0] != "zarr":
        return None
    store, path = getattr(value, "store", None), getattr(value, "path", None)
    if store is None or path is None:
        return None
    if type(store).__name__ == "MemoryStore":
        return f"{store}/{path}"
    # one file may be opened through a file system or without; what has neither is unknown
    root = getattr(store, "root", None) or getattr(store, "path", None)
    return None if root is None else os.path.realpath(os.path.join(str(root), path))


def _may_be_same(source: Any, target: Any) -> bool:
    pair = source, target
    in_memory = [isinstance(each, np.ndarray) for each in pair]
    if all(in_memory):
        return bool(np.may_share_memory(source, target)) or all(map(_is_mapped, pair))
    if any(in_memory):  # a file is not an array in memory, but an object may well hold one
        array, other = pair if in_memory[0] else pair[::-1]
        return _is_mapped(array) or not _is_file(other)
    places = [_place(each) for each in pair]
    return None in places or places[0] == places[1]


def _is_mapped(array: Any) -> bool:
    """Whether an array is a view of a file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return isinstance(array, mmap.mmap)


def _is_file(value: Any) -> bool:
    name = type(value).__module__
    return name.partition(".")[0] in _FILES or name.startswith("xarray.backends.")
