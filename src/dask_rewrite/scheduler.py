"""Which scheduler will run a graph, as far as it can be known before: its threads and its memory."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

import dask.config
from dask.system import CPU_COUNT

_SYNCHRONOUS = ("sync", "synchronous", "single-threaded")
_LOCAL = ("threads", "threading", "processes", "multiprocessing", *_SYNCHRONOUS)


class Machine(NamedTuple):
    """What runs the tasks.

    Parameters
    ----------
    threads : int
        Of all workers together.
    workers : int
        Separate processes that blocks travel between; one for schedulers in this process.
    memory : int
        Bytes, of all workers together; 0 if nobody knows.
    configured : bool
        The number of threads is what somebody asked for. If not, ``compute(num_workers=...)`` may still ask
        for more, which cannot be seen from here.
    """

    threads: int
    workers: int
    memory: int
    configured: bool = True

    @property
    def layout(self) -> tuple[int, int]:
        """Threads of each worker, and workers; 0 workers stand for a scheduler of this process.

        >>> Machine(threads=8, workers=4, memory=0).layout, Machine(threads=8, workers=1, memory=0).layout
        ((2, 4), (8, 0))
        """
        return max(1, self.threads // self.workers), self.workers if self.workers > 1 else 0


def machine() -> Machine:
    """The scheduler in use: the current Client's cluster, or threads of this process.

    Examples
    --------
    >>> with dask.config.set(scheduler="sync"):
    ...     machine().threads
    1
    """
    scheduler = dask.config.get("scheduler", None)
    if isinstance(scheduler, str):
        scheduler = scheduler.lower()
    if scheduler not in _LOCAL:
        client = _client(scheduler)
        if client is not None and (found := _cluster(client)) is not None:
            return found
    if scheduler in _SYNCHRONOUS:
        return Machine(1, 1, _physical_memory())
    pool = dask.config.get("pool", None)
    threads = dask.config.get("num_workers", None) or getattr(pool, "_max_workers", None)
    return Machine(max(1, int(threads or CPU_COUNT)), 1, _physical_memory(), bool(threads))


def as_if(threads: int, workers: int) -> dict[str, Any]:
    """The configuration under which `machine` finds so many threads for each of so many workers.

    Examples
    --------
    >>> with dask.config.set(as_if(4, 2)):
    ...     machine()[:2]
    (8, 2)
    """
    if not workers:
        return {"scheduler": "threads", "num_workers": threads}
    return {"scheduler": ClientOfNobody(threads, workers)}


class ClientOfNobody:
    """Stands where the client of a cluster would, and knows how large that is."""

    asynchronous = False

    def __init__(self, threads: int, workers: int) -> None:
        whole = {"n_workers": workers, "total_threads": threads * workers, "total_memory": _physical_memory()}
        self._scheduler_identity = whole


def on_event_loop() -> bool:
    """Whether the event loop of an asynchronous client waits for this thread.

    Examples
    --------
    >>> on_event_loop()
    False
    """
    client = _client(dask.config.get("scheduler", None))
    if client is None or not client.asynchronous:
        return False
    from asyncio import _get_running_loop  # the client has imported it; to import it costs much

    return _get_running_loop() is not None


def _client(scheduler: Any) -> Any:
    if "Client" in type(scheduler).__name__:
        return scheduler
    module = sys.modules.get("distributed.client")
    try:
        return None if module is None else module._get_global_client()
    except Exception:
        return None


def _cluster(client: Any) -> Machine | None:
    """From what the client last heard of its scheduler, without asking again."""
    try:
        known = client._scheduler_identity
        workers = known.get("workers") or {}
        threads = known.get("total_threads") or sum(worker["nthreads"] for worker in workers.values())
        memory = known.get("total_memory") or sum(worker["memory_limit"] for worker in workers.values())
        count = known.get("n_workers") or len(workers)
        return Machine(int(threads), max(2, int(count)), int(memory)) if threads else None
    except Exception:
        return None


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
