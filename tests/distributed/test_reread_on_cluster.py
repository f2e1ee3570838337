"""Blocks that are read again on a cluster of processes: workers hold few of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from benchmarks.harness.memory import managed

from distributed import Client
from helpers import stock, switched_on

pytestmark = [pytest.mark.timeout(180)]

BLOCKS, SIDE = 60, 48


def one_user(x: da.Array) -> tuple[Any, ...]:
    return (abs(x - x.mean(axis=0)).max(),)


def several_users(x: da.Array) -> tuple[Any, ...]:
    mean = x.mean(axis=0)
    return (x - mean).max(axis=(1, 2)), (x * mean).min(axis=(1, 2))


@pytest.mark.parametrize("program", [one_user, several_users])
def test_workers_hold_few_blocks(program: Any, client: Client, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    shape = (BLOCKS * 8, SIDE, SIDE)
    stored = zarr.create_array(
        store=str(tmp_path / "x.zarr"), shape=shape, chunks=(8, *shape[1:]), dtype="f8"
    )
    stored[...] = np.arange(np.prod(shape)).reshape(shape) * 7 % 1013
    collections = program(da.from_zarr(str(tmp_path / "x.zarr")))
    with stock():
        expected, before = managed(client, collections)
    with switched_on(**{"rewrite.reread": True, "rewrite.reassociate": False}):
        actual, after = managed(client, collections)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(other, one)
    assert before > 0.9 * stored.nbytes
    assert after < before / 2
