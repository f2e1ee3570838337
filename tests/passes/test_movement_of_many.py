"""Blocks that are put together from many and cut into many again: no slice goes through all pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_rewrite.passes.movement import mosaic
from helpers import assert_same_as_stock, tasks_of


def load(block_info: Any = None) -> np.ndarray:
    where = block_info[None]
    return sum(where["chunk-location"]) + np.arange(np.prod(where["chunk-shape"])).reshape(
        where["chunk-shape"]
    )


def loaded(*chunks: tuple[int, ...]) -> da.Array:
    """Blocks of a function that nobody knows."""
    return da.map_blocks(load, chunks=chunks, dtype=int)


PROGRAMS: dict[str, Callable[[int], da.Array]] = {
    "columns of rows": lambda n: loaded((4,) * n, (n,)).rechunk((4 * n, 4)).sum(axis=0),
    "a row cut anew": lambda n: loaded((10,) * n).rechunk(-1).rechunk(15),
    "one after the other": lambda n: da.stack(
        [column.sum() for column in loaded((4,) * n, (n,)).rechunk((-1, n)).T]
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_looks_at_pieces_grow_like_tasks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = mosaic.seen_axes

    def counted(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return look(*arguments)

    monkeypatch.setattr(mosaic, "seen_axes", counted)
    found = []
    for n in (100, 400):
        looks = 0
        tasks_of(PROGRAMS[name](n))
        found.append(looks)
    assert found[1] <= 5 * found[0]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [3, 20, 90])
def test_answers(name: str, n: int) -> None:
    assert_same_as_stock(PROGRAMS[name](n))
