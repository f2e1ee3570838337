"""Batches read what their rows read at once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from dask._task_spec import DataNode, Task, TaskRef
from dask.array.core import getter
from demand_cases import Stored

import dask_rewrite
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.analysis.memory.calls import calls_of
from dask_rewrite.graph.batches import is_batch, shared_by, tasks_of
from dask_rewrite.passes.coalesce.reads import MergedReads
from dask_rewrite.passes.coalesce.write import Batch
from helpers import assert_same, stock, switched_on

CONFIG: dict[str, Any] = {
    "scheduler": "threads",
    "num_workers": 2,
    "rewrite.reassociate": False,
    "rewrite.options": {"coalesce": {"min-tasks": 1}},
}


def sent(made: Any) -> dict[Any, Any]:
    """The tasks that a scheduler gets."""
    graphs: list[Any] = []

    def get(graph: Any, keys: Any, **kwargs: Any) -> Any:
        graphs.append(getattr(graph, "__dask_graph__", lambda: graph)())
        return dask.get(graphs[-1], keys)

    with switched_on(**CONFIG):
        made.compute(scheduler=get)
    return dict(graphs[0])


def double(block: Any) -> Any:
    """In place, as users do."""
    block *= 2
    return block


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: x + 1,
    "spread of rows": lambda x: x.std(axis=1),
    "transposed": lambda x: x.T * 2,
    "as it is": lambda x: x,
    "a user's function": lambda x: x.map_blocks(lambda block: block - block.mean(), dtype="f4"),
    "in place": lambda x: x.map_blocks(double, dtype="f4") + 1,
    "sums": lambda x: (x * x).sum(),
    "slices": lambda x: x[:, 1:3] - x[:, :1],
}


IN_ROWS = [(name, (4800, 8), (4, 8)) for name in PROGRAMS]
IN_A_GRID = [(name, (280, 280), (8, 8)) for name in ("elementwise", "in place", "sums")]


@pytest.mark.parametrize(("name", "shape", "chunks"), [*IN_ROWS, *IN_A_GRID])
def test_answers_and_what_is_read(name: str, shape: tuple[int, int], chunks: tuple[int, int]) -> None:
    stored = Stored(np.random.default_rng(0).normal(size=shape).astype("f4"), chunks)
    made = PROGRAMS[name](da.from_array(stored.array, chunks=chunks))
    with stock():
        expected = made.compute(scheduler="sync")
    read = stored.counter["get"]
    stored.counter.clear()
    with switched_on(**CONFIG):
        assert_same(made.compute(), expected)
        assert stored.counter["get"] <= read
        found = dask_rewrite.forecast(made).after
    assert found.decoded == stored.counter["get"] * np.prod(chunks) * 4


def test_one_call_for_all_rows() -> None:
    x = da.from_array(zarr.zeros((6000, 8), chunks=(4, 8)), chunks=(4, 8))
    batches = [node for node in sent(x + 1).values() if is_batch(node)]
    assert sum(len(tasks_of(each)) for each in batches) == 1500
    assert all([call.func for call in shared_by(each)] == [getter] for each in batches)
    reads = [call for each in batches for call in calls_of(each) if call.func is getter]
    assert len(reads) == len(batches) < 50


def test_hdf5(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(6000, 8))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        stored = file.create_dataset("x", data=values, chunks=(4, 8))
        made = da.from_array(stored, chunks=(4, 8), lock=True) * 3
        batches = [node for node in sent(made).values() if is_batch(node)]
        assert all(shared_by(each) for each in batches)
        with switched_on(**CONFIG):
            assert_same(made.compute(), values * 3)


BODY = Task(None, np.negative, Task(None, getter, TaskRef("x0"), TaskRef("x1")))
FILE = TaskRef("z")


def rows(*starts: int, length: int = 5) -> list[tuple[slice, slice]]:
    return [(slice(i, i + length), slice(0, 4)) for i in starts]


def batch_of(indices: list[Any], files: list[Any] | None = None, body: Task = BODY) -> Batch:
    members = tuple([("y", i) for i in range(len(indices))])
    return Batch(("b", 0), members, body.__call__, [files or [FILE] * len(indices), indices], True)


NODES: dict[Any, Any] = {
    key: DataNode(key, zarr.array(np.arange(160.0).reshape(40, 4), chunks=(5, 4))) for key in ("z", "other")
}
NODES["memory"] = DataNode("memory", np.arange(160.0).reshape(40, 4))

DECLINED = {
    "a gap": batch_of(rows(0, 5, 20)),
    "parts that overlap": batch_of(rows(0, 3)),
    "the same part twice": batch_of(rows(0, 0, 5)),
    "steps": batch_of([(slice(0, 5, 2), slice(0, 4)), *rows(5)]),
    "two files": batch_of(rows(0, 5), [FILE, TaskRef("other")]),
    "an array in memory": batch_of(rows(0, 5), [TaskRef("memory")] * 2),
    "no file": batch_of(rows(0, 5), [TaskRef("nothing")] * 2),
    "two reads in a row": batch_of(
        rows(0, 5), body=Task(None, operator.add, BODY, Task(None, getter, TaskRef("x0"), TaskRef("x1")))
    ),
    "one index for all": batch_of(
        rows(0, 5), body=Task(None, abs, Task(None, getter, TaskRef("x0"), rows(0)[0]))
    ),
    "an option for each row": Batch(
        ("b", 0),
        (("y", 0), ("y", 1)),
        Task(None, abs, Task(None, getter, *map(TaskRef, ("x0", "x1", "x2")))).__call__,
        [[FILE] * 2, rows(0, 5), [True, False]],
        True,
    ),
    "nothing but a read": batch_of(rows(0, 5), body=Task(None, getter, TaskRef("x0"), TaskRef("x1"))),
    "an option that differs": batch_of(
        rows(0, 5), body=Task(None, abs, Task(None, getter, TaskRef("x0"), TaskRef("x1"), TaskRef("x1")))
    ),
}


@pytest.mark.parametrize("name", DECLINED)
def test_declines(name: str) -> None:
    assert MergedReads(Facts(NODES.get).value).of(DECLINED[name]) is DECLINED[name]


def test_batches_of_one_form_share_a_template() -> None:
    reads = MergedReads(Facts(NODES.get).value)
    one, other = reads.of(batch_of(rows(0, 5, 10))), reads.of(batch_of(rows(20, 15)))
    assert one.template.__self__ is other.template.__self__
    assert one.columns[1] == rows(0, 5, 10)
    assert other.columns[1] == rows(5, 0)


def test_all_of_a_file_in_one_row() -> None:
    made = MergedReads(Facts(NODES.get).value).of(batch_of(rows(0, length=40)))
    assert made.columns[1] == rows(0, length=40)


def test_templates_are_told_apart_though_others_are_gone() -> None:
    """A new one may stand in memory where another one stood."""
    reads = MergedReads(Facts(NODES.get).value)
    calls = [Task(None, getter, TaskRef("x0"), TaskRef("x1")) for _ in range(200)]
    for number, call in enumerate(calls):
        given = batch_of(rows(0, 5), body=Task(None, operator.add, call, number))
        assert reads.of(given).template.__self__.args[1] == number
        del given
