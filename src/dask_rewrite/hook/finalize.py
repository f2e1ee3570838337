"""A slim finalize task: what puts blocks together needs no graph.

xarray's postcompute function is a bound method of the whole Dataset, raw graph included. Its twin keeps
everything but that graph; it is made with dask's own protocol alone, and only of types that are known
to come back whole from it.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from dask._task_spec import Task
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_rewrite.graph.nodes import make_task

#: Types that are known to round-trip, by module and name, so that nothing needs to be imported.
HOLLOWABLE = frozenset(
    {
        ("xarray.core.dataset", "Dataset"),
        ("xarray.core.dataarray", "DataArray"),
        ("xarray.core.variable", "Variable"),
        ("xarray.core.variable", "IndexVariable"),
        ("xarray.namedarray.core", "NamedArray"),
    }
)


def slim(task: Task) -> Task:
    """The finalize task with bound methods of known collections rebound to hollow twins."""
    func = slim_value(task.func)
    args = tuple([slim_value(arg) for arg in task.args])
    if func is task.func and all(a is b for a, b in zip(args, task.args)):
        return task
    return make_task(task.key, func, args, task.kwargs, task._dependencies, task._data_producer)


def slim_value(value: Any) -> Any:
    """A bound method of a known collection, rebound to its hollow twin; anything else as it is."""
    if isinstance(value, MethodType):
        kind = type(value.__self__)
        if (kind.__module__, kind.__qualname__) in HOLLOWABLE:
            return getattr(hollow(value.__self__), value.__name__)
    return value


def hollow(collection: Any) -> Any:
    """An equal collection whose dask arrays have no tasks: only the names of their layers."""
    rebuild, state = collection.__dask_postpersist__()
    names = collection.__dask_layers__()
    graph = HighLevelGraph({name: MaterializedLayer({}) for name in names}, {name: set() for name in names})
    return rebuild(graph, *state)
