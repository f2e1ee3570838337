"""Whole programs on a cluster of processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest

import dask_rewrite
import distributed
from helpers import (
    assert_same,
    distinct,
    leapfrog,
    leapfrog_by_hand,
    running_total,
    switched_on,
    there_and_back,
)

pytestmark = [pytest.mark.usefixtures("on"), pytest.mark.timeout(120)]


@pytest.mark.parametrize("steps", [220, 1_000, 5_000])
def test_leapfrog(client: Any, steps: int) -> None:
    # With stock dask, 220 steps hang for ever.
    assert_same(client.compute(leapfrog(steps)).result(timeout=60), leapfrog_by_hand(steps))


@pytest.mark.parametrize("steps", [150, 500])  # dask takes seconds to build twice as many
def test_array_to_delayed_to_array(client: Any, steps: int) -> None:
    assert_same(client.compute(there_and_back(steps)).result(timeout=60), np.arange(4.0) + steps)


def test_running_total(client: Any) -> None:
    assert_same(client.compute(running_total(2_000)).result(timeout=60), np.arange(4) * 2_001)


@pytest.mark.parametrize("config", [{"rewrite.lower-limit": 1}, {"rewrite.lower-seconds": 0.0}])
def test_what_is_left_as_it_is_runs_too(client: Any, config: dict[str, Any]) -> None:
    with dask.config.set(config):
        assert_same(client.compute(leapfrog(20)).result(timeout=60), leapfrog_by_hand(20))
        assert_same((distinct((8, 8), 2) + 1).sum().compute(), np.float64(np.arange(64.0).sum() + 64))
        assert client.persist(distinct((8, 8), 2) * 2).sum().compute() == 64 * 63


def test_everyday_programs(client: Any) -> None:
    x = distinct((12, 12), 4)
    programs = [
        (x - x.mean(0)) / (x.std(0) + 1),
        x @ x.T,
        x.rechunk((3, 12)).cumsum(axis=1)[2:9, ::2],
        da.roll(x, 5, axis=1) + x[::-1],
        da.linalg.svd(x.rechunk((4, 12)))[1],
        x[x > 30],
        da.random.default_rng(5).normal(size=(20,), chunks=7) * 2,
        x.map_overlap(lambda b: b * 2, depth=1, boundary="periodic"),
    ]
    with dask.config.set(scheduler="sync"):
        expected = dask.compute(*programs)
    for one, other in zip(client.gather(client.compute(programs)), expected, strict=True):
        assert_same(one, other)


def test_the_same_program_twice_and_a_relative_of_it(client: Any) -> None:
    x = distinct((12,), 3) + 1
    y = (x * 2).rechunk(6)
    first = client.persist(y)
    assert_same((y - 1).compute(), (np.arange(12.0) + 1) * 2 - 1)
    assert_same(y.sum().compute(), ((np.arange(12.0) + 1) * 2).sum())
    assert_same(y.compute(), first.compute())
    with dask.config.set(array_optimize=None):
        assert_same((y - 1).compute(), (np.arange(12.0) + 1) * 2 - 1)


def test_no_name_stands_for_two_tasks(client: Any) -> None:
    """The scheduler says "Detected different run_spec" when one key comes with another task."""

    def logged(dask_scheduler: Any) -> list[str]:
        return [message for _, message in dask_scheduler.get_logs() if "run_spec" in message]

    before = client.run_on_scheduler(logged)
    base = distinct((14,), 3) * 2 + 1
    futures = []
    for go_on in (
        lambda b: b + 1,
        lambda b: (b + 1).rechunk(6),
        lambda b: b.sum(),
        lambda b: (b.rechunk(6) * 2).sum(),
        lambda b: b - b.mean(),
    ):
        futures.append(client.compute(go_on(base)))
        futures.append(client.persist(go_on(base)))
    distributed.wait(futures)
    assert client.run_on_scheduler(logged) == before


# --------------------------------------------------------------------------------------
# persisted data and futures


def test_persist_and_go_on(client: Any) -> None:
    x = client.persist(distinct((8, 8), 4) + 1)
    value = np.arange(64.0).reshape(8, 8) + 1
    assert_same((x.T * 2).compute(), value.T * 2)
    assert_same(dask.compute(x, x.sum(), dask.delayed(5)), (value, np.float64(value.sum()), 5))
    (y,) = dask.persist(x - 1)
    assert_same(y.compute(), value - 1)


def test_persisted_blocks_are_no_tasks(client: Any) -> None:
    """A program that goes on from persisted blocks has only its own tasks to run, and no copies."""

    class Ran(distributed.diagnostics.plugin.SchedulerPlugin):
        name = "ran"

        def __init__(self) -> None:
            self.keys: list[Any] = []

        def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
            if (start, finish) == ("processing", "memory"):
                self.keys.append(key)

    def seen(dask_scheduler: Any) -> list[Any]:
        return list(dask_scheduler.plugins["ran"].keys)

    x = client.persist(distinct((8, 8), 4).map_blocks(one_more, dtype="f8", meta=np.empty((0, 0))))
    distributed.wait(x)
    client.register_plugin(Ran())
    try:
        value = np.arange(64.0).reshape(8, 8) + 1
        assert_same((x - x.max()).compute(), value - 64)
        assert_same(x.rechunk(8).T.compute(), value.T)
        ran = client.run_on_scheduler(seen)
    finally:
        client.unregister_scheduler_plugin("ran")
    assert ran
    assert not [key for key in ran if type(key) is tuple and key[0].startswith(x.name)]


def test_futures_stay_alive_as_long_as_the_graph(client: Any) -> None:
    persisted = client.persist(distinct((8,), 2) + 1)
    z = dask_rewrite.optimize(persisted + 1)
    del persisted
    time.sleep(0.3)
    assert_same(z.compute(), np.arange(8.0) + 2)
    assert_same((z * 2).compute(), (np.arange(8.0) + 2) * 2)


def test_scattered_futures_in_delayed_and_arrays(client: Any) -> None:
    data = client.scatter(np.arange(6.0))
    d = dask.delayed(one_more)(data)
    assert_same(d.compute(), np.arange(6.0) + 1)
    x = da.from_delayed(d, shape=(6,), dtype="f8")
    assert_same((x * 2).compute(), (np.arange(6.0) + 1) * 2)
    x = da.from_delayed(dask.delayed(data), shape=(6,), dtype="f8")
    z = dask_rewrite.optimize(x * 2)
    del x, d
    assert_same(z.compute(), np.arange(6.0) * 2)
    released = client.scatter(7)
    y = distinct((4,), 2).map_blocks(lambda b, k: b * k, released, dtype="f8", meta=np.empty(0))
    z = dask_rewrite.optimize(y)
    del y, released
    assert_same(z.compute(), np.arange(4.0) * 7)


def one_more(x: Any) -> Any:
    return x + 1


def test_persisted_xarray(client: Any) -> None:
    xr = pytest.importorskip("xarray")
    ds = xr.Dataset({"t": (("a", "b"), distinct((8, 8), 4))}).persist()
    result = (ds.t - ds.t.mean("a")).isel(b=slice(0, 2)).compute()
    value = np.arange(64.0).reshape(8, 8)
    assert_same(result.values, (value - value.mean(0))[:, :2])


def test_p2p_rechunk(client: Any) -> None:
    x = distinct((40, 40), (5, 40))
    value = np.arange(1600.0).reshape(40, 40)
    y = (x + 1).rechunk((40, 5), method="p2p")
    assert_same(y.compute(), value + 1)
    assert_same((y * 2).sum(axis=0).compute(), ((value + 1) * 2).sum(axis=0))
    assert_same((client.persist(y) - 1).compute(), value)
    z = dask_rewrite.optimize(y + 1)
    assert_same(z.compute(), value + 2)


def test_p2p_rechunk_of_blocks_that_are_joined_first(client: Any) -> None:
    """What is joined is no result of its own, which a worker would hold beside what it is joined of."""
    x = da.random.default_rng(1).random((400, 200), chunks=(400, 10))
    y = x.rechunk((20, 200), method="p2p").std(axis=1)
    assert not any("merge" in str(key) for key in dask_rewrite.optimize(y).__dask_graph__())
    assert_same(y.compute(), x.compute(scheduler="sync").std(axis=1))


def test_p2p_rechunk_of_persisted_data(client: Any) -> None:
    x = client.persist(distinct((20, 20), (5, 20)))
    y = x.rechunk((20, 5), method="p2p").T + 1
    assert_same(y.compute(), np.arange(400.0).reshape(20, 20).T + 1)


def test_p2p_shuffle_of_a_dataframe(client: Any) -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(40) % 5, "b": np.arange(40.0)})
    result = dd.from_pandas(frame, npartitions=4).groupby("a").b.sum().compute()
    pd.testing.assert_series_equal(result.sort_index(), frame.groupby("a").b.sum())


def test_bag_and_delayed(client: Any) -> None:
    b = db.from_sequence(range(20), npartitions=4)
    assert b.map(lambda i: i * 2).filter(lambda i: i % 3 == 0).compute() == list(range(0, 40, 6))
    assert b.fold(lambda x, y: x + y).compute() == 190
    values = [dask.delayed(pow)(i, 2) for i in range(10)]
    assert dask.delayed(sum)(values).compute() == 285


def test_worker_client_inside_of_tasks(client: Any) -> None:
    def inside(n: int) -> float:
        import dask.array as da

        from distributed import worker_client

        with worker_client() as inner:
            return float(inner.compute(da.arange(n, chunks=3).sum()).result())

    results = dask.compute(*[dask.delayed(inside)(n) for n in (4, 8, 12)])
    assert results == (6.0, 28.0, 66.0)


def test_compute_inside_of_tasks(client: Any) -> None:
    def inside(n: int) -> int:
        import dask.array as da

        return int((da.arange(n, chunks=3) + 1).sum().compute(scheduler="sync"))

    assert dask.delayed(inside)(10).compute() == 55


def test_map_blocks_that_computes(client: Any) -> None:
    def block(b: np.ndarray) -> np.ndarray:
        import dask.array as da

        return da.from_array(b, chunks=1).cumsum(axis=0).compute(scheduler="sync")

    x = distinct((6,), 3).map_blocks(block, dtype="f8", meta=np.empty(0))
    assert_same((x + 0).compute(), np.concatenate([np.arange(3.0).cumsum(), np.arange(3.0, 6).cumsum()]))


def test_actors(client: Any) -> None:
    class Counter:
        n = 0

        def increment(self) -> int:
            self.n += 1
            return self.n

    counter = client.submit(Counter, actor=True).result()
    assert counter.increment().result() == 1
    assert counter.increment().result() == 2
    assert_same((distinct((4,), 2) + 1).compute(), np.arange(4.0) + 1)


def test_errors_name_the_users_exception(client: Any) -> None:
    def fail(block: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("of the user")

    x = distinct((4,), 2).map_blocks(fail, dtype="f8", meta=np.empty(0)) * 2 + 1
    with pytest.raises(ZeroDivisionError, match="of the user"):
        x.compute()


def test_large_constants(client: Any) -> None:
    table = np.arange(200_000.0)
    x = distinct((8,), 2).map_blocks(lambda b, t: b + t[:2], table, dtype="f8", meta=np.empty(0))
    assert_same((x * 2).compute(), (np.arange(8.0) + np.tile([0.0, 1.0], 4)) * 2)


def test_as_completed_and_cancel(client: Any) -> None:
    from distributed import as_completed

    futures = client.compute([distinct((4,), 2) + i for i in range(4)])
    assert sorted(float(future.result().sum()) for future in as_completed(futures)) == [6, 10, 14, 18]


# --------------------------------------------------------------------------------------
# other clients


def test_asynchronous_client(cluster: Any) -> None:
    from distributed import Client

    async def work() -> None:
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            assert_same(await client.compute(leapfrog(500)), leapfrog_by_hand(500))
            x = client.persist(distinct((8,), 2) + 1)
            assert_same(await client.compute(x * 2), (np.arange(8.0) + 1) * 2)
            first, second = await client.gather(client.compute([x.sum(), x.max()]))
            assert (first, second) == (36.0, 8.0)

    asyncio.run(work())


def test_threads_of_the_client(client: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(i: int) -> float:
        return float((distinct((8,), 2) * i).sum().compute())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [28.0 * i for i in range(8)]


def test_in_process_cluster() -> None:
    from distributed import Client

    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0") as client:
        assert_same(client.compute(leapfrog(300)).result(timeout=60), leapfrog_by_hand(300))
        persisted = client.persist(distinct((8,), 2) + 1)
        assert_same((persisted + 1).compute(), np.arange(8.0) + 2)


def test_a_worker_killed_in_mid_run(cluster: Any) -> None:
    """The lost blocks are computed again from what was sent."""
    from distributed import Client, LocalCluster

    def slow(block: np.ndarray) -> np.ndarray:
        time.sleep(0.15)
        return block + 1

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0, silence_logs=60
        ) as own,
        Client(own) as client,
        switched_on(),
    ):
        pids = list(client.run(os.getpid).values())
        x = distinct((24,), 1).map_blocks(slow, dtype="f8", meta=np.empty(0))
        a, b = x, x + 1
        for _ in range(30):
            a, b = b, (a + b) * 0.5
        future = client.compute((b + x.rechunk(4).rechunk(1)).sum())
        time.sleep(1.0)
        os.kill(pids[0], signal.SIGKILL)
        c, d = np.arange(24.0) + 1, np.arange(24.0) + 2
        for _ in range(30):
            c, d = d, (c + d) * 0.5
        np.testing.assert_allclose(future.result(timeout=60), (d + np.arange(24.0) + 1).sum())


def test_masked_blocks_that_cannot_be_sent_stay_on_their_workers(client: Any) -> None:
    # distributed tries for ever to send masked int8, whose fill value does not fit; dask sends the sums.
    x = da.from_array(np.arange(64 * 64).reshape(64, 64).astype("i1"), chunks=16)
    masked = da.ma.masked_less(x, 0)
    found = client.compute([(masked == 1).sum(axis=1), masked.sum(axis=0)])
    expected = dask.compute((masked == 1).sum(axis=1), masked.sum(axis=0), scheduler="sync")
    for future, value in zip(found, expected):
        np.testing.assert_array_equal(future.result(timeout=60).filled(-1), value.filled(-1))


@pytest.mark.parametrize("inside", [lambda f: f, lambda f: [f], lambda f: {"a": f}])
def test_futures_are_given_by_keyword(client: Any, inside: Any) -> None:
    def with_all(block: Any, others: Any = None) -> Any:
        values = others.values() if isinstance(others, dict) else others
        return block + (sum(values) if isinstance(others, (list, dict)) else others)

    others = inside(client.scatter(np.arange(10.0)))
    x = da.from_array(np.arange(200.0).reshape(20, 10), chunks=10)
    made = [
        x.map_blocks(with_all, others=others, dtype=float)[:15].sum(axis=1),
        da.blockwise(with_all, "ij", x, "ij", others=others, dtype=float),
        x.map_overlap(with_all, depth=0, others=others, dtype=float),
    ]
    expected = x.compute(scheduler="sync") + np.arange(10.0)
    for future, value in zip(client.compute(made), [expected[:15].sum(axis=1), expected, expected]):
        np.testing.assert_array_equal(future.result(timeout=60), value)
