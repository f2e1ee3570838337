"""A task as a call of a template: what tasks have in common apart from what each has of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any

from dask._task_spec import DataNode, GraphNode, NestedContainer, Task, TaskRef

from dask_rewrite.nodes import NO_DEPS, make_container, make_task

#: Tells whether an object, or a function, belongs to the template rather than to the one task.
Common = Callable[[Any], bool]


def shape_of_call(task: Task, common: Common, own: Common) -> tuple[Hashable, list[Any]]:
    """What makes the templates of two tasks the same, and the inputs of this one.

    References, numbers and other things of its own are inputs; functions and what is ``common`` are
    not, except functions that are the task's ``own``.

    Examples
    --------
    >>> table = [1, 2]
    >>> task = Task("y", zip, TaskRef("x"), table, 3)
    >>> shape_of_call(task, lambda value: value is table, lambda function: False)[1]
    [TaskRef('x'), 3]
    """
    inputs: list[Any] = []
    return _shape(task, common, own, inputs), inputs


def _shape(node: Any, common: Common, own: Common, inputs: list[Any]) -> Hashable:
    if isinstance(node, Task):
        nested = isinstance(node, NestedContainer)
        if nested or type(node) is Task:
            shape: list[Any] = [type(node), id(node.func)]
            if not nested and own(node.func):
                inputs.append(node.func)
                shape[1] = None
            for arg in node.args:
                shape.append(_shape(arg, common, own, inputs))
            if node.kwargs and not nested:
                for name, arg in node.kwargs.items():
                    shape += (name, _shape(arg, common, own, inputs))
            return tuple(shape)
    if common(node.value if type(node) is DataNode else node):
        return id(node.value if type(node) is DataNode else node)
    inputs.append(node)
    return None


def template_of_call(task: Task, common: Common, own: Common) -> Task:
    """The template over ``x0``, ``x1``, ... of a task; see :func:`shape_of_call`.

    Examples
    --------
    >>> table = [1, 2]
    >>> task = Task("y", zip, TaskRef("x"), table, 3)
    >>> template_of_call(task, lambda value: value is table, lambda function: False).args
    (TaskRef('x0'), [1, 2], TaskRef('x1'))
    """
    made: Task = _template(task, common, own, [])
    return made


def _template(node: Any, common: Common, own: Common, names: list[str]) -> Any:
    nested = isinstance(node, NestedContainer)
    if nested or type(node) is Task:
        first = len(names)
        args: tuple[Any, ...] = ()
        func = node.func
        if not nested and own(func):
            func = operator.call
            args = (_input(names),)
        args += tuple([_template(arg, common, own, names) for arg in node.args])
        if nested:
            return make_container(node, args, frozenset(names[first:]))
        kwargs = {name: _template(arg, common, own, names) for name, arg in node.kwargs.items()}
        return make_task(None, func, args, kwargs, frozenset(names[first:]))
    value = node.value if type(node) is DataNode else node
    return value if common(value) else _input(names)


def _input(names: list[str]) -> TaskRef:
    names.append(f"x{len(names)}")
    return TaskRef(names[-1])


def inputs_of_call(inputs: list[Any]) -> tuple[Task]:
    """The arguments with which the template is called.

    Examples
    --------
    >>> inputs_of_call([TaskRef("x"), 3])[0].kwargs
    {'x0': TaskRef('x'), 'x1': 3}
    """
    deps = NO_DEPS
    named: dict[str, Any] = {}
    for i, value in enumerate(inputs):
        named[f"x{i}"] = value
        if isinstance(value, TaskRef):
            deps = deps | {value.key}
        elif isinstance(value, GraphNode):
            deps = deps | value.dependencies
    return (make_task(None, dict, (), named, deps),)
