"""Batches: one task that makes, as a list, what many tasks of one form would make one by one.

``[template(row) for row in rows of inputs]``, in functions of the standard library and of dask only. The
inputs come as columns, one value for each row: another batch, some of the results of one, or a list. What
calls the template is `ndeepmap`, since ``map`` would take a ``StopIteration`` of the user for the end.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import chain, repeat
from types import MethodType
from typing import Any

from dask._task_spec import List, Task, TaskRef
from dask.typing import Key
from dask.utils import ndeepmap

from dask_rewrite.graph.nodes import NO_DEPS, NO_KWARGS, make_task, needs_of
from dask_rewrite.graph.substitute import with_values


def batch(key: Key, template: Any, columns: Sequence[Any], rows: int, producer: bool = False) -> Task:
    """The task that calls a template once for each row.

    Parameters
    ----------
    key : Key
        The key of the task.
    template : bound method
        ``Task.__call__`` of a task over the names ``x0``, ``x1``, ...
    columns : sequence
        By input its values in all rows: nodes or references that give them, or a list of them.
    rows : int
        How many rows there are.
    producer : bool
        Whether the task loads or creates data.

    Examples
    --------
    >>> body = Task(None, operator.add, TaskRef("x0"), TaskRef("x1"))
    >>> made = batch("y", body.__call__, [TaskRef("x"), [1, 2]], 2)
    >>> made({"x": [10, 20]})
    [11, 22]
    """
    deps = needs_of(columns)
    if columns:
        names = make_task(None, repeat, (tuple([f"x{i}" for i in range(len(columns))]), rows), {}, NO_DEPS)
        cells = make_task(None, zip, tuple(columns), NO_KWARGS, deps)
        pairs = make_task(None, map, (zip, names, cells), NO_KWARGS, deps)
        values = make_task(None, map, (dict, pairs), NO_KWARGS, deps)
    else:
        values = make_task(None, repeat, ({}, rows), NO_KWARGS, NO_DEPS)
    return make_task(key, ndeepmap, (1, template, values), NO_KWARGS, deps, producer)


def one_of(results: Key, row: int | slice) -> Task:
    """One of the results of a batch, or some of them, as an expression.

    >>> one_of("y", 1)({"y": [11, 22]})
    22
    """
    return make_task(None, operator.getitem, (TaskRef(results), row), NO_KWARGS, frozenset([results]))


def is_batch(node: Any) -> bool:
    """Whether a task is a batch."""
    if type(node) is not Task or node.func is not ndeepmap or type(node.args[1]) is not MethodType:
        return False
    return type(node.args[1].__self__) is Task and type(node.args[2]) is Task


def shared_by(node: Any) -> list[Task]:
    """What a batch computes once for all of its rows."""
    columns = node.args[2].args[1].args[2].args if is_batch(node) and node.args[2].func is map else ()
    return [column.args[0] for column in columns if type(column) is Task and column.func is repeat]


def tasks_of(node: Any, once: bool = False) -> list[Any] | None:
    """What a batch computes, row by row, as expressions; None for anything else.

    With ``once``, without what is computed once for all rows, see :func:`shared_by`.

    Examples
    --------
    >>> body = Task(None, operator.add, TaskRef("x0"), TaskRef("x1"))
    >>> made = batch("y", body.__call__, [TaskRef("x"), [1, 2]], 2)
    >>> [task.args[1] for task in tasks_of(made)]
    [1, 2]
    >>> tasks_of(body) is None
    True
    """
    if (found := cells_of(node, once)) is None:
        return None
    body, columns, rows = found
    if not columns:
        return [body] * rows
    return [with_values(body, dict(zip(columns, row))) for row in zip(*columns.values())]


def cells_of(node: Any, once: bool = False) -> tuple[Task, dict[str, Sequence[Any]], int] | None:
    """The template of a batch, by name what each input is in all rows, and how many rows there are.

    None for anything else; ``once`` as for :func:`tasks_of`.

    Examples
    --------
    >>> body = Task(None, operator.add, TaskRef("x0"), 1)
    >>> cells_of(batch("y", body.__call__, [[1, 2]], 2))[1:]
    ({'x0': [1, 2]}, 2)
    """
    if not is_batch(node):
        return None
    body, values = node.args[1].__self__, node.args[2]
    if values.func is repeat:
        return body, {}, values.args[1]
    names, cells = values.args[1].args[1:]
    rows = names.args[1]
    return body, dict(zip(names.args[0], [_cells(column, rows, once) for column in cells.args])), rows


def _cells(column: Any, rows: int, once: bool = False) -> Sequence[Any]:
    """What a column gives in each row."""
    if type(column) is TaskRef:
        return [one_of(column.key, row) for row in range(rows)]
    if type(column) is List:
        return column.args
    if type(column) is not Task:
        return list(column)
    if column.func is repeat:
        return [None if once and type(column.args[0]) is Task else column.args[0]] * rows
    if column.func is chain:
        return [cell for part in column.args for cell in _cells(part, rows)]
    results = column.args[0].key
    if column.func is operator.getitem:
        part = column.args[1]
        return [one_of(results, row) for row in range(part.start, part.stop)]
    picked: Any = column.func.__reduce__()  # operator.itemgetter
    return [one_of(results, row) for row in picked[1]]
