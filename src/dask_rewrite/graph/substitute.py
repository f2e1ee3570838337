"""Substitution: expressions, values or other references in the place of the references of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, overload

from dask._task_spec import DataNode, GraphNode, NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.kinds import ALIAS, FUTURE, ITEMS, KINDS, RAW
from dask_rewrite.graph.nodes import GATHERING, make_container, make_task, nameless, needs_of

_NOTHING = object()


@overload
def with_values(node: Task, values: Mapping[Any, Any]) -> Task: ...


@overload
def with_values(node: GraphNode, values: Mapping[Any, Any]) -> GraphNode: ...


def with_values(node: GraphNode, values: Mapping[Any, Any]) -> GraphNode:
    """The same node with something else in place of some of its references; nodes are shallow.

    Parameters
    ----------
    node : GraphNode
        The same object comes back if it refers to nothing that is replaced.
    values : mapping
        By key what stands for it: a node, another reference, or plain data.

    Examples
    --------
    >>> import operator
    >>> task = Task("y", operator.add, TaskRef("a"), TaskRef("b"))
    >>> with_values(task, {"b": TaskRef("a")}).args
    (TaskRef('a'), TaskRef('a'))
    >>> sorted(with_values(task, {"b": Task("b", abs, TaskRef("c"))}).dependencies)
    ['a', 'c']
    >>> with_values(task, {"b": None}).args
    (TaskRef('a'), None)
    """
    old = node._dependencies
    if values.keys().isdisjoint(old):
        return node
    if not (type(node) is Task or KINDS[type(node)] == ITEMS):
        return node.substitute({key: _for_dask(key, values[key]) for key in old if key in values})
    task: Any = node
    gained: set[Key] = set()  # what is put in depends on this
    args = tuple(_filled(task.args, values, gained))
    deps = old.difference(values).union(gained) if len(old) > 1 else frozenset(gained)
    if type(node) is not Task:
        return make_container(task, args, deps)
    kwargs = task.kwargs
    if kwargs and id(task.func) not in GATHERING:
        kwargs = dict(zip(kwargs, _filled(kwargs.values(), values, gained)))
        deps |= gained
    return make_task(task.key, task.func, args, kwargs, deps, task._data_producer)


def _filled(args: Iterable[Any], values: Mapping[Any, Any], gained: set[Key]) -> list[Any]:
    filled: list[Any] = []
    for arg in args:
        found: Any = _NOTHING
        if type(arg) is TaskRef:
            found = values.get(arg.key, _NOTHING)
        elif (kind := KINDS[type(arg)]) == RAW:
            pass
        elif kind == FUTURE:
            found = values.get(arg.key, _NOTHING)
        elif kind == ALIAS:  # in an argument it is worth what it names
            found = values.get(arg.target, _NOTHING)
        elif arg._dependencies:
            made = with_values(arg, values)
            if made is not arg:
                arg = made
                gained |= made._dependencies
        if found is not _NOTHING:
            arg = found
            if type(found) is Task:
                arg = nameless(found)
                gained |= found._dependencies
            elif isinstance(found, TaskRef):
                gained.add(found.key)
            elif isinstance(found, GraphNode):
                gained |= found.dependencies
        filled.append(arg)
    return filled


def _for_dask(key: Key, value: Any) -> Any:
    """What stands for a key, as dask's own substitution takes it."""
    if isinstance(value, TaskRef):
        return value.key
    return value if isinstance(value, GraphNode) else DataNode(key, value)


def replaced(node: Any, instead: Mapping[int, Any]) -> Any:
    """A task with other expressions in the place of some of those nested in it, which are found by identity.

    >>> import operator
    >>> inner = Task(None, abs, TaskRef("x"))
    >>> replaced(Task("y", operator.add, inner, 1), {id(inner): TaskRef("x0")}).args
    (TaskRef('x0'), 1)
    """
    if id(node) in instead:
        return instead[id(node)]
    if not isinstance(node, Task) or not node._dependencies:
        return node
    args = tuple([replaced(arg, instead) for arg in node.args])
    if type(node) is Task:
        kwargs = {name: replaced(arg, instead) for name, arg in node.kwargs.items()}
        return make_task(None, node.func, args, kwargs, needs_of((*args, *kwargs.values())))
    return make_container(node, args, needs_of(args)) if isinstance(node, NestedContainer) else node
