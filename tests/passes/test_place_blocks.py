"""Blocks of a result are written where they belong as soon as they are there."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from benchmarks.forecasts import Added
from dask.cache import Cache
from dask.callbacks import Callback

import dask_rewrite
from dask_rewrite.graph.places import Empty, NewRoom, room_of
from dask_rewrite.passes.place_blocks import gathered
from helpers import assert_same, stock, switched_on

SMALL_TOO = {"rewrite.options": {"place-blocks": {"min-bytes": 1, "min-block": 1}}}


def drawn(shape: tuple[int, ...], chunks: Any) -> da.Array:
    return da.random.default_rng(1).random(shape, chunks=chunks)


def stored(folder: Path, x: np.ndarray, chunks: Any) -> da.Array:
    path = str(folder / "x.zarr")
    da.from_array(x, chunks=chunks).to_zarr(path)
    return da.from_zarr(path)


def rooms(*collections: Any, **config: Any) -> int:
    """For how many results there is room before their blocks are made."""
    with switched_on(scheduler="threads", **config):
        expression = dask.base.collections_to_expr(collections).finalize_compute().optimize()
        return sum(room_of(node) is not None for node in dict(expression.__dask_graph__()).values())


def held(collection: Any, **config: Any) -> int:
    with switched_on(scheduler="sync", **config), Added() as found:
        dask.compute(collection)
    return found.peak


def both(collection: Any, scheduler: str = "threads", **config: Any) -> Any:
    """What it is, which has to be what it is with dask's own optimizer."""
    with stock():
        expected = dask.compute(collection, scheduler="sync")[0]
    with switched_on(**config):
        found = dask.compute(collection, scheduler=scheduler)[0]
    assert_same(found, expected)
    return found


def test_half_is_held() -> None:
    x = drawn((64, 128, 128), (4, -1, -1)) * 2
    nbytes = x.nbytes
    assert rooms(x) == 1
    assert held(x) == nbytes
    assert held(x, **{"rewrite.disable": ["place-blocks"]}) == 2 * nbytes
    found = both(x)
    assert found.base is None
    assert found.flags.c_contiguous
    assert found.flags.writeable


def test_labelled_results(tmp_path: Path) -> None:
    x = stored(tmp_path, np.random.default_rng(0).random((32, 64, 128)), (4, -1, -1))
    field = xr.DataArray(x, dims=("t", "y", "x"), coords={"t": np.arange(32)}, name="warm", attrs={"a": 1})
    assert rooms(field + 1) == 1
    assert held(field + 1) == x.nbytes
    both(field + 1)
    both(xr.Dataset({"warm": field, "mean": field.mean("t")}) * 2, **SMALL_TOO)
    assert rooms(xr.Dataset({"warm": field, "cold": -field})) == 1  # for both of them


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_results_on_each_scheduler(scheduler: str) -> None:
    """Whoever optimizes does not know of a scheduler that only ``compute`` is told."""
    x = drawn((8, 3000), (1, 1500)) - 0.5
    assert rooms(x, **SMALL_TOO) == 1
    both(x, scheduler, **SMALL_TOO)


def test_rooms_travel_without_their_arrays_and_without_this_package(tmp_path: Path) -> None:
    """Each task in another process gets the room: its bytes times their number would take for ever."""
    new = NewRoom([Empty((1000, 1000), np.dtype("f4"))])
    room = new()
    room(0)[...] = 1
    sent = [pickle.dumps(each) for each in (new, room)]
    assert max(map(len, sent)) < 2000
    (tmp_path / "sent").write_bytes(pickle.dumps(sent))
    program = """
import pickle, sys
sys.modules["dask_rewrite"] = None
new, room = map(pickle.loads, pickle.load(open(sys.argv[1], "rb")))
for each in (new(), room):
    print(each(0).shape, each(0).dtype, each(0, (slice(3),)))
"""
    run = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "sent"], capture_output=True, text=True, check=True
    )
    assert run.stdout == "(1000, 1000) float32 None\n" * 2


def test_on_processes_there_is_no_room() -> None:
    with dask.config.set(scheduler="processes"):
        expression = dask.base.collections_to_expr([drawn((64, 128, 128), (4, -1, -1))])
        with dask.config.set(array_optimize=dask_rewrite.optimize):
            graph = dict(expression.finalize_compute().optimize().__dask_graph__())
    assert not any(room_of(node) is not None for node in graph.values())


def test_a_graph_that_is_computed_twice_gives_two_arrays() -> None:
    with switched_on(scheduler="sync", **SMALL_TOO):
        expression = dask.base.collections_to_expr([drawn((8, 4), 2)]).finalize_compute().optimize()
        graph, keys = dict(expression.__dask_graph__()), expression.__dask_keys__()
    first, second = (dask.get(graph, keys)[0][0] for _ in range(2))
    kept = first.copy()
    second[...] = 0
    assert_same(first, kept)


def test_blocks_that_others_need_too() -> None:
    x = drawn((12, 8), (3, 4)) + 1
    y = x.cumsum(axis=0)
    for made in (x - x.mean(axis=0), y, da.concatenate([x, x[::-1]])):
        assert rooms(made, **SMALL_TOO)
        both(made, **SMALL_TOO)
    with stock():
        expected = dask.compute(x, x.sum(), y, x, scheduler="sync")
    with switched_on(**SMALL_TOO):
        assert_same(dask.compute(x, x.sum(), y, x), expected)


def test_lists_and_batches_of_blocks() -> None:
    """Tasks that give several blocks, some of which others use as well."""
    base = drawn((60, 40), (30, 20))
    days = da.concatenate([base[i : i + 3] - base[i : i + 3].mean(axis=0) for i in range(0, 60, 3)])
    for made in (days, da.concatenate([days, days[:7] + days[7:14]])):
        assert rooms(made, **SMALL_TOO)
        both(made, **SMALL_TOO)
    many = da.ones((150, 4), chunks=(1, 2)) + np.arange(4)
    both(many.cumsum(axis=0), **SMALL_TOO)


@pytest.mark.parametrize("dtype", ["?", "i1", ">f4", "c8", "M8[ns]", "U5", "S3", [("a", "i4"), ("b", "f8")]])
def test_dtypes(dtype: Any) -> None:
    values = np.arange(48).astype("i8" if dtype == "M8[ns]" else "f8").reshape(6, 8)
    array = values.astype(dtype) if not isinstance(dtype, list) else np.zeros((6, 8), dtype)
    both(da.from_array(array, chunks=(2, 3))[::-1].T, **SMALL_TOO)


def test_orders_of_memory(tmp_path: Path) -> None:
    x = stored(tmp_path, np.arange(48.0).reshape(6, 8), (2, 3))
    for made in (x.T, x.T[::-1], x[:, ::-1] + x, x[:0], x[:, :1], x.reshape(48)):
        assert both(made, **SMALL_TOO).flags.c_contiguous


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.map_blocks(lambda block: block * 2),  # nobody knows what comes of it
        lambda x: x.map_blocks(np.ma.masked_array, dtype=x.dtype),
        lambda x: x.astype(object),
        lambda x: x[x > 3],
        lambda x: x.sum(),
    ],
)
def test_declined(make: Any) -> None:
    x = make(da.from_array(np.arange(12.0).reshape(3, 4), chunks=2))
    assert not rooms(x, **SMALL_TOO)
    both(x, **SMALL_TOO)


def test_small_results_and_small_blocks_are_gathered() -> None:
    assert not rooms(drawn((64, 64), 32))
    assert not rooms(drawn((2**18,), 2**9))
    assert not rooms(drawn((64, 128, 128), (4, -1, -1)), **{"rewrite.disable": ["place-blocks"]})


class _Kept(Cache):
    """One that needs no other library."""

    def __init__(self) -> None:
        Callback.__init__(self)


def test_what_is_said_to_be_small_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = gathered._fact
    monkeypatch.setattr(gathered, "_fact", lambda block, site: asked.append(block) or real(block, site))
    x = drawn((512, 2048), 128).map_blocks(np.negative)
    assert rooms(x.sum(axis=0), x + 1) == 0
    assert asked == []
    assert rooms(x.rechunk(512) + 1) == 1
    assert asked


def test_results_that_a_cache_may_keep_are_gathered() -> None:
    with _Kept():
        assert not rooms(drawn((8, 4), 2), **SMALL_TOO)
    with Callback():
        assert rooms(drawn((8, 4), 2), **SMALL_TOO)


def test_nothing_of_this_package_is_sent() -> None:
    with switched_on(scheduler="threads", **SMALL_TOO):
        expression = dask.base.collections_to_expr([drawn((8, 4), 2)]).finalize_compute().optimize()
        graph, keys = dict(expression.__dask_graph__()), expression.__dask_keys__()
    sent = pickle.dumps(graph)
    assert b"dask_rewrite" not in sent
    assert_same(dask.get(pickle.loads(sent), keys)[0][0], dask.get(graph, keys)[0][0])


def test_the_forecast_knows_of_it() -> None:
    x = drawn((64, 128, 128), (4, -1, -1)) * 2
    with switched_on(scheduler="sync"):
        found = dask_rewrite.forecast(x, threads=1)
    assert found.after.peak == x.nbytes
    assert found.before.peak == 2 * x.nbytes


def test_metadata_of_dtypes_stays_with_its_array() -> None:
    """Dtypes that differ in it only are equal: whichever came first stood for both."""
    values = np.arange(12.0).reshape(4, 3)
    for dtype in (np.dtype("f8", metadata={"unit": "m"}), np.dtype("f8")):
        for x in (da.from_array(values.astype(dtype), chunks=2), da.ones((4, 3), dtype=dtype, chunks=2)):
            assert both(x, **SMALL_TOO).dtype.metadata == dtype.metadata


def test_the_other_byte_order_is_as_processes_give_it() -> None:
    """NumPy may pickle it in the order of the machine, which dask's result then has."""
    x = da.from_array(np.arange(12.0).reshape(4, 3).astype(">f8"), chunks=2)
    with stock():
        expected = x.compute(scheduler="processes")
    with switched_on(**SMALL_TOO):
        assert_same(x.compute(scheduler="processes"), expected)
