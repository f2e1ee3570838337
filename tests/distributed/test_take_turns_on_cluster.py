"""Tasks take turns on a cluster without room for all blocks."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task
from dask.graph_manipulation import chunks

import dask_rewrite
from dask_rewrite.passes import take_turns
from distributed import Client, LocalCluster
from helpers import assert_same, stock, switched_on

LOW = {"rewrite.options": {"take-turns": {"min-bytes": 1_000_000}}}
BLOCKS = 12 * 3 * 3


def _load(seen: str, seconds: float, block_info: Any = None) -> np.ndarray:
    time.sleep(seconds)
    where = block_info[None]
    place = "-".join(map(str, where["chunk-location"]))
    Path(seen, f"{place}-{time.monotonic_ns()}").touch()
    shape = where["chunk-shape"]
    return 1000 * sum(where["chunk-location"]) + np.arange(np.prod(shape)).reshape(shape) % 997.0


def slope(seen: Path, seconds: float = 0.0) -> da.Array:
    """Each mean waits for all times, and each of these for the means of its neighbours."""
    cut = ((4,) * 12, (50,) * 3, (50,) * 3)
    x = da.map_blocks(_load, str(seen), seconds, chunks=cut, dtype=float)
    return (da.gradient(x, axis=1) ** 2 + da.gradient(x, axis=2) ** 2).mean(axis=0)


def expected(seen: Path) -> Any:
    with stock(scheduler="sync"):
        found = slope(seen).compute()
    for each in seen.iterdir():
        each.unlink()
    return found


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(take_turns, "_ROOM", 10**9)
    layout = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0, "silence_logs": 60}
    with LocalCluster(**layout, dashboard_address=":0") as cluster, Client(cluster) as found:
        yield found


def test_each_block_is_made_once(client: Client, tmp_path: Path) -> None:
    right = expected(tmp_path)
    with switched_on(scheduler=None, **LOW):
        made = slope(tmp_path)
        graph = dict(dask.base.collections_to_expr((made,)).optimize().__dask_graph__())
        found = made.compute()
    assert any(type(node) is Task and node.func is chunks.checkpoint for node in graph.values())
    assert_same(found, right)
    assert len(list(tmp_path.iterdir())) == BLOCKS


def test_a_worker_is_killed(client: Client, tmp_path: Path) -> None:
    """What was done before is done again at most once."""
    right = expected(tmp_path)
    pid = next(iter(client.run(os.getpid).values()))
    with switched_on(scheduler=None, **LOW):
        future = client.compute(slope(tmp_path, 0.02))
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < BLOCKS // 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not future.done()
    os.kill(pid, signal.SIGKILL)
    assert_same(future.result(timeout=120), right)
    assert len(list(tmp_path.iterdir())) <= 2 * BLOCKS


@pytest.mark.parametrize("limit", ["300 kB", "450 kB", "8 GB"])
def test_rechunks_between_workers_keep_their_names_under_a_limit(limit: str) -> None:
    """Workers know the tasks of a shuffle by name: plans gave them new ones, and no barrier was found."""
    given = {"rewrite.memory-limit": limit, "rewrite.on-memory": "warn", "array.rechunk.method": "p2p"}
    x = da.random.default_rng(1).random((48, 60, 60), chunks=(4, 30, 30))
    expected = x.max(axis=0).compute(scheduler="sync")
    with (
        Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client,
        dask.config.set(given),
        switched_on(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", dask_rewrite.RewriteWarning)
        assert_same(x.rechunk((48, 10, 10)).max(axis=0).compute(scheduler=client), expected)
