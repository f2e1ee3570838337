"""Which sums are left as they are."""

from __future__ import annotations

import functools
import operator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed
from dask._task_spec import Task, TaskRef
from dask.local import get_sync

from helpers import (
    assert_same_as_stock,
    fan_in,
    tasks_of,
)
from passes.tree_sum_cases import (
    DIFFERENT,
    KEY,
    UNKNOWN,
    added,
    blocks,
    declined,
    folded,
    graph_of,
    remarks_of,
    rewritten,
    run,
    system,
    unknown,
)

# -- declines ------------------------------------------------------------------------------


def test_narrow_sums_stay() -> None:
    graph = graph_of(folded(sum), blocks(8))
    after, remarks = run(graph)
    assert after is graph
    assert not remarks


def test_other_functions_are_not_asked_about() -> None:
    for func in (np.stack, np.mean, np.concatenate, unknown, np.subtract.reduce, len, np.nansum):
        graph = graph_of(folded(func), blocks(20))
        after, remarks = run(graph)
        assert after is graph
        assert not remarks


def test_a_function_that_writes_into_its_first_argument_is_not_asked_about() -> None:
    graph = graph_of(folded(functools.reduce, operator.iadd), blocks(20))
    after, remarks = run(graph)
    assert after is graph
    assert not remarks


def test_unknown_blocks() -> None:
    known = blocks(20)
    known[7] = Task(None, unknown, TaskRef(("x", 6)))
    declined(graph_of(folded(sum), known), UNKNOWN)
    declined(graph_of(folded(np.add.reduce), known), UNKNOWN)


def test_a_value_of_its_own_to_start_from() -> None:
    reason = "it starts from a value of its own"
    graph = graph_of(lambda terms: Task(KEY, sum, terms, 5), blocks(20))
    declined(graph, reason)
    declined(graph_of(lambda terms: Task(KEY, functools.reduce, operator.add, terms, 5), blocks(20)), reason)
    declined(graph_of(lambda terms: Task(KEY, sum, terms, TaskRef(("x", 0))), blocks(20)), reason)


def test_options_that_are_not_understood() -> None:
    declined(graph_of(folded(sum, start=5), blocks(20)), "it is called with start=")
    declined(graph_of(folded(max, key=abs), blocks(20, shape=())), "it is called with key=")
    declined(graph_of(folded(np.sum, axis=0, keepdims=True), blocks(20)), "it is called with keepdims=")
    declined(graph_of(folded(np.add.reduce, initial=3), blocks(20)), "it is called with initial=")
    out = np.empty((2, 3), int)
    declined(graph_of(folded(np.max, axis=0, out=out), blocks(20)), "it is called with out=")
    axis = "it folds along another axis than that of the list"
    for wrong in (1, -1, (0,), False):
        declined(graph_of(folded(np.sum, axis=wrong), blocks(20)), axis)
    declined(graph_of(folded(np.sum, axis=TaskRef(("x", 0))), blocks(20)), "its axis is computed")
    second = graph_of(lambda terms: Task(KEY, np.max, terms, 0, out), blocks(20))
    declined(second, "it starts from a value of its own")


def test_python_compares_only_single_numbers() -> None:
    for func in (max, any):
        declined(graph_of(folded(func), blocks(20)), "whole arrays have neither truth nor order")
        with pytest.raises(ValueError, match="ambiguous"):
            get_sync(graph_of(folded(func), blocks(20)).nodes, KEY)


def test_annotations_are_those_of_the_sum() -> None:
    graph = graph_of(folded(sum), blocks(20), annotations={KEY: {"priority": 7}, ("x", 3): {"priority": 1}})
    after = rewritten(graph)
    assert [after.annotations.get(task.key) for task in added(after)] == [{"priority": 7}] * 3
    assert after.annotations[KEY] == {"priority": 7}
    assert after.annotations["x", 3] == {"priority": 1}
    assert graph.annotations.keys() == {KEY, ("x", 3)}


def test_products_with_other_annotations_stay_tasks() -> None:
    a, _ = system()
    x = da.linalg.cholesky(a, lower=True)
    with dask.annotate(priority=3):
        y = da.linalg.cholesky(a, lower=True) + 1
    assert_same_as_stock(x, y)


# -- declines: delayed ---------------------------------------------------------------------

ASK = "delayed values are of unknown type; see rewrite.options.tree-sum.delayed"


def widest(x: Any, **options: Any) -> int:
    with dask.config.set({"rewrite.options": {"tree-sum": options}} if options else {}):
        return max(map(fan_in, tasks_of(x).values()))


@pytest.mark.parametrize("func", [sum, np.sum, np.add.reduce, max, any, np.maximum.reduce])
def test_delayed_folds_need_the_users_word(func: Any) -> None:
    x = delayed(func)([delayed(unknown)(i % 7) for i in range(40)])
    assert widest(x) == 40
    assert remarks_of(x) == {ASK}
    assert widest(x, delayed=True) <= 8
    with dask.config.set({"rewrite.options": {"tree-sum": {"delayed": True}}}):
        assert_same_as_stock(x)


def test_delayed_folds_of_known_arrays_need_no_word() -> None:
    x = delayed(sum)([delayed(np.full)((2, 3), i) for i in range(40)])
    assert widest(x) <= 8
    assert_same_as_stock(x)


def test_delayed_reduce() -> None:
    x = delayed(functools.reduce)(operator.add, [delayed(unknown)(i) for i in range(40)])
    assert remarks_of(x) == {ASK}
    assert widest(x, delayed=True) <= 8


def test_the_users_word_is_about_regrouping() -> None:
    x = delayed(sum)([delayed(unknown)(0.1 * i) for i in range(40)])
    with dask.config.set({"rewrite.reassociate": False}):
        assert widest(x, delayed=True) == 40
        assert remarks_of(x, delayed=True) == {"rewrite.reassociate is off"}
    assert widest(x, delayed=True) <= 8


def test_the_users_word_does_not_make_different_dtypes_equal() -> None:
    parts = [delayed(np.full)(2, 100, dtype="i8" if i == 0 else "i1") for i in range(16)]
    x = delayed(np.add)(0, delayed(sum)([*parts, delayed(unknown)(1)]))
    assert DIFFERENT in remarks_of(x, delayed=True)


def test_tasks_that_users_watch_keep_their_names() -> None:
    parts = [delayed(unknown)(i, dask_key_name=f"part-{i}") for i in range(20)]
    x = delayed(sum)(parts, dask_key_name="whole")
    with dask.config.set({"rewrite.options": {"tree-sum": {"delayed": True}}}):
        tasks = tasks_of(x)
    assert {f"part-{i}" for i in range(20)} | {"whole"} <= tasks.keys()
