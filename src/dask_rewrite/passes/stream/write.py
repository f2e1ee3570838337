"""Writing slabs, and what combines them, as tasks."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from dask._task_spec import GraphNode, List, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.lists import parts_of
from dask_rewrite.graph.names import JOINED, mark, unmarked
from dask_rewrite.graph.nodes import cast_to, list_of, needs_of, under
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.outline import Outliner
from dask_rewrite.passes.stream.slabs import Slab


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


def slab_task(key: Key, slab: Slab, result: Any, nodes: Mapping[Key, GraphNode], outliner: Outliner) -> Task:
    """One task for a slab and an expression over its members: a program, which all slabs share."""
    tasks: dict[Key, Any] = {member: nodes[member] for member in reversed(slab.members)}
    producer = any(task.data_producer for task in tasks.values())
    if len(tasks) > 1:
        return outliner.program(key, tasks, result, producer)
    (task,) = tasks.values()
    if not isinstance(result, TaskRef):
        task = outliner.apart(with_values(result, tasks))
    return under(key, task, producer)
