"""The nested view of a called template, for passes that look inside tasks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import Any

from dask._task_spec import Alias, GraphNode, NestedContainer, Task, TaskRef

from dask_rewrite.graph.nodes import NO_KWARGS, make_container, make_task
from dask_rewrite.graph.program import operation


def template_of(node: Any) -> tuple[Task, dict[str, Any]] | None:
    """The template of a called template and the inputs that it is called with; None for anything else.

    Examples
    --------
    >>> import operator
    >>> template = Task(None, operator.neg, TaskRef("x0"))
    >>> call = Task("y", template.__call__, Task(None, dict, x0=TaskRef("x")))
    >>> template_of(call)[1]
    {'x0': TaskRef('x')}
    """
    if type(node) is not Task or type(node.func) is not MethodType or len(node.args) != 1 or node.kwargs:
        return None
    template, held = node.func.__self__, node.args[0]
    if not isinstance(template, Task) or type(held) is not Task or held.func is not dict or held.args:
        return None
    return template, held.kwargs


def opened(node: Any) -> Task | None:
    """A called template as nested tasks under the same key; None for anything else.

    Examples
    --------
    >>> import operator
    >>> template = Task(None, operator.add, TaskRef("x0"), 1)
    >>> call = Task("y", template.__call__, Task(None, dict, x0=TaskRef("x")))
    >>> task = opened(call)
    >>> task.key, task.func.__name__, task.args
    ('y', 'add', (TaskRef('x'), 1))
    """
    found = template_of(node)
    if found is None:
        return None
    template, inputs = found
    body = _filled(template, inputs)
    if type(body) is not Task:
        return None
    return make_task(node.key, body.func, body.args, body.kwargs, node._dependencies, node._data_producer)


def _filled(node: Any, inputs: Mapping[Any, Any]) -> Any:
    if isinstance(node, TaskRef):
        return inputs[node.key]
    if not isinstance(node, GraphNode) or not node.dependencies:
        return node
    if type(node) is Task:
        args = [_filled(arg, inputs) for arg in node.args]
        kwargs = {k: _filled(v, inputs) for k, v in node.kwargs.items()} if node.kwargs else NO_KWARGS
        return operation(node.func, args, kwargs)
    if type(node) is Alias:
        return inputs[node.target]
    if isinstance(node, NestedContainer):
        args = [_filled(arg, inputs) for arg in node.args]
        deps = operation(list, args)._dependencies
        return make_container(node, tuple(args), deps)
    return node.substitute({name: inputs[name] for name in node.dependencies})
