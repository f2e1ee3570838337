"""Workloads with few operations over many blocks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.workloads.registry import workload


@workload(2, 2, 2, portable=True, end_to_end=True)
def interactive(da: ModuleType, n: int) -> Any:
    """(x + 1).sum() over 2x2 blocks, typed at a prompt: five tasks."""
    return (da.ones((10 * n, 10 * n), chunks=10) + 1).sum()


@workload(5, 50, 100, portable=True, end_to_end=True)
def tiny_blocks(da: ModuleType, n: int) -> Any:
    """(x + 1) * 2 - 3 on n x n tiny blocks."""
    return (da.ones((4 * n, 4 * n), chunks=4) + 1) * 2 - 3


@workload(6, 250, 400, portable=True)
def one_tile(da: ModuleType, n: int) -> Any:
    """One tile of a symmetric mosaic of n x n blocks."""
    x = da.ones((20 * n, 20 * n), chunks=20)
    mosaic = x + x.T + x[::-1] + x[:, ::-1]
    return mosaic[:20, :20]


@workload(5, 100, 300, portable=True, growth=(50, 71, 100))
def ones_sum(da: ModuleType, n: int) -> Any:
    """(x + 1).sum() over n x n blocks of one element."""
    return (da.ones((n, n), chunks=1) + 1).sum()


@workload(5, 60, 300, portable=True, growth=(50, 71, 100))
def plus_transpose(da: ModuleType, n: int) -> Any:
    """x + x.T over n x n blocks."""
    x = da.from_array(np.arange(4.0 * n * n).reshape(2 * n, 2 * n), chunks=2)
    return x + x.T


@workload(4, 30, 150, portable=True)
def normalise(da: ModuleType, n: int) -> Any:
    """(y - y.mean(0)) / y.std(0) over n x n blocks."""
    y = da.from_array(np.arange(9.0 * n * n).reshape(3 * n, 3 * n), chunks=3) % 17
    return (y - y.mean(axis=0)) / y.std(axis=0)


@workload(4, 10, 40, portable=True)
def quickstart(da: ModuleType, n: int) -> Any:
    """dask's own ten minutes: (x + x.T)[::2, n:].mean(axis=1) of random numbers."""
    x = da.random.default_rng(0).random((10 * n, 10 * n), chunks=10)
    y = x + x.T
    return y[::2, 5 * n :].mean(axis=1)


@workload(3, 12, 40, portable=True)
def own_scalar(da: ModuleType, n: int) -> Any:
    """x / x.max() - x[0, 0]: an array with scalars of its own."""
    x = da.from_array(np.arange(16.0 * n * n).reshape(4 * n, 4 * n) % 13, chunks=4)
    return x / x.max() - x[0, 0]


@workload(2, 10, 24, portable=True)
def in_memory(da: ModuleType, n: int) -> Any:
    """Steps on n x n blocks of 270 kB that are there already, as after ``persist``: they are written into."""
    size = 260 * n
    x = da.from_array(np.arange(size * size, dtype="f4").reshape(size, size), chunks=260)
    return ((x * 2 + 1) * (x - x * 3) / (x + 1)).sum()


@workload(4, 25, 80, portable=True)
def running_sum(da: ModuleType, n: int) -> Any:
    """cumsum along both axes of n x n blocks."""
    x = da.from_array(np.arange(9 * n * n).reshape(3 * n, 3 * n), chunks=3)
    return x.cumsum(axis=0).cumsum(axis=1)


@workload(4, 40, 100, portable=True)
def fancy_index(da: ModuleType, n: int) -> Any:
    """x[rows][:, columns]: reversed and repeated lists of indices."""
    x = da.from_array(np.arange(16 * n * n).reshape(4 * n, 4 * n), chunks=4)
    rows = list(range(4 * n - 1, -1, -3))
    columns = [i % (4 * n) for i in range(0, 8 * n, 5)]
    return x[rows][:, columns]


def _mark(block: Any, block_info: Any = None) -> Any:
    (start, _), (column, _) = block_info[0]["array-location"]
    return block + start + column


@workload(3, 25, 60, portable=True)
def block_positions(da: ModuleType, n: int) -> Any:
    """map_blocks with block_info on n x n blocks."""
    x = da.ones((3 * n, 3 * n), chunks=3)
    return x.map_blocks(_mark, dtype=float) * 2


@workload(4, 40, 100, portable=True)
def window_means(da: ModuleType, n: int) -> Any:
    """A centred moving mean of an n-block series with map_overlap."""
    x = da.from_array(np.arange(50.0 * n) % 23, chunks=50)
    return x.map_overlap(_moving_mean, depth=3, boundary="reflect", dtype=float)


def _moving_mean(block: Any) -> Any:
    return np.convolve(block, np.ones(5) / 5, mode="same")


@workload(3, 12, 24, portable=True, exact=False, memory=True)
def matmul(da: ModuleType, n: int) -> Any:
    """x @ x.T over n x n blocks."""
    x = da.from_array(np.arange(64.0 * n * n).reshape(8 * n, 8 * n) % 11, chunks=8)
    return x @ x.T


@workload(3, 12, 24, portable=True, exact=False, memory=True)
def tensordot(da: ModuleType, n: int) -> Any:
    """tensordot of x with itself along its long axis, 4 x 4n blocks."""
    x = da.from_array(np.arange(32.0 * 32 * n).reshape(32, 32 * n) % 11, chunks=8)
    return da.tensordot(x, x, axes=((1,), (1,)))


@workload(2, 6, 12, portable=True, exact=False, memory=True)
def einsum(da: ModuleType, n: int) -> Any:
    """einsum('bij,bkj->bik') over n batches of n x n blocks."""
    x = da.from_array(np.arange(2.0 * 16 * n * n * n).reshape(2 * n, 4 * n, 4 * n) % 7, chunks=(2, 4, 4))
    return da.einsum("bij,bkj->bik", x, x)


@workload(3, 40, 200, portable=True)
def there_and_back(da: ModuleType, n: int) -> Any:
    """Rechunk from rows to columns and back, n times."""
    x = da.from_array(np.arange(64).reshape(8, 8), chunks=(2, 8))
    for _ in range(n):
        x = x.rechunk((8, 2)).rechunk((2, 8))
    return x + 1


@workload(3, 40, 40, heavy=True, portable=True)
def round_trips(da: ModuleType, n: int) -> Any:
    """Rechunk from ten rows to ten columns and back, in stages, n times."""
    x = da.from_array(np.arange(100.0).reshape(10, 10), chunks=(1, 10))
    for _ in range(n):
        x = x.rechunk((10, 1)).rechunk((1, 10))
    return x


@workload(2, 8, 16, portable=True, exact=False)
def two_outputs(da: ModuleType, n: int) -> Any:
    """Mean and extent of one array computed together."""
    x = da.from_array(np.arange(25.0 * n * n).reshape(5 * n, 5 * n), chunks=5)
    y = da.sqrt(x) + 1
    return y.mean(), y.max() - y.min(), y
