"""Slices of slices are fused where dask fuses them, so that sums follow the memory as they do there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array import chunk

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.pipeline.selection import TASK_PASSES
from helpers import assert_same, stock, switched_on, tasks_of

EXACT = {"rewrite.reassociate": False}


class File:
    """What is read lies as it did."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.reads = values, list[int]()
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim

    def __getitem__(self, index: Any) -> np.ndarray:
        found = self.values[index].copy(order="K")
        if found.size:  # dask looks at none of it to find out its type
            self.reads.append(found.size)
        return found


def turned(chunks: Any = (40, 200)) -> da.Array:
    """Blocks in Fortran order, from a function that nobody knows."""
    x = da.from_array(np.random.default_rng(0).normal(size=(40, 200)), chunks=chunks)
    return x.map_blocks(lambda b: np.asfortranarray(b), dtype=x.dtype, meta=x._meta)


def read(**options: Any) -> tuple[File, da.Array]:
    file = File(np.asfortranarray(np.random.default_rng(0).normal(size=(40, 200))))
    return file, da.from_array(file, chunks=(40, 200), **options)


def assert_exact(*outputs: da.Array, **config: Any) -> None:
    with stock():
        expected = dask.compute(*outputs)
    with switched_on(**config):
        assert_same(dask.compute(*outputs), expected)


def used_twice(y: da.Array) -> tuple[da.Array, ...]:
    return (y.sum(), y.map_blocks(lambda b: b.sum(keepdims=True), chunks=(1, 1), dtype="f8"))


PROGRAMS: dict[str, Callable[[da.Array], Any]] = {
    "twice": lambda x: x[4:35, 20:180][:20, 5:150].sum(),
    "three times": lambda x: x[4:36, 20:195][2:30, 9:170][3:25, 7:150].sum(),
    "four times": lambda x: x[1:39, 9:195][2:36, 9:180][1:30, 7:155][2:20, :140].sum(),
    "over a join": lambda x: da.concatenate([x[4:35, 20:180], x[:3, 20:180]])[:20, 5:150].sum(),
    "over a roll": lambda x: da.roll(x[3:, 10:], 3, 0)[3:18, 4:185].sum(axis=1),
    "over a rechunk": lambda x: x[4:39, 9:].rechunk((18, 190))[1:17, 9:180].mean(axis=0),
    "used twice": lambda x: used_twice(x[3:37, 5:180][:18, 4:170]),
    "asked for": lambda x: ((y := x[3:37, 5:180][:18, 4:170]), y.sum()),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("config", [EXACT, {}], ids=["exact", "default"])
def test_sums_of_blocks_that_nobody_knows_follow_the_memory(name: str, config: dict[str, Any]) -> None:
    """A slice of at most half of a block is a copy in C order, one of more shows the block."""
    found = PROGRAMS[name](turned())
    assert_exact(*(found if type(found) is tuple else (found,)), **config)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"fancy": False}, {"inline_array": True}, {"lock": True}], ids=str)
def test_sums_of_slices_of_files_follow_the_memory(name: str, options: dict[str, Any]) -> None:
    _, x = read(**options)
    found = PROGRAMS[name](x)
    assert_exact(*(found if type(found) is tuple else (found,)), **EXACT)


def slices(y: da.Array, **config: Any) -> int:
    """How many slices are left behind the pass."""
    with switched_on(**config, **{"rewrite.passes": ["cull", "lower", "fuse-slices"]}):
        return sum(getattr(node, "func", None) is chunk.getitem for node in tasks_of(y).values())


def test_fires() -> None:
    """Dask fuses slices in pairs, from below, and not over aliases."""
    x = turned()
    assert slices(x[4:, 2:][1:, :9] + 1) == 1
    assert slices(x[4:, 2:][1:, :9][1:, :8] + 1) == 2
    assert slices(x[4:, 2:][1:, :9][1:, :8][1:, :7] + 1) == 2
    assert slices(x[4:, 2:].rechunk((18, -1))[1:15, :9] + 1) == 2


@pytest.mark.parametrize("fancy", [True, False])
def test_only_what_is_asked_for_is_read_where_sums_may_add_otherwise(fancy: bool) -> None:
    file, x = read(fancy=fancy)
    y = x[:, 5:150]
    outputs = (y.sum(), y.max())
    with switched_on(**EXACT):
        exact = dask.compute(*outputs)
    assert file.reads == [40 * 200]  # as with dask, which does not fuse what is used twice
    file.reads.clear()
    with switched_on():
        np.testing.assert_allclose(dask.compute(*outputs), exact)
    assert file.reads == [40 * 145]


def test_elements_are_scalars_where_they_were() -> None:
    """What is read is an array even if it is one element; what is taken of a block is not."""
    _, x = read()
    assert_exact(x[3, 4], x[3][4], x[3][4][None], x[3:7][2, 5])
    assert_exact(x[3, 4], x[3, 4] + 1, x[3, 4].map_blocks(lambda b: np.asarray(type(b) is np.float64)))


def test_a_long_chain_is_fused_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from dask_rewrite.passes import fuse_slices

    asked: list[int] = []
    before = fuse_slices._dask_fuses
    monkeypatch.setattr(fuse_slices, "_dask_fuses", lambda *args: asked.append(1) or before(*args))
    y = turned()
    for _ in range(150):
        y = y[:, 1:]
    with switched_on(**{"rewrite.disable": ["demand"]}):
        tasks_of(y)
    assert 75 <= len(asked) <= 300


def test_the_graph_is_the_same_object_where_nothing_fuses() -> None:
    x = turned()[1:]
    tasks = tasks_of(x)
    graph = Graph(tasks, tuple(tasks))
    assert TASK_PASSES["fuse-slices"]().run(graph, Context()) is graph


class _Subclass(np.ndarray):
    pass


@pytest.mark.parametrize("options", [{}, {"lock": True}, {"asarray": False}, {"inline_array": True}])
@pytest.mark.parametrize("index", [(1, 2), (slice(1, 3), 2), (slice(0, 2), slice(0, 2))])
@pytest.mark.parametrize("dtype", [float, object])
def test_what_is_read_is_of_the_type_that_dask_gives_it(options: Any, index: Any, dtype: Any) -> None:
    source = np.arange(36).reshape(6, 6).astype(dtype).view(_Subclass)
    picked = da.from_array(source, chunks=3, **options)[index]
    with stock():
        expected = [picked.compute(scheduler="sync"), da.stack([picked]).compute(scheduler="sync")]
    with switched_on():
        found = [picked.compute(scheduler="sync"), da.stack([picked]).compute(scheduler="sync")]
    assert [type(value) for value in found] == [type(value) for value in expected]
    for value, other in zip(found, expected):
        np.testing.assert_array_equal(value, other, strict=True)


class Rows:
    """An array-like that answers with lists."""

    shape, dtype, ndim = (60, 44), np.dtype(float), 2

    def __getitem__(self, index: Any) -> Any:
        return np.arange(60 * 44.0).reshape(60, 44)[index].tolist()


def test_nothing_is_taken_in_a_read_only_where_dask_does_that() -> None:
    x = da.from_array(Rows(), chunks=(16, 11))
    assert_exact(x[:0].sum(axis=0), x[5:5, 3], x[:0], scheduler="sync")
