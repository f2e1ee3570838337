"""What computing holds: bytes of distinct buffers on threads, managed memory on a cluster."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dask
import numpy as np
from dask.callbacks import Callback

try:
    from distributed import SchedulerPlugin
except ImportError:  # a benchmark without clusters is a benchmark still
    SchedulerPlugin = object


def buffers(value: Any) -> Iterator[np.ndarray]:
    """The arrays that own what a value refers to, in containers too.

    >>> whole = np.arange(6)
    >>> [owner is whole for owner in buffers((whole[2:], {"a": whole.reshape(2, 3)}))]
    [True, True]
    """
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, np.ndarray):
            while (base := owner_of(part)) is not None:
                part = base
            yield part
        elif isinstance(part, (list, tuple)):
            stack.extend(part)
        elif isinstance(part, dict):
            stack.extend(part.values())
        elif hasattr(part, "variable") or hasattr(part, "variables"):  # labelled arrays
            stack.extend(part.variables.values() if hasattr(part, "variables") else [part.variable])
        elif type(getattr(part, "_data", None)) is np.ndarray:
            stack.append(part._data)


def owner_of(part: np.ndarray) -> np.ndarray | None:
    """The array whose memory another one shows; windows (``as_strided``) have it in a holder."""
    base = part.base if isinstance(part.base, np.ndarray) else getattr(part.base, "base", None)
    return base if isinstance(base, np.ndarray) else None


class Held(Callback):
    """The most bytes of distinct buffers in a local scheduler's hands at one time.

    They are counted when a task ends: its result, and everything that was held while it ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self.now = 0
        #: per buffer how many keys hold it; per key its buffers
        self.users: dict[int, int] = {}
        self.owned: dict[Any, list[tuple[int, int]]] = {}

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker: Any) -> None:
        found = {id(owner): owner.nbytes for owner in buffers(result)}
        self.owned[key] = list(found.items())
        for buffer, nbytes in found.items():
            self.now += 0 if self.users.get(buffer) else nbytes
            self.users[buffer] = self.users.get(buffer, 0) + 1
        self.peak = max(self.peak, self.now)
        for one in (key, *state["dependencies"][key]):
            if one not in state["cache"]:
                self._drop(one)

    def _drop(self, key: Any) -> None:
        for buffer, nbytes in self.owned.pop(key, ()):
            self.users[buffer] -= 1
            if not self.users[buffer]:
                self.now -= nbytes
                del self.users[buffer]


def held_bytes(graph: Any, keys: Any) -> int:
    """Peak bytes of distinct array buffers held between tasks, on one thread."""
    with Held() as held:
        dask.get(graph, keys)
    return held.peak


def traced(call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call returns, and the most bytes that Python and NumPy had allocated in it at one time."""
    gc.collect()
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Managed(SchedulerPlugin):
    """The most bytes of results that all workers of a cluster hold at one time, copies included."""

    name = "benchmark-managed-memory"

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.peak = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if finish == "memory":
            now = sum(worker.nbytes for worker in self.scheduler.workers.values())
            self.peak = max(self.peak, now)


def managed(client: Any, collections: Sequence[Any]) -> tuple[Any, int]:
    """What collections give on a cluster, and the most bytes that all its workers held meanwhile."""

    def begin(dask_scheduler: Any) -> None:
        dask_scheduler.add_plugin(Managed(dask_scheduler), name=Managed.name)

    def end(dask_scheduler: Any) -> int:
        peak = int(dask_scheduler.plugins[Managed.name].peak)
        dask_scheduler.remove_plugin(Managed.name)
        return peak

    client.run_on_scheduler(begin)
    results = dask.compute(*collections, scheduler=client)
    return results, int(client.run_on_scheduler(end))


def resident() -> int:
    """Bytes of memory of this process that are in use, after what can be given back was given back."""
    import ctypes

    import psutil

    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(psutil.Process().memory_info().rss)
