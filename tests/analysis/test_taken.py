"""Results of unknown size are as large as what the last step of their task takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.forecasts import Added
from dask._task_spec import Alias, List, Task, TaskRef
from toolz import pipe

import dask_rewrite
from dask_rewrite.analysis.memory.taken import Taken, most_inside, taken_by
from helpers import stock, switched_on

SHAPE, CHUNKS = (400, 600), (400, 60)


def drawn() -> da.Array:
    return da.random.default_rng(1).random(SHAPE, chunks=CHUNKS)


def stored() -> da.Array:
    zarr = pytest.importorskip("zarr")
    z = zarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="f8")
    z[:] = np.random.default_rng(1).random(SHAPE)
    return da.from_zarr(z)


PROGRAMS: dict[str, Callable[[da.Array], Any]] = {
    "distinct": da.unique,
    "bins": lambda x: da.bincount((x * 10).astype("i8").ravel()),
}


@pytest.mark.parametrize("source", [drawn, stored])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_made_of_slices_of_a_large_block_weighs_no_more_than_these(name: str, source: Any) -> None:
    """``ravel`` goes through blocks of all columns, of which each task takes a part."""
    program = PROGRAMS[name](source())
    found = dask_rewrite.forecast(program, threads=1)
    for run, way in ((found.before, stock()), (found.after, switched_on())):
        with way, dask.config.set(scheduler="sync"), Added() as held:
            program.compute()
        assert run.unknown
        assert run.least <= held.peak <= run.most
        assert run.peak <= 1.2 * held.peak


def sizes(**known: int) -> Callable[[Any], int | None]:
    return lambda node: known.get(node.key) if isinstance(node, TaskRef) else known.get(node.func.__name__)


def test_steps_of_known_size_are_not_looked_into() -> None:
    part = Task(None, max, TaskRef("whole"))
    node = Task("y", sorted, Task(None, list, part, TaskRef("z")), key=TaskRef("k"))
    assert taken_by(node, sizes(whole=100, max=10, k=3)) == Taken(10, frozenset({"z"}))
    assert most_inside(node, sizes(whole=100, max=10, list=20)) == 20


def test_of_elements_of_a_list_the_largest_counts() -> None:
    node = Task("y", sorted, List(TaskRef("a"), TaskRef("b"), TaskRef("c")))
    assert taken_by(node, sizes(a=3, b=4)) == Taken(4, frozenset({"c"}))
    assert taken_by(Task("y", sorted, List(Alias("a"), 1)), lambda node: None) == Taken(0, frozenset({"a"}))


def test_other_names_take_what_they_name() -> None:
    assert taken_by(Alias("y", "x"), sizes()) == Taken(0, frozenset({"x"}))
    assert taken_by(None, sizes()) == Taken(0, frozenset())


def test_programs_whose_steps_share_values_take_all_that_they_need() -> None:
    twice = Task(None, max, TaskRef("s"), TaskRef("s"))
    first = Task(None, dict, s=Task(None, min, TaskRef("x0")))
    inputs = Task(None, dict, x0=TaskRef("x"))
    assert taken_by(Task("y", pipe, inputs, first.__call__, twice.__call__), sizes()) is None
    once = Task(None, max, TaskRef("x0"))
    assert taken_by(Task("y", once.__call__, inputs), sizes(x=5)) == Taken(5, frozenset())
