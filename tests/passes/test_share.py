"""Equal work becomes one task, and nobody can tell."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef
from dask.local import get_sync
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.graph.graph import Graph, consumers_of
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.share import Share
from dask_rewrite.passes.share.bulk_effects import Behaviour, written
from dask_rewrite.passes.share.immutable import index_parts, is_frozen
from dask_rewrite.passes.share.tokens import Identity
from dask_rewrite.remarks import Remarks
from helpers import (
    assert_linear,
    assert_same,
    assert_same_as_stock,
    checked,
    counted,
    distinct,
    stock_tasks_of,
    switched_on,
    tasks_of,
)


def graph_of(*nodes: Any, outputs: tuple[Any, ...] = (), **options: Any) -> Graph:
    return Graph({node.key: node for node in nodes}, outputs or (nodes[-1].key,), **options)


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    return Share(**options).run(graph, Context(remarks)), remarks


def reasons(remarks: Remarks) -> set[str]:
    return {remark.reason for remark in remarks if remark.kind == "missed"}


def key(name: str) -> tuple[str, int]:
    return (name, 0)


def full(name: str, value: Any, shape: Any = (2, 3), function: Any = np.full) -> Task:
    return Task(key(name), function, shape, value)


def added(name: str, *names: str) -> Task:
    return Task(key(name), operator.add, *[TaskRef(key(each)) for each in names])


def gathered(*names: str) -> Task:
    """A task that reads blocks and does not write into them."""
    return Task(key("out"), np.concatenate, List(*[TaskRef(key(each)) for each in names]))


def left_over(graph: Graph) -> set[str]:
    return {name for name, _ in graph.nodes}


# -- fires ---------------------------------------------------------------------------------


def test_equal_constants_become_one() -> None:
    graph = graph_of(full("a", 1.0), full("b", 1.0), full("c", 2.0), gathered("a", "b", "c"))
    after, remarks = run(graph)
    assert left_over(after) == {"a", "c", "out"}
    assert remarks.counts["share", "applied"] == 1
    assert_same(get_sync(after.nodes, key("out")), get_sync(graph.nodes, key("out")))


def test_whoever_made_them() -> None:
    nodes = (
        Task(key("a"), np.zeros, (2, 3)),
        full("b", 0.0),
        Task(key("c"), np.broadcast_to, np.float64(0.0), (2, 3)),
        full("d", -0.0),
        full("e", 0),
        gathered("a", "b", "c", "d", "e"),
    )
    assert left_over(run(graph_of(*nodes))[0]) == {"a", "d", "e", "out"}
    assert run(graph_of(*nodes), reassociate=False)[0].nodes.keys() == graph_of(*nodes).nodes.keys()


def test_what_is_made_of_them_too() -> None:
    graph = graph_of(
        full("a", 1.0),
        full("b", 1.0),
        DataNode(key("x"), np.arange(3.0)),
        added("p", "a", "x"),
        added("q", "b", "x"),
        Task(key("s"), np.sum, TaskRef(key("p"))),
        Task(key("t"), np.sum, TaskRef(key("q"))),
        added("out", "s", "t"),
    )
    after, _ = run(graph)
    assert left_over(after) == {"a", "x", "p", "s", "out"}
    assert after.nodes[key("out")].dependencies == {key("s")}
    assert_same(get_sync(after.nodes, key("out")), get_sync(graph.nodes, key("out")))


def test_parts_of_constants_are_constants() -> None:
    big = Task(key("big"), np.ones, (4, 9))
    graph = graph_of(
        big,
        Task(key("a"), operator.getitem, TaskRef(key("big")), (slice(2), slice(3))),
        Task(key("b"), operator.getitem, TaskRef(key("big")), (slice(2, 4), slice(3, 6))),
        gathered("a", "b"),
    )
    after, _ = run(graph)
    assert left_over(after) == {"a", "out"}
    assert not after.nodes[key("a")].dependencies
    assert_same(get_sync(after.nodes, key("out")), np.ones((4, 3)))


def test_a_block_and_a_part_that_is_all_of_it() -> None:
    graph = graph_of(
        Task(key("x"), np.ones, (2, 3)),
        Task(key("a"), operator.getitem, TaskRef(key("x")), slice(None)),
        Task(key("b"), operator.getitem, TaskRef(key("a")), slice(None)),
        gathered("x", "a", "b"),
    )
    after, _ = run(graph)
    assert left_over(after) == {"x", "out"}


def test_templates_that_do_the_same() -> None:
    def call(name: str) -> Task:
        template = Task(None, operator.mul, TaskRef("x0"), 3)
        return Task(key(name), template.__call__, Task(None, dict, x0=TaskRef(key("x"))))

    graph = graph_of(
        DataNode(key("x"), np.arange(3)),
        DataNode(key("y"), np.arange(3)),
        call("a"),
        call("b"),
        gathered("a", "b", "y"),
    )
    # both are looked at because what they use stands for something else as well
    after, _ = run(graph)
    assert left_over(after) == {"x", "a", "out"}


def test_equal_data() -> None:
    nodes = [DataNode(key(name), np.arange(600.0)) for name in "ab"]
    other = DataNode(key("c"), np.arange(600.0) + (np.arange(600) == 300))
    after, _ = run(graph_of(*nodes, other, gathered("a", "b", "c")))
    assert left_over(after) == {"a", "c", "out"}


# -- declines ------------------------------------------------------------------------------


def declines(*nodes: Any, reason: str | None = None, **options: Any) -> None:
    graph = graph_of(*nodes, **options)
    after, remarks = run(graph)
    assert after is graph
    assert not remarks.counts["share", "applied"]
    assert reasons(remarks) == ({reason} if reason else set())


def add_one_in_place(block: np.ndarray) -> np.ndarray:
    block += 1
    return block


def test_somebody_may_write() -> None:
    declines(
        full("a", 1.0),
        full("b", 1.0),
        Task(key("p"), add_one_in_place, TaskRef(key("a"))),
        Task(key("q"), operator.neg, TaskRef(key("b"))),
        Task(key("out"), np.concatenate, List(*[TaskRef(key(each)) for each in "pqab"])),
        reason="somebody may write into the blocks",
    )


def test_somebody_may_write_into_a_view() -> None:
    declines(
        full("a", 1.0),
        full("b", 1.0),
        Task(key("v"), operator.getitem, TaskRef(key("a")), (0,)),
        Task(key("p"), add_one_in_place, TaskRef(key("v"))),
        added("out", "p", "b", "a"),
        reason="somebody may write into the blocks",
    )


def test_the_one_that_is_written_into_stays_apart() -> None:
    graph = graph_of(
        *[full(name, 1.0) for name in "abc"],
        Task(key("p"), add_one_in_place, TaskRef(key("a"))),
        Task(key("out"), np.concatenate, List(*[TaskRef(key(n)) for n in "pbca"])),
    )
    after, _ = run(graph)
    assert left_over(after) == {"a", "b", "p", "out"}


def test_results_belong_to_the_user() -> None:
    declines(full("a", 1.0), full("b", 1.0), outputs=(key("a"), key("b")))
    declines(full("a", 1.0), full("b", 1.0), Alias(key("c"), key("a")), outputs=(key("c"), key("b")))


def test_functions_that_nobody_knows() -> None:
    def make(shape: Any) -> Any:
        return np.ones(shape)

    declines(Task(key("a"), make, (2,)), Task(key("b"), make, (2,)), added("out", "a", "b"))
    declines(
        Task(key("a"), operator.neg, Task(None, make, (2,))),
        Task(key("b"), operator.neg, Task(None, make, (2,))),
        added("out", "a", "b"),
    )


def test_random_numbers_stay_two() -> None:
    declines(
        Task(key("a"), np.random.random, (2,)),
        Task(key("b"), np.random.random, (2,)),
        added("out", "a", "b"),
    )
    x, y = da.random.random((4, 4), chunks=2), da.random.random((4, 4), chunks=2)
    with switched_on():
        assert (x - y).sum().compute() != 0


def test_delayed_work_stays_two() -> None:
    declines(
        Task("ones-1", np.ones, 3),
        Task("ones-2", np.ones, 3),
        Task("out", operator.add, TaskRef("ones-1"), TaskRef("ones-2")),
    )
    calls: list[int] = []

    def note(value: int) -> int:
        calls.append(value)
        return value

    both = [dask.delayed(note, pure=False)(1) for _ in range(2)]
    with switched_on():
        assert dask.delayed(sum)(both).compute(scheduler="sync") == 2
    assert calls == [1, 1]


def test_annotations_and_marks_agree() -> None:
    nodes = (full("a", 1.0), full("b", 1.0), added("out", "a", "b"))
    declines(*nodes, annotations={key("a"): {"priority": 1}})
    same = graph_of(*nodes, annotations={key(n): {"priority": 1} for n in "ab"})
    assert left_over(run(same)[0]) == {"a", "out"}
    declines(
        full("a", 1.0),
        Task(key("b"), np.full, (2, 3), 1.0, _data_producer=True),
        added("out", "a", "b"),
    )


def test_large_blocks_of_a_constant() -> None:
    declines(
        full("a", 1.0, (400, 400)),
        full("b", 1.0, (400, 400)),
        added("out", "a", "b"),
        reason="the blocks are large",
    )
    graph = graph_of(
        full("a", 1.0, (400, 400)),
        full("b", 1.0, (400, 400)),
        Task(key("s"), np.sum, TaskRef(key("a"))),
        Task(key("t"), np.sum, TaskRef(key("b"))),
        added("out", "s", "t"),
    )
    after, _ = run(graph)
    assert left_over(after) == {"s", "out"}
    assert_same(get_sync(after.nodes, key("out")), np.float64(320_000))


def test_what_becomes_part_of_its_consumer_anyway() -> None:
    declines(
        full("a", 1.0),
        full("b", 1.0),
        Task(key("p"), operator.getitem, TaskRef(key("a")), 0),
        Task(key("q"), add_one_in_place, TaskRef(key("b"))),
        added("out", "p", "q"),
    )


def test_bisect_limit() -> None:
    graph = graph_of(*[full(name, 1.0) for name in "abcd"], gathered("a", "b", "c", "d"))
    for limit, left in ((0, 5), (1, 4), (2, 3), (-1, 2)):
        after = Share().run(graph, Context(Remarks(bisect_limit=limit)))
        assert len(after.nodes) == left
        assert_same(get_sync(after.nodes, key("out")), np.ones((8, 3)))


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
    np.datetime64("NaT"),
    np.timedelta64("NaT"),
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
    assert written(["a", "b"], nodes, consumers, ["out"], behaviour) == {"a", "view", "view of view"}
    assert written(["b"], nodes, consumers, ["out"], behaviour) == set()
    assert written(["sum"], nodes, consumers, ["asked for"], behaviour) == {"sum"}


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
    for value in (1, "a", b"a", (1, "a"), np.float64(1), np.datetime64("NaT"), slice(1), np.dtype("f8")):
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


# -- equivalent ----------------------------------------------------------------------------


@st.composite
def programs(draw: Any) -> da.Array:
    value = st.sampled_from([0.0, -0.0, 1.0, 0.1, np.nan])
    shape, chunk = (6, 6), st.integers(1, 6)
    arrays = [distinct(shape, 3)]
    for _ in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["full", "add", "rows", "join", "double", "part", "sum"]))
        one, other = (arrays[draw(st.integers(0, len(arrays) - 1))] for _ in range(2))
        if kind == "full":
            made = da.full(shape, draw(value), chunks=draw(chunk))
        elif kind == "add":
            made = one + other
        elif kind == "rows":
            made = one[::-1]
        elif kind == "join":
            made = da.concatenate([one, other])[3:9].rechunk(draw(chunk))
        elif kind == "double":
            made = one * 2
        elif kind == "part":
            made = da.concatenate([other[:2], one[2:]])
        else:
            made = one + other.sum(axis=0)
        arrays.append(made)
    return arrays[-1]


@given(programs(), st.booleans())
def test_equivalent(x: da.Array, exact: bool) -> None:
    with dask.config.set({"rewrite.reassociate": not exact}):
        assert_same_as_stock(x, x.max(axis=0))


def test_idempotent() -> None:
    graph = graph_of(*[full(name, 1.0) for name in "abcd"], gathered("a", "b", "c", "d"))
    after, _ = run(graph)
    again, remarks = run(after)
    assert again is after
    assert not len(remarks)


def test_one_name_never_stands_for_two_tasks() -> None:
    def tasks(value: float) -> dict[Any, Any]:
        x = da.full((6, 6), value, chunks=2)
        return tasks_of(da.concatenate([x, da.full((6, 6), 1.0, chunks=3)]).sum(axis=0))

    one, other = tasks(1.0), tasks(2.0)
    inner = {k for k in one if "aggregate" not in k[0]}
    assert not inner & other.keys()


# -- pays ----------------------------------------------------------------------------------


def test_pays() -> None:
    x = da.ones((120, 120), chunks=2).sum()
    assert len(stock_tasks_of(x)) > 4000
    assert len(checked(x)) <= 12
    assert_same_as_stock(x)


def test_linear() -> None:
    assert_linear(lambda n: da.ones((n * 8, 8), chunks=2).sum(axis=0), (50, 100, 200))


def test_off() -> None:
    with dask.config.set({"rewrite.disable": ["share"]}):
        assert len(tasks_of(da.ones((40, 40), chunks=2).sum())) > 100
