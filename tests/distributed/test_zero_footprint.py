"""A scheduler and a worker that cannot import dask_rewrite run what it has rewritten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest

import dask_rewrite
from helpers import assert_same, distinct, leapfrog, leapfrog_by_hand, running_total, stock, switched_on

pytestmark = [pytest.mark.usefixtures("on"), pytest.mark.timeout(120)]

BARE = """
import asyncio, sys

class Blocked:
    "An environment in which dask_rewrite was never installed."
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "dask_rewrite":
            raise ImportError("dask_rewrite is not installed here")

sys.meta_path.insert(0, Blocked())
try:
    import dask_rewrite
except ImportError:
    pass
else:
    raise SystemExit("dask_rewrite can be imported: this test tests nothing")

async def main():
    from distributed import Scheduler, Worker
    options = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": ":0"}
    if len(sys.argv) == 1:
        server = Scheduler(port=0, **options)
    else:
        server = Worker(sys.argv[1], nthreads=2, memory_limit=0, **options)
    async with server:
        print("address:", server.address, flush=True)
        await server.finished()

asyncio.run(main())
"""


def start(*args: str) -> tuple[subprocess.Popen[str], str]:
    environment = {**os.environ, "PYTHONPATH": ""}
    process = subprocess.Popen(
        [sys.executable, "-c", BARE, *args],
        env=environment,
        cwd=os.path.dirname(os.path.abspath(sys.executable)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"^address: (\S+)", line):
            return process, found[1]
    raise RuntimeError(f"the process ended with {process.wait()}")


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[str]:
    processes = []
    try:
        scheduler, address = start()
        processes.append(scheduler)
        worker, _ = start(address)
        processes.append(worker)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def bare(bare_cluster: str) -> Iterator[Any]:
    from distributed import Client

    with Client(bare_cluster, timeout=60) as client:
        client.wait_for_workers(1, timeout=60)
        yield client


def run(client: Any, collection: Any) -> Any:
    return client.compute(collection).result(timeout=60)


def test_it_really_cannot_be_imported(bare: Any) -> None:
    def tries() -> str:
        try:
            import dask_rewrite  # noqa: F401  # whether it can be imported is the question
        except ImportError as error:
            return str(error)
        return "imported"

    assert set(bare.run(tries).values()) == {"dask_rewrite is not installed here"}
    assert bare.run_on_scheduler(tries) == "dask_rewrite is not installed here"


def test_nested_tasks(bare: Any) -> None:
    assert_same(run(bare, distinct((6,), 2) + 1 - 3), np.arange(6.0) + 1 - 3)


def test_called_templates(bare: Any) -> None:
    x = distinct((12,), 2)
    expected = np.arange(12.0)
    for i in range(20):
        x, expected = np.sin(x) + i, np.sin(expected) + i
    assert_same(run(bare, x), expected)


def test_programs(bare: Any) -> None:
    for steps in (5, 220, 2_000):
        assert_same(run(bare, leapfrog(steps)), leapfrog_by_hand(steps))
    assert_same(run(bare, running_total(500)), np.arange(4) * 501)


@pytest.mark.once
def test_batches(bare: Any) -> None:
    """Tiny tasks of known functions in ones of up to 64, those of a function of ours in ones of up to 16."""
    x = da.random.default_rng(5).integers(0, 99, (90, 90), chunks=2)
    y = da.arange(10_000, chunks=1).map_blocks(lambda block: block * 3)
    z = (x + x.T, y.sum(), y)
    with dask.config.set({"rewrite.options": {"coalesce": {"min-tasks": 1000}}}):
        assert dask_rewrite.explain(*z).after.tasks < 3_000
        found = [run(bare, each) for each in z]
    with stock(scheduler="sync"):
        for one, other in zip(found, dask.compute(*z), strict=True):
            assert_same(one, other)


def test_chains_and_reductions(bare: Any) -> None:
    x = distinct((8, 8), 2)
    value = np.arange(64.0).reshape(8, 8)
    assert_same(run(bare, (x + 1).rechunk(4).rechunk(2).sum()), np.float64((value + 1).sum()))
    assert_same(run(bare, x[1:6, ::2].T @ x[:5]), value[1:6, ::2].T @ value[:5])
    standardized = (x - x.mean(0)) / x.std(0)
    with dask.config.set(scheduler="sync", array_optimize=None):
        expected = standardized.compute()
    assert_same(run(bare, standardized), expected)


def test_what_is_left_as_it_is(bare: Any) -> None:
    with dask.config.set({"rewrite.lower-limit": 1}):
        assert_same(run(bare, leapfrog(30)), leapfrog_by_hand(30))
        assert_same(run(bare, (distinct((8, 8), 2) + 1).T), (np.arange(64.0).reshape(8, 8) + 1).T)


def test_delayed_bag_and_mixes(bare: Any) -> None:
    d = dask.delayed(pow)(2, 5)
    b = db.from_sequence([1, 2, 3], npartitions=2).map(lambda i: i * 2)
    x = distinct((4,), 2)
    assert run(bare, d + 1) == 33
    assert run(bare, b) == [2, 4, 6]
    assert_same(dask.compute(x, d, b, x + 1), (np.arange(4.0), 32, [2, 4, 6], np.arange(4.0) + 1))


def test_xarray(bare: Any) -> None:
    xr = pytest.importorskip("xarray")
    ds = xr.Dataset({"t": (("a", "b"), distinct((8, 8), 2))}, coords={"a": range(8)})
    value = np.arange(64.0).reshape(8, 8)
    result = run(bare, (ds - ds.mean("b")).isel(a=slice(0, 3)))
    assert_same(result.t.values, (value - value.mean(1)[:, None])[:3])


def test_unnested_loops(bare: Any) -> None:
    # Functions that only this process knows travel by value.
    x = da.from_array(np.arange(4.0), chunks=4)
    step = dask.delayed(lambda b: b + 1, pure=True)
    for _ in range(150):
        x = da.from_delayed(step(x), shape=(4,), dtype="f8")
    assert_same(run(bare, x), np.arange(4.0) + 150)


def test_annotations(bare: Any) -> None:
    with dask.annotate(priority=lambda key: key[1], retries=2):
        x = distinct((6,), 2) + 1
    assert_same(run(bare, x * 2), (np.arange(6.0) + 1) * 2)


def test_persist_and_futures(bare: Any) -> None:
    x = bare.persist(distinct((6,), 2) + 1)
    z = dask_rewrite.optimize(x * 2)
    del x
    assert_same(run(bare, z), (np.arange(6.0) + 1) * 2)


def test_explicitly_optimized_collections(bare: Any) -> None:
    y = dask_rewrite.optimize(leapfrog(300))
    assert_same(run(bare, y + 1), leapfrog_by_hand(300) + 1)
    with dask.config.set(array_optimize=None):
        assert_same(run(bare, y), leapfrog_by_hand(300))


def test_without_client_side_rewriting(bare: Any) -> None:
    # Whatever dask then pickles must not need us either.
    with dask.config.set({"optimization.tune.active": False}):
        assert_same(run(bare, distinct((6,), 2) + 1), np.arange(6.0) + 1)
        assert_same(dask.compute(distinct((6,), 2) + 2, distinct((6,), 2) + 3)[1], np.arange(6.0) + 3)


def test_the_configuration_sent_to_a_worker(bare: Any) -> None:
    sent = dask.config.serialize(dask.config.global_config)

    def use(sent: str) -> int:
        import dask
        import dask.array as da

        with dask.config.set(dask.config.deserialize(sent)):
            return int((da.arange(10, chunks=3) + 1).sum().compute(scheduler="sync"))

    with switched_on():
        assert set(bare.run(use, sent).values()) == {55}
