"""Workloads that read files or lazy sources."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.workloads.registry import scratch, workload


class Lazy:
    """A source that knows its shape and reads only what is asked of it."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.ndim = len(shape)
        self.dtype = np.dtype("int64")

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index
        return np.arange(self.shape[0])[rows, None] * 1000 + np.arange(self.shape[1])[None, columns]


@workload(4, 40, 150, portable=True)
def lazy_source(da: ModuleType, n: int) -> Any:
    """A lazy source of n x n blocks, sliced twice, then reduced."""
    x = da.from_array(Lazy((10 * n, 10 * n)), chunks=10, asarray=False)
    return (x[5 : 10 * n - 5][:, ::2] + 1).max(axis=0)


@workload(4, 20, 60)
def hdf5_read(da: ModuleType, n: int) -> Any:
    """Centre the columns of an HDF5 dataset of n x n chunks."""
    import h5py

    path = scratch() / f"x-{n}.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            values = np.arange(float(100 * n * n)).reshape(10 * n, 10 * n) % 19
            file.create_dataset("x", data=values, chunks=(10, 10))
    x = da.from_array(h5py.File(path, "r")["x"], chunks=(10, 10))
    return ((x - x.mean(axis=0)) * 2)[: 5 * n]


@workload(4, 20, 60)
def zarr_read(da: ModuleType, n: int) -> Any:
    """Add a Zarr array of n x n chunks to its transpose and look at a part."""
    import zarr

    path = scratch() / f"x-{n}.zarr"
    if not path.exists():
        values = np.arange(100 * n * n).reshape(10 * n, 10 * n) % 19
        store = zarr.create_array(str(path), shape=values.shape, chunks=(10, 10), dtype=values.dtype)
        store[:] = values
    x = da.from_zarr(str(path))
    return (x + x.T)[5 : 5 + 5 * n].sum(axis=1)
