"""Schedulers without work: order, views, roots that wait, copies that travel."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.callbacks import Callback
from dask.order import order

from dask_rewrite.analysis.facts import Fact, Facts
from dask_rewrite.analysis.memory.cluster import Cluster, on_cluster
from dask_rewrite.analysis.memory.threads import on_threads
from dask_rewrite.analysis.memory.work import Work


def work_of(inputs: list[tuple[int, ...]], nbytes: int = 8, root: bool = False) -> Work:
    n = len(inputs)
    return Work(
        inputs,
        [()] * n,
        [nbytes] * n,
        [nbytes] * n,
        [1.0] * n,
        [root and not each for each in inputs],
        kept=frozenset([n - 1]),
    )


def test_one_thread_runs_tasks_in_the_order_of_dask_itself() -> None:
    x = da.ones((40, 40), chunks=10)
    graph = dict(dask.optimize((x - x.mean(axis=0)).sum())[0].dask)
    ranks = order(graph)
    keys = sorted(graph, key=ranks.__getitem__)
    number = {key: i for i, key in enumerate(keys)}
    inputs = [tuple(number[dep] for dep in graph[key].dependencies) for key in keys]
    ran: list[int] = []

    class Order(Callback):
        def _posttask(self, key, result, dsk, state, worker):  # type: ignore[no-untyped-def] # as dask has it
            ran.append(number[key])

    with Order():
        dask.get(graph, keys[-1])
    assert on_threads(work_of(inputs), 1).ended == ran


def test_a_view_keeps_what_it_is_a_view_of() -> None:
    work = work_of([(), (0,), (1,)])
    work.views[1], work.owned[1] = (0,), 0
    course = on_threads(work, 1)
    assert course.held == [8, 8, 16]
    assert course.freed == [2, 2, -1]


def test_room_for_an_array_is_made_when_something_is_written_into_it() -> None:
    """A room for two arrays, into the first of which two tasks write."""
    work = work_of([(), (0,), (0,), (0,), (1, 2, 3)])
    work.owned[:], work.nbytes[0] = [20, 0, 0, 0, 0], 20
    work.views[1:4] = [(0,)] * 3
    work.arrays = {1: [(0, 15)], 2: [(0, 15)], 3: [(1, 5)]}
    course = on_threads(work, 1)
    assert sorted(course.held[:1] + course.held[-1:]) == [0, 20]
    assert course.held[1:4] in ([15, 15, 20], [5, 20, 20])
    assert work.owned == [20, 0, 0, 0, 0]


def test_data_of_the_graph_was_there_before() -> None:
    work = work_of([(), (0,)])
    work.given = frozenset([0])
    assert on_threads(work, 1).held == [8]


def test_more_threads_hold_more() -> None:
    pairs = [*[() for _ in range(8)], *[(i,) for i in range(8)], tuple(range(8, 16))]
    work = work_of(pairs)
    assert on_threads(work, 1).peak <= on_threads(work, 4).peak


def test_roots_wait_until_a_worker_is_free() -> None:
    # eight loads, each read by one small task at once: numbered as dask does, depth first
    inputs: list[tuple[int, ...]] = []
    for i in range(8):
        inputs += [(), (2 * i,)]
    inputs.append(tuple(range(1, 16, 2)))
    work = work_of(inputs, 100, root=True)
    for task in range(1, 16, 2):
        work.nbytes[task] = 1
    queued = on_cluster(work, Cluster(1, 1))
    eager = on_cluster(work, Cluster(1, 1, saturation=float("inf")))
    assert queued.peak < 400
    assert eager.peak >= queued.peak
    assert queued.moved == 0


def test_every_task_ends_once_on_any_cluster() -> None:
    inputs: list[tuple[int, ...]] = [() for _ in range(9)]
    inputs += [(i % 9, (i + 1) % 9) for i in range(20)]
    inputs.append(tuple(range(9, 29)))
    for workers in (1, 2, 5):
        course = on_cluster(work_of(inputs, root=True), Cluster(workers, 2))
        assert sorted(course.ended) == list(range(len(inputs)))
        assert course.peak == max(course.held)


def test_what_is_taken_for_granted_of_unknown_blocks() -> None:
    nodes = {"x": Task("x", lambda: None), "y": Task("y", np.negative, TaskRef("x"))}
    given = Fact((3,), np.dtype("f4"))
    facts = Facts(nodes.get, lambda key: given if key == "x" else None)
    assert facts.of("y") == given
    assert Facts(nodes.get).of("y") is None


def test_data_of_the_graph_stays_however_many_views_of_it_go() -> None:
    work = work_of([(), (0,), (0,), (1, 2)])
    work.given = frozenset([0])
    for view in 1, 2:
        work.views[view], work.owned[view] = (0,), 0
    course = on_threads(work, 1)
    assert course.held == [0, 0, 8]
    assert course.freed == [-1, 2, 2, -1]
