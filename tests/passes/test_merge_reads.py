"""Neighbouring tiny reads of a task become one."""

from __future__ import annotations

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
from dask.array.core import getter, getter_nofancy
from zarr.storage import LoggingStore, MemoryStore

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.merge_reads import MergeReads, merged
from dask_rewrite.remarks import Remarks
from helpers import assert_same, assert_same_as_stock, loads, stock, stock_tasks_of, switched_on, tasks_of

VALUES = np.arange(40.0 * 12).reshape(40, 12) / 7


def file() -> Any:
    return zarr.array(VALUES, chunks=(5, 6))


def box(*ends: tuple[int, int]) -> tuple[slice, ...]:
    return tuple([slice(a, b) for a, b in ends])


def in_fortran_order() -> Any:
    with zarr.config.set({"array.order": "F"}):
        return file()


def read(*ends: tuple[int, int], func: Any = getter, options: tuple[Any, ...] = ()) -> Task:
    return Task(None, func, TaskRef("z"), box(*ends), *options)


def graph_of(*reads: Any, source: Any = None) -> Graph:
    """A task over several reads."""
    node = Task(("y", 0), _joined, *reads)
    return Graph({"z": DataNode("z", file() if source is None else source), ("y", 0): node}, (("y", 0),))


def _joined(*blocks: Any) -> Any:
    return [np.array(block) for block in blocks], [block.flags.c_contiguous for block in blocks]


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    after = MergeReads(**options).run(graph, Context(remarks))
    verify(after, thorough=True)
    assert_same(dask.get(after.nodes, ("y", 0)), dask.get(graph.nodes, ("y", 0)))
    return after, remarks


ROWS = [read((i, i + 5), (0, 12)) for i in range(0, 40, 5)]
MERGED = {
    "rows": (ROWS, 1),
    "columns": ([read((0, 5), (0, 6)), read((0, 5), (6, 12))], 1),
    "a grid": ([read((i, i + 5), (j, j + 6)) for i in (0, 5) for j in (0, 6)], 1),
    "backwards": (ROWS[::-1], 1),
    "two runs": ([*ROWS[:3], *ROWS[5:]], 2),
    "a run, and one alone": ([*ROWS[:2], ROWS[6]], 2),
    "parts of chunks": ([read((3, 7), (1, 12)), read((7, 9), (1, 12))], 1),
}


@pytest.mark.parametrize("name", MERGED)
@pytest.mark.parametrize("through", ["getters", "templates"])
def test_neighbours_are_read_at_once(name: str, through: str) -> None:
    reads, wanted = MERGED[name]
    if through == "templates":
        body = Task(None, np.negative, Task(None, getter, TaskRef("x0"), TaskRef("x1")))
        reads = [
            Task(None, body.__call__, Task(None, dict, x0=each.args[0], x1=each.args[1])) for each in reads
        ]
    graph = graph_of(*reads)
    after, remarks = run(graph)
    assert loads(after.nodes, getter) == wanted
    assert remarks.counts["merge-reads", "applied"] == 1
    assert run(after)[0] is after


DECLINED: dict[str, Graph] = {
    "one read": graph_of(ROWS[0]),
    "reads apart": graph_of(ROWS[0], ROWS[3]),
    "parts that overlap": graph_of(ROWS[0], ROWS[1], read((3, 8), (0, 12))),
    "the same part twice": graph_of(ROWS[0], ROWS[1], ROWS[1]),
    "other getters": graph_of(ROWS[0], read((5, 10), (0, 12), func=getter_nofancy)),
    "other options": graph_of(ROWS[0], read((5, 10), (0, 12), options=(False,))),
    "steps": graph_of(ROWS[0], Task(None, getter, TaskRef("z"), (slice(5, 10, 2), slice(0, 12)))),
    "a list": graph_of(ROWS[0], Task(None, getter, TaskRef("z"), ([5, 6], slice(0, 12)))),
    "a number": graph_of(ROWS[0], Task(None, getter, TaskRef("z"), (5, slice(0, 12)))),
    "the file itself": graph_of(*ROWS, Task(None, np.asarray, TaskRef("z"))),
    "an array in memory": graph_of(*ROWS, source=VALUES),
    "columns first": graph_of(*ROWS, source=in_fortran_order()),
}


@pytest.mark.parametrize("name", DECLINED)
def test_declines(name: str) -> None:
    graph = DECLINED[name]
    assert run(graph)[0] is graph


def test_other_work_is_not_waited_for() -> None:
    graph = graph_of(*ROWS, TaskRef("x"))
    graph.nodes["x"] = Task("x", np.ones, 3)
    assert run(graph)[0] is graph


def test_large_reads_stay() -> None:
    graph = graph_of(*ROWS)
    assert run(graph, max_bytes=VALUES.nbytes)[0] is not graph
    assert run(graph, max_bytes=VALUES.nbytes - 1)[0] is graph


def test_stops_at_the_bisect_limit() -> None:
    graph = graph_of(*ROWS)
    assert MergeReads().run(graph, Context(Remarks(0))) is graph


def test_tasks_of_one_form_share_a_template() -> None:
    nodes: dict[Any, Any] = {"z": DataNode("z", file())}
    for i in range(0, 40, 10):
        nodes["y", i] = Task(("y", i), _joined, read((i, i + 5), (0, 12)), read((i + 5, i + 10), (0, 12)))
    after = MergeReads().run(Graph(nodes, tuple(key for key in nodes if key != "z")), Context(Remarks()))
    assert len({id(node.func.__self__) for key, node in after.nodes.items() if key != "z"}) == 1


def test_boxes() -> None:
    tile = [((i, i + 1), (j, j + 2), (0, 3)) for i in range(3) for j in range(0, 8, 2)]
    assert merged(tile) == [((0, 3), (0, 8), (0, 3))]
    assert merged(tile[:-1]) == [((0, 2), (6, 8), (0, 3)), ((0, 3), (0, 6), (0, 3))]
    assert merged([]) == []
    assert merged([()]) == [()]


def test_parts_of_shards_are_looked_up_together() -> None:
    """Each read of a part of a shard asks the store for the places of its parts first."""
    store = LoggingStore(MemoryStore(), log_level="ERROR")
    z = zarr.create_array(store=store, shape=(4000, 4), chunks=(25, 4), shards=(200, 4), dtype="f8")
    z[...] = np.arange(16_000.0).reshape(4000, 4)
    made = ((da.from_array(z, chunks=(25, 4)) + 1) ** 2).sum()
    asked = []
    for way in (stock, switched_on):
        store.counter.clear()
        with way(scheduler="threads", num_workers=2):
            made.compute()
        asked.append(store.counter["get"])
    assert asked[1] <= 20 < asked[0] / 8  # whole shards


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: ((x + 1) ** 2).sum(),
    "mean of each column": lambda x: x.mean(axis=0),
    "spread of each row": lambda x: x.std(axis=1).max(),
    "joined": lambda x: (x.rechunk((50, 16)) * 2).sum(axis=1),
    "in place": lambda x: ((x * 2 + 1) ** 2 - 1).max(axis=0),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["zarr", "hdf5", "netcdf", "xarray, zarr"])
def test_programs_over_files(name: str, kind: str, tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    values = np.random.default_rng(0).normal(size=(2000, 16)).astype("f4")
    whole = xr.Dataset({"x": (("t", "c"), values)})
    if kind == "hdf5":
        with h5py.File(tmp_path / "x.h5", "w") as out:
            out.create_dataset("x", data=values, chunks=(5, 16))
        source = h5py.File(tmp_path / "x.h5")
        x = da.from_array(source["x"], chunks=(5, 16), lock=True)
    elif kind == "netcdf":
        whole.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding={"x": {"chunksizes": (5, 16)}})
        source = xr.open_dataset(tmp_path / "x.nc", engine="h5netcdf", chunks={"t": 5})
        x = source["x"].data
    else:
        whole.to_zarr(tmp_path / "x.zarr", encoding={"x": {"chunks": (5, 16)}}, consolidated=False)
        source = xr.open_zarr(tmp_path / "x.zarr", chunks={"t": 5}, consolidated=False)
        plain = da.from_array(zarr.open_array(tmp_path / "x.zarr", path="x", mode="r"), chunks=(5, 16))
        x = plain if kind == "zarr" else source["x"].data
    with source, dask.config.set(scheduler="threads", num_workers=2, **{"rewrite.reassociate": False}):
        made = PROGRAMS[name](x)
        assert_same_as_stock(made)
        getters = (getter, getter_nofancy)
        with switched_on():
            calls = sum(loads(tasks_of(made), each) for each in getters)
        assert calls <= sum(loads(stock_tasks_of(made), each) for each in getters) / 4
