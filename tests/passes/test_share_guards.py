"""What the sharing of equal work must not break."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef

from dask_rewrite.graph.graph import consumers_of
from dask_rewrite.passes.share.bulk_effects import Behaviour, maybe_written
from dask_rewrite.passes.share.immutable import index_parts, is_frozen
from dask_rewrite.passes.share.tokens import Identity
from helpers import (
    assert_same,
    assert_same_as_stock,
    counted,
    distinct,
    switched_on,
    tasks_of,
)
from passes.share_cases import add_one_in_place, full, gathered, graph_of, key, left_over, run

# -- guards --------------------------------------------------------------------------------

STRANGE = [
    1,
    1.0,
    True,
    1 + 0j,
    np.float64(1),
    np.float32(1),
    np.int64(1),
    0.0,
    -0.0,
    float("nan"),
    complex(0, -0.0),
    complex(-0.0, 0),
    "1",
    b"1",
    None,
    (1,),
    (True,),
    (1.0,),
    [1],
    {"a": 1},
    {"a": True},
    slice(1),
    slice(1.0),
    np.dtype("f8"),
    np.dtype(">f8"),
    np.array(1),
    np.array([1]),
    np.array([1.0]),
    np.array([[1.0]]),
    np.array([0.0]),
    np.array([-0.0]),
    np.array([np.nan]),
    np.array([1, 2]),
    np.array([[1, 2], [3, 4]]),
    np.array([[1, 2], [3, 4]]).T.copy().T,
    np.array([1.0, 2.0], dtype=">f8"),
    np.datetime64("2000-01-01"),
    np.datetime64("2000-01-01", "s"),
    np.datetime64("NaT", "s"),
    np.timedelta64("NaT", "s"),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("c", "f8")]),
    operator.add,
    operator.sub,
    partial(operator.add, 1),
    partial(operator.add, True),
    Ellipsis,
]


def test_constants_are_compared_by_their_bits() -> None:
    import copy

    identity = Identity({})
    tokens = [identity.of(Task(None, max, value)) for value in STRANGE]
    assert len(set(tokens)) == len(STRANGE)
    again = [identity.of(Task(None, max, copy.copy(value))) for value in STRANGE]
    assert again == tokens


def test_many_tasks_at_once_have_the_same_tokens_as_each_alone() -> None:
    def tasks(value: Any) -> list[Any]:
        ref = TaskRef(("x", 0))
        template = Task(None, operator.mul, TaskRef("x0"), value)
        return [
            Task("a", operator.add, ref, value),
            Task("b", np.sum, List(ref, value, List(ref))),
            Task("c", np.full, (2, 3), value, dtype=float),
            Task("d", template.__call__, Task(None, dict, x0=ref, x1=value)),
            Task("e", np.sum, ref, axis=0, keepdims=value),
            Task("f", np.sum, ref, keepdims=value, axis=0),
            Task("g", operator.getitem, ref, (slice(value), 0)),
            Task("h", partial(operator.add, value), DataNode(None, value)),
            Alias("i", ("x", 0)),
            DataNode("j", value),
            Dict({"k": ref}),
        ]

    def plain(value: Any) -> bool:
        return isinstance(value, (int, float, type(None), str))

    nodes = [task for value in filter(plain, STRANGE) for task in tasks(value)]
    nodes += [Task(None, max, value, TaskRef(i)) for value in STRANGE for i in range(2)]
    nodes += [Task(None, np.ones, (i % 3,)) for i in range(9)] + [Task(None, np.ones, (True,))]
    identity = Identity({("x", 0): 7})
    assert identity.many(nodes) == list(map(identity.of, nodes))
    assert identity.many(STRANGE) == list(map(identity.of, STRANGE))


def test_who_writes_is_found_through_views() -> None:
    def of(name: str, function: Any, *names: str) -> Task:
        return Task(name, function, *[TaskRef(each) for each in names])

    nodes = {
        "a": DataNode("a", np.ones(4)),
        "b": DataNode("b", np.ones(4)),
        "view": of("view", np.transpose, "a"),
        "view of view": of("view of view", np.ravel, "view"),
        "sum": of("sum", np.add, "view", "b"),
        "out": of("out", add_one_in_place, "view of view"),
        "asked for": of("asked for", np.ravel, "sum"),
    }
    consumers = consumers_of(nodes)
    behaviour = Behaviour(nodes)
    assert maybe_written(["a", "b"], nodes, consumers, ["out"], behaviour) == {"a", "view", "view of view"}
    assert maybe_written(["b"], nodes, consumers, ["out"], behaviour) == set()
    assert maybe_written(["sum"], nodes, consumers, ["asked for"], behaviour) == {"sum"}


def test_results_that_nothing_uses_are_not_looked_at() -> None:
    x = da.ones((400, 4), chunks=1)
    with switched_on():
        assert len(tasks_of(x)) == 1600
        assert_same(x.compute(), np.ones((400, 4)))


def test_what_equals_only_itself() -> None:
    def inner() -> None: ...

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None

    identity = Identity({})
    pairs = [
        (Odd(), Odd()),
        (np.array([1.5, "a"], dtype=object), np.array([1.5, "a"], dtype=object)),
        (np.ma.masked_array([1.0], [True]), np.ma.masked_array([1.0], [True])),
        ({1, 2}, {1, 2}),
        (lambda: 1, lambda: 1),
        (np.random.default_rng(0), np.random.default_rng(0)),
        (np.longdouble(1) * np.ones(2, "g"), np.longdouble(1) * np.ones(2, "g")),
    ]
    for one, other in pairs:
        assert identity.of(one) != identity.of(other)
        assert identity.of(one) == identity.of(one)


def test_nan_equals_itself() -> None:
    graph = graph_of(full("a", np.nan), full("b", np.nan), gathered("a", "b"))
    assert left_over(run(graph)[0]) == {"a", "out"}
    assert_same_as_stock(da.full((4, 4), np.nan, chunks=2).sum(axis=0))


def test_arrays_beyond_the_budget_are_not_read() -> None:
    identity = Identity({}, budget=10_000)
    arrays = [np.arange(1000.0) for _ in range(3)]
    first, second, third = map(identity.of, arrays)
    assert first != second != third
    assert identity.of(arrays[0]) == first


@pytest.mark.parametrize("kind", ["O", "U3", "M8[s]", "c16", "?", "i1", "V4", "f2"])
def test_dtypes(kind: str) -> None:
    if kind == "V4":
        values = np.zeros(12, dtype=[("a", "i2"), ("b", "i2")])
    else:
        values = np.zeros(12, dtype="i1").astype(kind)
    x = da.from_array(values, chunks=3)
    assert_same_as_stock(da.concatenate([x, x[::-1]]).rechunk(5), da.concatenate([x[3:6], x[:3]]))


def test_masked_sparse_and_other_blocks() -> None:
    sparse = pytest.importorskip("sparse")
    ones = da.ones((6, 6), chunks=2)
    for kind in (np.ma.masked_greater, sparse.COO):
        x = ones.map_blocks(kind, 3) if kind is np.ma.masked_greater else ones.map_blocks(kind)
        assert_same_as_stock(x + x, x.sum(axis=0), (x * 2)[::-1])


def test_empty_and_zero_dimensional() -> None:
    x = da.ones((0, 4), chunks=2)
    y = da.full((), 3.0)
    z = da.full((), 3.0, chunks=())
    assert_same_as_stock(da.concatenate([x, x, da.ones((2, 4), chunks=2)]), x.sum(axis=0), y + z, y - 3)


def test_each_result_is_a_block_of_its_own() -> None:
    x, y = da.ones((4, 4), chunks=2), da.ones((4, 4), chunks=(2, 4))
    with switched_on():
        persisted = x.persist(scheduler="sync")
        blocks = [persisted.blocks[i, j].compute() for i in range(2) for j in range(2)]
        a, b = dask.compute(x.sum(axis=0), y.sum(axis=0), scheduler="sync")
    a += 1
    blocks[0].flags.writeable and blocks[0].fill(7)
    assert_same(b, np.full(4, 4.0))
    assert_same(blocks[1], np.ones((2, 2)))


def test_functions_that_write_in_place() -> None:
    x = da.eye(8, chunks=2).map_blocks(add_one_in_place, dtype="f8", meta=np.empty((0, 0)))
    y = da.zeros((8, 8), chunks=2) + 0
    z = y.map_blocks(add_one_in_place, dtype="f8", meta=np.empty((0, 0)))
    with switched_on():
        assert_same(x.compute(), np.eye(8) + 1)
        assert_same(z.compute(), np.ones((8, 8)))
        assert_same(z.sum().compute(), np.float64(64))


def test_loads_stay_as_few_as_they_were() -> None:
    source, x = counted((6, 6), 2)
    y = (x + da.ones((6, 6), chunks=2)[::-1]).sum() + x.max()
    source.reset()
    with switched_on():
        y.compute()
    assert source.loads == 9


def test_containers_in_tasks() -> None:
    graph = graph_of(
        full("a", 1.0),
        full("b", 1.0),
        Task(
            key("out"),
            np.concatenate,
            List(TaskRef(key("a")), List(TaskRef(key("b")))),
            Dict({"axis": TaskRef(key("b"))}),
        ),
    )
    after, _ = run(graph)
    assert after.nodes[key("out")].dependencies == {key("a")}


def test_what_nobody_can_write_into() -> None:
    structured = np.zeros(2, dtype=[("a", "i4")])
    for value in (1, "a", b"a", (1, "a"), np.float64(1), np.datetime64("NaT", "s"), slice(1), np.dtype("f8")):
        assert is_frozen(value)
        assert is_frozen(DataNode("x", value))
    for value in ([1], {"a": 1}, {1}, np.ones(2), structured[0], (np.ones(2),), object(), bytearray(b"a")):
        assert not is_frozen(value)
        assert not is_frozen(DataNode("x", value))


def test_indexes_are_compared_by_what_is_in_them() -> None:
    pd = pytest.importorskip("pandas")
    dates = pd.date_range("2000-01-01", periods=4)
    indexes = [
        pd.RangeIndex(3),
        pd.RangeIndex(3, name="x"),
        pd.Index([0, 1, 2]),
        pd.Index([0.0, 1.0, 2.0]),
        pd.Index([0.0, 1.0, np.nan]),
        pd.Index([-0.0, 1.0, np.nan]),
        pd.Index(["a", "b"]),
        pd.Index(["a", "b"], dtype=object),
        dates,
        dates[[0, 1, 2, 3]],
        dates + pd.Timedelta(1, "D"),
        dates - dates[0],
    ]
    identity = Identity({})
    tokens = [identity.of(index) for index in indexes]
    texts = 0 if indexes[6].dtype != object else 1  # older versions of pandas hold text as objects
    assert len(set(tokens)) == len(tokens) - texts
    assert [identity.of(index.copy()) for index in indexes] == tokens
    for strange in (
        pd.MultiIndex.from_product([[1, 2], [3]]),
        dates.tz_localize("UTC"),
        pd.Index([1, "a"], dtype=object),
        pd.CategoricalIndex(["a"]),
    ):
        assert index_parts(strange) is None
        assert identity.of(strange) != identity.of(strange.copy())


def test_labels_of_xarray_objects() -> None:
    xr = pytest.importorskip("xarray")
    coords = {"x": np.arange(12.0), "t": np.arange(12).astype("M8[D]")}
    field = xr.DataArray(distinct((12, 12), 4), dims=("x", "t"), coords=coords, attrs={"unit": "m"})
    result = field
    for _ in range(5):
        result = xr.map_blocks(lambda block: block * 2, result, template=field)
    tasks = tasks_of(result)
    labels = [name for name, *_ in tasks if name.startswith(("x-", "t-"))]
    assert len(labels) == 6
    assert_same_as_stock(result)
