"""Writing slabs, and what combines them, as tasks."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, List, NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.lists import parts_of
from dask_rewrite.graph.names import JOINED, mark, unmarked
from dask_rewrite.graph.nodes import (
    Deps,
    call_with_dict,
    cast_to,
    list_of,
    make_container,
    nameless,
    needs_of,
    under,
)
from dask_rewrite.graph.program import Programs, operation, shape_of
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.stream.slabs import Slab

#: Literals that may stand in a program: the same for all slabs, as a rule.
_PLAIN = frozenset([int, float, str, bool, type(None), slice, tuple, type, np.dtype])


def joined_key(keys: Sequence[Key], token: str, *more: int) -> Key:
    """The name of a task that gives the results of several: theirs, joined, with the place of the first.

    >>> joined_key([("mean-1", 3), ("std-2", 3)], "00c0ffee")
    ('mean-1+std-2-r00c0ffee', 3)
    """
    names = dict.fromkeys([unmarked(str(key[0])) for key in keys if type(key) is tuple])
    first = keys[0]
    assert type(first) is tuple
    return (mark(JOINED.join(names), token), *first[1:], *more)


def part(key: Key, number: int, of: int) -> Any:
    """One of the results of a task that gives several."""
    return TaskRef(key) if of == 1 else operation(operator.getitem, (TaskRef(key), number))


def together(results: Sequence[Any]) -> Any:
    """Several results as one."""
    if len(results) == 1:
        return results[0]
    return cast_to(tuple, None, tuple(results), needs_of(results))


def combined(task: Any, parts: Sequence[Any]) -> Task:
    """What a combining task does, of other partial results."""
    nested: Any = list_of(parts)
    depth, inner = 0, parts_of(task.args[0])
    while inner and (inner := parts_of(inner[0])) is not None:
        depth += 1
    for _ in range(depth):
        nested = List(nested)
    return operation(task.func, (nested,))


def slab_task(key: Key, slab: Slab, result: Any, nodes: Mapping[Key, GraphNode], programs: Programs) -> Task:
    """One task for a slab and an expression over its members: a program, which all slabs share.

    What differs from slab to slab, such as which block is read, is given to the program.
    """
    tasks: dict[Key, Any] = {member: nodes[member] for member in reversed(slab.members)}
    producer = any(task.data_producer for task in tasks.values())
    if len(tasks) == 1 and isinstance(result, TaskRef):
        (task,) = tasks.values()
        return under(key, task, producer)
    if len(tasks) == 1:
        return under(key, with_values(result, tasks), producer)
    outline = _Outline(tasks)
    steps = [(member, made) for member in tasks if (made := outline.member(member)) is not None]
    if not isinstance(result, TaskRef):  # else it is that of the last task
        steps.append((key, outline.expression(result)))
    shapes = [shape_of(task) for _, task in steps]
    functions = programs.of(steps, {name: name for name in outline.given}, shapes)
    return call_with_dict(key, functions, outline.given, outline.needs, producer)


class _Outline:
    """Takes out of the tasks of a slab what does not depend on others of them."""

    def __init__(self, tasks: Mapping[Key, Any]) -> None:
        self._tasks = tasks
        self._known: dict[Key, TaskRef] = {}
        #: what the program is given, and what that depends on
        self.given: dict[str, Any] = {}
        self.needs: Deps = frozenset()

    def member(self, key: Key) -> Task | None:
        """The step of a task; None if it is given to the program as a whole."""
        task = self._tasks[key]
        if task._dependencies.isdisjoint(self._tasks):
            self._known[key] = self._give(nameless(task))
            return None
        made = self.expression(task)
        assert isinstance(made, Task)
        return made

    def expression(self, node: Any) -> Any:
        """An expression over members and names; as deep as tasks nest, which is bounded."""
        kind = type(node)
        if kind is TaskRef:
            if node.key in self._known:
                return self._known[node.key]
            if node.key in self._tasks:
                return node
            made = self._known[node.key] = self._give(node)
            return made
        if not isinstance(node, GraphNode):
            return node if kind in _PLAIN else self._give(node)
        if node._dependencies.isdisjoint(self._tasks):
            return self._give(node)
        if kind is Task:
            task: Any = node
            args = tuple(map(self.expression, task.args))
            kwargs = {name: self.expression(value) for name, value in task.kwargs.items()}
            return operation(task.func, args, kwargs)
        if isinstance(node, NestedContainer):
            args = tuple(map(self.expression, node.args))
            return make_container(node, args, operation(tuple, args)._dependencies)
        return node.substitute({dep: self._known[dep].key for dep in node._dependencies & self._known.keys()})

    def _give(self, value: Any) -> TaskRef:
        name = f"x{len(self.given)}"
        self.given[name] = value
        if type(value) is TaskRef:
            self.needs |= {value.key}
        elif isinstance(value, GraphNode):
            self.needs |= value._dependencies
        return TaskRef(name)
