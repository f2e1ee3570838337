"""Of each block only the box that its users need is made and read."""

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
from dask.array import chunk
from demand_cases import Stored, gets, square

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand import Demand
from dask_rewrite.remarks import Remarks
from helpers import allocated, assert_same, functions_in, stock, switched_on, tasks_of


@pytest.fixture(autouse=True)
def small_blocks_too() -> Any:
    """As the blocks of these tests are."""
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        yield


#: On (100, 100), stored in chunks of 10 and cut into blocks of 20: how many stored chunks are wanted.
ROWS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "read": (lambda v: v[:5, :3], 1),
    "slice of slice": (lambda v: v[5:60][2:9][::2], 20),
    "elementwise": (lambda v: (v + v.sum(axis=0))[:5, :3], 10),
    "map_blocks": (lambda v: da.map_blocks(np.sin, v)[:25], 30),
    "transpose": (lambda v: v.T[:5, :3], 1),
    "new axis": (lambda v: v[None][:, :5], 10),
    "broadcast": (lambda v: da.broadcast_to(v[0], (50, 100))[:3, :7], 1),
    "concatenate": (lambda v: da.concatenate([v, v + 1])[95:105], 20),
    "stack": (lambda v: da.stack([v, v])[1], 100),
    "reshape": (lambda v: v.reshape(100, 10, 10)[:5], 10),
    "reduction": (lambda v: v.sum(axis=0)[:5], 10),
    "list": (lambda v: v[[5, 3, 8]][:, :5], 1),
    "windows": (lambda v: ((v + 1)[:20], (v + 1)[60:]), 60),
    "twice turned": (lambda v: (v + v).T.T[:5], 10),
    "list of elementwise": (lambda v: (v + 1)[:, [5, 1, 77]], 20),
    "rechunk": (lambda v: (v + 1).rechunk((30, 30))[:5, :7] + 1, 1),
    "moments": (lambda v: v.std(axis=0)[3:5], 10),
    "positions": (lambda v: v.argmax(axis=0)[3:5], 10),
    "scan": (lambda v: v.cumsum(axis=0)[:5, :3], 1),
    "scan over blocks": (lambda v: v.cumsum(axis=0)[:, :5], 10),
    "end of a scan": (lambda v: da.nancumsum(v, axis=0)[-1, 3], 10),
    "scan of products": (lambda v: (v % 3).cumprod(axis=1)[7], 10),
    "where": (lambda v: da.where(v > 500, v, v.max(axis=1)[:, None])[50, ::7], 10),
    "flip": (lambda v: da.flip(v + 1, 0)[:5, :5], 1),
    "steps": (lambda v: (v * 2)[90:40:-9, 50:1:-4][1:3], 12),
    "cast": (lambda v: v.astype("f4")[:3, :3].astype("i4"), 1),
    "one block is cut, another is not": (lambda v: ((v + 1)[:3, :3], (v + 1)[:, :3].max()), 10),
    "nothing": (lambda v: (v + 1)[5:5], 0),
    "number": (lambda v: (v + 1)[5, 5], 1),
    "matmul": (lambda v: (v @ v)[:5], 100),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", ["f8", "i4", "u1"])
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:All-NaN", "ignore:overflow")
def test_reads_what_is_needed(name: str, dtype: str) -> None:
    make, wanted = ROWS[name]
    source = Stored(square(dtype), (10, 10))
    with stock():
        before, expected = gets(make, source, (20, 20))
    with switched_on():
        after, found = gets(make, source, (20, 20))
    if name == "matmul" and dtype == "f8":  # which adds in another order for other shapes, on some processors
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    else:
        assert_same(found, expected)
    assert after <= wanted <= before


def test_a_point_of_anomalies_reads_its_own_chunks_in_little_memory() -> None:
    data = np.random.default_rng(0).random((8, 2048, 2048))
    source = Stored(data, (1, 256, 256))

    def anomaly(x: Any) -> Any:
        return ((x - 3) * x.mean(axis=0) / 2)[:, 1000, 1000]

    with switched_on():
        peak = allocated(lambda: gets(anomaly, source, (4, 2048, 2048)))
        count, found = gets(anomaly, source, (4, 2048, 2048))
    assert count == 8
    mean = data[:, 1000, 1000].mean()
    np.testing.assert_allclose(found[0], (data[:, 1000, 1000] - 3) * mean / 2, rtol=1e-14)
    # decoding eight chunks of half a megabyte one after the other, and what the optimizer itself takes
    assert peak < 8 * 256 * 256 * 8


def test_a_point_takes_the_memory_of_the_chunks_that_zarr_decodes_together() -> None:
    """Zarr decodes the four chunks of a read at the same time; one after the other they take 0.6 MB."""
    source = Stored(np.arange(8.0).repeat(2048 * 2048).reshape(8, 2048, 2048), (1, 256, 256))
    x = da.from_array(source.array, chunks=(4, 2048, 2048))
    made = dask_rewrite.optimize(((x - 3) * x.mean(axis=0) / 2)[:, 1000, 1000])
    assert allocated(lambda: made.compute(scheduler="sync")) < 4 * 256 * 256 * 8 + 500_000
    with zarr.config.set({"async.concurrency": 1}):
        assert allocated(lambda: made.compute(scheduler="sync")) < 1_000_000


def test_sums_of_floats_shrink_only_where_they_may_be_regrouped() -> None:
    floats, whole = Stored(square(), (10, 10)), Stored(square("i8"), (10, 10))

    def column(v: Any) -> Any:
        return v.sum(axis=0)[3]

    with switched_on(**{"rewrite.reassociate": False}):
        assert gets(column, floats, (20, 20))[0] == 20
        assert gets(column, whole, (20, 20))[0] == 10
        assert gets(lambda v: v.max(axis=0)[3], floats, (20, 20))[0] == 10
    with switched_on():
        assert gets(column, floats, (20, 20))[0] == 10


SUMS: dict[str, Callable[[da.Array], Any]] = {
    "transposed": lambda x: x.T[:40].sum(axis=1),
    "transposed, by two": lambda x: (x.T[:40].sum(axis=1), x.T[:45].sum(axis=1)),
    "turned": lambda x: da.rot90(x)[:40].mean(axis=1),
    "turned around": lambda x: x[:, ::-1].T[20:60].sum(),
    "columns, by two": lambda x: (x[:, :40].sum(), x[:, :45].sum()),
    "worked on": lambda x: (x.T * 2 + 1)[:40].sum(axis=1),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_slices_follow_the_memory_as_before(name: str) -> None:
    """Dask's own slice of half of a block lies in C order, whatever it is taken from: so do ours."""
    stored = zarr.array(np.random.default_rng(0).normal(size=(300, 300)).astype("f4"), chunks=(100, 100))
    outputs = SUMS[name](da.from_array(stored, chunks=100))
    outputs = outputs if type(outputs) is tuple else (outputs,)
    with stock():
        expected = dask.compute(*outputs, scheduler="sync")
    with switched_on(), dask.config.set({"rewrite.reassociate": False}):
        for found, each in zip(dask.compute(*outputs, scheduler="sync"), expected, strict=True):
            assert found.tobytes() == each.tobytes()


def test_slices_are_copied_only_where_that_changes_the_order() -> None:
    """What is read lies in C order already."""
    x = da.from_array(zarr.zeros((300, 300), chunks=(100, 100)), chunks=100)
    with switched_on():
        graph = tasks_of(x[:, :40].sum(), (x + 1)[:30].sum())
    assert np.array not in [func for node in graph.values() for func in functions_in(node)]
    with switched_on():
        graph = tasks_of(x.T[:40].sum(axis=1))
    assert np.array in [func for node in graph.values() for func in functions_in(node)]


def test_an_unknown_function_gets_its_whole_block() -> None:
    shapes = []

    def unknown(block: Any) -> Any:
        shapes.append(block.shape)
        return block - block.mean()

    source = Stored(square("i8"), (10, 10))
    with switched_on():
        count, (found,) = gets(
            lambda v: (da.map_blocks(unknown, v + 1, dtype="f8", meta=np.empty((0, 0))) * 2)[:3, :3],
            source,
            (20, 20),
        )
    assert set(shapes) == {(20, 20)}
    assert count == 4
    block = source.array[:20, :20] + 1
    assert_same(found, ((block - block.mean()) * 2)[:3, :3])


def test_who_gets_a_slice_may_write_into_it() -> None:
    def writes(block: Any) -> Any:
        block += 1
        return block

    data = np.arange(400.0).reshape(20, 20)

    def make() -> Any:
        x = da.from_array(data, chunks=20) * 1
        part = x[:5]
        one = da.map_blocks(writes, part, dtype="f8", meta=np.empty((0, 0)))
        return one, part, x[:5, :5], da.from_array(data, chunks=20).T[:5]

    before = data.copy()
    with stock():
        expected = dask.compute(*make(), scheduler="sync")
    with switched_on():
        found = dask.compute(*make(), scheduler="sync")
    assert_same(found[0], expected[0])
    for one in found[2:]:
        one += 7
    assert_same(data, before)
    assert not any(np.shares_memory(a, b) for i, a in enumerate(found) for b in found[:i])


@pytest.mark.parametrize("lock", [False, True])
def test_hdf5(tmp_path: Path, lock: bool) -> None:
    data = square()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=data, chunks=(10, 10))
        v = da.from_array(file["x"], chunks=(50, 50), lock=lock)
        made = ((v + 1) * v.max(axis=0))[3, 10:20]
        with switched_on():
            graph = dask.optimize(made)[0].dask.to_dict()
            found = made.compute(scheduler="sync")
        with stock():
            expected = made.compute(scheduler="sync")
    assert_same(found, expected)
    reads = [index for index in _indices(graph.values()) if index]
    assert max(np.prod([i.stop - i.start for i in index if type(i) is slice]) for index in reads) <= 50 * 10


def _indices(nodes: Any) -> list[Any]:
    from dask.array.core import getter

    found = []
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if isinstance(node, Task):
            if node.func is getter:
                index = node.args[1]
                found.append(index.value if isinstance(index, DataNode) else index)
            stack += [*node.args, *node.kwargs.values()]
    return found


def test_deep_and_branching_work_shrinks() -> None:
    data = np.arange(10_000.0).reshape(100, 100)
    source = Stored(data, (10, 10))

    def chain(v: Any) -> Any:
        for i in range(60):
            v = v + i if i % 3 else (v * 2 + v.max(axis=0)) / 4
        return v[:5, :5]

    with stock():
        _, expected = gets(chain, source, (50, 50))
    with switched_on():
        count, found = gets(chain, source, (50, 50))
    assert_same(found, expected)
    assert count == 10


@pytest.mark.parametrize("kind", ["masked", "object", "structured"])
def test_other_arrays_are_as_stock_leaves_them(kind: str) -> None:
    data: Any = np.arange(100.0).reshape(10, 10)
    if kind == "masked":
        data = np.ma.masked_less(data, 30)
    elif kind == "object":
        data = data.astype(object)
    else:
        data = data.astype([("a", "f8"), ("b", "i4")])
    x = da.from_array(data, chunks=5)
    y = (x if kind == "structured" else x + 1)[:3, [1, 7]]
    with stock():
        expected = y.compute(scheduler="sync")
    with switched_on():
        assert_same(y.compute(scheduler="sync"), expected)


def test_creation_shrinks() -> None:
    for make in (
        lambda: (da.arange(10**9, chunks=10**9) * 2)[5:9],
        lambda: (da.ones((10**5, 10**5), chunks=10**5) + da.arange(10**5, chunks=10**5))[:5, ::20_000],
        lambda: da.full((10**5, 10**5), 3, chunks=10**5).cumsum(axis=1)[:2, :3],
    ):
        with switched_on():
            assert make().compute(scheduler="sync").size <= 25
            assert allocated(lambda make=make: make().compute(scheduler="sync")) < 10_000_000


def graph_of(index: Any = (slice(0, 3),)) -> Graph:
    nodes: dict[Any, Any] = {
        ("x", 0): DataNode(("x", 0), np.arange(10.0)),
        ("y", 0): Task(("y", 0), operator.add, TaskRef(("x", 0)), 1),
        "z": Task("z", operator.getitem, TaskRef(("y", 0)), index),
    }
    return Graph(nodes, ("z",))


def test_says_what_it_did() -> None:
    graph, remarks = graph_of(), Remarks()
    after = Demand(min_bytes=1).run(graph, Context(remarks))
    verify(after, thorough=True)
    assert_same(dask.get(after.nodes, "z"), np.arange(1.0, 4.0))
    assert [(r.kind, r.key, r.reason) for r in remarks] == [("applied", ("y", 0), "0:3 of 0:10")]
    assert graph.nodes.keys() & after.nodes.keys() == {("x", 0), "z"}
    assert Demand(min_bytes=1).run(after, Context()) is after


@pytest.mark.parametrize(
    "graph",
    [
        graph_of((slice(None),)),
        graph_of(([9, 0, 4],)),
        Graph(graph_of().nodes, ("z", ("y", 0))),
        Graph({**graph_of().nodes, "w": Task("w", repr, TaskRef(("y", 0)))}, ("z", "w")),
        Graph({k: v for k, v in graph_of().nodes.items() if k != "z"}, (("y", 0),)),
    ],
    ids=["all", "from first to last", "an output", "another user", "no slice"],
)
def test_leaves_what_is_wanted_whole(graph: Graph) -> None:
    assert Demand(min_bytes=1).run(graph, Context()) is graph


def test_stops_at_the_bisect_limit() -> None:
    graph, remarks = graph_of(), Remarks(0)
    assert Demand(min_bytes=1).run(graph, Context(remarks)) is graph


def test_annotations_stay_with_the_smaller_block() -> None:
    graph = graph_of()
    graph.annotations["y", 0] = {"priority": 7}
    after = Demand(min_bytes=1).run(graph, Context())
    (key,) = after.nodes.keys() - graph.nodes.keys()
    assert after.annotations == {key: {"priority": 7}}


def _in_rows(make: Callable[[int], Task]) -> Graph:
    """Blocks of one form, each of its own work, and a slice of each."""
    nodes: dict[Any, Any] = {}
    for i in range(6):
        nodes["x", i] = Task(("x", i), np.add, Task(None, np.ones, (4, 30)), float(i))
        nodes["y", i] = make(i)
        nodes["z", i] = Task(("z", i), chunk.getitem, TaskRef(("y", i)), (slice(None), slice(3, 6)))
    return Graph(nodes, tuple(key for key in nodes if key[0] == "z"))


@pytest.mark.parametrize(
    "make",
    [
        lambda i: Task(("y", i), np.add, TaskRef(("x", i)), np.arange(30.0) * i),
        lambda i: Task(("y", i), np.add, DataNode(None, np.arange(30.0) * i), TaskRef(("x", i))),
        lambda i: Task(("y", i), np.add, TaskRef(("x", i)), [0.0, -0.0, 1, True, 2, np.float64(2)][i]),
        lambda i: Task(("y", i), np.add, TaskRef(("x", i)), TaskRef(("x", max(i - 1, 0)))),
        lambda i: Task(("y", i), [np.add, np.multiply][i % 2], TaskRef(("x", i)), TaskRef(("x", 5 - i))),
        lambda i: Task(("y", i), chunk.getitem, TaskRef(("x", i)), (slice(None), slice(i, None))),
        lambda i: Task(("y", i), chunk.getitem, TaskRef(("x", i)), (slice(None), list(range(i, 24)))),
        lambda i: Task(("y", i), np.sum, TaskRef(("x", i)), axis=0, keepdims=i % 2 == 0, dtype="f8"),
    ],
)
def test_tasks_share_a_plan_only_where_they_differ_in_references_alone(make: Callable[[int], Task]) -> None:
    graph = _in_rows(make)
    if graph.nodes["y", 1].func is np.sum:
        slices = [graph.nodes["z", i] for i in range(6)]
        for i, task in enumerate(slices):
            index = (slice(None), slice(3, 6)) if i % 2 == 0 else (slice(3, 6),)
            graph.nodes[task.key] = Task(task.key, chunk.getitem, task.args[0], index)
    after = Demand(min_bytes=1).run(graph, Context(Remarks()))
    verify(after, thorough=True)
    assert after is not graph
    wanted = list(graph.outputs)
    assert_same(dask.get(after.nodes, wanted), dask.get(graph.nodes, wanted))
