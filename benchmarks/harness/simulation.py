"""Schedulers without work: how many bytes a graph holds and moves, and how long it takes.

:func:`on_threads` goes through a graph as dask's threaded scheduler does, :func:`on_cluster` as
``distributed`` does: loads wait in a queue until a worker has a thread for them, other tasks go where
they can start first, inputs travel, and copies stay until the last user of a value is done.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.simulated_work import LOAD, Work


@dataclass(frozen=True, slots=True)
class Rates:
    """What the machines can do; bytes and operations per second."""

    flops: float = 40e9
    #: of all workers together, and of one load
    disk: float = 2e9
    load: float = 1e9
    network: float = 1.25e9
    #: of the scheduler for each task: threads 0.1 ms, distributed about 0.5 ms (all workers together)
    overhead: float = 1e-4
    #: loads are sent to a worker until it has so many tasks per thread (``worker-saturation``)
    saturation: float = 1.1


@dataclass(slots=True)
class Found:
    """What a simulated run was like."""

    tasks: int
    seconds: float
    #: most bytes held by everyone together, and by any one worker
    peak: int
    peak_worker: int
    #: bytes read from disk, and sent from worker to worker
    read: int
    moved: int
    #: seconds for which threads were busy, over all threads and the whole run
    busy: float


def on_threads(work: Work, threads: int, rates: Rates, priority: Sequence[int] | None = None) -> Found:
    """Run a graph as dask's threaded scheduler does: what became ready last runs first."""
    rank = priority or work.dask_order()
    users = work.users()
    waiting = [len(set(inputs)) for inputs in work.inputs]
    uses = [len(found) for found in users]
    ready = sorted(
        (task for task, count in enumerate(waiting) if not count), key=rank.__getitem__, reverse=True
    )
    running: list[tuple[float, int]] = []
    now = held = peak = read = busy = 0
    disk = 0.0
    while ready or running:
        while ready and len(running) < threads:
            task = ready.pop()
            end = now + rates.overhead + work.flops[task] / rates.flops
            if work.kind[task] == LOAD:
                nbytes = work.nbytes[task]
                disk = max(disk, now) + nbytes / rates.disk
                end, read = max(end + nbytes / rates.load, disk), read + nbytes
            busy += end - now
            heapq.heappush(running, (end, task))
        now, task = heapq.heappop(running)
        held += work.nbytes[task]
        peak = max(peak, held)
        for one in set(work.inputs[task]):
            uses[one] -= 1
            held -= 0 if uses[one] else work.nbytes[one]
        for user in sorted(users[task], key=rank.__getitem__, reverse=True):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return Found(len(work), now, peak, peak, read, 0, busy / (now * threads))


class _Cluster:
    """The state of :func:`on_cluster`."""

    def __init__(self, work: Work, workers: int, threads: int, rates: Rates, rank: Sequence[int]) -> None:
        self.work, self.threads, self.rates, self.rank = work, threads, rates, rank
        self.users = work.users()
        self.waiting = [len(set(inputs)) for inputs in work.inputs]
        self.uses = [len(found) for found in self.users]
        self.where: list[list[int]] = [[] for _ in range(len(work))]  # who has a value, first its maker
        self.arrives: dict[tuple[int, int], float] = {}
        everyone = range(workers)
        self.free = [threads] * workers
        self.queue: list[list[tuple[int, int]]] = [[] for _ in everyone]  # arrived, waits for a thread
        self.assigned = [0] * workers
        self.occupied = [0.0] * workers
        self.held = [0] * workers
        self.out, self.into = [0.0] * workers, [0.0] * workers
        self.open = math.ceil(rates.saturation * threads)
        self.roots: list[tuple[int, int]] = []
        # a heap of (tasks at hand, turn, worker); the turn of a worker's latest entry tells which one counts
        self.slots = [(0, w, w) for w in everyone]
        self.turn, self.latest = workers, list(everyone)
        self.events: list[tuple[float, int, int, int]] = []  # time, what (0 arrived, 1 done), task, worker
        self.now = self.disk = self.scheduler = 0.0
        self.total = self.peak = self.peak_worker = self.read = self.moved = 0
        self.busy = 0.0

    def seconds(self, task: int) -> float:
        loading = self.work.nbytes[task] / self.rates.load if self.work.kind[task] == LOAD else 0.0
        return self.work.flops[task] / self.rates.flops + loading

    def hold(self, worker: int, nbytes: int) -> None:
        self.held[worker] += nbytes
        self.total += nbytes
        self.peak = max(self.peak, self.total)
        self.peak_worker = max(self.peak_worker, self.held[worker])

    def place(self, task: int) -> int:
        """Where a task can start first, of the workers that have one of its inputs."""
        work, rates = self.work, self.rates
        if task in work.home:
            return work.home[task]
        inputs = set(work.inputs[task])
        candidates = dict.fromkeys(w for one in inputs for w in self.where[one])

        def start(worker: int) -> tuple[float, int]:
            missing = sum(work.nbytes[one] for one in inputs if worker not in self.where[one])
            return self.occupied[worker] / self.threads + missing / rates.network, self.held[worker]

        return min(candidates, key=start)

    def assign(self, task: int, worker: int) -> None:
        """Send a task to a worker, which fetches what it lacks."""
        self.scheduler = max(self.scheduler, self.now) + self.rates.overhead
        at = self.scheduler
        self.count(worker, 1)
        self.occupied[worker] += self.seconds(task)
        for one in set(self.work.inputs[task]):
            if (one, worker) in self.arrives:
                at = max(at, self.arrives[one, worker])
            elif worker not in self.where[one]:
                source = min(self.where[one], key=self.out.__getitem__)
                nbytes = self.work.nbytes[one]
                # each link passes one block after another; a block has arrived when it is through both
                self.out[source] = max(self.scheduler, self.out[source]) + nbytes / self.rates.network
                self.into[worker] = max(self.scheduler, self.into[worker]) + nbytes / self.rates.network
                self.arrives[one, worker] = end = max(self.out[source], self.into[worker])
                self.moved += nbytes
                self.hold(worker, nbytes)
                at = max(at, end)
        heapq.heappush(self.events, (at, 0, task, worker))

    def start(self, worker: int) -> None:
        """Let free threads of a worker take what has arrived, the first in dask's order first."""
        while self.free[worker] and self.queue[worker]:
            _, task = heapq.heappop(self.queue[worker])
            self.free[worker] -= 1
            end = self.now + self.seconds(task)
            if self.work.kind[task] == LOAD:
                nbytes = self.work.nbytes[task]
                self.disk = max(self.disk, self.now) + nbytes / self.rates.disk
                end, self.read = max(end, self.disk), self.read + nbytes
            self.busy += end - self.now
            heapq.heappush(self.events, (end, 1, task, worker))

    def ready(self, task: int) -> None:
        if self.work.kind[task] == LOAD:
            heapq.heappush(self.roots, (self.rank[task], task))
        else:
            self.assign(task, self.place(task))

    def count(self, worker: int, change: int) -> None:
        """A worker has more or fewer tasks at hand."""
        self.assigned[worker] += change
        self.turn += 1
        self.latest[worker] = self.turn
        heapq.heappush(self.slots, (self.assigned[worker], self.turn, worker))

    def feed(self) -> None:
        """Queued loads go to workers with an open slot: the emptiest, of these who waited longest."""
        while self.roots:
            while self.slots[0][1] != self.latest[self.slots[0][2]]:
                heapq.heappop(self.slots)
            if self.slots[0][0] >= self.open:
                return
            self.assign(heapq.heappop(self.roots)[1], self.slots[0][2])

    def done(self, task: int, worker: int) -> None:
        work = self.work
        self.free[worker] += 1
        self.count(worker, -1)
        self.occupied[worker] -= self.seconds(task)
        self.where[task].append(worker)
        self.hold(worker, work.nbytes[task])
        for one in set(work.inputs[task]):
            if (one, worker) in self.arrives and worker not in self.where[one]:
                self.where[one].append(worker)
            self.uses[one] -= 1
            if not self.uses[one]:
                holders = dict.fromkeys([*self.where[one]])
                for holder in holders:
                    self.hold(holder, -work.nbytes[one])
                    self.arrives.pop((one, holder), None)
        for user in sorted(self.users[task], key=self.rank.__getitem__):
            self.waiting[user] -= 1
            if not self.waiting[user]:
                self.ready(user)

    def run(self) -> None:
        for task in sorted(range(len(self.work)), key=self.rank.__getitem__):
            if not self.waiting[task]:
                self.ready(task)
        self.feed()
        while self.events:
            self.now, what, task, worker = heapq.heappop(self.events)
            if what:
                self.done(task, worker)
                self.feed()
            else:
                heapq.heappush(self.queue[worker], (self.rank[task], task))
            self.start(worker)


def on_cluster(
    work: Work, workers: int, threads: int, rates: Rates, priority: Sequence[int] | None = None
) -> Found:
    """Run a graph on workers of so many threads each."""
    state = _Cluster(work, workers, threads, rates, priority or work.dask_order())
    state.run()
    return Found(
        len(work),
        state.now,
        state.peak,
        state.peak_worker,
        state.read,
        state.moved,
        state.busy / (state.now * workers * threads),
    )
