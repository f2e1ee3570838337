"""Writes into an array that nobody else has yet, as one expression of standard functions."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from dask._task_spec import GraphNode, List, Task, TaskRef
from toolz import last

from dask_rewrite.graph.program import operation


def written(block: TaskRef, indices: Sequence[Any], values: Sequence[Any] | Task) -> Task:
    """``block[index] = value`` for each pair in turn; its result is the block.

    For a step of a program that has just made the block. Values may be references, or all of them one task.

    Examples
    --------
    >>> import numpy as np
    >>> task = written(TaskRef("x"), [0, slice(1, 3)], [7, 8])
    >>> task({"x": np.zeros(4, int)})
    array([7, 8, 8, 0])
    """
    given: Any = values if isinstance(values, Task) else list(values)
    if given is not values and any(isinstance(value, (GraphNode, TaskRef)) for value in given):
        given = List(*given)
    again = operation(repeat, (block,))
    writes = operation(map, (operator.setitem, again, list(indices), given))
    return operation(last, (List(operation(deque, (writes, 0)), block),))


def written_block(task: Task) -> GraphNode | TaskRef | None:
    """What an expression of :func:`written` writes into, and returns; None for any other task.

    Examples
    --------
    >>> written_block(written(TaskRef("x"), [0], [7]))
    TaskRef('x')
    >>> written_block(Task(None, last, [1, 2])) is None
    True
    """
    if task.func is not last or len(task.args) != 1 or type(task.args[0]) is not List:
        return None
    parts = task.args[0].args
    if len(parts) != 2 or type(parts[0]) is not Task or parts[0].func is not deque:
        return None
    writes = parts[0].args[0]
    if type(writes) is not Task or writes.func is not map or writes.args[0] is not operator.setitem:
        return None
    block: GraphNode | TaskRef = parts[1]
    return block
