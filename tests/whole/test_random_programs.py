"""Random programs over the dask.array API: the same bits as with dask's own optimizer, and as with NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._task_spec import convert_legacy_graph
from dask.highlevelgraph import HighLevelGraph
from dask.utils import funcname
from hypothesis import given

from helpers import assert_same, assert_sound, examples, functions_in, keys_of, stock, switched_on, tasks_of
from random_programs import OPERATIONS, programs

#: What is done to large blocks alone is done to these, too.
_LEAST = {"min-bytes": 1}
SMALL_TOO = {
    "rewrite.options": {
        "reuse-buffers": _LEAST,
        "demand": _LEAST,
        "place-blocks": {"min-bytes": 1, "min-block": 1},
    }
}


def run(outputs: list[da.Array], **kwargs: Any) -> tuple[str, Any]:
    """The result, or the error."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return "value", dask.compute(*outputs, **kwargs)
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError) as error:
        return "error", type(error)


@given(programs())
def test_the_same_bits_as_stock(program: tuple[list[da.Array], bool]) -> None:
    outputs, threads = program
    scheduler = "threads" if threads else "sync"
    with stock():
        expected = run(outputs, scheduler="sync")
    with switched_on(**SMALL_TOO):
        actual = run(outputs, scheduler=scheduler)
    assert_same(actual, expected)
    tasks = tasks_of(*outputs)
    assert_sound(tasks, keys_of(*outputs))


@given(programs())
@examples(60)
def test_what_is_left_as_it_is_as_well(program: tuple[list[da.Array], bool]) -> None:
    outputs, _ = program
    with stock():
        expected = run(outputs, scheduler="sync")
    with switched_on(**{"rewrite.lower-limit": 1}):
        actual = run(outputs, scheduler="sync")
    assert_same(actual, expected)


@given(programs())
@examples(50)
def test_optimizing_first_and_going_on(program: tuple[list[da.Array], bool]) -> None:
    import dask_rewrite

    outputs, _ = program
    with stock():
        expected = run([x + 1 if x.dtype.kind != "b" else x for x in outputs], scheduler="sync")
    with switched_on(**SMALL_TOO):
        optimized = dask_rewrite.optimize(*outputs)
    optimized = optimized if isinstance(optimized, tuple) else (optimized,)
    actual = run([x + 1 if x.dtype.kind != "b" else x for x in optimized], scheduler="sync")
    assert_same(actual, expected)


@given(programs())
@examples(30)
def test_never_more_tasks_than_came_in(program: tuple[list[da.Array], bool]) -> None:
    outputs, _ = program
    raw = set().union(*(set(dict(x.__dask_graph__())) for x in outputs))
    assert len(tasks_of(*outputs)) <= len(raw)


def shape_of(task: Any) -> tuple[Any, Any]:
    """What a task depends on and calls."""
    return sorted(map(repr, task.dependencies)), sorted(repr(funcname(f)) for f in functions_in(task))


@given(programs(), programs())
@examples(40)
def test_one_name_never_stands_for_two_tasks(
    one: tuple[list[da.Array], bool], other: tuple[list[da.Array], bool]
) -> None:
    # A scheduler that has seen a key takes what comes later under the same key for the same task.
    wanted = [one[0], one[0][:1], other[0], [one[0][0] + 1], [one[0][0].sum(), one[0][0]]]
    seen: dict[Any, Any] = {}
    for outputs in wanted:
        keys = set(keys_of(*outputs))
        raw = convert_legacy_graph(dict(HighLevelGraph.merge(*(x.__dask_graph__() for x in outputs))))
        for key, task in tasks_of(*outputs).items():
            if key in keys:
                continue  # names of outputs are never changed, whatever is fused into them
            shape = shape_of(task)
            assert seen.setdefault(key, shape) == shape, key
            if key in raw and task.dependencies:  # what waits for nothing is right whoever knows the name
                assert task.dependencies == raw[key].dependencies, f"{key} is not what dask means by it"


def test_there_are_many_operations() -> None:
    assert len(OPERATIONS) >= 35
