"""Rows that are sliced and picked out of one block."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from dask._task_spec import DataNode, Task, TaskRef
from dask.array._shuffle import _getitem

from helpers import Source, assert_same, counted, switched_on, tasks_of
from passes.share_cases import add_one_in_place, gathered, graph_of, key, run

ROW = np.arange(12.0).reshape(4, 3)
REST = (slice(0, 3),)


def block(value: Any = ROW) -> DataNode:
    return DataNode(key("x"), value)


def picked(rows: Any, rest: Any = REST, name: str = "picked") -> tuple[Task, DataNode]:
    """A task as dask's shuffle makes it, and the list that it picks by."""
    held = DataNode(f"taker-{name}", (1, (np.array(rows, dtype=np.uint8), *rest)))
    return Task(key(name), _getitem, TaskRef(key("x")), TaskRef(held.key)), held


def sliced(start: int, stop: int, rest: Any = REST, name: str = "sliced") -> Task:
    return Task(key(name), operator.getitem, TaskRef(key("x")), (slice(start, stop), *rest))


def test_one_row_is_picked_and_not_sliced() -> None:
    graph = graph_of(block(), *picked([2]), sliced(2, 3), gathered("picked", "sliced"))
    after, remarks = run(graph)
    assert set(after.nodes) == {key("x"), key("picked"), "taker-picked", key("out")}
    assert remarks.counts["share", "applied"] == 1
    out = after.nodes[key("out")]
    assert out._dependencies == {key("picked")}
    assert_same(out({key("picked"): ROW[2:3]}), np.concatenate([ROW[2:3], ROW[2:3]]))


@pytest.mark.parametrize(
    ("rows", "part", "rest"),
    [
        ([1], (2, 3), REST),  # another row
        ([1, 2], (1, 3), REST),  # several
        ([2, 1], (1, 3), REST),  # in another order
        ([1], (1, 2), (slice(0, 2),)),  # not all of it
        ([1], (1, 3), REST),
    ],
)
def test_other_rows_are_other_rows(rows: list[int], part: tuple[int, int], rest: Any) -> None:
    graph = graph_of(block(), *picked(rows), sliced(*part, rest), gathered("picked", "sliced"))
    after, _ = run(graph)
    assert after.nodes.keys() == graph.nodes.keys()


def test_columns_would_lie_in_memory_in_another_way() -> None:
    held = DataNode("taker", (1, (slice(0, 4), np.array([1], dtype=np.uint8))))
    pick = Task(key("picked"), _getitem, TaskRef(key("x")), TaskRef("taker"))
    part = Task(key("sliced"), operator.getitem, TaskRef(key("x")), (slice(0, 4), slice(1, 2)))
    graph = graph_of(block(), held, pick, part, gathered("picked", "sliced"))
    assert run(graph)[0].nodes.keys() == graph.nodes.keys()


def test_nobody_may_write_into_either() -> None:
    for written in ("picked", "sliced", "x"):
        writer = Task(key("writer"), add_one_in_place, TaskRef(key(written)))
        graph = graph_of(block(), *picked([2]), sliced(2, 3), writer, gathered("picked", "sliced", "writer"))
        assert {key("picked"), key("sliced")} <= run(graph)[0].nodes.keys()


def test_blocks_of_which_nothing_is_known_stay_as_they_are() -> None:
    made = Task(key("x"), unknown)
    graph = graph_of(made, *picked([2]), sliced(2, 3), gathered("picked", "sliced"))
    assert run(graph)[0].nodes.keys() == graph.nodes.keys()


def unknown() -> np.ndarray:
    return np.ma.masked_equal(ROW, 7)


def test_what_is_asked_for_stays() -> None:
    for wanted in ("picked", "sliced"):
        outputs = (key("out"), key(wanted))
        graph = graph_of(block(), *picked([2]), sliced(2, 3), gathered("picked", "sliced"), outputs=outputs)
        assert run(graph)[0].nodes.keys() == graph.nodes.keys()


def test_blocks_may_be_in_fortran_order() -> None:
    graph = graph_of(block(np.asfortranarray(ROW)), *picked([2]), sliced(2, 3), gathered("picked", "sliced"))
    assert run(graph, reassociate=False)[0].nodes.keys() == graph.nodes.keys()
    assert key("sliced") not in run(graph)[0].nodes


def test_annotations_differ() -> None:
    notes = {key("sliced"): {"retries": 2}}
    graph = graph_of(block(), *picked([2]), sliced(2, 3), gathered("picked", "sliced"), annotations=notes)
    assert run(graph)[0].nodes.keys() == graph.nodes.keys()


def anomalies(groups: str) -> tuple[Source, xr.DataArray]:
    source, x = counted((800, 3, 4), (60, 3, 2))
    days = (np.datetime64("2000-01-01") + np.arange(800)).astype("M8[ns]")
    grouped = xr.DataArray(x, dims=("time", "lat", "lon"), coords={"time": days}).groupby(groups)
    return source, grouped - grouped.mean()


@pytest.mark.parametrize("groups", ["time.dayofyear", "time.month", "time.season"])
def test_anomalies_of_groups(groups: str) -> None:
    source, anomaly = anomalies(groups)
    expected = anomaly.compute()
    reads = source.loads
    source.reset()
    with switched_on():
        assert_same(anomaly.compute().values, expected.values)
    assert source.loads <= reads


def test_each_day_is_held_once() -> None:
    _, anomaly = anomalies("time.dayofyear")
    spread = anomaly.std("time").data
    with switched_on(**{"rewrite.disable": ["fuse-small"]}):
        names = Counter(map(dask.utils.key_split, tasks_of(spread)))
    assert "rechunk-split" not in names
    assert names["shuffle-split"] + names["getitem"] <= 2 * 800
