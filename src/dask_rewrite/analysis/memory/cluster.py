"""``distributed``, without work: what is ready goes to where its inputs are, roots to who is idle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush

from dask_rewrite.analysis.memory.work import Course, Work


@dataclass(frozen=True, slots=True)
class Cluster:
    """Workers as the scheduler sees them.

    Parameters
    ----------
    workers, threads : int
        Workers, and threads of each.
    saturation : float
        Roots are sent to a worker until it has so many tasks per thread (``worker-saturation``).
    network : float
        Bytes per second that a worker sends or receives.
    """

    workers: int
    threads: int
    saturation: float = 1.1
    network: float = 4e8

    @property
    def slots(self) -> float:
        """Tasks at hand from which on a worker is not given roots."""
        if math.isinf(self.saturation):
            return math.inf
        return max(1, math.ceil(self.saturation * self.threads))


def on_cluster(work: Work, cluster: Cluster) -> Course:
    """Go through a graph as ``distributed`` does.

    Counted is what all workers hold, copies included; these stay until the last user of a block is done.

    Examples
    --------
    Two blocks, each made on a worker of its own, and what is made of both: one of them travels.

    >>> work = Work([(), (), (0, 1)], [()] * 3, [8] * 3, [8] * 3, [1.0] * 3, [True, True, False])
    >>> course = on_cluster(work, Cluster(workers=2, threads=1))
    >>> course.moved, course.peak, course.peak_worker
    (8, 32, 24)
    """
    run = _Run(work, cluster)
    run.go()
    return run.course


class _Run:
    """The state of :func:`on_cluster`. Who has a block is an integer with a bit for each worker."""

    def __init__(self, work: Work, cluster: Cluster) -> None:
        self.work, self.cluster, self.slots = work, cluster, cluster.slots
        everyone = range(cluster.workers)
        self.users = work.users()
        self.waiting = [len(inputs) for inputs in work.inputs]
        self.uses = work.uses(self.users, views=False)
        self.where = [0] * len(work)
        self.arrives: dict[tuple[int, int], float] = {}  # when what is on its way to a worker is there
        self.free = [cluster.threads] * cluster.workers
        self.processing = [0] * cluster.workers
        self.occupied = [0.0] * cluster.workers
        self.held = [0] * cluster.workers
        self.out, self.into = [0.0] * cluster.workers, [0.0] * cluster.workers
        self.queues: list[list[int]] = [[] for _ in everyone]  # wait for a thread
        self.roots: list[int] = []
        self.events: list[tuple[float, int, int, int]] = []  # when, which task, where, whether it is done
        self.now = 0.0
        self.total = self.most = self.step = 0
        self.course = Course(freed=[-1] * len(work))

    def go(self) -> None:
        """Run everything."""
        for task, waits in enumerate(self.waiting):
            if not waits:
                self.is_ready(task)
        self.feed()
        events, seconds, queues = self.events, self.work.seconds, self.queues
        while events:
            self.now, task, worker, is_done = heappop(events)
            if not is_done:
                self.receive(task, worker)
                continue
            queue = queues[worker]
            if queue:  # a worker goes on before the scheduler has heard of it
                following = heappop(queue)
                heappush(events, (self.now + seconds[following], following, worker, 1))
            else:
                self.free[worker] += 1
            self.done(task, worker)
            if self.roots:
                self.feed()
        if history := self.course.held:
            self.course.peak = max(history)
            self.course.at = history.index(self.course.peak)

    def is_ready(self, task: int) -> None:
        """All inputs of a task are there."""
        if self.work.root[task]:
            heappush(self.roots, task)
        else:
            self.assign(task, self.place(task))

    def feed(self) -> None:
        """Queued roots go to the workers with the fewest tasks, while these have an open slot."""
        roots, processing, slots = self.roots, self.processing, self.slots
        while roots:
            least = min(processing)
            if least >= slots:
                return
            self.assign(heappop(roots), processing.index(least))

    def place(self, task: int) -> int:
        """Where a task can start first, of the workers that have one of its inputs."""
        inputs, where = self.work.inputs[task], self.where
        somewhere = 0
        for one in inputs:
            somewhere |= where[one]
        if not somewhere:  # no root to dask, though nothing stands below it
            return self.occupied.index(min(self.occupied))
        if not somewhere & (somewhere - 1):
            return somewhere.bit_length() - 1
        nbytes, network, threads = self.work.nbytes, self.cluster.network, self.cluster.threads
        best, best_start = -1, (math.inf, 0)
        while somewhere:
            bit = somewhere & -somewhere
            somewhere ^= bit
            worker = bit.bit_length() - 1
            missing = sum([nbytes[one] for one in inputs if not where[one] & bit])
            start = (self.occupied[worker] / threads + missing / network, self.held[worker])
            if start < best_start:
                best, best_start = worker, start
        return best

    def assign(self, task: int, worker: int) -> None:
        """Send a task to a worker, which asks others for what it lacks; what waits runs in dask's order."""
        where, work = self.where, self.work
        at, bit = 0.0, 1 << worker
        self.processing[worker] += 1
        self.occupied[worker] += work.seconds[task]
        for one in work.inputs[task]:
            if not where[one] & bit:
                at = max(at, self.fetch(one, worker))
        if at:
            heappush(self.events, (at, task, worker, 0))
        else:
            self.start(task, worker)

    def start(self, task: int, worker: int) -> None:
        """Run a task, or have it wait for a thread."""
        if self.free[worker]:
            self.free[worker] -= 1
            heappush(self.events, (self.now + self.work.seconds[task], task, worker, 1))
        else:
            heappush(self.queues[worker], task)

    def fetch(self, block: int, worker: int) -> float:
        """When a block that a worker lacks is there."""
        arrives = self.arrives.get((block, worker))
        if arrives is None:
            has = self.where[block]
            source = (has & -has).bit_length() - 1
            takes = self.work.nbytes[block] / self.cluster.network
            # each link passes one block after another; a block has arrived when it is through both
            self.out[source] = max(self.now, self.out[source]) + takes
            self.into[worker] = max(self.now, self.into[worker]) + takes
            arrives = self.arrives[block, worker] = max(self.out[source], self.into[worker])
            self.course.moved += self.work.nbytes[block]
        return arrives

    def receive(self, task: int, worker: int) -> None:
        """All that a task needs is with its worker: it runs, or waits for a thread."""
        where, work, bit = self.where, self.work, 1 << worker
        for one in work.inputs[task]:
            if not where[one] & bit:
                where[one] |= bit
                del self.arrives[one, worker]
                self.hold(worker, work.nbytes[one])
        self.start(task, worker)

    def hold(self, worker: int, nbytes: int) -> None:
        """A worker has so many bytes more."""
        course = self.course
        self.held[worker] = held = self.held[worker] + nbytes
        self.total = total = self.total + nbytes
        if held > course.peak_worker:
            course.peak_worker = held
        if total > self.most:
            self.most = total

    def done(self, task: int, worker: int) -> None:
        """A result is there; what it needed may go, and who waits for it may start."""
        work, course, uses, waiting = self.work, self.course, self.uses, self.waiting
        self.processing[worker] -= 1
        self.occupied[worker] -= work.seconds[task]
        self.where[task] = 1 << worker
        self.hold(worker, work.nbytes[task])
        course.held.append(self.most)  # what arrived since the last step counts too
        course.ended.append(task)
        for one in work.inputs[task]:
            uses[one] -= 1
            if not uses[one]:
                self.release(one)
        users = self.users[task]
        for i in range(len(users) - 1, -1, -1):
            user = users[i]
            waiting[user] -= 1
            if not waiting[user]:
                self.is_ready(user)
        self.most = self.total
        self.step += 1

    def release(self, block: int) -> None:
        """Nobody needs a block any more, wherever it is."""
        nbytes, has = self.work.nbytes[block], self.where[block]
        self.course.freed[block] = self.step
        while has:
            bit = has & -has
            has ^= bit
            self.held[bit.bit_length() - 1] -= nbytes
            self.total -= nbytes
