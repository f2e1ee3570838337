"""Edges of small blocks stand in the tasks that join them with their neighbours from the start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.core import flatten

from dask_rewrite.graph.labels import functions_of
from dask_rewrite.lowering.lower import Lowering
from dask_rewrite.lowering.overlap import OverlapBlocks
from dask_rewrite.remarks import Remarks
from helpers import assert_same_as_stock, distinct, tasks_of

SIDE = 8


def user(block: Any) -> Any:
    return block * 2 + 1


def source(columns: int = 3, side: int = SIDE) -> da.Array:
    return distinct((3 * side, columns * side), (side, side)).map_blocks(user)


def edges(x: da.Array, small: int, **options: Any) -> int:
    """Slices that are tasks of their own."""
    graph = Lowering(x.dask, list(flatten(x.__dask_keys__())), Remarks(), small=small, **options).run()
    return sum(functions_of(task) == ["getitem"] for task in graph.nodes.values())


def test_blocks_up_to_a_size() -> None:
    x = source().map_overlap(user, depth=1, boundary="none")
    nbytes = SIDE * SIDE * 8
    assert edges(x, nbytes) == 0
    assert edges(x, nbytes - 1) == edges(x, 0) == 4 * 3 + 4 * 5 + 8
    assert_same_as_stock(x)


def test_the_largest_block_decides() -> None:
    x = source().rechunk(((SIDE,) * 3, (SIDE, SIDE // 2, 3 * SIDE // 2))).map_blocks(user)
    x = x.map_overlap(user, depth=1, boundary="none")
    before = edges(x, SIDE * 12 * 8 - 1)
    assert edges(x, SIDE * 12 * 8) < before


@pytest.mark.parametrize(
    "make",
    [
        lambda: source().rechunk((SIDE, 4)).map_overlap(user, depth=1, boundary="none"),  # slices of blocks
        lambda: source().map_overlap(user, depth=1, boundary="reflect"),
        lambda: da.ma.masked_greater(source(), 99).map_overlap(user, depth=1, boundary="none"),
    ],
)
def test_stay_tasks(make: Callable[[], Any]) -> None:
    x = make()
    assert edges(x, 2**20) == edges(x, 0) > 0
    assert_same_as_stock(x)


def test_stay_tasks_where_they_are_annotated() -> None:
    with dask.annotate(priority=1):
        x = source().map_overlap(user, depth=1, boundary="none")
    assert edges(x, 2**20) == edges(x, 0) > 0


@pytest.mark.parametrize("options", [{"shared": True}, {"fuse": False}])
def test_stay_tasks_where_nothing_is_fused(options: dict[str, Any]) -> None:
    x = source().map_overlap(user, depth=1, boundary="none")
    assert edges(x, 2**20, **options) == edges(x, 0, **options) > 0


def test_stay_tasks_without_the_pass_that_takes_them_in() -> None:
    x = source().map_overlap(user, depth=1, boundary="none")
    with dask.config.set({"rewrite.disable": ["fuse-small"]}):
        apart = sum(functions_of(task) == ["getitem"] for task in tasks_of(x).values())
    assert apart > sum(functions_of(task) == ["getitem"] for task in tasks_of(x).values())


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "one": lambda x: x.map_overlap(user, depth=1, boundary="none"),
    "its mean": lambda x: x.map_overlap(user, depth=1, boundary="none").mean(axis=0),
    "three": lambda x: (
        x.map_overlap(user, depth=1, boundary="none")
        .map_overlap(user, depth=(2, 1), boundary="none")
        .map_overlap(user, depth=1, boundary="none")
    ),
    "one side": lambda x: x.map_overlap(user, depth={0: (2, 0), 1: 0}, boundary="none", trim=False),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=0).sum(axis=-1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_tasks_as_where_they_are_taken_in_later(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = PROGRAMS[name](source(6))
    assert_same_as_stock(x)
    early = tasks_of(x)
    monkeypatch.setattr("dask_rewrite.lowering.lower.nest_edges", lambda *_: None)
    late = tasks_of(x)
    assert list(early) == list(late)
    for key in early:
        assert Counter(functions_of(early[key])) == Counter(functions_of(late[key]))
        assert early[key].dependencies == late[key].dependencies


def test_layers_that_say_nothing_are_left() -> None:
    x = source().map_overlap(user, depth=1, boundary="none")
    for layer in x.dask.layers.values():
        layer.collection_annotations = None
    assert edges(x, 2**20) == edges(x, 0) > 0
    assert any(OverlapBlocks.fits(layer) for layer in x.dask.layers.values())
