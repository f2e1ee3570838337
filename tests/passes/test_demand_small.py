"""Blocks that are small: what is planned of them, once for all that are alike, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import zarr

import dask_rewrite
from dask_rewrite.passes.demand import forms
from helpers import assert_same, rewritten, stock, switched_on

SHAPE, CHUNKS = (40, 24, 36), (10, 4, 6)


def stored(chunks: tuple[int, ...] = CHUNKS, **more: Any) -> zarr.Array:
    array = zarr.create_array({}, shape=SHAPE, chunks=chunks, dtype="f8", **more)
    array[...] = np.random.default_rng(0).normal(size=SHAPE)
    return array


def compared(make: Callable[[da.Array], Any], source: Any, chunks: Any = CHUNKS) -> dict[Any, Any]:
    """The graph, after its answer was compared with stock's."""
    x = da.from_array(source, chunks=chunks)
    with stock():
        expected = make(x).compute(scheduler="sync")
    with switched_on():
        assert_same(make(x).compute(scheduler="sync"), expected)
    return dict(rewritten(make(x)))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks that plans are made for."""
    made: list[Any] = []

    class Counted(forms.Plan):
        def __init__(self, node: Any, *args: Any) -> None:
            made.append(node)
            super().__init__(node, *args)

    monkeypatch.setattr(forms, "Plan", Counted)
    return made


PLANNED: dict[str, tuple[Callable[[da.Array], Any], Callable[[], Any], tuple[int, ...]]] = {
    "several chunks": (lambda x: x[:, 1:5:3], stored, (20, 24, 36)),
    "blocks that cut chunks": (lambda x: x[:, 1:5:3], stored, (7, 7, 7)),
    "shards": (lambda x: x[:, 1:5:3], lambda: stored((5, 2, 3), shards=CHUNKS), CHUNKS),
    "work between": (lambda x: (x + x.max(axis=0))[:, 1:5:3], stored, CHUNKS),
    "joins": (lambda x: x.rechunk((20, 24, 36))[:, 1:5:3], stored, CHUNKS),
}


@pytest.mark.parametrize("name", PLANNED)
def test_it_is_planned_where_less_is_decoded_or_made(name: str, plans: list[Any]) -> None:
    make, source, chunks = PLANNED[name]
    compared(make, source(), chunks)
    assert plans


def test_files_without_chunks_are_planned(tmp_path: Any, plans: list[Any]) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(SHAPE[0] * 9.0).reshape(-1, 9)
        compared(lambda x: x[:, 1:5:3], file["x"], (10, 9))
    assert plans


def test_reads_of_one_shape_are_planned_once(plans: list[Any]) -> None:
    """Where they lie is put in: also at edges, where blocks are smaller."""
    many = {"rewrite.options": {"demand": {"min-bytes": 1}}}
    counts = []
    for rows in (2, 8):
        plans.clear()
        source = zarr.create_array({}, shape=(10 * rows + 3, 25), chunks=(10, 6), dtype="f8")
        source[...] = np.random.default_rng(0).normal(size=source.shape)
        with dask.config.set(many):
            compared(lambda x: x[:, 1::6], source, (10, 6))
        counts.append(len(plans))
    assert 0 < counts[0] == counts[1]


@pytest.mark.parametrize("index", [np.s_[1:-1, :, 2:], np.s_[3:, 1, ::2], np.s_[:, None, 2:, 5], np.s_[5:6]])
@pytest.mark.parametrize("chunks", [(10, 4, 6), (7, 5, 9), (40, 1, 36), ((3, 37), (24,), (1, 30, 5))])
def test_reads_lie_where_they_should(index: Any, chunks: Any) -> None:
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        compared(lambda x: (x + x.max(axis=0))[index], stored(), chunks)
        compared(lambda x: da.concatenate([x, x[::-1]])[index], stored(), chunks)


@pytest.mark.parametrize(("rows", "narrows"), [(80, False), (75, True), (81_000, True), (92_000, False)])
def test_most_of_a_block_is_made_where_it_is_much(rows: int, narrows: bool) -> None:
    """Of 100 rows 75 are worth planning, of 100,000 rows 81,000: 19,000 are copied in less time."""
    n = 100 if rows <= 100 else 100_000
    x = da.from_array(np.arange(2.0 * n).reshape(n, 2), chunks=n) + 1
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        found = dask_rewrite.explain(x[:rows]).counts.get(("demand", "applied"), 0)
        with switched_on():
            assert_same(x[:rows].compute(scheduler="sync"), (np.arange(2.0 * n).reshape(n, 2) + 1)[:rows])
    assert bool(found) == narrows
