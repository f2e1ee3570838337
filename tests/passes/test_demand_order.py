"""Slices of which less is read lie in memory as dask's own do."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

from helpers import assert_same_as_stock, functions_in, switched_on, tasks_of


@pytest.fixture(autouse=True)
def small_blocks_too() -> Any:
    """As the blocks of these tests are."""
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        yield


def lie(block: Any) -> Any:
    return np.full(block.shape, 2.0 * block.flags.c_contiguous + block.flags.f_contiguous)


@pytest.mark.parametrize("order", ["C", "F"])
def test_slices_of_files_lie_as_these_give_them(order: str) -> None:
    """Dask reads a slice of what nobody else reads at once, with its steps: nothing is copied after that."""
    stored = zarr.create_array({}, shape=(60, 70), chunks=(60, 30), dtype="f8", order=order, zarr_format=2)
    stored[...] = np.random.default_rng(0).normal(size=(60, 70))
    x = da.from_array(stored, chunks=(60, 30))
    for y in (x[:, 12:40], x[5:20, ::3]):
        with dask.config.set({"rewrite.reassociate": False}):
            for made in (y.prod(), y.std(axis=0), y.map_blocks(lie)):
                assert_same_as_stock(made)
        with switched_on():
            graph = tasks_of(y.map_blocks(lie))
        assert np.array not in [func for node in graph.values() for func in functions_in(node)]


def test_slices_of_slices_are_copied() -> None:
    """A view of half of what dask copies has gaps: only what is read at once has none."""
    x = da.from_array(np.random.default_rng(0).normal(size=(77, 28)), chunks=(77, 14)) + 1
    x[2:5, 2:5] = 1.5
    assert_same_as_stock(x[33:74][:, 12:24].map_blocks(lie))


def test_slices_that_several_use_lie_in_c_order() -> None:
    """Dask fuses reads with slices that one task uses."""
    stored = zarr.create_array(
        {}, shape=(30, 18, 30), chunks=(30, 6, 30), dtype="f4", order="F", zarr_format=2
    )
    stored[...] = np.random.default_rng(0).normal(size=(30, 18, 30))
    x = da.from_array(stored, chunks=(30, 6, 30))[:, 15]
    with dask.config.set({"rewrite.reassociate": False}):
        assert_same_as_stock((x - x.mean(axis=0)).map_blocks(lie))
