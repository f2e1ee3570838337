"""Functions of the user that write into the block they are given, beside what else is made of it.

dask has a reduction done before the task that uses its result, whoever writes into the blocks in that task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask import delayed

from helpers import checked, stock, switched_on


def load(i: int, j: int) -> Any:
    return np.arange(12.0).reshape(3, 4) + 100 * i + 10 * j


def written(block: Any) -> Any:
    block += 100
    return block


def blocks(rows: int, columns: int) -> da.Array:
    made = [[da.from_delayed(delayed(load)(i, j), (3, 4), "f8") for j in range(columns)] for i in range(rows)]
    return da.block(made)


REDUCED: dict[str, Callable[[da.Array], Any]] = {
    "sum": lambda x: x.sum(),
    "rows": lambda x: x.sum(axis=1, keepdims=True),
    "std": lambda x: x.std(axis=0),
    "where": lambda x: x.argmax(axis=0),
    "part": lambda x: x[1:2].mean(axis=0),
    "two": lambda x: (x * 2).sum(axis=0) + x.min(),
    "turned": lambda x: x.T.sum(axis=1),
}
USED: dict[str, Callable[[da.Array, Any], da.Array]] = {
    "first": lambda w, r: w + r,
    "last": lambda w, r: r + w,
    "summed up": lambda w, r: (w * r).sum(axis=0),
    "chosen": lambda w, r: da.where(w > r, w, r),
    "steps": lambda w, r: ((w - r) * 2).map_blocks(np.abs) + 1,
}


@pytest.mark.parametrize("grid", [(1, 1), (2, 1), (1, 2), (3, 3)])
@pytest.mark.parametrize("reduced", REDUCED)
def test_a_reduction_comes_before_the_task_that_uses_it(reduced: str, grid: tuple[int, int]) -> None:
    for use in USED.values():

        def made(use: Callable[[da.Array, Any], da.Array] = use) -> da.Array:
            x = blocks(*grid)
            return use(x.map_blocks(written), REDUCED[reduced](x))

        with stock():
            wanted = made().compute(scheduler="sync")
        with switched_on():
            found = made().compute(scheduler="sync")
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_work_that_is_known_not_to_write_goes_together() -> None:
    x = blocks(1, 1)
    known, unknown = checked(abs(x) + x.sum()), checked(x.map_blocks(written) + x.sum())
    assert len(known) < len(unknown)
