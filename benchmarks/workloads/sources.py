"""Reads of HDF5 datasets: counted, and as slow as a distant store if asked for."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.workloads.registry import scratch

_lock = threading.Lock()
_reads = 0
_wait: dict[str, float] = {}


def reset() -> None:
    """Forget the reads so far."""
    global _reads
    with _lock:
        _reads = 0


def reads() -> int:
    """Reads of more than one element since :func:`reset`, where reads are counted."""
    return _reads


def install() -> None:
    """Count all further reads of HDF5 datasets in this process, and let those of slow files wait.

    The dataset's own class is changed, not wrapped in another one: what an optimizer knows of
    h5py stays true.
    """
    import h5py

    plain = h5py.Dataset.__getitem__
    if hasattr(plain, "plain"):
        return

    def counting(self: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        global _reads
        values = plain(self, index, *args, **kwargs)
        if getattr(values, "size", 0) > 1:
            with _lock:
                _reads += 1
        if seconds := self.attrs.get("wait"):
            time.sleep(seconds)
        return values

    counting.plain = plain
    h5py.Dataset.__getitem__ = counting


def uninstall() -> None:
    """Undo :func:`install`."""
    import h5py

    h5py.Dataset.__getitem__ = getattr(h5py.Dataset.__getitem__, "plain", h5py.Dataset.__getitem__)


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Count reads inside the block."""
    install()
    reset()
    try:
        yield
    finally:
        uninstall()


def hdf5(shape: tuple[int, ...], chunks: tuple[int, ...], wait: float = 0.0) -> Any:
    """An open HDF5 dataset of small whole numbers as float64, written once for each process.

    Sums of products of such numbers are exact: whatever order they are added in, the answer is the same.
    """
    import h5py

    name = "-".join(map(str, (*shape, "by", *chunks)))
    path = scratch() / f"{name}-{wait}.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            data = file.create_dataset("x", shape=shape, dtype="f8", chunks=chunks)
            block = np.arange(math.prod(chunks), dtype="f8").reshape(chunks) % 13 - 6
            for number, start in enumerate(
                np.ndindex(*(-(-s // c) for s, c in zip(shape, chunks, strict=True)))
            ):
                where = tuple(
                    slice(i * c, min((i + 1) * c, s)) for i, c, s in zip(start, chunks, shape, strict=True)
                )
                inner = tuple(slice(0, part.stop - part.start) for part in where)
                data[where] = block[inner] + number % 5
            data.attrs["wait"] = wait
    if wait:
        install()
    return h5py.File(path, "r")["x"]
