"""The registry of workloads: what each one is called, how it is built, and at which sizes.

A workload is a function ``build(da, n)`` as a user would have written it. ``da`` is the array
namespace (``dask.array``, or ``dask_array`` where the workload is *portable*), ``n`` its size.
It returns one collection or a tuple of collections that are computed together.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

Build = Callable[[ModuleType, int], Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """One named workload and the sizes at which it is measured."""

    name: str
    about: str
    build: Build
    small: int
    normal: int
    large: int
    #: can be written with ``dask_array`` in place of ``dask.array``
    portable: bool = False
    #: three sizes, each about twice the work of the one before, for the growth rows
    growth: tuple[int, ...] = ()
    #: also measure ``x.compute(scheduler="sync")`` from end to end
    end_to_end: bool = False
    #: measure the bytes of distinct buffers held while running
    memory: bool = False
    #: the answer is the same bit for bit; False where a pass may regroup floating point sums
    exact: bool = True
    #: measured only when a target needs it or ``--only`` names it
    heavy: bool = False
    #: schedulers on which it is computed from end to end: "2" is two threads, "2x1" two processes of one
    on: tuple[str, ...] = ()
    #: what is kept on a cluster instead of being computed: the growth of the workers' memory is measured
    persisted: bool = False
    #: options of dask's configuration under which it is measured, on all sides
    config: Mapping[str, Any] = field(default_factory=dict)

    def size(self, scale: str) -> int:
        """The size ``n`` of a scale: "small", "normal" or "large"."""
        return {"small": self.small, "normal": self.normal, "large": self.large}[scale]


WORKLOADS: dict[str, Workload] = {}


def workload(
    small: int, normal: int, large: int, name: str = "", about: str = "", **options: Any
) -> Callable[[Build], Build]:
    """Register a function as a workload; its name and docstring name and describe it."""

    def register(build: Build) -> Build:
        called = name or build.__name__.replace("_", "-")
        said = about or (build.__doc__ or "").strip().splitlines()[0]
        if called in WORKLOADS:
            raise ValueError(f"two workloads are called {called!r}")
        WORKLOADS[called] = Workload(called, said, build, small, normal, large, **options)
        return build

    return register


_folders: list[tempfile.TemporaryDirectory[str]] = []


def scratch() -> Path:
    """A folder for files, one for each process, removed when the process ends."""
    if not _folders:
        folder = tempfile.TemporaryDirectory(prefix="dask-rewrite-bench-")
        _folders.append(folder)
        atexit.register(folder.cleanup)
    return Path(_folders[0].name)
