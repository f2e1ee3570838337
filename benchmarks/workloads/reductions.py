"""Workloads whose reductions decide what is held: siblings, streams, and blocks that wait for a mean.

Numbers in files are whole, and sums of them exact.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from benchmarks.workloads.registry import workload
from benchmarks.workloads.sources import hdf5

#: Blocks are read once before a reduction and once after it.
_AGAIN = {"rewrite.reread": True}


def _slabs(da: ModuleType, n: int) -> Any:
    """n slabs of 0.5 MB in HDF5, each of them a chunk."""
    side = 250 if n > 8 else 20
    return da.from_array(hdf5((n * side, side), (side, side)), chunks=(side, side))


@workload(6, 60, 60, heavy=True, exact=False, on=("2",))
def long_sum(da: ModuleType, n: int) -> Any:
    """The sum of n random members of 2 MB each."""
    width = 250_000 if n > 8 else 400
    return da.random.default_rng(0).random((n, width), chunks=(1, -1)).sum(axis=0)


@workload(6, 60, 60, heavy=True, exact=False, on=("2",))
def sibling_means(da: ModuleType, n: int) -> Any:
    """The means of u * v and of v * w, each of n random members of 2 MB."""
    width = 250_000 if n > 8 else 400
    rng = da.random.default_rng(0)
    u, v, w = (rng.random((n, width), chunks=(1, -1)) for _ in range(3))
    return (u * v).mean(axis=0), (v * w).mean(axis=0)


@workload(6, 80, 80, heavy=True, exact=False, on=("2",), config=_AGAIN)
def anomaly_read_again(da: ModuleType, n: int) -> Any:
    """abs(x - x.mean(axis=0)).mean() over n slabs, read twice."""
    x = _slabs(da, n)
    return abs(x - x.mean(axis=0)).mean()


@workload(6, 80, 80, heavy=True, exact=False, on=("2",), config=_AGAIN)
def standardized_read_again(da: ModuleType, n: int) -> Any:
    """The largest of (x - x.mean(axis=0)) / x.std(axis=0) over n slabs, read twice."""
    x = _slabs(da, n)
    return abs((x - x.mean(axis=0)) / x.std(axis=0)).max()


@workload(6, 80, 80, heavy=True, exact=False, on=("2",), config=_AGAIN)
def covariance_read_again(da: ModuleType, n: int) -> Any:
    """The covariance of the columns of n slabs, read twice."""
    x = _slabs(da, n)
    centred = x - x.mean(axis=0)
    return centred.T @ centred / x.shape[0]


@workload(4, 8, 12, heavy=True, exact=False, on=("2",))
def overlap_rows(da: ModuleType, n: int) -> Any:
    """map_overlap over n x n random blocks of 2 MB, and a mean: two rows of blocks are needed."""
    side = 64 if n > 4 else 12
    x = da.random.default_rng(0).random((n * side, n * side, side), chunks=side)
    return x.map_overlap(_doubled, depth=(1, 1, 0)).mean(axis=(0, 1))


@workload(2, 6, 6, heavy=True, on=("1", "2"))
def degrees(da: ModuleType, n: int) -> Any:
    """((x * 1.8 + 32) ** 2 - 1).mean() over n random blocks of 64 MB."""
    side = 2896 if n > 2 else 200
    x = da.random.default_rng(0).random((n * side, side), chunks=side)
    return ((x * 1.8 + 32) ** 2 - 1).mean()


def _doubled(block: Any) -> Any:
    return block * 2
