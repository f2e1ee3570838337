"""Slices of which less is read lie in memory as dask's own do."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

from helpers import assert_same_as_stock, functions_in, switched_on, tasks_of


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
