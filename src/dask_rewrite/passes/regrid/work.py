"""Which tasks work element by element."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Hashable
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, Task, TaskRef
from dask.array import routines

from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.elementwise import ELEMENTWISE
from dask_rewrite.graph.nodes import literal
from dask_rewrite.graph.program import shape_of
from dask_rewrite.graph.templates import opened
from dask_rewrite.passes.movement.moves import GETITEMS

#: Functions of the table that look at some of their arguments as a whole, or take lists of blocks.
_OTHERS = (builtins.sum, functools.reduce, np.digitize, of_dask(routines, "_isin_kernel"))
_ELEMENTWISE = frozenset(ELEMENTWISE).difference(_OTHERS)
#: Tasks are looked into down to this depth.
_DEPTH = 16


def works_by_element(node: Any, depth: int = _DEPTH, slices: bool = False) -> bool:
    """Only elementwise functions are called, on references, on other such calls, and on scalars.

    With ``slices`` they may be called on slices of references, too.

    Examples
    --------
    >>> import operator
    >>> works_by_element(Task("y", operator.add, TaskRef("x"), 1))
    True
    >>> works_by_element(Task("y", operator.add, TaskRef("x"), np.arange(3)))
    False
    """
    if type(node) is not Task or not depth:
        return False
    func = node.func
    if type(func) is MethodType:
        inside = opened(node)
        return (
            inside is not None
            and type(inside.func) is not MethodType
            and works_by_element(inside, depth, slices)
        )
    while type(func) is partial and not func.args:
        func = func.func
    try:
        if func not in _ELEMENTWISE:
            return False
    except TypeError:  # not hashable
        return False
    for arg in node.args:
        if type(arg) is Task:
            if not (slices and id(arg.func) in GETITEMS and type(arg.args[0]) is TaskRef) and (
                not works_by_element(arg, depth - 1, slices)
            ):
                return False
        elif type(arg) is not TaskRef and not _is_scalar(literal(arg)):
            return False
    return not any(isinstance(arg, (GraphNode, TaskRef, np.ndarray)) for arg in node.kwargs.values())


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (type, np.dtype)) or np.isscalar(value)


def same_work(start: Task, task: Any, shape: Hashable = None) -> list[Any] | None:
    """What a task refers to, in order, if it does the same as another to other blocks; None if not.

    Who asks this of many tasks gives the shape of the first one.

    Examples
    --------
    >>> import operator
    >>> one, two = Task("a", operator.add, TaskRef("x"), 1), Task("b", operator.add, TaskRef("y"), 1)
    >>> same_work(one, two)
    ['y']
    """
    if type(task) is not Task or task.func is not start.func or len(task.args) != len(start.args):
        return None
    if not task.kwargs and not start.kwargs:
        refs = [arg.key for arg in task.args if type(arg) is TaskRef]
        if len(refs) == len(task.args):
            return refs if all(type(arg) is TaskRef for arg in start.args) else None
    mine, used = shape_of(task)
    return used if mine == (shape or shape_of(start)[0]) else None
