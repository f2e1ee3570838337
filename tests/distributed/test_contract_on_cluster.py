"""Accumulated contractions on clusters of processes, with all their workers and with one fewer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_rewrite.pipeline.run import rewrite_tasks
from dask_rewrite.pipeline.trace import Trace
from dask_rewrite.scheduler import machine
from distributed import Client, SchedulerPlugin
from helpers import keys_of, stock, switched_on

pytestmark = [pytest.mark.timeout(180)]

ROWS, COLUMNS, SIDE = 4, 64, 50


@contextmanager
def running(workers: int) -> Iterator[Any]:
    """A client of a new cluster of so many processes of one thread."""
    from distributed.deploy.spec import SpecCluster

    from distributed import Nanny, Scheduler

    options = {"nthreads": 1, "memory_limit": 0, "dashboard_address": None, "host": "127.0.0.1"}
    settings = {
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.comm.timeouts.connect": "60s",
        "distributed.diagnostics.nvml": False,
        "scheduler": None,
    }
    with (
        dask.config.set(settings),
        SpecCluster(
            workers={i: {"cls": Nanny, "options": dict(options)} for i in range(workers)},
            scheduler={
                "cls": Scheduler,
                "options": {"dashboard": False, "dashboard_address": ":0", "host": "127.0.0.1"},
            },
            silence_logs=50,
        ) as cluster,
        Client(cluster, timeout=60) as client,
    ):
        client.wait_for_workers(workers, timeout=60)
        yield client


class Watch(SchedulerPlugin):
    """The most bytes that all workers hold, and how many accumulators were made."""

    name = "watch"

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.peak = self.made = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if finish == "memory":
            self.peak = max(self.peak, sum(worker.nbytes for worker in self.scheduler.workers.values()))
            self.made += str(key[0]).startswith("contract-") and len(key) == 4


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Any]:
    h5py = pytest.importorskip("h5py")
    shape = (ROWS * SIDE, COLUMNS * SIDE)
    values = (np.arange(np.prod(shape)).reshape(shape) % 17).astype("f8")
    with h5py.File(tmp_path / "x.h5", "w") as made:
        made.create_dataset("x", data=values, chunks=(SIDE, SIDE))
    with h5py.File(tmp_path / "x.h5", "r") as opened:
        yield opened["x"]


def product(file: Any) -> da.Array:
    x = da.from_array(file, chunks=SIDE)
    return x.dot(x.T)


@pytest.mark.once
@pytest.mark.parametrize("workers", [2, 4])
def test_holds_little(workers: int, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dask_rewrite.passes.contract.cost_model.GATES_CLUSTER", 0
    )  # the blocks of this test are small
    with running(workers) as client:
        assert machine()[:2] == (workers, workers)
        y, right = product(file), file[:] @ file[:].T
        trace = Trace()
        rewrite_tasks(y.dask, keys_of(y), trace=trace)
        (remark,) = [remark for remark in trace.remarks if remark.rule == "contract"]
        assert remark.kind == "applied"
        assert "steps ahead" in remark.reason
        scheduler = client.cluster.scheduler
        peaks: dict[Any, list[int]] = {stock: [], switched_on: []}
        for context in (stock, switched_on) * 3:  # how far one worker falls behind is a matter of luck
            watch = Watch(scheduler)
            scheduler.add_plugin(watch)
            with context(scheduler=None):
                np.testing.assert_array_equal(y.compute(), right)
            scheduler.remove_plugin(watch.name)
            peaks[context].append(watch.peak)
        assert min(peaks[switched_on]) < min(peaks[stock]) / 2


@pytest.mark.parametrize("workers", [2, 4])
def test_a_worker_is_killed(workers: int, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_rewrite.passes.contract.cost_model.GATES_CLUSTER", 0)
    with running(workers) as client:
        right = file[:] @ file[:].T
        pid = next(iter(client.run(os.getpid).values()))
        watch = Watch(client.cluster.scheduler)
        client.cluster.scheduler.add_plugin(watch)
        with switched_on(scheduler=None):
            future = client.compute(product(file))
        deadline = time.monotonic() + 60
        while watch.made < 30 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not future.done()
        os.kill(pid, signal.SIGKILL)
        np.testing.assert_array_equal(future.result(timeout=120), right)
        assert watch.made >= 30


def test_on_the_shared_cluster(client: Any) -> None:
    x = da.arange(24 * 96, chunks=24 * 96).reshape(24, 96).rechunk(6) % 13
    with switched_on(scheduler=None):
        for y in (x @ x.T, da.einsum("ik,jk->ij", x, x), (x[:, :24].T @ x[:, :24]) / 3, da.cov(x)):
            with stock(scheduler="sync"):
                right = y.compute()
            np.testing.assert_allclose(y.compute(), right)
