"""What a graph stores into is not read again: it may have been overwritten by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask._task_spec import Task, TaskRef
from dask.array.core import load_store_chunk

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.hoist import Hoist
from dask_rewrite.passes.reread.overwritten import Overwritten
from helpers import switched_on

ROWS, LENGTH = 24, 2_000
BLOCK = 8 * LENGTH
HOW: list[dict[str, Any]] = [
    {"rewrite.reread": True, "rewrite.options": {"reread": {"min-bytes": 1, "min-blocks": 1}}},
    {"rewrite.memory-limit": 8 * BLOCK, "rewrite.on-memory": "warn"},
]


class File:
    """An array in a file; several handles may be open."""

    dtype, shape, ndim = np.dtype("f8"), (ROWS, LENGTH), 2

    def __init__(self, values: Any) -> None:
        self.values, self.reads = values, 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return self.values[index].copy()

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[index] = value

    def __reduce__(self) -> Any:
        return File, (None,)  # as small as a path


def values() -> Any:
    return np.arange(ROWS * LENGTH, dtype="f8").reshape(ROWS, LENGTH) % 1013


def flipped(x: da.Array) -> da.Array:
    """Each block is stored where another one is read."""
    return (x - x.mean(axis=0))[::-1]


@pytest.mark.filterwarnings("ignore:dask_rewrite. this computation:dask_rewrite.RewriteWarning")
@pytest.mark.parametrize("how", HOW, ids=["reread", "limit"])
@pytest.mark.parametrize("handles", [1, 2])
def test_what_is_stored_into_is_read_once(handles: int, how: dict[str, Any]) -> None:
    source = File(values())
    target = source if handles == 1 else File(source.values)
    x = da.from_array(source, chunks=(1, -1), meta=np.empty((0, 0)))
    with switched_on(**how), dask.config.set(scheduler="threads", num_workers=2):
        da.store(flipped(x), target, lock=False)
    assert source.reads == ROWS
    np.testing.assert_allclose(source.values, (values() - values().mean(axis=0))[::-1])


@pytest.mark.filterwarnings("ignore:dask_rewrite. this computation:dask_rewrite.RewriteWarning")
@pytest.mark.parametrize("how", HOW, ids=["reread", "limit"])
@pytest.mark.parametrize("same", [True, False])
def test_zarr_arrays_are_told_apart_by_their_place(same: bool, how: dict[str, Any], tmp_path: Path) -> None:
    made = {"shape": (ROWS, LENGTH), "chunks": (1, LENGTH), "dtype": "f8"}
    zarr.create_array(str(tmp_path / "x.zarr"), **made)[...] = values()
    if not same:
        zarr.create_array(str(tmp_path / "y.zarr"), **made)
    x = da.from_zarr(str(tmp_path / "x.zarr"))
    target = zarr.open_array(str(tmp_path / "x.zarr" if same else tmp_path / "y.zarr"))
    with switched_on(**how), dask.config.set(scheduler="threads", num_workers=2):
        stored = da.store(flipped(x), target, lock=False, compute=False)
        again = [each for each in dask_rewrite.explain(stored).remarks if each.rule == "reread"]
        assert bool([each for each in again if each.kind == "applied"]) is not same
        stored.compute()
    np.testing.assert_allclose(target[...], (values() - values().mean(axis=0))[::-1])


@pytest.mark.filterwarnings("error")
def test_a_target_that_is_heavy_to_send_is_not_what_a_store_gives() -> None:
    """Tasks share such an object, and still give nothing."""
    target = zarr.create_array(
        zarr.storage.MemoryStore(), shape=(ROWS, LENGTH), chunks=(1, LENGTH), dtype="f8"
    )
    target[...] = values()
    x = da.random.default_rng(1).random((ROWS, LENGTH), chunks=(1, LENGTH))
    how = {"rewrite.memory-limit": 8 * BLOCK, "rewrite.on-memory": "raise", "num_workers": 2}
    with switched_on(**how):
        da.store(x * 2, target, lock=False, compute=False).compute(scheduler="threads")
    assert (target[...] <= 2).all()


def test_stores_of_shared_functions_are_seen() -> None:
    source = File(values())
    heavy = np.zeros((ROWS, LENGTH))
    target = type("Heavy", (), {"__setitem__": None, "shape": heavy.shape, "held": heavy})()
    target.held = heavy
    stores: dict[Any, Any] = {
        ("y", i): Task(("y", i), load_store_chunk, TaskRef("x"), target, slice(i), lock=False)
        for i in range(ROWS)
    }
    graph = Graph(stores, tuple(stores))
    hoisted = Hoist().run(graph, Context())
    assert len(hoisted.nodes) > len(stores)
    for nodes in (graph.nodes, hoisted.nodes):
        assert Overwritten(nodes).is_taken_by(Task("z", np.negative, source), nodes)
    assert not Overwritten({}).is_taken_by(Task("z", np.negative, source), {})
