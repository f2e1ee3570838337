"""Every workload of the benchmark, by name.

The workloads live in a file for each kind; importing this one registers them all::

    >>> from benchmarks.workloads import WORKLOADS
    >>> import dask.array as da
    >>> float(WORKLOADS["interactive"].build(da, 2).compute())
    800.0
"""

from __future__ import annotations

from benchmarks import deep, files, labelled, objects, wide
from benchmarks.registry import WORKLOADS, Workload, scratch, workload

__all__ = ["WORKLOADS", "Workload", "deep", "files", "labelled", "objects", "scratch", "wide", "workload"]
