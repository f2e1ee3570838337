"""What the rules of the single functions take and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from dask._task_spec import GraphNode, List, Task, TaskRef

from dask_rewrite.analysis.facts import UNKNOWN
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.analysis.knowledge.known import through_partials
from dask_rewrite.graph.nodes import list_of, literal
from dask_rewrite.passes.demand.boxes import Box, Shape, shape_of, whole
from dask_rewrite.passes.steps import Step, Values


class Part(NamedTuple):
    """Stands in an argument for a box of a block."""

    of: Any  # a reference, or an array
    box: Box


class Narrowed(NamedTuple):
    """How a call is made for a box of its result."""

    box: Box  # what it gives: the box that was asked for, or a larger one
    args: list[Any]  # with parts in the place of blocks
    kwargs: Mapping[str, Any] | None = None  # where they change
    func: Any = None  # where it changes


class Unreadable(Exception):
    """An argument that should be known is not."""


@dataclass(slots=True)
class Call:
    """A step's call, seen through ``partial``.

    Parameters
    ----------
    func : callable
        The function itself.
    args : list
        All positional arguments, those that stand in the task as data by their value.
    kwargs : dict
        All keywords.
    shape : tuple of int
        Shape of the result.
    values : Values
        What is known of the references.
    """

    func: Any
    args: list[Any]
    kwargs: dict[str, Any]
    shape: Shape
    values: Values

    @classmethod
    def through(
        cls, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], shape: Shape, values: Values
    ) -> Call:
        """The call that is left of one through any number of ``partial``."""
        func, args, kwargs = through_partials(func, args, kwargs)
        return cls(func, list(args), dict(kwargs), shape, values)

    def value(self, arg: Any) -> Any:
        """What is known of an argument."""
        if type(arg) is TaskRef:
            return self.values.get(arg.key, UNKNOWN)
        return arg

    def shape_of(self, arg: Any) -> Shape | None:
        """The shape of an argument that is a block, None for anything else."""
        if type(arg) is TaskRef:
            value = self.value(arg)
            if value is UNKNOWN:
                raise Unreadable
            return shape_of(value)
        return arg.shape if type(arg) is np.ndarray else None

    def block(self, arg: Any) -> Shape:
        """The shape of an argument that has to be a block."""
        shape = self.shape_of(arg)
        if shape is None:
            raise Unreadable
        return shape


def call_of(step: Step, values: Values) -> Call | None:
    """The call of a step; None if its result is not known to be one block, or keywords hold blocks."""
    is_scalar = type(step.value) is Fact and step.value.scalar
    shape = () if is_scalar else shape_of(step.value)
    if shape is None:
        return None
    task = step.task
    func, kwargs = task.func, task.kwargs
    args = [literal(arg) for arg in task.args]
    if any(isinstance(arg, (GraphNode, TaskRef)) for arg in kwargs.values()):
        return None
    if any(type(arg) is Task for arg in args):
        return None
    return Call.through(func, args, kwargs, shape, values)


#: From a call and the box of its result to how it is made; None or `Unreadable` if that cannot be told.
Rule: TypeAlias = Callable[[Call, Box], Narrowed | None]


def mapped(call: Call, arg: Any, part: Callable[[Shape], Box]) -> Any:
    """The argument with parts in the place of its blocks, also in lists."""
    if type(arg) is List:
        return list_of([mapped(call, each, part) for each in arg.args])
    shape = call.shape_of(arg)
    return arg if not shape else Part(arg, part(shape))


def everything(call: Call, arg: Any) -> Any:
    """All of an argument."""
    return mapped(call, arg, whole)
