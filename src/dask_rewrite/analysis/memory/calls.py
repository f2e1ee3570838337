"""The calls in a task, those of templates and programs included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dask._task_spec import GraphNode, NestedContainer, Task, TaskRef

from dask_rewrite.graph.batches import shared_by, tasks_of
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.graph.templates import frame_of


def calls_of(node: Any) -> Iterator[Task]:
    """The calls in a task; in templates and programs they are given what these are given."""
    stack: list[tuple[Any, Mapping[Any, Any]]] = [(node, {})]
    while stack:
        each, scope = stack.pop()
        if type(each) is Task:
            if (rows := tasks_of(each, once=True)) is not None:
                stack.extend([(row, scope) for row in (*shared_by(each), *rows)])
            elif (frame := frame_of(each)) is None:
                yield with_values(each, scope) if scope else each
                stack.extend([(arg, scope) for arg in (*each.args, *each.kwargs.values())])
            else:
                given = {name: _within(value, scope) for name, value in frame.inputs.items()}
                stack.extend([(value, {}) for value in given.values()])
                plain = {name: value for name, value in given.items() if not isinstance(value, GraphNode)}
                stack.extend([(body, plain) for body in frame.bodies])
        elif isinstance(each, NestedContainer):
            stack.extend([(arg, scope) for arg in each.args])


def _within(value: Any, scope: Mapping[Any, Any]) -> Any:
    """What a template is given, if that stands in another one."""
    if isinstance(value, TaskRef):
        return scope.get(value.key, value)
    return with_values(value, scope) if scope and isinstance(value, GraphNode) else value
