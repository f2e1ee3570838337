"""One side of the demonstration, in a process of its own with a cluster of its own.

It reads the names of cases from stdin, one on each line, and answers with one line of JSON each.
The process that started it may kill it, with its workers, when a case takes too long.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
import threading
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import psutil
from dask._expr import FinalizeCompute
from dask.base import collections_to_expr
from distributed.protocol import serialize

from demonstration.cases import CASES, Case
from distributed import Client, LocalCluster, SchedulerPlugin


class Counter(SchedulerPlugin):
    """How many tasks the workers ran."""

    def __init__(self) -> None:
        self.tasks = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish in ("memory", "erred"):
            self.tasks += 1


class Peak(threading.Thread):
    """Watch, every few milliseconds, what the workers hold and how large their processes are."""

    def __init__(self, scheduler: Any, processes: list[psutil.Process]) -> None:
        super().__init__(daemon=True)
        self.scheduler, self.processes = scheduler, processes
        self.done = threading.Event()
        self.held = 0
        self.start_size = self.size = self.measure()

    def measure(self) -> int:
        return sum(process.memory_info().rss for process in self.processes)

    def run(self) -> None:
        while not self.done.wait(0.005):
            self.held = max(self.held, sum(w.nbytes for w in list(self.scheduler.workers.values())))
            self.size = max(self.size, self.measure())

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.done.set()
        self.join()


def submitted(collections: tuple[Any, ...]) -> int:
    """Bytes that the client submits."""
    expression = FinalizeCompute(collections_to_expr(collections)).optimize()
    try:
        return len(cloudpickle.dumps(expression))
    except TypeError:  # open files need distributed's own serializers
        header, frames = serialize(expression, on_error="raise")
        return len(pickle.dumps(header)) + sum(memoryview(frame).nbytes for frame in frames)


def sent(scheduler: Any) -> int:
    """Bytes that the scheduler has sent to the workers."""
    return sum(comm.byte_count for comm in scheduler.stream_comms.values())


def compute(collections: tuple[Any, ...]) -> Any:
    answer = dask.compute(*collections)
    return answer if len(answer) > 1 else answer[0]


def measure(
    case: Case, collections: tuple[Any, ...], folder: Path, scheduler: Any, processes: list[psutil.Process]
) -> dict[str, Any]:
    """Compute one case and return its figures; a failure is a figure too."""
    figures: dict[str, Any] = {}
    counter = Counter()
    scheduler.add_plugin(counter, name="demonstration")
    before = sent(scheduler)
    try:
        with Peak(scheduler, processes) as peak:
            start = time.perf_counter()
            answer = compute(collections)
            figures["seconds"] = time.perf_counter() - start
        figures["tasks"] = counter.tasks
        figures["to_workers"] = sent(scheduler) - before
        figures["held"], figures["memory"] = peak.held, peak.size - peak.start_size
        (folder / f"{os.getpid()}.answer").write_bytes(cloudpickle.dumps(read_back(case, folder, answer)))
        figures["answer"] = f"{os.getpid()}.answer"
        if figures["seconds"] < 2 and case.name != "retries":
            start = time.perf_counter()
            compute(collections)
            figures["seconds"] = min(figures["seconds"], time.perf_counter() - start)
        figures["submitted"] = submitted(collections)
    except Exception as error:
        figures["failure"] = type(error).__name__
    finally:
        scheduler.remove_plugin("demonstration")
    return figures


def read_back(case: Case, folder: Path, answer: Any) -> Any:
    """What was written, where a case writes."""
    if case.name == "zarr_to_zarr":
        import zarr

        return zarr.open_array(str(folder / "y.zarr"), mode="r")[:]
    if case.name == "hdf5_product":
        import h5py

        with h5py.File(folder / "y.h5", "r") as file:
            return file["y"][:]
    return answer


def switch(side: str) -> AbstractContextManager[Any]:
    """Switch the side's optimizer on."""
    if side == "stock":
        return nullcontext()
    import dask_rewrite

    return dask_rewrite.enable()


def main(side: str, folder: Path) -> None:
    """Serve until stdin ends."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    # what workers print must not mix with the answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    dask.config.set({"temporary-directory": str(folder), "distributed.admin.low-level-log-length": 0})
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
        switch(side),
    ):
        processes = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        client.run(__import__, "demonstration.cases")
        (dask.array.ones(8, chunks=4) + 1).sum().compute()
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            case = CASES[line.strip()]
            built = case.build(folder)
            # the user's own code is done; from here on time counts
            print("built", file=answers, flush=True)
            collections = built if isinstance(built, tuple) else (built,)
            figures = measure(case, collections, folder, cluster.scheduler, processes)
            print(json.dumps(figures), file=answers, flush=True)
