"""What a value is to conversion, looked up by its type: a reference, a node, a container, or just a value."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, NestedContainer, TaskRef

#: What a type of value means for conversion; the order is used in comparisons.
TUPLE, ATOM, CONTAINER, NODE, ITEMS, REF, ALIAS, FUTURE, RAW = range(9)

#: Types that are remembered.
MOST = 10_000


class Kinds(dict[type, int]):
    """Kinds by type, found out when a type is first met."""

    def __missing__(self, kind: type) -> int:
        found = self.classify(kind)
        if len(self) < MOST:  # a type that is kept here never goes
            self[kind] = found
        return found

    @staticmethod
    def classify(kind: type) -> int:
        """For arguments of task nodes: a value is a reference, a node, or just a value."""
        if issubclass(kind, GraphNode):
            return ALIAS if kind is Alias else ITEMS if issubclass(kind, NestedContainer) else NODE
        if issubclass(kind, TaskRef):
            return REF if kind is TaskRef else FUTURE
        return RAW


class LegacyKinds(Kinds):
    @staticmethod
    def classify(kind: type) -> int:
        """For values of legacy tasks, which may be keys and may hold keys."""
        if issubclass(kind, GraphNode):
            return NODE
        if issubclass(kind, TaskRef):
            return REF if kind is TaskRef else FUTURE
        if getattr(kind, "__dask_future__", False) is True:  # schedulers other than distributed's
            return FUTURE
        if issubclass(kind, tuple):
            return TUPLE
        if issubclass(kind, (int, float, str)):
            return ATOM
        return CONTAINER if issubclass(kind, (list, set, frozenset)) else RAW


def is_future(value: object) -> bool:
    """Whether a value stands for what a scheduler holds: all other references are of dask's own class."""
    return isinstance(value, TaskRef) and type(value) is not TaskRef


def is_call(value: object) -> bool:
    """Whether a value is a task written as a tuple: a function, and what it is given.

    >>> is_call((len, "x")), is_call(("x", 0)), is_call(())
    (True, False, False)
    """
    return type(value) is tuple and bool(value) and callable(value[0])


def name_in(value: Any) -> Any:
    """What may be the key of another task, or None.

    >>> name_in(("x", 0)), name_in(TaskRef("x")), name_in((len, "x"))
    (('x', 0), 'x', None)
    """
    if type(value) is TaskRef:
        return value.key
    return value if type(value) is str or (type(value) is tuple and not is_call(value)) else None


def is_array(node: GraphNode | None) -> bool:
    """Whether a node is an array at hand."""
    return type(node) is DataNode and type(node.value) is np.ndarray


KINDS = Kinds()
LEGACY_KINDS = LegacyKinds()
