"""Programs whose inner grids crumble: how many tasks are left, and what is held, on grids that fit."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.harness.memory import held_bytes
from benchmarks.workloads.grids import column_spectra, day_anomalies

import dask_rewrite
from helpers import assert_same_as_stock, keys_of, stock_tasks_of, switched_on, tasks_of


def stencil(pad: Any, x: Any, steps: int) -> Any:
    for _ in range(steps):
        p = pad(x, 1)
        x = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4
    return x


@pytest.mark.once
def test_ten_steps_of_a_stencil_are_no_more_tasks_than_overlaps() -> None:
    """Written by hand with ``map_overlap`` these are 817 tasks; in stock more than 400,000."""
    values = np.arange(400.0 * 400).reshape(400, 400) % 11
    x = stencil(da.pad, da.from_array(values, chunks=100), 10)
    assert x.npartitions == 84 * 84
    with switched_on(num_workers=2):
        coarse = x.rechunk(100)
        assert len(tasks_of(coarse)) <= 817
        np.testing.assert_array_equal(coarse.compute(), stencil(np.pad, values, 10))


@pytest.mark.once
def test_a_climatology_that_is_taken_day_by_day() -> None:
    """By hand, with the taken blocks joined first, 8,579 tasks."""
    with switched_on(num_workers=2):
        assert len(tasks_of(day_anomalies(da, 5))) <= 8579 / 4


def test_a_plan_by_way_of_one_block_is_gone_around() -> None:
    made = column_spectra(da, 10)
    with switched_on(num_workers=2):
        after = held_bytes(tasks_of(made), keys_of(made))
    assert after <= 0.6 * held_bytes(stock_tasks_of(made), keys_of(made))


@pytest.mark.parametrize(
    ("stencil_of", "regrids"),
    [
        (lambda x: da.diff(x, n=2, axis=0), False),
        (lambda x: da.diff(x, n=3, axis=0), False),
        (lambda x: (x[2:] + x[1:-1] + x[:-2]) / 3, False),
        (lambda x: x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2], True),
        (lambda x: x[:, 2:, 1:-1] + x[:, :-2, 1:-1] + x[:, 1:-1, 2:] + x[:, 1:-1, :-2], True),
    ],
    ids=["diff 2", "diff 3", "means of three", "along two axes", "along two others"],
)
def test_large_blocks_do_not_wait_for_their_neighbours(stencil_of: Any, regrids: bool) -> None:
    """Where few slivers would be saved: on a coarse grid each thread holds two blocks, of 369 kB here."""
    x = da.random.default_rng(0).random((480, 96, 128), chunks=(60, 24, 32))
    y = stencil_of(x).std(axis=0)
    assert any("regrid" in str(key) for key in tasks_of(y)) == regrids
    if not regrids:
        found = dask_rewrite.forecast(y, threads=2)
        assert found.after.peak <= 1.1 * found.before.peak  # it was up to twice as much
        with dask.config.set({"rewrite.reassociate": False}):
            assert_same_as_stock(y)
