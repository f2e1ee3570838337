"""Blocks that are not what their array says: of another type, dtype or shape, all of them or some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.every_source import PROGRAMS
from dask import delayed

from duck_arrays import Duck, Quantity
from helpers import assert_same_as_stock, stock, switched_on, tasks_of

SIZE, GRID = 4, 4
VALUES = np.arange(SIZE * GRID * SIZE * GRID, dtype=float).reshape(SIZE * GRID, -1) % 23

#: Programs that move data, or add it up.
SOME = ["rechunked to rows and columns and back", "rolled", "padded", "matmul", "einsum", "halos", "sliced"]
SOME += ["joined and sliced", "turned", "differences", "reshaped", "appended", "assigned", "stacked"]


def blocks(make: Callable[[np.ndarray], Any]) -> da.Array:
    """An array that says that its blocks are plain float64; they are what ``make`` makes."""

    def load(block_info: Any = None) -> Any:
        place = block_info[None]["array-location"]
        return make(VALUES[tuple([slice(*ends) for ends in place])])

    chunks = (SIZE,) * GRID
    return da.map_blocks(load, chunks=(chunks, chunks), dtype=float, meta=np.empty((0, 0)))


def masked(block: np.ndarray) -> Any:
    return np.ma.masked_greater(block, 15)


def turned(block: np.ndarray) -> Any:
    return np.asfortranarray(block)


class Own(np.ndarray):
    """A subclass that joins and slices keep."""


@pytest.mark.parametrize("dtype", ["f4", "i2", "?", "c8", ">f8", "f2", "O"])
@pytest.mark.parametrize("program", SOME)
def test_another_dtype(program: str, dtype: str) -> None:
    x = blocks(lambda block: block.astype(dtype))
    same_or_same_error(PROGRAMS[program](x))


@pytest.mark.parametrize("make", [masked, turned, lambda block: block.view(Own)])
@pytest.mark.parametrize("program", SOME)
def test_another_type(program: str, make: Callable[[np.ndarray], Any]) -> None:
    same_or_same_error(PROGRAMS[program](blocks(make)))


@pytest.mark.parametrize("make", [Duck, Quantity])
@pytest.mark.parametrize("program", SOME)
def test_blocks_that_are_no_subclass_of_arrays(program: str, make: Callable[[np.ndarray], Any]) -> None:
    """As cupy's and pint's are; a pad of zeros has no unit, and fails with dask too."""
    same_or_same_error(PROGRAMS[program](blocks(make)))


@pytest.mark.parametrize("program", ["matmul", "sliced", "turned", "joined and sliced", "stacked"])
def test_sparse_blocks(program: str) -> None:
    sparse = pytest.importorskip("sparse")
    x = PROGRAMS[program](blocks(sparse.COO))
    try:
        with stock():
            expected = x.compute(scheduler="sync")
    except Exception as error:  # what dask cannot do, we need not
        with switched_on(), pytest.raises(type(error)):
            x.compute(scheduler="sync")
        return
    with switched_on():
        actual = x.compute(scheduler="sync")
    assert type(actual) is type(expected)
    np.testing.assert_array_equal(actual.todense(), expected.todense())


def same_or_same_error(x: da.Array) -> None:
    """What comes out of dask comes out of us: values to the bit, since they are whole numbers."""
    try:
        with stock():
            x.compute(scheduler="sync")
    except Exception as error:
        with switched_on(), pytest.raises(type(error)):
            x.compute(scheduler="sync")
    else:
        assert_same_as_stock(x)


@pytest.mark.parametrize("program", SOME)
def test_some_blocks_of_another_dtype_keep_their_values(program: str) -> None:
    """Blocks of one array are taken to be alike: the dtype may come out otherwise, the values do not."""
    x = PROGRAMS[program](blocks(lambda block: block.astype("f4" if block[0, 0] % 2 else "f8")))
    with stock():
        expected = x.compute(scheduler="sync")
    with switched_on():
        actual = x.compute(scheduler="sync")
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("program", SOME)
def test_some_blocks_of_another_type_keep_their_values(program: str) -> None:
    x = PROGRAMS[program](blocks(lambda block: masked(block) if block[0, 0] % 2 else block))
    with stock():
        expected = x.compute(scheduler="sync")
    with switched_on():
        actual = x.compute(scheduler="sync")
    np.testing.assert_array_equal(np.ma.filled(actual, -1), np.ma.filled(expected, -1))


def test_some_blocks_of_other_units_are_not_joined() -> None:
    x = blocks(lambda block: Quantity(block, "m" if block[0, 0] % 2 else "s"))
    for y in (x.rechunk((2 * SIZE, SIZE)), x.sum(axis=0), x[1:5], x @ x.T, da.stack([x, x.T]).sum(axis=0)):
        with stock(), pytest.raises(ValueError, match=r"m and s|s and m"):
            y.compute(scheduler="sync")
        with switched_on(), pytest.raises(ValueError, match=r"m and s|s and m"):
            y.compute(scheduler="sync")


@pytest.mark.parametrize("fewer", [True, False])
def test_some_blocks_of_another_shape(fewer: bool) -> None:
    """Where nothing is cut along an axis, it does not matter which blocks are longer or shorter."""
    x = blocks(lambda block: (block[1:] if fewer else np.repeat(block, 2, 0)) if block[0, 0] % 2 else block)
    for y in (x[:, 1:][:, :-2] + 1, x[:, ::2][:, 1:], x.T[1:].T, x.sum(axis=0), x.rechunk((SIZE, 2 * SIZE))):
        same_or_same_error(y)


@pytest.mark.parametrize("rows", [1, 2])
def test_more_rows_than_declared(rows: int) -> None:
    """Where nothing is cut along an axis, its declared length does not matter."""
    x = blocks(lambda block: np.concatenate([block] * rows))
    for program in (
        lambda x: x[:, 1:][:, :-2] + 1,
        lambda x: x[:, ::2][:, 1:],
        lambda x: x.rechunk((SIZE, 2 * SIZE)),
        lambda x: x.T[1:].T,
    ):
        same_or_same_error(program(x))


def test_sizes_that_are_corrected_after_they_were_declared() -> None:
    x = da.from_array(VALUES, chunks=SIZE)
    kept = x[x[:, 0] > 5]
    found = da.unique(x.rechunk(-1).ravel().rechunk(64))
    for y in (kept[:, 1:][:, :-1], kept[:, ::2].T[1:], found + 1, kept.sum(axis=1), kept.map_blocks(np.copy)):
        assert_same_as_stock(y)


def test_blocks_that_somebody_writes_into_stay_their_own() -> None:
    def writes(block: Any) -> Any:
        block += 1
        return block

    size, n = SIZE, SIZE * GRID
    x = blocks(np.copy)
    back = x.rechunk((size, n)).rechunk((n, size)).rechunk((size, size))
    assert_same_as_stock(back.map_blocks(writes, dtype=float) - x)
    assert_same_as_stock(x[1:][:-1].map_blocks(writes, dtype=float), x)
    assert_same_as_stock(x.rechunk((size, n)).rechunk((size, size)).map_blocks(writes, dtype=float), x * 2)


def test_from_delayed_blocks_of_several_functions() -> None:
    """What different functions make is never taken to be alike."""

    def one(i: int) -> np.ndarray:
        return np.full((4, 4), i, "i2")

    def other(i: int) -> np.ndarray:
        return np.ma.masked_equal(np.full((4, 4), float(i)), 2)

    parts = [da.from_delayed(delayed(f)(i), (4, 4), dtype=float) for i in range(4) for f in (one, other)]
    x = da.concatenate(parts)
    for y in (x.rechunk((8, 4))[:2], x.rechunk((16, 2)).rechunk((4, 4))[:3, :1], x[1:][2:]):
        with stock():
            expected = y.compute(scheduler="sync")
        with switched_on():
            actual = y.compute(scheduler="sync")
        np.testing.assert_array_equal(actual, expected)


def test_nothing_is_assumed_if_so_asked() -> None:
    size, n = SIZE, SIZE * GRID
    x = blocks(np.copy)
    y = x.rechunk((size, n)).rechunk((n, size)).rechunk((size, size))
    assumed = len(tasks_of(y))
    with dask.config.set({"rewrite.assume": "proven"}):
        assert len(tasks_of(y)) > assumed


@pytest.mark.parametrize("boundary", ["reflect", "nearest", "periodic", "none", 3.0])
@pytest.mark.parametrize("select", [da.topk, da.argtopk])
@pytest.mark.parametrize("k", [2, -3])
def test_reductions_to_several_elements(select: Any, k: int, boundary: Any) -> None:
    """Dask declares one element for each block of them, and corrects that in the array only."""
    values = np.arange(32.0).reshape(8, 4) % 11
    x = da.from_array(values, chunks=(8, 1)).map_blocks(lambda block: block, dtype=float)
    y = select(x, k, axis=0)
    assert_same_as_stock(da.overlap.overlap(y, depth=1, boundary=boundary))
    assert_same_as_stock(y[::-1], y[1:], y.rechunk(1), da.concatenate([y, y[:1]]))


def test_reductions_of_the_user_to_several_elements() -> None:
    def largest(block: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
        return np.sort(block, axis=axis[0])[-2:]

    x = da.from_array(np.arange(32.0).reshape(8, 4) % 11, chunks=(4, 2))
    y = da.reduction(x, largest, largest, axis=0, keepdims=True, output_size=2, dtype=float)
    assert_same_as_stock(da.overlap.overlap(y, depth=1, boundary="reflect"), y[::-1], y.rechunk(1))
