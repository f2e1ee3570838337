"""The form that many tasks share, and the columns of what differs in them; found column by column."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, repeat
from operator import attrgetter, is_
from types import MethodType
from typing import Any, NamedTuple

from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef

from dask_rewrite.graph.nodes import GATHERING, identity_of, make_container, make_task, needs_of
from dask_rewrite.graph.templates import is_template
from dask_rewrite.passes.share.tokens import Identity

_func, _args, _kwargs = attrgetter("func"), attrgetter("args"), attrgetter("kwargs")
_producer, _value = attrgetter("_data_producer"), attrgetter("value")


class Form(NamedTuple):
    """Tasks of one form.

    Parameters
    ----------
    rows : sequence of int
        Which of the tasks that were given these are.
    template : Task
        What all compute, over the names ``x0``, ``x1``, ...
    columns : list of sequences
        By name what stands in its place in each row: references, or literals.
    """

    rows: Sequence[int]
    template: Task
    columns: list[Sequence[Any]]


class _Differ(Exception):
    """Not all tasks are of one form: something that tells them apart, for each of them."""


class _Refused(Exception):
    """There is something in the tasks that cannot be taken apart."""


def forms(tasks: Sequence[Task]) -> list[Form]:
    """The forms of tasks, of which each has two tasks or more.

    Examples
    --------
    >>> tasks = [Task(i, pow, TaskRef(("x", i)), 2) for i in range(3)]
    >>> [(form.rows, form.template.args, len(form.columns)) for form in forms(tasks)]
    [(range(0, 3), (TaskRef('x0'), 2), 1)]
    """
    found: list[Form] = []
    waiting: list[Sequence[int]] = [range(len(tasks))] if len(tasks) > 1 else []
    while waiting:
        rows = waiting.pop()
        columns: list[Sequence[Any]] = []
        try:
            template = _common([tasks[row] for row in rows] if rows != range(len(tasks)) else tasks, columns)
        except _Refused:
            continue
        except _Differ as differ:
            parts: defaultdict[Any, list[int]] = defaultdict(list)
            for row, name in zip(rows, differ.args[0]):
                parts[name].append(row)
            waiting += [part for part in parts.values() if len(part) > 1]
        else:
            found.append(Form(rows, template, columns))
    return found


def _common(cells: Sequence[Any], columns: list[Sequence[Any]]) -> Any:
    """What stands in the template for these parts of the tasks, of which there is at least one."""
    first = cells[0]
    kinds = set(map(type, cells))
    if len(kinds) > 1 and any(issubclass(kind, (GraphNode, TaskRef)) for kind in kinds):
        raise _Differ(list(map(type, cells)))
    kind = type(first)
    if kind is Task:
        return _task(cells, columns)
    if kind is List:
        lengths = list(map(len, map(_args, cells)))
        _check_alike(lengths)
        args = _each(map(_args, cells), columns)
        return make_container(first, args, needs_of(args))
    if kind is DataNode:
        cells = list(map(_value, cells))
        first = cells[0]
    elif issubclass(kind, GraphNode) or (issubclass(kind, TaskRef) and kind is not TaskRef):
        raise _Refused
    if kind is not TaskRef and all(map(is_, cells, repeat(first))):
        return first
    return _column(cells, columns)


def _task(tasks: Sequence[Task], columns: list[Sequence[Any]]) -> Task:
    first = tasks[0]
    options = list(map(_kwargs, tasks))
    same_options = all(map(is_, options, repeat(first.kwargs)))
    func, called = first.func, list[TaskRef]()
    functions = list(map(_func, tasks))
    if not all(map(is_, functions, repeat(func))):
        names = _identities(functions)
        if len(set(names)) > 1 and all(map(_calls_template, functions)):
            func = operator.call  # they may hold the positions of blocks, as those of `argmax` do
            called.append(_column(functions, columns))
        else:
            _check_alike(names)
    _check_alike(list(map(len, map(_args, tasks))))
    _check_alike(list(map(_producer, tasks)))
    if not same_options:
        _check_alike(list(map(tuple, options)))
    args = (*called, *_each(map(_args, tasks), columns))
    kwargs = first.kwargs
    if kwargs and id(first.func) not in GATHERING:
        if not same_options or any(isinstance(value, (GraphNode, TaskRef)) for value in kwargs.values()):
            kwargs = dict(zip(kwargs, _each(map(dict.values, options), columns)))
    return make_task(None, func, args, kwargs, needs_of(chain(args, kwargs.values())))


def _calls_template(func: Any) -> bool:
    return is_template(func) and func.__func__ is Task.__call__


def _column(cells: Sequence[Any], columns: list[Sequence[Any]]) -> TaskRef:
    columns.append(cells)
    return TaskRef(f"x{len(columns) - 1}")


def _identities(functions: Sequence[Any]) -> list[Any]:
    """What tells functions apart; dask makes some partials and compositions anew for each block or array."""
    identity = Identity({}, budget=0)
    return [identity_of(func) if type(func) is MethodType else identity.of(func) for func in functions]


def _each(rows: Any, columns: list[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple([_common(cells, columns) for cells in zip(*rows)])


def _check_alike(names: list[Any]) -> None:
    if names.count(names[0]) < len(names):
        raise _Differ(names)
