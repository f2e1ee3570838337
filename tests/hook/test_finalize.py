"""The finalize task is slim: it carries a collection's shape, not its raw graph."""

from __future__ import annotations

from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask._expr import FinalizeCompute
from dask.base import DaskMethodsMixin, collections_to_expr

from helpers import ON, assert_same, distinct, stock, switched_on

xr = pytest.importorskip("xarray")


def sent(*collections: Any) -> bytes:
    """What a client submits."""
    return cloudpickle.dumps(FinalizeCompute(collections_to_expr(list(collections))).optimize())


def dataset(side: int = 40) -> Any:
    """Many blocks, each of one element."""
    x = da.from_array(np.arange(side * side * 4.0).reshape(4, side, side), chunks=1)
    return xr.Dataset(
        {"t": (("time", "y", "x"), x), "u": (("time", "y", "x"), x + 1)},
        coords={
            "time": np.arange("2020-01-01", "2020-01-05", dtype="M8[D]").astype("M8[ns]"),
            "y": np.arange(side),
            "height": (("y", "x"), da.ones((side, side), chunks=1)),
            "label": ("x", [f"x{i}" for i in range(side)]),
            "scalar": 4,
        },
        attrs={"title": "a test", "history": ["a", "b"]},
    )


def round_trips(original: Any) -> None:
    with stock():
        expected = original.compute(scheduler="sync")
    with switched_on():
        actual = original.compute(scheduler="sync")
    assert type(actual) is type(expected)
    xr.testing.assert_identical(actual, expected)
    assert_same_encoding(actual, expected)


def assert_same_encoding(actual: Any, expected: Any) -> None:
    assert actual.encoding == expected.encoding
    if isinstance(expected, xr.Dataset):
        for name in expected.variables:
            assert actual[name].encoding == expected[name].encoding
            assert actual[name].dtype == expected[name].dtype
            assert type(actual[name].variable) is type(expected[name].variable)
            assert type(actual[name].variable._data) is type(expected[name].variable._data)
        assert list(actual.indexes) == list(expected.indexes)
        for name in expected.indexes:
            assert type(actual.indexes[name]) is type(expected.indexes[name])
            assert actual.indexes[name].equals(expected.indexes[name])


# --------------------------------------------------------------------------------------
# bytes


def test_a_window_of_a_dataset_is_small() -> None:
    # 19,200 chunks; stock submits 3.1 MB to compute a window of it.
    x = da.ones((48, 20, 20), chunks=1)
    ds = xr.Dataset({"t": (("time", "y", "x"), x)}, coords={"y": np.arange(20.0)})
    window = ds.isel(time=slice(0, 2), y=slice(0, 2), x=slice(0, 2)).mean("time")
    assert x.npartitions == 19_200
    with switched_on():
        assert len(sent(window)) <= 20_000
        assert len(sent(window.t)) <= 20_000
        xr.testing.assert_identical(window.compute(), xr.Dataset(
            {"t": (("y", "x"), np.ones((2, 2)))}, coords={"y": np.arange(2.0)}
        ))  # fmt: skip


@pytest.mark.parametrize("kind", ["Dataset", "DataArray", "Variable"])
def test_the_raw_graph_does_not_travel(kind: str) -> None:
    ds = dataset()
    whole = {"Dataset": ds, "DataArray": ds.t, "Variable": ds.t.variable}[kind]
    window = whole.isel(time=slice(0, 1), y=slice(0, 1), x=slice(0, 1))
    with switched_on():
        assert len(sent(window)) < 20_000
    round_trips(window)


def test_several_datasets_at_once() -> None:
    ds = dataset().isel(time=0, y=slice(0, 2))
    with switched_on():
        both = dask.compute(ds, ds.t * 2, ds.u.variable, scheduler="sync")
    with stock():
        expected = [c.compute(scheduler="sync") for c in (ds, ds.t * 2, ds.u.variable)]
    for actual, other in zip(both, expected, strict=True):
        xr.testing.assert_identical(actual, other)


def test_finalize_of_an_array_is_small() -> None:
    x = da.ones((60, 60), chunks=1)
    with switched_on():
        assert len(sent(x[:2, :2])) < 5_000


# --------------------------------------------------------------------------------------
# round trips


SHAPES = {
    "whole": lambda ds: ds,
    "arithmetic": lambda ds: (ds * 2 - ds.mean("time")).isel(x=slice(0, 3)),
    "one variable": lambda ds: ds[["t"]],
    "dask and eager coordinates": lambda ds: ds.isel(y=slice(0, 4)),
    "no dask at all left": lambda ds: ds[["label", "scalar"]],
    "0-d": lambda ds: ds.isel(time=0, y=0, x=0),
    "reduced": lambda ds: ds.sum(),
    "stacked": lambda ds: ds.isel(x=slice(0, 3), y=slice(0, 3)).stack(cell=("y", "x")),
    "renamed": lambda ds: ds.rename(t="temperature", x="lon"),
    "transposed": lambda ds: ds.transpose("x", "y", "time"),
    "an array": lambda ds: ds.t,
    "an array with no name": lambda ds: (ds.t + 1).rename(None),
    "a variable": lambda ds: ds.t.variable * 2,
    "a dask coordinate": lambda ds: ds.height,
    "merged": lambda ds: xr.merge([ds.t, ds.u.rename("w")]),
    "concatenated": lambda ds: xr.concat([ds, ds + 1], dim="time"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_round_trips(name: str) -> None:
    round_trips(SHAPES[name](dataset(4)))


def test_attributes_and_encoding_stay() -> None:
    ds = dataset(4)
    ds.encoding = {"unlimited_dims": {"time"}}
    ds.t.attrs["units"] = "K"
    ds.t.encoding = {"dtype": "f4", "scale_factor": 0.1}
    ds.time.encoding["units"] = "days since 2000-01-01"
    round_trips(ds)
    with switched_on():
        assert ds.compute().t.attrs == {"units": "K"}
        assert ds.compute().attrs == {"title": "a test", "history": ["a", "b"]}


def test_a_multiindex_stays() -> None:
    ds = dataset(3).isel(time=0).drop_vars("y").stack(cell=("y", "x"))
    round_trips(ds)
    round_trips(ds.t)
    with switched_on():
        assert ds.compute().indexes["cell"].nlevels == 2


def test_a_subclass_stays() -> None:
    class Mine(xr.Dataset):
        __slots__ = ()

    plain = dataset(3)
    ds = Mine(plain.data_vars, plain.coords, plain.attrs)
    with switched_on():
        assert type(ds.compute()) is Mine
    round_trips(ds)


def test_an_array_subclass_stays() -> None:
    class Mine(xr.DataArray):
        __slots__ = ()

    round_trips(Mine(dataset(3).t))


def test_loading_in_place() -> None:
    ds = dataset(3)
    with switched_on():
        ds.load()
    assert all(isinstance(v.data, np.ndarray) for v in ds.values())
    xr.testing.assert_identical(ds, dataset(3).compute())


def test_persist_then_compute() -> None:
    ds = dataset(3)
    with switched_on():
        persisted = ds.persist()
        xr.testing.assert_identical((persisted + 1).compute(), (ds.compute() + 1))
        xr.testing.assert_identical(persisted.compute(), ds.compute())


def test_the_users_dataset_is_not_touched() -> None:
    ds = dataset(3)
    graph = ds.__dask_graph__()
    before = set(graph.layers)
    with switched_on():
        ds.compute()
    assert set(ds.__dask_graph__().layers) == before
    assert isinstance(ds.t.data, da.Array)
    assert len(dict(ds.__dask_graph__())) == len(dict(graph))


# --------------------------------------------------------------------------------------
# collections that are not known


class Forgetful(DaskMethodsMixin):
    """A collection whose postpersist forgets what its postcompute needs."""

    def __init__(self, array: da.Array, unit: str | None) -> None:
        self.array, self.unit = array, unit

    def __dask_graph__(self) -> Any:
        return self.array.__dask_graph__()

    def __dask_keys__(self) -> list[Any]:
        return self.array.__dask_keys__()

    def __dask_layers__(self) -> Any:
        return self.array.__dask_layers__()

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    @property
    def __dask_optimize__(self) -> Any:
        return self.array.__dask_optimize__

    def __dask_postcompute__(self) -> Any:
        return self._finish, ()

    def _finish(self, results: Any) -> Any:
        inner, args = self.array.__dask_postcompute__()
        return inner(results, *args), self.unit

    def __dask_postpersist__(self) -> Any:
        return lambda graph, **kwargs: Forgetful(
            da.Array(graph, self.array.name, self.array.chunks, meta=self.array._meta), None
        ), ()


def test_a_custom_collection_is_not_hollowed() -> None:
    with switched_on():
        mine = Forgetful(distinct((4,), 2) + 1, "m/s")
        result = mine.compute(scheduler="sync")
    assert_same(result, (np.arange(4.0) + 1, "m/s"))


def test_a_custom_collection_named_like_xarrays() -> None:
    class Dataset(Forgetful):
        pass

    with switched_on():
        assert Dataset(distinct((4,), 2), "m/s").compute(scheduler="sync")[1] == "m/s"


def test_a_custom_collection_with_dasks_own_optimizer() -> None:
    from dask.array.optimization import optimize

    class Own(Forgetful):
        __dask_optimize__ = staticmethod(optimize)

    with dask.config.set(ON):
        array = distinct((4,), 2) + 1
        results = dask.compute(array, Own(array * 2, "m"), array * 3, scheduler="sync")
    assert_same(results, (np.arange(4.0) + 1, ((np.arange(4.0) + 1) * 2, "m"), (np.arange(4.0) + 1) * 3))
