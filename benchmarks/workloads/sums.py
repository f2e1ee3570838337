"""Workloads that sum many blocks, alone or beside other users of the same blocks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.workloads.registry import workload
from benchmarks.workloads.sources import hdf5


def _members(da: ModuleType, n: int, side: int) -> list[Any]:
    rng = da.random.default_rng(0)
    return [rng.random((side, side), chunks=side) for _ in range(n)]


@workload(9, 96, 96, heavy=True, exact=False, on=("2",))
def large_members(da: ModuleType, n: int) -> Any:
    """sum() of n members of an ensemble of 8 MB each."""
    return sum(_members(da, n, 1000 if n > 9 else 20))


@workload(9, 40, 40, heavy=True, exact=False, on=("2",))
def members_and_anomaly(da: ModuleType, n: int) -> Any:
    """The mean of n members of 2 MB, and how far the first and the last are from it."""
    members = _members(da, n, 500 if n > 9 else 20)
    mean = sum(members) / n
    return mean, members[0] - mean, members[-1] - mean


@workload(9, 40, 40, heavy=True, exact=False, on=("2",))
def members_spread(da: ModuleType, n: int) -> Any:
    """Sums of n members and of their squares: every member is used twice."""
    members = _members(da, n, 500 if n > 9 else 20)
    return sum(members), sum(m * m for m in members)


@workload(3, 24, 24, heavy=True, exact=False, on=("2",))
def centred(da: ModuleType, n: int) -> Any:
    """x - x.mean(axis=0) over n x 6 chunks of 0.5 MB in HDF5, then the largest of each column."""
    side = 250 if n > 8 else 20
    x = da.from_array(hdf5((n * side, 6 * side), (side, side)), chunks=(side, side))
    return abs(x - x.mean(axis=0)).max(axis=0)


@workload(3, 24, 24, heavy=True, exact=False, on=("2",))
def standardized(da: ModuleType, n: int) -> Any:
    """(x - x.mean(axis=0)) / x.std(axis=0) over n x 6 chunks of 0.5 MB in HDF5, all of it wanted."""
    side = 250 if n > 8 else 20
    x = da.from_array(hdf5((n * side, 6 * side), (side, side)), chunks=(side, side))
    return (x - x.mean(axis=0)) / x.std(axis=0)


@workload(3, 20, 20, heavy=True, exact=False, on=("2",))
def large_solve(da: ModuleType, n: int) -> Any:
    """linalg.solve of a system of n x n blocks of 80 kB."""
    side = 100 if n > 8 else 5
    size = side * n
    matrix = np.arange(float(size * size)).reshape(size, size) % 17 + size * 17 * np.eye(size)
    a = da.from_array(matrix, chunks=side)
    b = da.from_array(np.arange(float(size)), chunks=side)
    return da.linalg.solve(a, b)
