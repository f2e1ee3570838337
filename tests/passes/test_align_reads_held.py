"""What waits for a second block stays within the bound, in whatever order the blocks are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest

import dask_rewrite
from helpers import allocated, keys_of, stock_tasks_of, switched_on, tasks_of


def unknown(v: Any) -> Any:
    return v.map_blocks(lambda block: block * 2, dtype=v.dtype)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "row by row": lambda v: (v + 1).sum(axis=(1, 2)),
    "column by column": lambda v: unknown(v).mean(axis=0),
    "in octants": lambda v: unknown(v).sum(),
    "twice": lambda v: abs(v - v.mean(axis=0)).mean(),
}


@pytest.mark.once
@pytest.mark.parametrize("name", PROGRAMS)
def test_small_blocks_of_large_chunks(tmp_path: Path, name: str) -> None:
    """Trees of sums go from octant to octant: 20 times as much as in stock was held."""
    room = 1_500_000
    with h5py.File(tmp_path / "x.h5", "w", rdcc_nbytes=0) as file:
        data = np.arange(40.0 * 160 * 160).reshape(40, 160, 160)
        made = file.create_dataset("x", data=data, chunks=(10, 80, 80))
        v = PROGRAMS[name](da.from_array(made, chunks=(7, 13, 20)))
        with switched_on(num_workers=1, **{"rewrite.options": {"align-reads": {"max-held": room}}}):
            after, before = tasks_of(v), stock_tasks_of(v)
        found, expected = (np.array(dask.get(graph, keys_of(v))[0]) for graph in (after, before))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        taken = allocated(lambda: dask.get(after, keys_of(v)))
        stock = allocated(lambda: dask.get(before, keys_of(v)))
        assert taken <= 1.1 * stock + room


@pytest.mark.parametrize(("chunks", "blocks"), [((50, 20, 30), (480, 7, 64)), ((60, 24, 32), (100, 30, 64))])
def test_a_limit_on_all_that_is_held_is_one_on_what_waits(
    tmp_path: Path, chunks: tuple[int, ...], blocks: tuple[int, ...]
) -> None:
    """What dask holds, and a quarter more, was exceeded, warned of and refused."""
    with h5py.File(tmp_path / "x.h5", "w", rdcc_nbytes=0) as file:
        made = file.create_dataset("x", data=np.arange(480.0 * 48 * 64).reshape(480, 48, 64), chunks=chunks)
        v = da.from_array(made, chunks=blocks)
        outputs = np.sin(v).mean(axis=0), unknown(v).max(axis=2)
        free = dask_rewrite.forecast(*outputs, threads=2)
        assert free.after.decoded < free.before.decoded
        limit = int(1.25 * free.before.peak)
        with dask.config.set({"rewrite.memory-limit": limit}):
            assert dask_rewrite.forecast(*outputs, threads=2).after.peak <= limit
            with switched_on(num_workers=2, **{"rewrite.on-memory": "raise"}):
                found = dask.compute(*outputs)
        for one, other in zip(found, dask.compute(*outputs)):
            np.testing.assert_allclose(one, other, rtol=1e-12)
