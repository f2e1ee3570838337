"""Files behind xarray are read as sparingly as files that dask reads itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from dask_rewrite.analysis.knowledge.loading import Source, source_of
from dask_rewrite.analysis.knowledge.stored import stored_chunks
from helpers import assert_same, assert_same_as_stock, stock, switched_on

xr = pytest.importorskip("xarray")
pytest.importorskip("h5py")

from benchmarks.slices import CountingStore  # noqa: E402  # after what may be missing

SHAPE, STORED = (8, 64, 64), (1, 16, 16)
NAMES = ("time", "y", "x")

pytestmark = pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")


def values() -> Any:
    found = np.arange(float(np.prod(SHAPE))).reshape(SHAPE) % 8191 / 7
    found[::3, ::7] = np.nan
    return found


def dataset() -> Any:
    counts = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    return xr.Dataset(
        {"f": (NAMES, values()), "i": (NAMES, counts), "scaled": (NAMES, np.round(values()[::-1]))}
    )


def encoding() -> dict[str, Any]:
    found: dict[str, Any] = {name: {"chunks": STORED} for name in ("f", "i", "scaled")}
    found["scaled"].update(dtype="i4", scale_factor=0.5, _FillValue=-1)
    return found


@pytest.fixture(scope="module")
def store() -> Any:
    memory = MemoryStore()
    dataset().to_zarr(memory, encoding=encoding(), consolidated=False)
    return CountingStore(memory, log_level="ERROR")


def opened(store: Any, name: str) -> Any:
    return xr.open_zarr(store, chunks={"time": 4, "y": 24, "x": 24}, consolidated=False)[name]


def gets(store: Any, made: Any) -> tuple[int, Any]:
    store.counter.clear()
    found = made.compute(scheduler="sync")
    return store.counter["get"], found


PROGRAMS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "sum": (lambda v: v.sum(), 128),
    "mean over time": (lambda v: v.mean("time"), 128),
    "a point": (lambda v: v[:, 10, 10] + 1, 8),
    "a point of anomalies": (lambda v: ((v - 3) * v.mean("time") / 2)[:, 10, 10], 8),
    "a rechunk": (lambda v: v.chunk({"time": 8, "y": 32, "x": 32}) * 2, 128),
    "a reversed part": (lambda v: v.isel(y=slice(40, 20, -1), x=3), 16),
}


@pytest.mark.parametrize("variable", ["f", "i", "scaled"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_zarr(store: Any, name: str, variable: str) -> None:
    make, wanted = PROGRAMS[name]
    with stock():
        before, expected = gets(store, make(opened(store, variable)))
    with switched_on(num_workers=2):
        after, found = gets(store, make(opened(store, variable)))
    assert_same(found.values, expected.values)
    assert after <= wanted <= before


def test_one_element_of_a_file_is_what_stock_gives() -> None:
    """A read makes an array of it, where an array in memory gives a scalar."""
    z = zarr.array(np.arange(100.0).reshape(10, 10), chunks=(5, 5))
    with dask.config.set({"rewrite.verify": "each", "rewrite.on-error": "raise"}):
        for source in (z, z[...]):
            x = da.from_array(source, chunks=5)
            assert_same_as_stock(x[3, 4], x[3][4], (x + 1)[3, 4])


def test_chunks_of_what_is_decoded_are_known(store: Any) -> None:
    """Scales and missing values are applied on the way, by functions of xarray that are known."""
    v = opened(store, "scaled")
    (source,) = [each for each in v.data.dask.values() if "Adapter" in type(_value(each)).__name__]
    assert type(source_of(_value(source))) is Source
    assert stored_chunks(_value(source)) == STORED


def test_what_is_decoded_by_anything_else_is_left_alone() -> None:
    times = xr.Dataset({"t": (NAMES[:1], np.arange(8).astype("M8[s]").astype("M8[ns]"))})
    memory = MemoryStore()
    times.to_zarr(memory, consolidated=False)
    v = xr.open_zarr(memory, chunks={"time": 3}, consolidated=False).t
    (source,) = [each for each in v.data.dask.values() if "Adapter" in type(_value(each)).__name__]
    assert source_of(_value(source)) is _value(source)
    assert stored_chunks(_value(source)) is None
    with stock():
        expected = v[2:5].compute()
    with switched_on():
        assert_same(v[2:5].compute().values, expected.values)


def _value(node: Any) -> Any:
    return getattr(node, "value", node)
