"""Tasks that wait for others before they give what they give, as those of `dask.graph_manipulation.bind`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef
from dask.graph_manipulation import chunks
from dask.typing import Key

from dask_rewrite.graph.nodes import NO_KWARGS, make_task
from dask_rewrite.graph.program import operation


def gate(key: Key, needs: Sequence[Key]) -> Task:
    """A task without a result that is done once others are.

    >>> sorted(gate("gate", ["x", "y"]).dependencies)
    ['x', 'y']
    """
    return make_task(key, chunks.checkpoint, tuple(map(TaskRef, needs)), NO_KWARGS, frozenset(needs))


def waiting(node: GraphNode | TaskRef, waits: Sequence[TaskRef]) -> Task:
    """What a node gives, once others are done.

    By keywords, which dask evaluates one by one: a ``StopIteration`` would end the evaluation of positional
    arguments without an error.

    Examples
    --------
    >>> sorted(waiting(Task(None, abs, TaskRef("x")), [TaskRef("gate")]).dependencies)
    ['gate', 'x']
    """
    named = {f"after{i}": wait for i, wait in enumerate(waits)}
    return operation(chunks.bind, (), {"node": node, **named})


def first_argument(task: Task) -> Any:
    """The first argument of a call, as which a gate passes on what it waits with; None if there is none.

    >>> first_argument(waiting(TaskRef("x"), [TaskRef("gate")]))
    TaskRef('x')
    """
    return task.args[0] if task.args else task.kwargs.get("node")


def ungated(node: GraphNode | None) -> GraphNode | None:
    """What a task gives that waits for others before it does.

    >>> ungated(waiting(Task("y", abs, -1), [TaskRef("gate")]))
    <Task 'y' abs(...)>
    """
    while type(node) is Task and node.func is chunks.bind:
        inner = first_argument(node)
        if isinstance(inner, TaskRef):
            return Alias(node.key, inner.key)
        node = inner if isinstance(inner, GraphNode) else DataNode(node.key, inner)
    return node
