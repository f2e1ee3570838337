"""Arrays that one task uses go into that task."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.array.core import concatenate3

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.own_data import MOST_BYTES, with_own_data
from dask_rewrite.remarks import Remarks
from helpers import assert_same_as_stock, checked, distinct, loads


def run(*nodes: Any, outputs: tuple[Any, ...] = (("j", 0),)) -> Graph:
    graph = Graph({node.key: node for node in nodes}, outputs)
    return with_own_data(graph, Context(Remarks()), "fuse-chains")


def data(i: int, nbytes: int = 48) -> DataNode:
    return DataNode(("x", i), np.arange(nbytes // 8.0).reshape(-1, 2) + i)


def join(key: Any, *blocks: Any) -> Task:
    return Task(key, concatenate3, List(*[List(TaskRef(block)) for block in blocks]))


def test_a_join_carries_its_blocks() -> None:
    after = run(data(0), data(1), join(("j", 0), ("x", 0), ("x", 1)))
    assert set(after.nodes) == {("j", 0)}
    assert not after.nodes["j", 0].dependencies


@pytest.mark.parametrize("program", [lambda x: x.rechunk((4, 16)).map_blocks(np.sort), da.sum, da.histogram])
def test_arrays_in_memory_are_no_keys_of_their_own(program: Any) -> None:
    x = distinct((16, 16), chunks=4)
    y = program(x) if program is not da.histogram else da.histogram(x, bins=4, range=(0, 300))[0]
    tasks = checked(y)
    used = [key for key, node in tasks.items() if type(node) is DataNode and type(key) is tuple]
    assert not used
    assert_same_as_stock(y)
    assert_same_as_stock(y, x + 1, x)


def test_what_two_tasks_use_or_somebody_asked_for_stays() -> None:
    blocks = data(0), data(1)
    both = join(("j", 0), ("x", 0), ("x", 1)), join(("j", 1), ("x", 1), ("x", 1))
    after = run(*blocks, *both, outputs=(("j", 0), ("j", 1)))
    assert set(after.nodes) == {("x", 1), ("j", 0), ("j", 1)}
    after = run(*blocks, both[0], outputs=(("j", 0), ("x", 0), ("x", 1)))
    assert len(after.nodes) == 3


def test_no_task_carries_much() -> None:
    after = run(data(0, MOST_BYTES), data(1), join(("j", 0), ("x", 0), ("x", 1)))
    assert len(after.nodes) == 3


def test_values_of_other_types_stay() -> None:
    masked = DataNode(("x", 0), np.ma.arange(6).reshape(3, 2))
    named = DataNode("x", np.arange(6).reshape(3, 2))
    after = run(masked, named, join(("j", 0), ("x", 0), "x"))
    assert len(after.nodes) == 3


def test_annotated_otherwise() -> None:
    with dask.annotate(priority=3):
        x = distinct((8, 8), chunks=4)
    y = x.rechunk((4, 8)).map_blocks(np.linalg.norm, axis=1, drop_axis=1, dtype=float)
    checked(y)
    assert_same_as_stock(y)


@pytest.mark.parametrize("delayed", [False, True])
def test_loads_of_unknown_functions_stay_side_by_side(delayed: bool) -> None:
    def load(block_id: Any = (0, 0)) -> np.ndarray:
        return np.full((2, 2), 3.0 * block_id[0] + block_id[1])

    if delayed:
        rows = [[dask.delayed(load)((i, j)) for j in range(4)] for i in range(3)]
        x = da.block([[da.from_delayed(block, (2, 2), dtype=float) for block in row] for row in rows])
    else:
        x = da.map_blocks(load, chunks=((2,) * 3, (2,) * 4), dtype=float, meta=np.empty((0, 0)))
    y = da.linalg.qr(x.rechunk((2, -1)))[1]
    each = [loads({key: node}, load) for key, node in checked(y).items()]
    assert max(each) <= 1
    assert len(each) >= 12
    assert_same_as_stock(y)
