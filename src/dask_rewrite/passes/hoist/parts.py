"""What objects are made of, as far as it is pickled with them."""

from __future__ import annotations

from collections.abc import Collection
from types import FunctionType
from typing import Any

import cloudpickle
from dask._task_spec import DataNode, GraphNode, NestedContainer, Task


def inside(value: Any) -> Collection[Any]:
    """What a container or a node holds."""
    if isinstance(value, dict):
        return value.values()
    if type(value) is Task:
        return (value.func, *value.args, *value.kwargs.values())
    if isinstance(value, NestedContainer):
        return value.args
    if isinstance(value, GraphNode):
        return (value.value,) if type(value) is DataNode else ()
    items: Collection[Any] = value
    return items


def members_of(kind: type) -> list[Any]:
    """What a class is made of, without the descriptors that it is given by Python."""
    found = [getattr(member, "__func__", member) for member in vars(kind).values()]
    return [each for each in found if type(each) is FunctionType or not hasattr(type(each), "__get__")]


def handed_over(value: Any) -> list[Any]:
    """What an object with a way of its own to be pickled hands to pickle."""
    reduce = cloudpickle.Pickler.dispatch_table.get(type(value))
    found = value.__reduce_ex__(5) if reduce is None else reduce(value)
    if isinstance(found, str):  # the name of something global
        return []
    return [*found[:3], *[list(items) for items in found[3:5] if items is not None]]
