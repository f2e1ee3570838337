"""Coarse grids for blocks of which only the sizes are declared."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from duck_arrays import Duck, Quantity
from helpers import assert_same, assert_same_as_stock, distinct, stock, stock_tasks_of, switched_on, tasks_of

SHAPE, SIZE = (60, 40), 10


def unknown(change: Callable[[Any], Any], shape: tuple[int, ...] = SHAPE, size: int = SIZE) -> da.Array:
    """Blocks that a function of the user's makes."""
    x = distinct(shape, size)
    return x.map_blocks(lambda block: change(block), dtype=x.dtype, meta=x._meta)


def masked(block: Any) -> Any:
    found = np.ma.masked_equal(block % 7, 3)
    found.fill_value = 7
    return found


def special(block: Any) -> Any:
    found = np.array(block)
    found[found % 3 == 0] = -0.0
    found[found % 5 == 0] = np.nan
    return found


def broken(block: Any) -> Any:
    if block.size and block.flat[0] == 0:
        raise ValueError("a broken file")
    return block


class Own(np.ndarray):
    """A subclass that joins and slices keep."""


KINDS: dict[str, Callable[[Any], Any]] = {
    "numpy": np.array,
    "masked": masked,
    "objects": lambda block: np.array(block, dtype=object),
    "turned": np.asfortranarray,
    "special": special,
    "narrow": lambda block: block.astype("f4"),
    "whole numbers": lambda block: block.astype("i2"),
    "other byte order": lambda block: block.astype(">f8"),
    "subclass": lambda block: block.view(Own),
    "like cupy's": Duck,
    "with a unit": lambda block: Quantity(block, "m"),
}


def waves(x: da.Array) -> da.Array:
    for _ in range(2):
        x = da.roll(x, 1, 0) + da.roll(x, -1, 1)
    return x


def differences(x: da.Array) -> da.Array:
    return x[2:] - 2 * x[1:-1] + x[:-2]


def relaxed(x: da.Array, steps: int = 2, size: int = SIZE) -> da.Array:
    """Steps of a stencil whose border is taken from inside, so that it is of the kind that the blocks are."""
    for _ in range(steps):
        core = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) * 0.25
        rows = da.concatenate([core[:1], core, core[-1:]])
        x = da.concatenate([rows[:, :1], rows, rows[:, -1:]], axis=1).rechunk(size)
    return x


PROGRAMS = {"waves": waves, "differences": differences, "relaxed": relaxed}


def applied(*collections: Any, **config: Any) -> int:
    """How many blocks became slices."""
    with dask.config.set(config):
        found: int = dask_rewrite.explain(*collections).counts.get(("regrid", "applied"), 0)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_blocks_of_any_kind(program: str, kind: str) -> None:
    x = PROGRAMS[program](unknown(KINDS[kind]))
    assert applied(x)
    assert_same_as_stock(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_block_is_what_it_was(program: str, kind: str) -> None:
    x = PROGRAMS[program](unknown(KINDS[kind]))
    assert_same_as_stock(*x.to_delayed().ravel()[::5])


def test_sparse_blocks() -> None:
    sparse = pytest.importorskip("sparse")
    x = waves(unknown(lambda block: sparse.COO(np.where(block % 5, 0, block))))
    assert applied(x)
    with stock():
        expected = x.compute(scheduler="sync")
    with switched_on():
        actual = x.compute(scheduler="sync")
    assert type(actual) is type(expected)
    assert_same(actual.todense(), expected.todense())


def test_what_nobody_joins_need_not_be_joinable() -> None:
    """Sparse blocks with other fill values each; a function of the user's sees the slivers."""
    sparse = pytest.importorskip("sparse")
    x = waves(unknown(lambda block: sparse.COO.from_numpy(block, fill_value=float(block.flat[0]))))
    counts = x.map_blocks(lambda block: np.asarray([[block.nnz]]), chunks=(1, 1), dtype=int)
    assert not applied(counts)
    assert_same_as_stock(counts)


@pytest.mark.parametrize("kind", ["numpy", "turned"])
def test_who_can_see_how_blocks_lie_in_memory_gets_them_as_they_lay(kind: str) -> None:
    x = waves(unknown(lambda block: KINDS[kind](np.sqrt(block))))
    seen = x.map_blocks(lambda block: block.ravel(order="K")[:1, None] + 0 * block)
    assert not applied(seen)
    assert_same_as_stock(seen, x)
    for total in (x.sum(), x.mean(axis=0)):
        with dask.config.set({"rewrite.reassociate": False}):
            assert not applied(total)
            assert_same_as_stock(total, x)
        assert applied(total)
        with stock():
            expected = total.compute()
        with switched_on():
            np.testing.assert_allclose(total.compute(), expected, rtol=1e-13)


def test_sums_over_some_of_three_axes_see_how_blocks_lie() -> None:
    """What they give has two axes, which lie as those of the block do."""
    x = unknown(np.asfortranarray, (8, 24, 24), 4)
    y = da.roll(x, 1, 1) + da.roll(x, -1, 2)
    total = y.sum(axis=0).map_blocks(lambda block: block.ravel(order="K")[:1, None] + 0 * block)
    assert not applied(total)
    assert_same_as_stock(total)


@pytest.mark.parametrize("kind", ["numpy", "masked", "turned", "narrow", "whole numbers", "with a unit"])
def test_sums_of_blocks_of_any_kind(kind: str) -> None:
    x = waves(unknown(lambda block: KINDS[kind](block % 16)))
    for total in (x.sum(), x.sum(axis=0), x.max(axis=1)):
        assert applied(total)
        assert_same_as_stock(total)


def test_sums_in_as_few_tasks_as_of_known_blocks() -> None:
    known = distinct((640, 640), 160).map_blocks(np.sqrt)
    for reduce in (lambda x: x.sum(), lambda x: x.mean(axis=0), lambda x: abs(x).max(axis=1)):
        counts = [len(tasks_of(reduce(waves(x)))) for x in (known, known.map_blocks(lambda block: block + 1))]
        assert counts[1] <= counts[0] + 16


def test_proven_facts_only() -> None:
    x = waves(unknown(np.array))
    assert applied(x, **{"rewrite.assume": "declared"})
    assert not applied(x, **{"rewrite.assume": "proven"})


@pytest.mark.parametrize("known", [True, False])
def test_who_gets_all_blocks_gets_the_coarse_ones(known: bool) -> None:
    x = distinct(SHAPE, SIZE) + 1 if known else unknown(np.array)
    y = waves(x)
    coarse = 6 * 4
    with dask.config.set({"rewrite.disable": ["coalesce"]}):
        assert dask_rewrite.explain(y).steps[-1].after.tasks <= 6 * coarse
        assert len(tasks_of(y)) >= 12 * coarse  # the slivers themselves
    assert_same_as_stock(y, y.T, y[7:9, 3:], y[:0], y * 2, [y[0], {"y": y}])


@pytest.mark.parametrize("known", [True, False])
def test_one_coarse_block_is_all(known: bool) -> None:
    for side in (np.array, np.asfortranarray):
        x = da.from_array(side(np.arange(12.0).reshape(4, 3)), chunks=4)
        x = x + 1 if known else x.map_blocks(lambda block: block + 1)
        y = x[:3] + x[1:]
        up, down = da.roll(y, -1, 0), da.roll(y, 1, 0)
        for z in (down + up, y[:2] * y[1:], (down + y) - da.roll(y, 2, 0)):
            (found,) = assert_same_as_stock(z)
            assert found.flags.owndata or found.base.flags.writeable


@pytest.mark.parametrize("steps", [1, 3])
def test_as_many_tasks_as_on_known_blocks(steps: int) -> None:
    known = distinct((640, 480), 160).map_blocks(np.sqrt)
    both = (known, known.map_blocks(lambda block: block + 1))
    counts = [len(tasks_of(relaxed(x, steps, 160))) for x in both]
    assert counts[1] <= counts[0] + 4 * 3
    assert 5 * counts[1] < len(stock_tasks_of(relaxed(known, steps, 160)))


def test_memory_as_on_known_blocks() -> None:
    known = da.random.default_rng(0).random((1024, 1024), chunks=256)
    peaks = [
        dask_rewrite.forecast(relaxed(x, 4, 256), threads=2).after.peak
        for x in (known, known.map_blocks(lambda block: block + 1))
    ]
    assert peaks[1] <= 1.1 * peaks[0]


def test_errors_come_through() -> None:
    x = waves(unknown(broken))
    assert applied(x)
    with switched_on(), pytest.raises(ValueError, match="a broken file"):
        x.compute(scheduler="sync")


def test_files_that_stay_files(tmp_path: Path) -> None:
    """Blocks of a memory map are memory maps, a subclass of arrays."""
    values = np.random.default_rng(0).random(SHAPE)
    np.save(tmp_path / "x.npy", values)
    x = relaxed(da.from_array(np.load(tmp_path / "x.npy", mmap_mode="r"), chunks=SIZE))
    assert applied(x)
    assert_same_as_stock(x, x.max(axis=0))


@pytest.mark.parametrize("engine", ["scipy", "h5netcdf"])
def test_files_that_xarray_opened(tmp_path: Path, engine: Any) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip(engine)
    values = np.random.default_rng(0).random((6, *SHAPE))
    xr.Dataset({"t": (("time", "y", "x"), values)}).to_netcdf(tmp_path / "t.nc", engine=engine)
    with xr.open_dataset(tmp_path / "t.nc", engine=engine, chunks={"time": 2, "y": SIZE, "x": SIZE}) as data:
        t = data.t
        y = t.shift(y=1).fillna(0) + t.roll(x=1) - 2 * t
        z = t.isel(y=slice(2, None)) - t.isel(y=slice(None, -2)) + t.isel(y=slice(1, -1))
        assert applied(z.data)
        for found in (y, z, z.mean("time")):
            with stock():
                expected = found.compute(scheduler="sync")
            with switched_on():
                xr.testing.assert_identical(found.compute(scheduler="sync"), expected)


@pytest.mark.parametrize("dtype", ["i4", "u1", "m8[s]"])
def test_declared_masked_blocks_have_no_other_fill_value(dtype: str) -> None:
    """Joined, they have one that is set, which a cast warns of."""
    x = distinct(SHAPE, SIZE).map_blocks(
        lambda block: np.ma.masked_less(block % 7, 2), meta=np.ma.empty((0, 0))
    )
    assert not applied(differences(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_as_stock(differences(differences(x)).astype(dtype), waves(x).astype(dtype))
