"""Ordinary programs of more than 10,000 tasks, computed in every way that there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest

import dask_rewrite
from helpers import distinct, switched_on

pytestmark = [
    pytest.mark.usefixtures("as_users_have_it"),
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore:Increasing number of chunks"),
]


@pytest.fixture
def as_users_have_it() -> Iterator[None]:
    """Other tests verify after each pass, which takes longer than these programs."""
    with switched_on(**{"rewrite.verify": "end"}):
        yield


SIDE = 101
VALUE = np.arange(float(SIDE * SIDE)).reshape(SIDE, SIDE)


def unknown(block: Any) -> Any:
    """Nobody knows what it does."""
    return block * 2 + 1


def user() -> da.Array:
    return distinct((SIDE, SIDE), 1).map_blocks(unknown, dtype=float)


def coarse() -> da.Array:
    """As many tasks, and few files where it is stored."""
    return user().rechunk((SIDE, 20))


@pytest.fixture
def hdf5(tmp_path: Path) -> Iterator[da.Array]:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = VALUE
        yield da.from_array(file["x"], chunks=1)


def steps(x: da.Array, n: int) -> da.Array:
    for _ in range(n):
        x = x + 1
    return x


def same(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-12, strict=True)


PROGRAMS: dict[str, tuple[Callable[[], Any], Any]] = {
    "user function": (user, VALUE * 2 + 1),
    "mean of a user function": (lambda: user().mean(), (VALUE * 2 + 1).mean()),
    "mean along an axis": (lambda: (user() ** 2).mean(axis=0), ((VALUE * 2 + 1) ** 2).mean(axis=0)),
    "x + x.T": (lambda: user() + user().T, VALUE * 2 + VALUE.T * 2 + 2),
    "64 steps": (lambda: steps(user(), 64), VALUE * 2 + 65),
    "standardized": (
        lambda: (user() - user().mean(0)) / user().std(0),
        (VALUE - VALUE.mean(0)) / VALUE.std(0),
    ),
    "overlap": (
        lambda: distinct((40, 40), 1).map_overlap(unknown, depth=1, boundary=0, dtype=float),
        np.arange(1600.0).reshape(40, 40) * 2 + 1,
    ),
    "product": (
        lambda: distinct((22, 22), 1).map_blocks(unknown, dtype=float) @ distinct((22, 22), 1),
        (np.arange(484.0).reshape(22, 22) * 2 + 1) @ np.arange(484.0).reshape(22, 22),
    ),
    "rechunked": (lambda: user().rechunk((1, SIDE)).rechunk((SIDE, 1)), VALUE * 2 + 1),
    "delayed": (
        lambda: dask.delayed(sum)([dask.delayed(unknown)(i) for i in range(12_000)]),
        sum(2 * i + 1 for i in range(12_000)),
    ),
    "bag": (
        lambda: db.from_sequence(range(6_001), npartitions=6_001).map(unknown).sum(),
        sum(2 * i + 1 for i in range(6_001)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_computed(name: str, scheduler: str) -> None:
    build, expected = PROGRAMS[name]
    same(build().compute(scheduler=scheduler), expected)


@pytest.mark.parametrize("name", ["user function", "mean along an axis", "delayed"])
def test_computed_together_with_others(name: str) -> None:
    build, expected = PROGRAMS[name]
    x = build()
    small = distinct((4,), 2)
    found = dask.compute(x, 1, small, [x], small.sum())
    same(found[0], expected)
    assert found[1] == 1
    same(found[2], np.arange(4.0))
    same(found[3][0], expected)
    same(found[4], np.float64(6))


@pytest.mark.parametrize("name", ["user function", "mean along an axis", "x + x.T"])
def test_persisted_and_optimized_first(name: str) -> None:
    build, expected = PROGRAMS[name]
    same((dask.optimize(build())[0] + 1).compute(), expected + 1)
    same((dask_rewrite.optimize(build()) + 1).compute(), expected + 1)
    (persisted,) = dask.persist(build())
    same((persisted + 1).compute(), expected + 1)


def test_as_an_array_and_stored(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    expected = VALUE * 2 + 1
    same(np.asarray(user()), expected)
    target = np.zeros_like(VALUE)
    da.store(user(), target)
    same(target, expected)
    coarse().to_zarr(str(tmp_path / "y.zarr"))
    same(zarr.open_array(str(tmp_path / "y.zarr"))[:], expected)
    same(dask.delayed(np.negative)(user()).compute(), -expected)


def test_from_zarr() -> None:
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(store={}, shape=VALUE.shape, chunks=(1, 1), dtype=float)
    stored[:] = VALUE
    x = da.from_zarr(stored)
    same(x.mean().compute(), VALUE.mean())


def test_from_hdf5(hdf5: da.Array) -> None:
    same(hdf5.max().compute(), VALUE.max())
    same((hdf5 + 1)[5:].sum(axis=1).compute(scheduler="threads"), (VALUE + 1)[5:].sum(axis=1))


def test_xarray(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    ds = xr.Dataset({"t": (("y", "x"), coarse())}, coords={"y": np.arange(SIDE)})
    result = (ds - ds.mean("y")).compute()
    expected = VALUE * 2 - (VALUE * 2).mean(0)
    same(result.t.values, expected)
    ds.to_zarr(tmp_path / "t.zarr", consolidated=False)
    same(xr.open_zarr(tmp_path / "t.zarr", consolidated=False).t.values, VALUE * 2 + 1)
    whole = (ds + 1).drop_vars("y")
    later = whole.to_zarr(
        tmp_path / "t.zarr", region={"y": slice(0, SIDE)}, compute=False, consolidated=False
    )
    later.compute()
    same(xr.open_zarr(tmp_path / "t.zarr", consolidated=False).t.values, VALUE * 2 + 2)


@pytest.mark.once
def test_explain_tells_what_is_sent() -> None:
    from dask._expr import FinalizeCompute
    from dask.base import collections_to_expr

    for name in ("mean of a user function", "overlap", "64 steps"):
        x = PROGRAMS[name][0]()
        report = dask_rewrite.explain(x)
        with switched_on():
            sent = dict(FinalizeCompute(collections_to_expr((x,))).optimize().__dask_graph__())
        assert report.form == "tasks"
        assert report.after is not None
        assert report.after.tasks == len(sent)
