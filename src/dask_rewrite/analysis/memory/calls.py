"""The calls in a task, those of templates, of programs and of what dask fused included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MethodType
from typing import Any

from dask._task_spec import DataNode, GraphNode, NestedContainer, Task, TaskRef, _execute_subgraph
from dask.core import flatten
from toolz import pipe

from dask_rewrite.analysis.knowledge.loading import LOADING_IDS
from dask_rewrite.analysis.memory.stores import STORES
from dask_rewrite.graph.batches import shared_by, tasks_of
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.graph.templates import frame_of

_OUTSIDE = LOADING_IDS.union(map(id, STORES))


def reaches_out(node: Any, known: ByIdentity[bool]) -> bool:
    """Whether a task may read or write: it holds a function that does, at any depth.

    Parameters
    ----------
    node : object
        What may be a task.
    known : ByIdentity of bool
        What was found of templates, and of what dask fused, which many tasks share.

    Examples
    --------
    >>> from dask.array.core import getter
    >>> reaches_out(Task("y", abs, Task(None, getter, TaskRef("x"), ())), ByIdentity())
    True
    """

    def inside(shared: Any) -> bool:
        parts = shared.values() if type(shared) is dict else [shared]
        return any(reaches_out(each, known) for each in parts if isinstance(each, GraphNode))

    stack = [node]
    while stack:
        each = stack.pop()
        if type(each) is MethodType:
            if type(each.__self__) is Task and known.of(each.__self__, inside):
                return True
        elif type(each) is Task:
            func, args = each.func, each.args
            if id(func) in _OUTSIDE:
                return True
            if type(func) is MethodType:
                stack.append(func)
            stack += args
            if each.kwargs:
                stack += each.kwargs.values()
        elif isinstance(each, NestedContainer):
            stack += each.args
        elif type(each) is dict and known.of(each, inside):  # what dask fused
            return True
    return False


def calls_of(node: Any) -> Iterator[Task]:
    """The calls in a task; in templates and programs they are given what these are given."""
    stack: list[tuple[Any, Mapping[Any, Any]]] = [(node, {})]
    while stack:
        each, scope = stack.pop()
        if type(each) is Task:
            if each.func is _execute_subgraph:
                inner, _, names, *given = [_within(arg, scope) for arg in each.args]
                if type(inner) is dict:  # else a template is given it by another one
                    values = dict(zip(names, given))
                    stack.extend([(with_values(one, values), {}) for one in inner.values()])
            elif (rows := tasks_of(each, once=True)) is not None:
                stack.extend([(row, scope) for row in (*shared_by(each), *rows)])
            elif (frame := frame_of(each)) is None:
                yield with_values(each, scope) if scope else each
                stack.extend([(arg, scope) for arg in (*each.args, *each.kwargs.values())])
            else:
                values = {name: _within(value, scope) for name, value in frame.inputs.items()}
                stack.extend([(value, {}) for value in values.values()])
                plain = {name: value for name, value in values.items() if not _is_computed(value)}
                stack.extend([(body, plain) for body in frame.bodies])
        elif isinstance(each, NestedContainer):
            stack.extend([(arg, scope) for arg in each.args])


def _is_computed(value: Any) -> bool:
    return isinstance(value, GraphNode) and type(value) is not DataNode


def _within(value: Any, scope: Mapping[Any, Any]) -> Any:
    """What a template is given, if that stands in another one."""
    if isinstance(value, TaskRef):
        return scope.get(value.key, value)
    return with_values(value, scope) if scope and isinstance(value, GraphNode) else value


def put_together(node: Any) -> Task | None:
    """What a task puts together that makes it itself: the list that its last call is given; None for others.

    Examples
    --------
    >>> from dask._task_spec import List
    >>> body = Task(None, sorted, List(Task(None, abs, TaskRef("x0"))))
    >>> listed = put_together(Task("y", body.__call__, Task(None, dict, x0=TaskRef("x"))))
    >>> listed({"x": -3})
    [3]
    """
    if (frame := frame_of(node)) is None or not frame.bodies[-1].args:
        return None
    *steps, last = frame.bodies
    listed = last.args[0]
    if not isinstance(listed, NestedContainer):
        return None
    calls = [step.__call__ for step in (*steps, listed)]
    return operation(pipe, (operation(dict, (), frame.inputs), *calls))


def gathered(node: Task) -> Iterator[Any]:
    """What one result is made of: the parts of the nested lists that a task is given."""
    frame = frame_of(node)
    given = node.args if frame is None else [*frame.inputs.values()]
    parts = flatten(given, (list, tuple, NestedContainer))
    return (part for part in parts if isinstance(part, (GraphNode, TaskRef)))
