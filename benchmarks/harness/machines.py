"""Compute a workload from end to end on threads and on clusters of processes: seconds, memory, loads.

Figures are named after the scheduler: ``held 2`` on two threads, ``managed 2x1`` on two processes of
one thread. Building the collection is part of it, since a user pays for that too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dask

from benchmarks.harness import sides
from benchmarks.harness.figures import same
from benchmarks.harness.memory import Held, Managed, resident, traced
from benchmarks.workloads import sources
from benchmarks.workloads.registry import Workload


@dataclass(frozen=True, slots=True)
class Machine:
    """A scheduler: so many threads here, or so many processes of so many threads.

    >>> Machine.parse("8"), Machine.parse("2x1").processes
    (Machine(threads=8, processes=0), 2)
    """

    threads: int
    processes: int = 0

    @classmethod
    def parse(cls, text: str) -> Machine:
        first, _, second = text.partition("x")
        return cls(int(second), int(first)) if second else cls(int(first))


@dataclass(frozen=True, slots=True)
class Session:
    """One workload at one size, and where its figures go."""

    workload: Workload
    n: int
    wanted: list[str]
    #: turns(figure, calls): time all sides in turn, give back their results
    turns: Callable[[str, dict[str, Callable[[], Any]]], dict[str, Any]]
    #: figure(side, figure, call): call, and record why if it fails
    figure: Callable[[str, str, Callable[[], Any]], Any]
    put: Callable[[str, str, Any], None]
    repeat: int = 1

    def measure(self, on: list[str]) -> None:
        """Everything there is to know, on each of these schedulers."""
        for text in on:
            machine = Machine.parse(text)
            if self.workload.persisted:
                self.persisted(text, machine)
            elif machine.processes:
                self.on_cluster(text, machine)
            else:
                self.on_threads(text, machine)

    def call(self, side: str) -> sides.Prepared:
        """Build and compute as a user does, with the scheduler that is set up around it."""

        def prepare() -> None:
            self.workload.build(sides.namespace(side), self.n)  # files are written the first time

        def call(_: None) -> Any:
            return dask.compute(*sides.build(side, self.workload, self.n))

        return sides.Prepared(prepare, call, side)

    def timed(self, text: str) -> None:
        """Seconds of each side in turn; whether the answers are the same."""
        answers = self.turns(f"seconds {text}", {side: self.call(side) for side in self.wanted})
        if "stock" in answers and "ours" in answers:
            self.put("ours", "same", same(answers["stock"], answers["ours"]))

    def figures(self, text: str, names: tuple[str, ...], once: Callable[[str, sides.Prepared], Any]) -> None:
        """Run each side with everything counted; a short run several times, for the median."""

        def several(side: str) -> list[Any]:
            start, found = time.perf_counter(), [once(side, self.call(side))]
            while len(found) < 5 and time.perf_counter() - start < 4:
                found.append(once(side, self.call(side)))
            return [sorted(values)[len(values) // 2] for values in zip(*found, strict=True)]

        for side in self.wanted:
            found = self.figure(side, f"{names[0]} {text}", lambda side=side: several(side))
            for name, value in zip(names, found or (), strict=False):
                if name != "loads" or value:
                    self.put(side, f"{name} {text}", value)

    def on_threads(self, text: str, machine: Machine) -> None:
        def once(side: str, call: sides.Prepared) -> tuple[int, int, int]:
            call.reset()
            with sides.switched_on(side), sources.counted(), Held() as held:
                _, most = traced(call)
            return held.peak, most, sources.reads()

        with dask.config.set(scheduler="threads", num_workers=machine.threads):
            self.timed(text)
            self.figures(text, ("held", "traced", "loads"), once)

    def on_cluster(self, text: str, machine: Machine) -> None:
        with cluster(machine) as client:
            scheduler = client.cluster.scheduler

            def once(side: str, call: sides.Prepared) -> tuple[int, int, int]:
                call.reset()
                client.run(sources.reset)
                before = sum(client.run(_sent).values())
                watch = Managed(scheduler)
                scheduler.add_plugin(watch)
                try:
                    with sides.switched_on(side):
                        call()
                finally:
                    scheduler.remove_plugin(watch.name)
                moved = sum(client.run(_sent).values()) - before
                return watch.peak, moved, sum(client.run(sources.reads).values())

            client.run(sources.install)
            for side in self.wanted:  # imports on the workers
                with sides.switched_on(side):
                    dask.compute(*sides.build(side, self.workload, self.workload.small))
            self.timed(text)
            self.figures(text, ("managed", "moved", "loads"), once)

    def persisted(self, text: str, machine: Machine) -> None:
        """How much the workers grow by a persisted collection, and what is left when it is released.

        Beside stock and ours stands "scatter", what a person would do: ``Client.scatter(broadcast=True)``.
        Each turn has a cluster of its own; the least growth of the turns counts.
        """
        for side in [*self.wanted, "scatter"]:

            def grown(side: str = side) -> tuple[int, ...]:
                found = [self._persist(side, machine) for _ in range(self.repeat)]
                return tuple(map(min, zip(*found, strict=True)))

            found = self.figure(side, f"growth {text}", grown)
            for name, value in zip(("growth", "after"), found or (), strict=False):
                self.put(side, f"{name} {text}", value)

    def _persist(self, side: str, machine: Machine) -> tuple[int, int]:
        from distributed import wait

        with cluster(machine) as client, sides.switched_on(side):

            def keep(size: int) -> tuple[int, int]:
                options = {"share": client} if side == "scatter" else {}
                before = sum(client.run(resident).values())
                kept = client.persist(self.workload.build(sides.namespace(side), size, **options))
                wait(kept)
                grown = sum(client.run(resident).values())
                del kept
                client.run(resident)  # one round trip, in which the release arrives
                return grown - before, sum(client.run(resident).values()) - before

            keep(self.workload.small)
            return keep(self.n)


@contextlib.contextmanager
def cluster(machine: Machine) -> Iterator[Any]:
    """A client of a new cluster of processes on this computer."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=machine.processes,
            threads_per_worker=machine.threads,
            processes=True,
            dashboard_address=None,
            memory_limit=0,
        ) as local,
        Client(local) as client,
    ):
        yield client


def _sent(dask_worker: Any) -> int:
    """Bytes that a worker has sent to other workers and to the client."""
    return int(dask_worker.transfer_outgoing_bytes_total)
