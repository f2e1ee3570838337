"""Workloads that contract a long axis: dot, @, tensordot, einsum, and what is made of them.

All read HDF5 or make random blocks, and hold whole numbers where a sum's order must not show.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from benchmarks.workloads.registry import scratch, workload
from benchmarks.workloads.sources import hdf5


def _random(da: ModuleType, rows: int, n: int, side: int) -> Any:
    """Random numbers in ``rows`` x n blocks of side x side."""
    return da.random.default_rng(0).random((rows * side, n * side), chunks=side)


def _read(da: ModuleType, rows: int, n: int, side: int, wait: float = 0.0) -> Any:
    """An HDF5 dataset of ``rows`` x n chunks of side x side."""
    return da.from_array(hdf5((rows * side, n * side), (side, side), wait), chunks=(side, side))


def _side(n: int, side: int) -> int:
    """Blocks are as large as the row says, but small where the test suite runs it."""
    return side if n > 8 else 20


@workload(4, 80, 80, heavy=True, exact=False, on=("2",))
def gram(da: ModuleType, n: int) -> Any:
    """x.dot(x.T), x of 4 x n blocks of 2 MB."""
    x = _random(da, 4, n, _side(n, 500))
    return x.dot(x.T)


@workload(4, 60, 60, heavy=True, exact=False, on=("8", "2x1", "4x1"))
def gram_of_processes(da: ModuleType, n: int) -> Any:
    """x.dot(x.T), x of 4 x n blocks of 2 MB: eight threads, two and four processes."""
    x = _random(da, 4, n, _side(n, 500))
    return x.dot(x.T)


@workload(4, 110, 110, heavy=True, exact=False, on=("2x1",))
def gram_of_many(da: ModuleType, n: int) -> Any:
    """x.dot(x.T), x of 9 x n blocks of 0.3 MB: more than 10,000 tasks."""
    x = _random(da, 9, n, _side(n, 200))
    return x.dot(x.T)


@workload(4, 80, 80, heavy=True, on=("2", "8"))
def gram_in_files(da: ModuleType, n: int) -> Any:
    """Y = X X.T from HDF5 to HDF5: X of 4 x n chunks of 1000 x 1000."""
    import h5py

    x = _read(da, 4, n, _side(n, 1000))
    y = x.dot(x.T)
    path = scratch() / f"y-{n}.h5"
    path.unlink(missing_ok=True)
    target = h5py.File(path, "w").create_dataset("y", shape=y.shape, chunks=y.chunksize, dtype=y.dtype)
    return da.store(y, target, compute=False)


@workload(4, 80, 80, heavy=True, exact=False, on=("1", "2", "8"))
def one_product(da: ModuleType, n: int) -> Any:
    """x.dot(x.T), x of one row of n blocks of 2 MB: one output block only."""
    x = _random(da, 1, n, _side(n, 500))
    return x.dot(x.T)


def _waiting(rows: int) -> Any:
    def build(da: ModuleType, n: int) -> Any:
        x = _read(da, rows, n, 50, wait=0.1 if n > 8 else 0.001)
        return x.dot(x.T)

    return build


for _rows in (1, 3):
    workload(
        4,
        80 // _rows,
        80 // _rows,
        f"slow-loads-{_rows}",
        f"x.dot(x.T) of {_rows} x n small blocks whose loads wait 0.1 s each.",
        heavy=True,
        on=("8", "32", "4x2"),
    )(_waiting(_rows))


@workload(4, 40, 40, heavy=True, on=("2", "1"))
def einsum_gram(da: ModuleType, n: int) -> Any:
    """einsum('ik,jk->ij', x, x), x of 4 x n chunks of 0.5 MB in HDF5."""
    x = _read(da, 4, n, _side(n, 250))
    return da.einsum("ik,jk->ij", x, x)


@workload(4, 40, 40, heavy=True, on=("2", "1"))
def tensordot_gram(da: ModuleType, n: int) -> Any:
    """tensordot(x, x, axes=((1,), (1,))), x of 4 x n chunks of 0.5 MB in HDF5."""
    x = _read(da, 4, n, _side(n, 250))
    return da.tensordot(x, x, axes=((1,), (1,)))


@workload(4, 40, 40, heavy=True, on=("2", "1"))
def matmul_gram(da: ModuleType, n: int) -> Any:
    """x @ x.T, x of 4 x n chunks of 0.5 MB in HDF5."""
    x = _read(da, 4, n, _side(n, 250))
    return x @ x.T


@workload(2, 10, 10, heavy=True, on=("2", "1"))
def tensordot_two_axes(da: ModuleType, n: int) -> Any:
    """tensordot over two axes of 3 x 4 x n chunks of 0.5 MB in HDF5."""
    side = 40 if n > 8 else 4
    x = da.from_array(hdf5((3 * side, 4 * side, n * side), (side, side, side)), chunks=side)
    return da.tensordot(x, x, axes=((1, 2), (1, 2)))


@workload(2, 20, 20, heavy=True, on=("2", "1"))
def matmul_3d(da: ModuleType, n: int) -> Any:
    """a @ b of three dimensions: 2 x 3 x n chunks of 0.5 MB with 2 x n x 3."""
    side = 40 if n > 8 else 4
    a = da.from_array(hdf5((2 * side, 3 * side, n * side), (side, side, side)), chunks=side)
    b = da.from_array(hdf5((2 * side, n * side, 3 * side), (side, side, side)), chunks=side)
    return a @ b


@workload(4, 40, 40, heavy=True, on=("2", "1"))
def gram_total(da: ModuleType, n: int) -> Any:
    """(x @ x.T).sum(), x of 4 x n chunks of 0.5 MB in HDF5."""
    x = _read(da, 4, n, _side(n, 250))
    return (x @ x.T).sum()


@workload(4, 40, 40, heavy=True, exact=False, on=("2", "1"))
def covariance(da: ModuleType, n: int) -> Any:
    """The covariance of centred rows, x of 4 x n chunks of 0.5 MB in HDF5."""
    x = _read(da, 4, n, _side(n, 250))
    centred = x - x.mean(axis=1, keepdims=True)
    return (centred @ centred.T) / x.shape[1]


@workload(4, 40, 40, heavy=True, exact=False, on=("2", "1"))
def normal_equations(da: ModuleType, n: int) -> Any:
    """x.T @ x and x.T @ y together, x of n x 4 chunks of 0.5 MB in HDF5."""
    side = _side(n, 250)
    x = da.from_array(hdf5((n * side, 4 * side), (side, side)), chunks=(side, side))
    y = da.from_array(hdf5((n * side,), (side,)), chunks=side)
    return x.T @ x, x.T @ y
