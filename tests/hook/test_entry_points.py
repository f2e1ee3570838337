"""In every entry point the rewriting runs exactly once, in the client's process, before pickling."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from dask.base import collections_to_expr

import dask_rewrite
from helpers import ON, assert_same, distinct, switched_on

pytestmark = pytest.mark.usefixtures("on")


@pytest.fixture
def x() -> da.Array:
    return distinct((6, 6), 2) + 1


VALUE = np.arange(36.0).reshape(6, 6) + 1


# --------------------------------------------------------------------------------------
# without a cluster


def by_store(x: da.Array, path: Any) -> Any:
    target = np.zeros((6, 6))
    da.store(x, target)
    return target


def by_store_later(x: da.Array, path: Any) -> Any:
    target = np.zeros((6, 6))
    da.store(x, target, compute=False).compute()
    return target


def by_zarr(x: da.Array, path: Any) -> Any:
    zarr = pytest.importorskip("zarr")
    x.to_zarr(str(path / "x.zarr"))
    return zarr.open(str(path / "x.zarr"))[:]


def by_hdf5(x: da.Array, path: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    x.to_hdf5(str(path / "x.h5"), "/x")
    with h5py.File(path / "x.h5") as file:
        return file["x"][:]


def by_npy_stack(x: da.Array, path: Any) -> Any:
    da.to_npy_stack(str(path / "stack"), x)
    files = sorted((path / "stack").glob("*.npy"), key=lambda f: int(f.stem))
    return np.concatenate([np.load(f) for f in files])


ENTRY_POINTS = {
    "method compute": lambda x, path: x.compute(),
    "compute": lambda x, path: dask.compute(x)[0],
    "compute of two": lambda x, path: dask.compute(x, x + 1)[0],
    "compute in a list": lambda x, path: dask.compute([x, {"a": x.sum()}])[0][0],
    "asarray": lambda x, path: np.asarray(x),
    "float": lambda x, path: VALUE if float(x.sum()) == VALUE.sum() else None,
    "chunk sizes": lambda x, path: VALUE if x[x > 3].compute_chunk_sizes().size == 33 else None,
    "store": by_store,
    "store later": by_store_later,
    "to_zarr": by_zarr,
    "to_hdf5": by_hdf5,
    "to_npy_stack": by_npy_stack,
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_exactly_once_and_here(name: str, x: da.Array, rewrites: Any, tmp_path: Any) -> None:
    result = ENTRY_POINTS[name](x, tmp_path)
    assert_same(np.asarray(result), VALUE)
    rewrites.assert_once_here()


@pytest.mark.parametrize("persist", [dask.persist, lambda x: (x.persist(),)])
def test_persist(persist: Any, x: da.Array, rewrites: Any) -> None:
    (y,) = persist(x)
    rewrites.assert_once_here()
    assert y.__dask_keys__() == x.__dask_keys__()
    assert_same(y.compute(), VALUE)


def test_dask_optimize_of_one(x: da.Array, rewrites: Any) -> None:
    (y,) = dask.optimize(x)
    rewrites.assert_once_here()
    assert y.__dask_keys__() == x.__dask_keys__()
    with dask.config.set(array_optimize=None):
        assert_same(y.compute(), VALUE)


def test_dask_optimize_of_two_goes_once_per_collection(x: da.Array, rewrites: Any) -> None:
    # dask asks every collection's optimizer by itself here: this is its face, not ours.
    y, z = dask.optimize(x, x * 2)
    assert len(rewrites) <= 2
    assert_same(dask.compute(y, z), (VALUE, VALUE * 2))


def test_to_delayed(x: da.Array, rewrites: Any) -> None:
    parts = x.to_delayed()
    rewrites.assert_once_here()
    assert_same(parts[0, 0].compute(), VALUE[:2, :2])


def test_visualize_asks_for_the_optimized_graph(x: da.Array, rewrites: Any, monkeypatch: Any) -> None:
    import dask.base
    import dask.dot

    monkeypatch.setattr(dask.dot, "dot_graph", lambda *args, **kwargs: None)
    try:
        x.visualize(optimize_graph=True, engine="graphviz")
    except (ImportError, RuntimeError):
        pytest.skip("graphviz is not installed")
    assert len(rewrites) == 1


def test_blocks_as_delayed_beside_others(x: da.Array) -> None:
    blocks = list(x.to_delayed().ravel())
    for others in ([x.sum()], [dask.delayed(5), x], blocks[:2]):
        found = dask_rewrite.optimize(blocks[-1], *others)
        assert found[0].key == blocks[-1].key
        assert found[0].__dask_layers__()[0] in found[0].dask.layers
        for one, was in zip(found, [blocks[-1], *others], strict=True):
            assert_same(one.compute(), was.compute(optimize_graph=False))
        assert_same((found[0] + 1).compute(), blocks[-1].compute(optimize_graph=False) + 1)


def test_an_array_in_delayed(x: da.Array, rewrites: Any) -> None:
    d = dask.delayed(np.sum)(x)
    assert len(rewrites) == 1, "dask itself optimizes an array that enters a delayed call"
    rewrites.clear()
    assert d.compute() == VALUE.sum()
    rewrites.assert_once_here()


def test_delayed_and_bag(rewrites: Any) -> None:
    assert dask.delayed(sum)([1, 2]).compute() == 3
    rewrites.assert_once_here()
    rewrites.clear()
    assert db.from_sequence(range(4), npartitions=2).sum().compute(scheduler="sync") == 6
    rewrites.assert_once_here()


def test_a_mix_of_collections_is_one_rewrite(x: da.Array, rewrites: Any) -> None:
    b = db.from_sequence([1, 2], npartitions=2)
    assert_same(dask.compute(x, dask.delayed(5), b, x + 1, scheduler="sync"), (VALUE, 5, [1, 2], VALUE + 1))
    rewrites.assert_once_here()


def test_without_optimization_nothing_runs(x: da.Array, rewrites: Any) -> None:
    assert_same(x.compute(optimize_graph=False), VALUE)
    assert len(rewrites) == 0


@pytest.mark.parametrize("method", ["compute", "load", "persist", "values", "to_zarr"])
@pytest.mark.parametrize("kind", ["Dataset", "DataArray"])
def test_xarray(method: str, kind: str, x: da.Array, rewrites: Any, tmp_path: Any) -> None:
    xr = pytest.importorskip("xarray")
    original = xr.DataArray(x, dims=("a", "b"), name="t")
    if kind == "Dataset":
        original = original.to_dataset()
    if method == "to_zarr":
        pytest.importorskip("zarr")
        original.to_zarr(tmp_path / "x.zarr", consolidated=False, zarr_format=2)
        rewrites.assert_once_here()
        with xr.open_zarr(tmp_path / "x.zarr", consolidated=False) as result:
            assert_same(result.t.values, VALUE)
        return
    if method == "values":
        result = original.t.values if kind == "Dataset" else original.values
    else:
        result = getattr(original, method)()
        result = result.t.values if kind == "Dataset" else result.values
    assert_same(np.asarray(result), VALUE)
    # the values of a persisted array are computed once more
    rewrites.threads[1:] = []
    rewrites.pids[1:] = [] if method == "persist" else rewrites.pids[1:]
    rewrites.assert_once_here()


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_schedulers(scheduler: str, x: da.Array, rewrites: Any) -> None:
    assert_same(x.compute(scheduler=scheduler), VALUE)
    rewrites.assert_once_here()


# --------------------------------------------------------------------------------------
# with a cluster: before the graph is pickled


def test_client_compute(client: Any, x: da.Array, rewrites: Any) -> None:
    assert_same(client.compute(x).result(), VALUE)
    rewrites.assert_once_here()
    rewrites.clear()
    assert_same(client.compute(x + 1, sync=True), VALUE + 1)
    rewrites.assert_once_here()
    rewrites.clear()
    first, _second = client.gather(client.compute([x * 2, x.sum()]))
    assert_same(first, VALUE * 2)
    rewrites.assert_once_here()


def test_compute_with_a_client(client: Any, x: da.Array, rewrites: Any, tmp_path: Any) -> None:
    for name in ("method compute", "compute of two", "asarray"):
        rewrites.clear()
        assert_same(ENTRY_POINTS[name](x, tmp_path), VALUE)
        rewrites.assert_once_here()


def test_to_zarr_with_a_client(client: Any, x: da.Array, rewrites: Any, tmp_path: Any) -> None:
    assert_same(by_zarr(x, tmp_path), VALUE)
    rewrites.assert_once_here()


def test_client_persist(client: Any, x: da.Array, rewrites: Any) -> None:
    y = client.persist(x)
    rewrites.assert_once_here()
    rewrites.clear()
    assert y.__dask_keys__() == x.__dask_keys__()
    assert_same((y + 1).compute(), VALUE + 1)
    rewrites.assert_once_here()
    rewrites.clear()
    (z,) = dask.persist(x * 2)
    rewrites.assert_once_here()
    assert_same(z.compute(), VALUE * 2)


def test_xarray_with_a_client(client: Any, x: da.Array, rewrites: Any) -> None:
    xr = pytest.importorskip("xarray")
    assert_same(xr.DataArray(x).compute().values, VALUE)
    rewrites.assert_once_here()
    rewrites.clear()
    persisted = xr.Dataset({"t": (("a", "b"), x)}).persist()
    rewrites.assert_once_here()
    assert_same(persisted.t.values, VALUE)


def test_asynchronous_client(cluster: Any, x: da.Array, rewrites: Any) -> None:
    from distributed import Client

    async def work() -> None:
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            assert_same(await client.compute(x), VALUE)
            rewrites.assert_once_here()
            rewrites.clear()
            y = client.persist(x * 2)
            rewrites.assert_once_here()
            assert_same(await client.compute(y), VALUE * 2)

    asyncio.run(work())


def test_what_is_sent_holds_nothing_of_ours(x: da.Array) -> None:
    from dask._expr import FinalizeCompute

    for collections in ([x], [x, x + 1], [x, dask.delayed(5)]):
        for expr in (collections_to_expr(collections), FinalizeCompute(collections_to_expr(collections))):
            sent = cloudpickle.dumps(expr.optimize())
            assert b"dask_rewrite" not in sent
            again = pickle.loads(sent)
            assert len(again.__dask_graph__()) >= 1


@pytest.mark.once
def test_what_is_sent_is_already_small() -> None:
    from dask._expr import FinalizeCompute

    mosaic = da.block([[da.zeros((2, 2), chunks=2) + i + j for i in range(30)] for j in range(30)])
    tile = mosaic[:2, :2]
    sent = cloudpickle.dumps(FinalizeCompute(collections_to_expr([tile])).optimize())
    assert len(sent) < 5_000


# --------------------------------------------------------------------------------------
# without dask's client-side rewriting


def test_without_tuning(x: da.Array, tmp_path: Any) -> None:
    with dask.config.set({"optimization.tune.active": False}):
        for entry in ENTRY_POINTS.values():
            assert_same(np.asarray(entry(x, tmp_path)), VALUE)
            for path in tmp_path.iterdir():
                path.rename(path.with_name(f"{path.name}-{len(list(tmp_path.iterdir()))}-{id(entry)}"))
        assert dask.compute(x.sum(), dask.delayed(5), x.max()) == (VALUE.sum(), 5, VALUE.max())


def test_without_tuning_with_a_client(client: Any, x: da.Array) -> None:
    with dask.config.set({"optimization.tune.active": False}):
        assert_same(x.compute(), VALUE)
        assert_same(client.persist(x).compute(), VALUE)
        assert_same(dask.compute(x, x + 1)[1], VALUE + 1)


# --------------------------------------------------------------------------------------
# the configuration travels


def test_the_config_copies(x: da.Array) -> None:
    twin = copy.deepcopy(dask.config.config)
    assert twin["array_optimize"] is dask_rewrite.optimize
    assert copy.copy(dask_rewrite.optimize) is dask_rewrite.optimize
    with dask.config.set(twin):
        assert_same(x.compute(), VALUE)


def test_the_optimizer_pickles_as_something_that_is_not_ours() -> None:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            sent = dumps(dask_rewrite.optimize, protocol=protocol)
            assert b"dask_rewrite" not in sent
    assert callable(pickle.loads(sent)) or not pickle.loads(sent)


def test_the_config_pickles(x: da.Array, python: Any) -> None:
    sent = pickle.dumps({name: dask.config.get(name) for name in ON})
    assert b"dask_rewrite" not in sent
    python(CHILD, "pickle", sent.hex(), PYTHONPATH="")


def test_the_config_serializes(x: da.Array, python: Any) -> None:
    # This is what the launchers of SSHCluster and others do with the whole configuration.
    sent = dask.config.serialize(dask.config.global_config)
    assert "dask_rewrite" not in sent
    python(CHILD, "serialize", sent, PYTHONPATH="", DASK_INTERNAL_INHERIT_CONFIG=sent)


CHILD = """
import pickle, sys
how, sent = sys.argv[1:]

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "dask_rewrite":
            raise ImportError("dask_rewrite is not installed here")

sys.meta_path.insert(0, Blocked())
import dask, dask.array as da, dask.bag as db
config = pickle.loads(bytes.fromhex(sent)) if how == "pickle" else dask.config.deserialize(sent)
dask.config.update(dask.config.global_config, config, priority="new")
dask.config.set(scheduler="sync")
x = da.arange(10, chunks=3) + 1
assert int(x.sum().compute()) == 55
assert x.persist().compute().tolist() == list(range(1, 11))
assert dask.delayed(sum)([1, 2]).compute() == 3
assert db.from_sequence([1, 2], npartitions=2).map(str).compute() == ["1", "2"]
assert dask.compute(x.sum(), x.max()) == (55, 10)
"""


def test_the_optimizer_stands_for_the_stock_one_in_groups() -> None:
    from dask.array.optimization import optimize as stock_array

    assert dask_rewrite.optimize == stock_array
    assert stock_array == dask_rewrite.optimize
    assert hash(dask_rewrite.optimize) == hash(stock_array)
    assert dask_rewrite.optimize != stock_array.__name__
    assert bool(dask_rewrite.optimize)
    assert repr(dask_rewrite.optimize)


def test_switching_on_with_a_cluster_of_processes(client: Any) -> None:
    x = distinct((4,), 2)
    with switched_on():
        assert_same((x * 2).compute(), np.arange(4.0) * 2)
