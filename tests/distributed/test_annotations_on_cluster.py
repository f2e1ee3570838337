"""Annotations take effect on a real cluster of processes."""

from __future__ import annotations

import os
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from helpers import assert_same, distinct

pytestmark = [pytest.mark.usefixtures("on"), pytest.mark.timeout(120)]


@pytest.fixture
def addresses(client: Any) -> dict[str, str]:
    """The worker without a resource, and the one with the resource "tape"."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    found = {"tape" if worker["resources"] else "plain": address for address, worker in workers.items()}
    assert set(found) == {"tape", "plain"}
    return found


def pids(client: Any) -> dict[str, int]:
    return client.run(os.getpid)


def test_resources_are_honoured(client: Any, addresses: dict[str, str]) -> None:
    x = distinct((32,), 1)
    with dask.annotate(resources={"tape": 1}):
        y = x.map_blocks(lambda b: np.full(b.shape, os.getpid()), dtype="i8", meta=np.empty(0, "i8"))
    ran_on = set((y * 1).compute().tolist())
    assert ran_on == {pids(client)[addresses["tape"]]}


def test_the_rest_runs_anywhere(client: Any, addresses: dict[str, str]) -> None:
    with dask.annotate(resources={"tape": 1}):
        x = distinct((16,), 1) + 1
    y = x.rechunk(4)
    with dask.annotate(workers=[addresses["plain"]]):
        z = y.map_blocks(lambda b: np.full(b.shape, os.getpid()), dtype="i8", meta=np.empty(0, "i8"))
    assert set(z.compute().tolist()) == {pids(client)[addresses["plain"]]}


def test_a_restriction_that_nobody_meets_waits(client: Any) -> None:
    from distributed import wait

    with dask.annotate(resources={"unicorn": 1}):
        x = distinct((2,), 1) + 1
    future = client.compute(x.sum())
    with pytest.raises(TimeoutError):
        wait(future, timeout=1)
    future.cancel()
    with dask.config.set({"rewrite.annotations": "drop"}):
        assert client.compute(x.sum() * 1).result(timeout=30) == 3


def test_workers_are_honoured(client: Any, addresses: dict[str, str]) -> None:
    running = pids(client)
    for name in ("plain", "tape"):
        with dask.annotate(workers=[addresses[name]], allow_other_workers=False):
            # Two names: the scheduler may still hold the result of equal keys for a moment.
            x = distinct((16,), 1).map_blocks(
                lambda b, name: np.full(b.shape, os.getpid()), name, dtype="i8", meta=np.empty(0, "i8")
            )
        assert set((x + 0).compute().tolist()) == {running[addresses[name]]}


def test_two_sets_of_workers_do_not_become_anywhere(client: Any, addresses: dict[str, str]) -> None:
    running = pids(client)

    def stamp(block: np.ndarray) -> np.ndarray:
        return block * 10_000_000 + os.getpid()

    x = da.zeros((8,), chunks=1, dtype="i8")
    with dask.annotate(workers=[addresses["plain"]]):
        y = x.map_blocks(stamp, dtype="i8", meta=np.empty(0, "i8"))
    with dask.annotate(workers=[addresses["tape"]]):
        z = y.map_blocks(stamp, dtype="i8", meta=np.empty(0, "i8"))
    expected = running[addresses["plain"]] * 10_000_000 + running[addresses["tape"]]
    assert set(z.compute().tolist()) == {expected}


class Flaky:
    """Fails twice for each block, then works; it counts in files, as a retry may run in any process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, block: np.ndarray) -> np.ndarray:
        name = os.path.join(self.folder, str(int(block.ravel()[0])))
        with open(name, "a", encoding="ascii") as file:
            file.write("x")
        if os.path.getsize(name) <= 2:
            raise OSError("try me again")
        return block + 1

    def __dask_tokenize__(self) -> object:
        return self.folder


def test_retries_are_retried(client: Any, tmp_path: Any) -> None:
    flaky = Flaky(str(tmp_path))
    x = distinct((4,), 1)
    with dask.annotate(retries=3):
        y = x.map_blocks(flaky, dtype="f8", meta=np.empty(0))
    assert_same((y * 2).compute(), (np.arange(4.0) + 1) * 2)
    assert [os.path.getsize(file) for file in sorted(tmp_path.iterdir())] == [3] * 4


def test_without_retries_it_fails(client: Any, tmp_path: Any) -> None:
    y = distinct((4,), 1).map_blocks(Flaky(str(tmp_path)), dtype="f8", meta=np.empty(0))
    with pytest.raises(OSError, match="again"):
        (y * 2).compute()


def test_priority_callables(client: Any) -> None:
    x = distinct((6,), 1)
    with dask.annotate(priority=lambda key: key[1] * 10):
        y = x + 1
    assert_same((y * 2).compute(), (np.arange(6.0) + 1) * 2)
    assert_same(client.persist(y * 3).compute(), (np.arange(6.0) + 1) * 3)


def test_annotations_reach_the_scheduler(client: Any) -> None:
    from distributed import wait

    x = distinct((4,), 1)
    with dask.annotate(priority=7, retries=5):
        y = x + 1
    persisted = client.persist(y)
    wait(persisted)

    def look(dask_scheduler: Any) -> list[tuple[int, int]]:
        return [
            (-task.priority[0], task.retries)
            for task in dask_scheduler.tasks.values()
            if task.annotations and "retries" in task.annotations
        ]

    found = client.run_on_scheduler(look)
    assert found == [(7, 5)] * 4


def test_of_a_submission(client: Any, addresses: dict[str, str]) -> None:
    # What Client.compute itself is told holds for all tasks, as without us.
    x = distinct((8,), 1).map_blocks(
        lambda b: np.full(b.shape, os.getpid()), dtype="i8", meta=np.empty(0, "i8")
    )
    result = client.compute(x, workers=[addresses["plain"]], retries=2).result()
    assert set(result.tolist()) == {pids(client)[addresses["plain"]]}
