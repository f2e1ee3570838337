"""Results in the order asked for, and graphs that one can go on working with."""

from __future__ import annotations

import copy
import pickle
from itertools import permutations
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from dask.array.optimization import optimize as stock_array
from dask.base import DaskMethodsMixin
from dask.core import flatten
from dask.graph_manipulation import bind, checkpoint, clone, wait_on
from dask.highlevelgraph import HighLevelGraph

import dask_rewrite
from helpers import assert_same, distinct, keys_of, switched_on

VALUE = np.arange(16.0).reshape(4, 4)


class Wrapper(DaskMethodsMixin):
    """A collection that names dask's array optimizer directly, as some projects do."""

    __dask_optimize__ = staticmethod(stock_array)
    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __init__(self, array: da.Array) -> None:
        self.array = array

    def __dask_graph__(self) -> Any:
        return self.array.__dask_graph__()

    def __dask_keys__(self) -> Any:
        return self.array.__dask_keys__()

    def __dask_layers__(self) -> Any:
        return self.array.__dask_layers__()

    def __dask_postcompute__(self) -> Any:
        return self.array.__dask_postcompute__()

    def __dask_postpersist__(self) -> Any:
        return self._rebuild, ()

    def _rebuild(self, graph: Any, *, rename: Any = None) -> Wrapper:
        array = self.array
        return Wrapper(da.Array(graph, array.name, array.chunks, meta=array._meta))


def collections() -> dict[str, tuple[Any, Any]]:
    x = distinct((4, 4), 2)
    found = {
        "array": (x + 1, VALUE + 1),
        "array 2": (x.sum(), np.float64(VALUE.sum())),
        "delayed": (dask.delayed(int)("5"), 5),
        "delayed 2": (dask.delayed(sum)([1, 2]), 3),
        "bag": (db.from_sequence([1, 2, 3], npartitions=2), [1, 2, 3]),
        "item": (db.from_sequence([1, 2, 3], npartitions=2).sum(), 6),
        "wrapper": (Wrapper(x * 2), VALUE * 2),
    }
    try:
        import xarray as xr
    except ImportError:
        return found
    array = xr.DataArray(x - 1, dims=("a", "b"), name="t")
    found["xarray"] = (array, xr.DataArray(VALUE - 1, dims=("a", "b"), name="t"))
    return found


COLLECTIONS = list(collections())


# --------------------------------------------------------------------------------------
# order


def test_the_mix_that_stock_swaps() -> None:
    with switched_on():
        x = distinct((2,), 1)
        result = dask.compute(x, dask.delayed(5), x + 1)
    assert_same(result, (np.arange(2.0), 5, np.arange(2.0) + 1))


# A wrapper that comes before all arrays keeps stock's function for their group: see the pairs below.
FOURS = [
    order
    for order in permutations(["array", "delayed", "wrapper", "array 2"])
    if order.index("wrapper") > min(order.index("array"), order.index("array 2"))
]


@pytest.mark.parametrize("order", FOURS)
def test_every_order_of_four(order: tuple[str, ...]) -> None:
    with switched_on():
        found = collections()
        results = dask.compute(*(found[name][0] for name in order), scheduler="sync")
    assert_same(results, tuple(found[name][1] for name in order))


@pytest.mark.parametrize("first", COLLECTIONS)
@pytest.mark.parametrize("second", COLLECTIONS)
def test_every_pair_and_one_more(first: str, second: str) -> None:
    with switched_on():
        found = collections()
        order = (first, second, "array", "delayed", first)
        results = dask.compute(*(found[name][0] for name in order), scheduler="sync")
        assert_same(results, tuple(found[name][1] for name in order))


def test_all_of_them_forwards_and_backwards() -> None:
    for order in (COLLECTIONS, COLLECTIONS[::-1], COLLECTIONS + COLLECTIONS[::-1]):
        with switched_on():
            found = collections()
            results = dask.compute(*(found[name][0] for name in order), scheduler="sync")
        assert_same(results, tuple(found[name][1] for name in order))


def test_persisting_a_mix() -> None:
    with switched_on():
        found = collections()
        order = ["array", "delayed", "array 2", "bag", "wrapper"]
        persisted = dask.persist(*(found[name][0] for name in order), scheduler="sync")
        for name, collection in zip(order, persisted, strict=True):
            assert type(collection) is type(found[name][0])
            assert_same(collection.compute(scheduler="sync"), found[name][1])


def test_optimizing_a_mix() -> None:
    found = collections()
    optimized = dask_rewrite.optimize(*(found[name][0] for name in COLLECTIONS))
    for name, collection in zip(COLLECTIONS, optimized, strict=True):
        assert type(collection) is type(found[name][0])
        assert_same(collection.compute(scheduler="sync"), found[name][1])


def test_only_array_optimize_set() -> None:
    with dask.config.set(array_optimize=dask_rewrite.optimize):
        found = collections()
        for order in (["array", "array 2"], ["array", "wrapper", "array 2"], ["bag", "array"]):
            results = dask.compute(*(found[name][0] for name in order), scheduler="sync")
            assert_same(results, tuple(found[name][1] for name in order))


def test_nested_containers_keep_their_shape() -> None:
    with switched_on():
        x = distinct((4, 4), 2)
        (result,) = dask.compute({"a": [x, dask.delayed(5)], "b": (x.sum(), "text", {"c": x + 1})})
    assert_same(result, {"a": [VALUE, 5], "b": (VALUE.sum(), "text", {"c": VALUE + 1})})


def test_the_same_collection_twice() -> None:
    with switched_on():
        x = distinct((4, 4), 2) + 1
        assert_same(dask.compute(x, x, dask.delayed(5), x), (VALUE + 1, VALUE + 1, 5, VALUE + 1))


def test_mixed_with_a_dataframe() -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": range(6)})
    with switched_on():
        x = distinct((4, 4), 2)
        with pytest.warns(UserWarning, match="mixed collections"):
            # With the frame between the arrays dask itself gives the results in another order.
            a, c, b = dask.compute(x + 1, x.sum(), dd.from_pandas(frame, npartitions=2), scheduler="sync")
    assert_same((a, c), (VALUE + 1, np.float64(VALUE.sum())))
    pd.testing.assert_frame_equal(b, frame)


# --------------------------------------------------------------------------------------
# optimize, then go on working


def assert_layers_are_true(collection: Any) -> None:
    """The collection's own layer exists, holds its keys, and its dependencies are what it uses."""
    graph = collection.__dask_graph__()
    assert isinstance(graph, HighLevelGraph)
    names = collection.__dask_layers__()
    held = set()
    for name in names:
        assert name in graph.layers
        held |= set(graph.layers[name])
    assert set(flatten(collection.__dask_keys__())) <= held
    assert set(graph.dependencies) == set(graph.layers)
    owner = {key: name for name, layer in graph.layers.items() for key in layer}
    for name, layer in graph.layers.items():
        used = {owner[d] for node in layer.values() for d in node.dependencies if d in owner}
        assert used - {name} == set(graph.dependencies[name]) - {name}
    graph.validate()


@pytest.fixture(params=["array", "reduced", "one block", "leapfrog"])
def optimized(request: pytest.FixtureRequest) -> tuple[da.Array, np.ndarray]:
    x = distinct((4, 4), 2)
    if request.param == "reduced":
        return dask_rewrite.optimize((x + 1).sum(axis=0)), (VALUE + 1).sum(axis=0)
    if request.param == "one block":
        return dask_rewrite.optimize(distinct((4, 4), 4) + 1), VALUE + 1
    if request.param == "leapfrog":
        a, b = x, x + 1
        c, d = VALUE, VALUE + 1
        for _ in range(50):
            a, b, c, d = b, (a + b) * 0.5, d, (c + d) * 0.5
        return dask_rewrite.optimize(b), d
    return dask_rewrite.optimize((x + 1).T * 2), (VALUE + 1).T * 2


GO_ON = {
    "itself": (lambda y: y, lambda v: v),
    "+ 1": (lambda y: y + 1, lambda v: v + 1),
    "sliced": (lambda y: y[1:3], lambda v: v[1:3]),
    "with itself": (lambda y: y * y - y, lambda v: v * v - v),
    "rechunked": (lambda y: y.rechunk(1), lambda v: v),
    "reduced": (lambda y: y.max(), lambda v: v.max()),
    "clone": (clone, lambda v: v),
    "clone, omitting": (lambda y: clone(y + 1, omit=y), lambda v: v + 1),
    "bind": (lambda y: bind(y, dask.delayed(5)), lambda v: v),
    "bind to itself": (lambda y: bind(y + 1, y), lambda v: v + 1),
    "wait_on": (lambda y: wait_on(y), lambda v: v),
    "checkpoint": (lambda y: checkpoint(y), lambda v: None),
    "persist": (lambda y: y.persist(scheduler="sync"), lambda v: v),
    "persist + 1": (lambda y: y.persist(scheduler="sync") + 1, lambda v: v + 1),
    "optimized again": (lambda y: dask_rewrite.optimize(y) + 1, lambda v: v + 1),
    "optimized by dask": (lambda y: dask.optimize(y)[0] + 1, lambda v: v + 1),
    "in delayed": (lambda y: dask.delayed(np.sum)(y), lambda v: v.sum()),
    "by parts": (lambda y: dask.delayed(len)(y.to_delayed().ravel().tolist()), None),
    "mapped": (lambda y: y.map_blocks(lambda b: b + 1, dtype=y.dtype), lambda v: v + 1),
    "blocks": (lambda y: y.blocks[0], None),
}


@pytest.mark.parametrize("name", GO_ON)
@pytest.mark.parametrize("by", ["stock", "ours"])
def test_optimize_then_go_on(name: str, by: str, optimized: tuple[da.Array, np.ndarray]) -> None:
    y, value = optimized
    assert_layers_are_true(y)
    go_on, expected = GO_ON[name]
    z = go_on(y)
    z.__dask_graph__().validate()
    if by == "ours":
        with switched_on():
            result = dask.compute(go_on(y), scheduler="sync")[0]
    else:
        result = z.compute(scheduler="sync")
    if expected is not None:
        assert_same(result, expected(value))


def test_optimized_collections_travel(optimized: tuple[da.Array, np.ndarray]) -> None:
    y, value = optimized
    for dumps in (pickle.dumps, cloudpickle.dumps):
        sent = dumps(y)
        assert b"dask_rewrite" not in sent
        assert_same((pickle.loads(sent) + 1).compute(), value + 1)
    for twin in (copy.copy(y), copy.deepcopy(y)):
        assert_layers_are_true(twin)
        assert_same((twin * 2).compute(), value * 2)


def test_clones_of_optimized_collections_are_independent(optimized: tuple[da.Array, np.ndarray]) -> None:
    y, value = optimized
    twin = clone(y)
    assert not set(keys_of(twin)) & set(keys_of(y))
    assert_same(dask.compute(y, twin, clone(twin) + y), (value, value, value + value))
    with switched_on():
        assert_same(dask.compute(y, twin, clone(twin) + y), (value, value, value + value))
    assert b"dask_rewrite" not in cloudpickle.dumps(twin)


def test_binding_waits() -> None:
    order = []

    def mark(block: np.ndarray, name: str) -> np.ndarray:
        order.append(name)
        return block

    kwargs = {"dtype": "f8", "meta": np.empty(0)}
    first = dask_rewrite.optimize(distinct((4,), 2).map_blocks(lambda b: mark(b, "first"), **kwargs))
    second = dask_rewrite.optimize(distinct((6,), 2).map_blocks(lambda b: mark(b, "second"), **kwargs))
    for wrap in (lambda c: c, dask_rewrite.optimize):
        order.clear()
        wrap(bind(second, first)).compute()
        assert order == ["first"] * 2 + ["second"] * 3


def test_several_results_of_one_graph() -> None:
    x = distinct((4, 4), 2)
    y, z = dask_rewrite.optimize(x), dask_rewrite.optimize(2 * x)
    assert_same(dask.compute(y, z), (VALUE, 2 * VALUE))
    assert_same((y + z).compute(), 3 * VALUE)
    a, b = dask_rewrite.optimize(x + 1, (x + 1).sum(axis=0))
    for collection in (a, b):
        assert_layers_are_true(collection)
    assert_same((a + b).compute(), VALUE + 1 + (VALUE + 1).sum(axis=0))
    with switched_on():
        assert_same(dask.compute(a * 2, b, y), ((VALUE + 1) * 2, (VALUE + 1).sum(axis=0), VALUE))


def test_results_with_the_same_inner_names_do_not_overwrite_each_other() -> None:
    # Two rewritten graphs that share layers, fused in different ways, merged by dask.
    x = distinct((8,), 2)
    base = x * 3 + 1
    first = dask_rewrite.optimize((base - 1).rechunk(4) * 2)
    second = dask_rewrite.optimize((base - 1).sum() + base[:3].sum(), base)
    value = np.arange(8.0) * 3 + 1
    assert_same(dask.compute(first, *second), ((value - 1) * 2, (value - 1).sum() + value[:3].sum(), value))
    assert_same((first + second[1]).compute(), (value - 1) * 2 + value)
    with switched_on():
        assert_same((first + second[1]).compute(), (value - 1) * 2 + value)


def test_delayed_goes_on() -> None:
    a = dask.delayed(sum)([1, 2])
    b = dask_rewrite.optimize(a)
    assert_layers_are_true(b)
    assert (b + 1).compute() == 4
    assert dask.delayed(pow)(b, 2).compute() == 9
    assert clone(b).compute() == 3
    assert bind(b + 1, b).compute() == 4
    assert wait_on(b).compute() == 3
    assert dask.compute(b, dask_rewrite.optimize(a + 1), a) == (3, 4, 3)
    assert b.persist().compute() == 3


def test_delayed_with_several_outputs_goes_on() -> None:
    pair = dask.delayed(divmod, nout=2)(7, 3)
    quotient, rest = dask_rewrite.optimize(*pair)
    assert (quotient + rest * 10).compute() == 12
    assert dask.compute(quotient, rest) == (2, 1)


def test_bag_goes_on() -> None:
    b = dask_rewrite.optimize(db.from_sequence(range(6), npartitions=3).map(lambda i: i * 2))
    assert_layers_are_true(b)
    sync = {"scheduler": "sync"}
    assert b.map(str).compute(**sync) == ["0", "2", "4", "6", "8", "10"]
    assert clone(b).compute(**sync) == [0, 2, 4, 6, 8, 10]
    assert wait_on(b).compute(**sync) == [0, 2, 4, 6, 8, 10]
    assert b.sum().compute(**sync) == 30
    assert b.persist(**sync).filter(bool).count().compute(**sync) == 5
    assert dask.compute(b, b.max(), **sync) == ([0, 2, 4, 6, 8, 10], 10)
    item = dask_rewrite.optimize(b.sum())
    assert (item.compute(**sync), item.to_delayed().compute(**sync)) == (30, 30)


@pytest.mark.parametrize("kind", ["Dataset", "DataArray"])
def test_xarray_goes_on(kind: str) -> None:
    xr = pytest.importorskip("xarray")
    array = xr.DataArray(distinct((4, 4), 2), dims=("a", "b"), coords={"a": list("wxyz")}, name="t")
    original = (array if kind == "DataArray" else array.to_dataset()) * 2
    y = dask_rewrite.optimize(original)
    eager = original.compute()
    for go_on in (
        lambda o: o + 1,
        lambda o: o - o.mean("a"),
        lambda o: o.isel(b=slice(0, 2)).T if kind == "DataArray" else o.isel(b=slice(0, 2)),
        lambda o: o.persist(scheduler="sync") * 3,
        lambda o: dask_rewrite.optimize(o.sum("b")) + 1 if o is y else o.sum("b") + 1,
        lambda o: clone(o) if o is y else o,
        lambda o: xr.concat([o, o], "a"),
    ):
        xr.testing.assert_identical(go_on(y).compute(), go_on(eager))
    xr.testing.assert_identical(dask.compute(y, y + 1)[1], eager + 1)
    with switched_on():
        xr.testing.assert_identical((y + original).compute(), eager * 2)


def test_dataframe_goes_on() -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": range(8), "b": np.arange(8) * 0.5})
    y = dask_rewrite.optimize(dd.from_pandas(frame, npartitions=3).assign(c=lambda f: f.a * f.b))
    pd.testing.assert_frame_equal(y.compute(), frame.assign(c=frame.a * frame.b))
    assert (y.a + 1).sum().compute() == 36
    assert y.c.to_dask_array(lengths=True).sum().compute() == (frame.a * frame.b).sum()
    assert len(y.persist(scheduler="sync")) == 8


def test_an_array_of_a_dataframe() -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(8.0)})
    with switched_on():
        x = dd.from_pandas(frame, npartitions=2).a.to_dask_array(lengths=True)
        assert_same((x + 1).compute(scheduler="sync"), np.arange(8.0) + 1)


def test_keys_are_never_renamed() -> None:
    x = (distinct((4, 4), 2) + 1).T
    y = dask_rewrite.optimize(x)
    assert keys_of(y) == keys_of(x)
    assert set(keys_of(x)) <= set(dict(y.__dask_graph__()))
