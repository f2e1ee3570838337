"""Every workload of the benchmark, by name.

The workloads live in a file for each kind; importing this one registers them all::

    >>> from benchmarks.workloads import WORKLOADS
    >>> import dask.array as da
    >>> float(WORKLOADS["interactive"].build(da, 2).compute())
    800.0
"""

from __future__ import annotations

from benchmarks.workloads import (
    contractions,
    deep,
    files,
    grids,
    labelled,
    objects,
    payloads,
    reductions,
    sums,
    wide,
)
from benchmarks.workloads.registry import WORKLOADS, Workload, scratch, workload

__all__ = [
    "WORKLOADS",
    "Workload",
    "contractions",
    "deep",
    "files",
    "grids",
    "labelled",
    "objects",
    "payloads",
    "reductions",
    "scratch",
    "sums",
    "wide",
    "workload",
]
