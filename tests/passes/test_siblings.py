"""Small tasks over the same blocks go together."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.array import _shuffle, chunk

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.graph.graph import Graph, Origin
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.siblings import Siblings
from dask_rewrite.remarks import Remarks
from helpers import assert_same, assert_same_as_stock, distinct, fan_in, stock_tasks_of, switched_on, tasks_of

ROWS = 64


def twice(block: Any) -> Any:
    """Nobody knows what this does."""
    return block * 2


def source(shape: tuple[int, ...] = (ROWS, 3), dtype: str = "f8") -> Task:
    whole = Task(None, chunk.arange, 0, int(np.prod(shape)), 1, int(np.prod(shape)), np.dtype(dtype))
    return Task(("x", 0), np.reshape, whole, shape)


def row(i: int) -> Task:
    return Task(None, chunk.getitem, TaskRef(("x", 0)), (slice(i, i + 1), slice(None)))


def by_rows(work: Callable[[int], Task], total: Any = np.add) -> Graph:
    """Something small for each row of a block, and what goes on with each result; the latter is asked for."""
    x = source()
    nodes: dict[Any, Any] = {("z", i): Task(("z", i), total, TaskRef(("y", i)), i) for i in range(ROWS)}
    nodes.update({("y", i): work(i) for i in range(ROWS)})
    nodes[x.key] = x
    return Graph(nodes, tuple(("z", i) for i in range(ROWS)))


def added(i: int) -> Task:
    return Task(("y", i), np.add, row(i), 1)


def run(graph: Graph, threads: int = 2, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    with dask.config.set(num_workers=threads, scheduler="threads"):
        after = Siblings(**options).run(graph, Context(remarks))
    verify(after, thorough=True)
    assert_same(dask.get(after.nodes, list(graph.outputs)), dask.get(graph.nodes, list(graph.outputs)))
    return after, remarks


def test_fires() -> None:
    after, remarks = run(by_rows(added))
    made = [key for key in after.nodes if key[0] not in ("x", "z")]
    assert len(made) == 8  # four for each thread
    assert remarks.counts["siblings", "applied"] == ROWS
    assert all(len(after.nodes["z", i].dependencies) == 1 for i in range(ROWS))
    assert len(run(by_rows(added), threads=4)[0].nodes) == ROWS + 1 + 16
    assert len(run(by_rows(added), max_tasks=5)[0].nodes) == ROWS + 1 + 13


def test_names_tell_the_work_apart() -> None:
    first, second = run(by_rows(added))[0], run(by_rows(lambda i: Task(("y", i), np.subtract, row(i), 1)))[0]
    again = run(by_rows(added))[0]
    assert list(first.nodes) == list(again.nodes)
    names = {key[0] for key in first.nodes} - {"x", "z"}
    assert all(name.startswith("siblings-y--y-r") for name in names)
    more = run(by_rows(added), max_tasks=5)[0]
    assert names.isdisjoint({key[0] for key in more.nodes})  # other tasks, other names
    assert second.outputs == first.outputs


def test_results_of_several_steps_go_together() -> None:
    graph = by_rows(added)
    nodes = {("w", i): Task(("w", i), operator.neg, TaskRef(("z", i))) for i in range(ROWS)}
    after, _ = run(Graph({**nodes, **graph.nodes}, tuple(nodes)))
    assert len(after.nodes) == ROWS + 8 + 8 + 1


@pytest.mark.parametrize("part", [16, 64])
def test_slices_of_blocks_that_are_used_up_are_taken_in(part: int) -> None:
    """Where slices take little of a block, the block is not held for them."""
    graph = by_rows(lambda i: Task(("y", i), np.add, TaskRef(("s", i)), 1))
    cut = {
        ("s", i): Task(
            ("s", i), chunk.getitem, TaskRef(("x", 0)), (slice(i, i + 1), slice(0, 3 * part // 64))
        )
        for i in range(ROWS)
    }
    after, _ = run(Graph({**graph.nodes, **cut}, graph.outputs))
    kept = [key for key in after.nodes if key[0] == "s"]
    assert len(kept) == (0 if part == 64 else ROWS)


@pytest.mark.parametrize("width", [3, 10_000])
def test_slices_are_taken_in_by_outputs(width: int) -> None:
    """Of blocks of any size: what all slices together leave of one is little."""
    nodes: dict[Any, Any] = {("z", i): Task(("z", i), np.add, TaskRef(("s", i)), i) for i in range(ROWS)}
    whole = (slice(None),)
    nodes.update(
        {
            ("s", i): Task(("s", i), chunk.getitem, TaskRef(("x", 0)), (slice(i, i + 1), *whole))
            for i in range(ROWS)
        }
    )
    nodes["x", 0] = source((ROWS, width))
    after, _ = run(Graph(nodes, tuple(("z", i) for i in range(ROWS))))
    assert len(after.nodes) == ROWS + 1


def picked(others: int, part: int = 3) -> Graph:
    """For each row, picked by its number, a sum with another block for every row from ``others`` on."""
    graph = by_rows(
        lambda i: Task(("y", i), np.add, TaskRef(("p", i)), TaskRef(("o", i)) if i >= others else 1)
    )
    nodes = dict(graph.nodes)
    for i in range(ROWS):
        nodes["n", i] = DataNode(("n", i), (1, (np.array([i]), slice(0, part))))
        nodes["p", i] = Task(("p", i), _shuffle._getitem, TaskRef(("x", 0)), TaskRef(("n", i)))
        if i >= others:
            nodes["o", i] = Task(("o", i), np.ones, (1, 3))
    return Graph(nodes, graph.outputs)


@pytest.mark.parametrize("others", [ROWS, 0])
def test_rows_that_are_picked_by_numbers_are_picked_where_they_are_used(others: int) -> None:
    """The rows of a block would be as large as it is, if all of them were picked at once."""
    after, _ = run(picked(others))
    tasks = [key for key, node in after.nodes.items() if type(node) is Task and key[0] not in "xzoy"]
    assert len(tasks) == 8  # with the sums, or in tasks of their own if these wait for other blocks
    assert all(("p" in key[0]) == (others == 0) for key in [k[0].split("--")[1] for k in tasks])


def test_few_rows_that_are_picked_by_numbers_let_go_of_the_block() -> None:
    after, _ = run(picked(ROWS, part=1))
    assert {key[0].split("--")[1][0] for key in after.nodes if str(key[0]).startswith("siblings")} == {
        "p",
        "y",
    }


DECLINED = {
    "a function that nobody knows": by_rows(lambda i: Task(("y", i), twice, row(i))),
    "slices alone": Graph(
        {**{("y", i): Task(("y", i), chunk.getitem, *row(i).args) for i in range(ROWS)}, ("x", 0): source()},
        tuple(("y", i) for i in range(ROWS)),
    ),
    "names of delayed work": Graph(
        {
            **{f"z{i}": Task(f"z{i}", np.add, TaskRef(f"y{i}"), i) for i in range(ROWS)},
            **{f"y{i}": Task(f"y{i}", np.add, row(i), 1) for i in range(ROWS)},
            ("x", 0): source(),
        },
        tuple(f"z{i}" for i in range(ROWS)),
    ),
    "an alias of each": Graph(
        {
            **{("z", i): Alias(("z", i), ("y", i)) for i in range(ROWS)},
            **{("y", i): added(i) for i in range(ROWS)},
            ("x", 0): source(),
        },
        tuple(("z", i) for i in range(ROWS)),
    ),
}


@pytest.mark.parametrize("name", list(DECLINED))
def test_declines(name: str) -> None:
    graph = DECLINED[name]
    after, remarks = run(graph)
    assert len(after.nodes) == len(graph.nodes)
    assert not remarks.counts["siblings", "applied"]


def test_blocks_in_memory_and_those_of_unknown_functions() -> None:
    graph = by_rows(added)
    graph.nodes["x", 0] = DataNode(("x", 0), np.arange(ROWS * 3.0).reshape(ROWS, 3))
    assert len(run(graph)[0].nodes) == ROWS + 1 + 8
    data = np.random.default_rng(0).random((ROWS, 30))
    for x in (
        da.from_array(data, chunks=(ROWS, 10)),
        da.from_array(data, chunks=(ROWS, 10)).map_blocks(twice, dtype="f8", meta=np.empty((0, 0))),
    ):
        y = da.concatenate([x[i : i + 4].sum(axis=0) + i for i in range(ROWS - 4)]).sum()
        assert_same_as_stock(y)
        with switched_on(), dask.config.set(num_workers=2, scheduler="threads"):
            assert len(tasks_of(y)) < 50 < len(stock_tasks_of(y))


def test_guards() -> None:
    graph = by_rows(added)
    some = tuple(("y", i) for i in range(0, ROWS, 2))
    after, _ = run(Graph(graph.nodes, (*graph.outputs, *some)))
    assert all(key in after.nodes for key in some)  # what is asked for stays
    assert run(graph, threads=64)[0] is graph  # there would be too few tasks for all threads
    assert run(Graph(graph.nodes, graph.outputs, {("y", 3): {"retries": 2}}))[0].nodes is graph.nodes
    shared = Graph(graph.nodes, graph.outputs, origin=Origin(shared=True))
    assert run(shared)[0] is shared
    assert run(graph, max_bytes=8)[0] is graph  # results that are large stay tasks of their own


def test_large_blocks_are_not_held() -> None:
    graph = by_rows(added)
    graph.nodes["x", 0] = source((ROWS, 10_000))
    assert run(graph, max_bytes=1_000_000)[0] is graph


def test_once_is_enough() -> None:
    once, _ = run(by_rows(added))
    assert run(once)[0] is once


def test_what_a_list_of_blocks_weighs_is_known() -> None:
    after, _ = run(by_rows(added))
    (key, *_) = [key for key in after.nodes if key[0] not in ("x", "z")]
    size = estimate(Facts(after.nodes.get), key)
    assert size is not None
    assert size.nbytes == 8 * 3 * 8


@pytest.mark.parametrize("dtype", ["i2", "f8"])
def test_a_climatology_taken_day_by_day(dtype: str) -> None:
    days, years = 24, 4
    x = distinct((days * years, 4, 3), (12, 2, 3), dtype)
    climate = da.stack([x[day::days].max(axis=0) for day in range(days)])
    away = da.where(x > climate[np.arange(days * years) % days], x, climate[np.arange(days * years) % days])
    with dask.config.set(num_workers=2, scheduler="threads"):
        assert_same_as_stock(away)
        assert_same_as_stock(away.max(axis=0))
        assert 6 * len(tasks_of(away.max(axis=0))) < len(stock_tasks_of(away.max(axis=0)))
        assert len(tasks_of(away)) < 2 * away.npartitions  # of which one is asked for
        assert max(map(fan_in, tasks_of(away).values())) <= 16


@pytest.mark.parametrize("kind", ["nan", "masked", "object", "empty"])
def test_other_blocks(kind: str) -> None:
    values: Any = np.arange(96.0).reshape(48, 2) - 7
    if kind == "nan":
        values[::5] = np.nan
        values[1::5] = -0.0
    elif kind == "masked":
        values = np.ma.masked_less(values, 5)
    elif kind == "object":
        values = values.astype(object)
    elif kind == "empty":
        values = values[:, :0]
    x = da.from_array(values, chunks=(16, 2))
    rows = da.stack([x[i::12].sum(axis=0) for i in range(12)])
    with dask.config.set(num_workers=1, scheduler="threads"):
        assert_same_as_stock(x - rows[np.arange(48) % 12])


def test_errors_come_through() -> None:
    x = da.from_array(np.arange(64), chunks=32)
    parts = [x[i : i + 1].map_blocks(np.linalg.inv, dtype=float).sum() for i in range(32)]
    with switched_on(), pytest.raises(np.linalg.LinAlgError):
        dask.compute(parts, scheduler="sync")


def grown(one: Any, other: Any) -> Any:
    one += 1  # which is the other one as well
    return one * other


@pytest.mark.parametrize("rows", [lambda x, i: x[i : i + 1], lambda x, i: x[[i, ROWS - 1 - i]]])
def test_a_slice_that_stands_in_a_task_twice_is_one_block(rows: Callable[[Any, int], Any]) -> None:
    x = da.from_array(np.arange(ROWS * 3.0).reshape(ROWS, 3), chunks=-1).map_blocks(twice, dtype="f8")
    parts = [rows(x, i) for i in range(ROWS)]
    assert_same_as_stock(da.concatenate([da.map_blocks(grown, p, p, dtype="f8").sum(axis=0) for p in parts]))
