"""Workloads that mix in delayed functions, bags, annotations and objects of the user's own."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import dask
import dask.bag
import numpy as np
from dask.delayed import delayed

from benchmarks.workloads.registry import workload


def _step(x: Any) -> Any:
    return x * 0.5 + 1


@workload(5, 20, 80)
def delayed_loop(da: ModuleType, n: int) -> Any:
    """Array to delayed and back to array, n times."""
    x = da.from_array(np.arange(10.0), chunks=10)
    for _ in range(n):
        x = da.from_delayed(delayed(_step)(x), shape=(10,), dtype=float) + 1
    return x


def _tile(model: Any, i: int, j: int) -> Any:
    return np.full((4, 4), float(i * 100 + j)) * model[i % 4, j % 4]


@workload(3, 12, 40)
def delayed_tiles(da: ModuleType, n: int) -> Any:
    """n x n tiles made by a delayed function, put together with da.block."""
    model = np.arange(40.0 * 40).reshape(40, 40)
    tiles = [
        [da.from_delayed(delayed(_tile)(model, i, j), (4, 4), float) for j in range(n)] for i in range(n)
    ]
    return da.block(tiles).sum(axis=0)


def _look_up(block: Any, table: Any) -> Any:
    return table[block % len(table)]


@workload(3, 20, 60, portable=True)
def partial_table(da: ModuleType, n: int) -> Any:
    """map_blocks of a partial function that holds a table, over n x n blocks."""
    table = np.sqrt(np.arange(3000.0))
    x = da.from_array(np.arange(16 * n * n).reshape(4 * n, 4 * n), chunks=4)
    return x.map_blocks(partial(_look_up, table=table), dtype=float) + 1


def _load(block_id: Any = None) -> Any:
    return np.full((5, 5), float(sum(block_id)))


@workload(3, 10, 30)
def annotated(da: ModuleType, n: int) -> Any:
    """A pipeline with priorities, retries and resources on its steps, n x n blocks."""
    chunks = ((5,) * n, (5,) * n)
    with dask.annotate(retries=2):
        x = da.map_blocks(_load, chunks=chunks, dtype=float, meta=np.empty((0, 0)))
    with dask.annotate(priority=10):
        y = (x + 1) * 2
    with dask.annotate(resources={"memory": 1}):
        z = y - y.mean(axis=0)
    return z.sum()


@workload(3, 40, 200, exact=False)
def mixed(da: ModuleType, n: int) -> Any:
    """An array, a delayed value and a bag computed together."""
    x = da.arange(10 * n, chunks=10)
    numbers = dask.bag.from_sequence(range(n), npartitions=max(1, n // 4))
    return x + 1, delayed(_step)(x.sum()), numbers.map(_step).sum()


@workload(3, 30, 100)
def records(da: ModuleType, n: int) -> Any:
    """Append n frames that come from delayed functions, then keep a part of each."""
    frames = [da.from_delayed(delayed(np.full)((6, 6), float(i)), (6, 6), float) for i in range(n)]
    x = da.stack(frames[:1])
    for frame in frames[1:]:
        x = da.concatenate([x, frame[None]])
    return x[:, 2:4].mean(axis=(1, 2))
