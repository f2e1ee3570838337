"""What is wanted of a block in steps is made, and read, in steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
from demand_cases import Stored, gets, square

from dask_rewrite.passes.demand.boxes import between, hull, length, seen_from, stepped
from helpers import allocated, assert_same, stock, switched_on, tasks_of


@pytest.fixture(autouse=True)
def small_blocks_too() -> Any:
    """As the blocks of these tests are."""
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        yield


#: On (100, 100), stored in chunks of 10: how many of these are wanted of one block, and of blocks of 20.
ROWS: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "steps": (lambda v: (v + 1)[::45, ::45], 9, 9),
    "backwards": (lambda v: (v * 2)[::-30, 5:50], 20, 20),
    "corners": (lambda v: ((v + 1)[0, 0], (v + 1)[18, 18]), 4, 4),
    "ends": (lambda v: ((v + 1)[:1], (v + 1)[99:]), 20, 20),
    "list": (lambda v: (v + 1)[:, [40, 0, 20]], 30, 30),
    "steps of steps": (lambda v: (v + 1)[::4][::5, ::50], 10, 10),
    "both ways": (lambda v: (v + v.T)[::50, ::25], 16, 16),
    "kept axis": (lambda v: v.max(axis=0)[::25], 40, 40),
    "scan": (lambda v: v.cumsum(axis=0)[:, ::25], 40, 40),
    "matmul": (lambda v: (v.astype("i4") @ v.astype("i4").T)[::50, ::50], 20, 20),
    "stack": (lambda v: da.stack([v, v * 2])[:, ::50, ::50], 4, 4),
    "rechunk": (lambda v: (v + 1).rechunk((30, 30))[::25, ::25], 16, 16),
    "counted": (lambda v: (v + da.arange(100, chunks=v.chunks[1]))[::25, ::25], 16, 16),
    "flip": (lambda v: da.flip(v + 1, 0)[::30], 40, 40),
    "reshape": (lambda v: (v + 1).reshape(100, 10, 10)[::30, ::3], 40, 32),
    "new axis": (lambda v: (v + 1)[:, None][::30, 0, ::50], 8, 8),
    "broadcast": (lambda v: da.broadcast_to(v[0] + 1, (50, 100))[::7, ::30], 4, 4),
    "narrow steps": (lambda v: (v + 1)[::7, ::9], 100, 100),
    "narrow on one axis": (lambda v: (v + 1)[::7, ::50], 20, 20),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", ["f8", "i4"])
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
def test_reads_in_steps(name: str, dtype: str) -> None:
    make, of_one, of_several = ROWS[name]
    source = Stored(square(dtype), (10, 10))
    for chunks, wanted in ((100, 100), of_one), ((20, 20), of_several), ((33, 45), 100):
        with stock():
            before, expected = gets(make, source, chunks)
        with switched_on():
            after, found = gets(make, source, chunks)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
        assert after <= wanted
        assert after <= before


def test_steps_save_work_where_they_save_no_reads() -> None:
    """Of 8 MB one in a hundred elements is worked on."""
    data = np.arange(1_000_000.0).reshape(1000, 1000)
    x = da.from_array(data, chunks=(1000, 1000), inline_array=True)
    made = ((x * 3 + 1) ** 2)[::10, ::10]
    with switched_on():
        assert allocated(lambda: made.compute(scheduler="sync")) < 1_000_000
        assert_same(made.compute(), ((data * 3 + 1) ** 2)[::10, ::10])


@pytest.mark.parametrize("chunks", [None, (10, 10)], ids=["contiguous", "chunked"])
def test_hdf5(tmp_path: Path, chunks: Any) -> None:
    data = square()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        stored = file.create_dataset("x", data=data, chunks=chunks)
        for lock in (True, False):
            made = (da.from_array(stored, chunks=(50, 50), lock=lock) + 1)[::25, 3::25]
            with switched_on():
                assert_same(made.compute(), (data + 1)[::25, 3::25])


def test_xarray_over_zarr(tmp_path: Path) -> None:
    data = square("i4")
    plain = xr.Dataset({"a": (("y", "x"), data)}, {"x": np.arange(100.0)})
    plain.to_zarr(tmp_path / "x.zarr", encoding={"a": {"chunks": (10, 10)}}, consolidated=False)
    with (
        switched_on(),
        xr.open_zarr(tmp_path / "x.zarr", chunks={"y": 50, "x": 50}, consolidated=False) as ds,
    ):
        found = (ds.a * 2 + 1).isel(y=slice(None, None, 30), x=slice(70, None, -20)).load()
        coarse = (ds.a.isel(y=slice(1, None)) - ds.a.isel(y=slice(None, -1)))[::33].load()
    assert_same(found.values, (data * 2 + 1)[::30, 70::-20])
    assert_same(coarse.values, np.diff(data, axis=0)[::33])


def test_a_function_that_nobody_knows_gets_its_whole_block() -> None:
    seen = []

    def double(block: Any) -> Any:
        seen.append(block.shape)
        return block * 2

    x = da.from_array(square(), chunks=(50, 50))
    with switched_on():
        found = x.map_blocks(double, dtype="f8", meta=np.empty((0, 0)))[::50].compute(scheduler="sync")
    assert_same(found, (square() * 2)[::50])
    assert set(seen) == {(50, 50)}


def test_red_and_black_together_are_all() -> None:
    x = da.from_array(square(), chunks=(50, 50)) + 1
    with switched_on():
        tasks = tasks_of(x[::2] + x[1::2])
        assert_same((x[::2] + x[1::2]).compute(), (square() + 1)[::2] + (square() + 1)[1::2])
    assert not any("-r" in str(key) and key[0].startswith("add-r") for key in tasks if type(key) is tuple)


def test_ranges_are_as_sets_of_positions() -> None:
    """Against Python's own ranges, small ones without exception."""
    ranges = [stepped(a, b, s) for s in (1, 2, 3, 4, 6) for a in range(9) for b in range(a, 12, s)]
    for one in ranges:
        positions = set(range(*one))
        assert length(one) == len(positions)
        for other in ranges[::3]:
            (joined,) = hull((one,), (other,))
            both = set(range(*joined))
            assert positions | set(range(*other)) <= both
            assert {min(both), max(both)} <= positions | set(range(*other))
            (seen,) = seen_from((joined,), (one,))
            assert {range(*joined)[i] for i in range(*seen)} == positions
        for start, stop in (0, 5), (3, 9), (7, 8), (4, 20):
            found = between(one, start, stop)
            inside = {i - start for i in positions if start <= i < stop}
            assert (set() if found is None else set(range(*found))) == inside
