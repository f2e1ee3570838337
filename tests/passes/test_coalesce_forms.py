"""Tasks of one form, and the columns of what differs in them."""

from __future__ import annotations

import operator
from functools import partial
from types import MethodType

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from toolz import compose

from dask_rewrite.passes.coalesce.forms import forms

#: Pairs of the same axes, of others, and one more that is equal but of another type.
AXES = [(0, 1), (0, 1), (1, 1), (1, 1), (1, True)]


def test_forms_are_told_apart() -> None:
    tasks = [Task(i, operator.add if i % 3 else operator.mul, TaskRef(("x", i)), i) for i in range(9)]
    tasks.append(Task(9, operator.neg, TaskRef("x")))
    found = sorted(forms(tasks), key=lambda form: form.rows[0])
    assert [list(form.rows) for form in found] == [[0, 3, 6], [1, 2, 4, 5, 7, 8]]
    assert [form.template.func for form in found] == [operator.mul, operator.add]
    assert found[0].columns[1] == (0, 3, 6)


def test_literals_in_nodes_are_columns() -> None:
    tasks = [Task(i, operator.add, DataNode(None, i), DataNode(None, 7)) for i in range(3)]
    (form,) = forms(tasks)
    assert form.template.args == (TaskRef("x0"), 7)
    assert list(form.columns[0]) == [0, 1, 2]


def test_partials_that_are_made_anew_are_the_same() -> None:
    tasks = [Task(i, partial(pow, 2, mod=10), i) for i in range(3)]
    assert [list(form.rows) for form in forms(tasks)] == [[0, 1, 2]]
    tasks.append(Task(3, partial(pow, 2, mod=11), 3))
    assert [list(form.rows) for form in forms(tasks)] == [[0, 1, 2]]


def test_what_dask_composes_anew_for_each_array_is_the_same() -> None:
    made = [compose(partial(np.sum, axis=(axis,)), partial(np.concatenate, axis=one)) for axis, one in AXES]
    tasks = [Task(i, func, TaskRef(("x", i))) for i, func in enumerate(made)]
    assert sorted(list(form.rows) for form in forms(tasks)) == [[0, 1], [2, 3]]
    assert forms([Task(0, abs, -1)]) == []


def test_methods_of_one_name_are_told_apart() -> None:
    text = Task("text", abs, -1)
    methods = [MethodType(lambda owner, n=n: n, text) for n in range(2)]
    tasks = [Task(i, methods[i // 2]) for i in range(4)]
    assert sorted(list(form.rows) for form in forms(tasks)) == [[0, 1], [2, 3]]
    assert forms([Task(i, text.__call__, i) for i in range(4)])[0].rows == range(4)


def test_templates_are_columns() -> None:
    calls = [Task(None, operator.add, TaskRef("x0"), n).__call__ for n in range(3)]
    tasks = [Task(i, call, Task(None, dict, x0=TaskRef(("x", i)))) for i, call in enumerate(calls)]
    (form,) = forms(tasks)
    assert form.template.func is operator.call
    assert form.columns == [calls, tuple(TaskRef(("x", i)) for i in range(3))]
