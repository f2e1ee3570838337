"""Does it work on what users have? The same programs over blocks of files, of known and of unknown functions.

    python -m benchmarks.reach            tasks of each program from each source, beside the best source's
    python -m benchmarks.reach tiny       the same over blocks of 8 x 8
    python -m benchmarks.reach memory     what products of 4 x 60 blocks would hold, as forecast
    python -m benchmarks.reach held       what they hold when they run on two and on eight threads and on two
                                          processes, and the time beside stock's; schedulers (2, 8, 2x1) and
                                          names of sources may follow

A star marks what is more than 1.15 times the best source's tasks, or 1.2 times the bytes of random blocks.

The best source is one whose blocks have to be made or read: arrays in memory are carried by the tasks that
use them. Tasks are counted three times. On two threads several reads of a file, or several blocks of random
numbers, go into one task where enough tasks are left for all threads; calls of functions that nobody knows
must not, since each may take an hour. Where each read has a task of its own (``align-reads`` off, and
``fuse-small: {max-reads: 1}``) the same can be asked of all sources, and on 64 threads, where each block has
a thread of its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask._task_spec import DataNode
from dask.array.optimization import optimize as stock
from dask.core import flatten

import dask_rewrite
from benchmarks.every_source import PROGRAMS, again, size_of, sources
from benchmarks.harness.machines import Machine, cluster
from benchmarks.harness.memory import Held, managed
from benchmarks.harness.table import grid

#: What is measured.
Program: TypeAlias = Callable[[da.Array], da.Array]
#: Sides of blocks: 74 kB, half a kilobyte, and 1.3 MB.
NORMAL, TINY, LARGE = 96, 8, 400
#: Where tasks are counted: on few threads, there with a task for each read, and with a thread for each block.
COUNTED: dict[str, dict[str, Any]] = {
    "2 threads": {"num_workers": 2},
    "2 threads, reads apart": {
        "num_workers": 2,
        "rewrite.disable": ["align-reads"],
        "rewrite.options": {"fuse-small": {"max-reads": 1}},
    },
    "64 threads": {"num_workers": 64},
}
#: What measures run on, how often, and by which optimizers.
SCHEDULERS, TURNS = ("2", "8", "2x1"), 3
BOTH = (stock, dask_rewrite.optimize)
#: The source whose blocks nobody has to make or to read.
IN_MEMORY = "NumPy"
#: Threads and workers of the forecasts.
MACHINES = ((2, 0), (8, 0), (1, 2))


def covariance(x: da.Array) -> da.Array:
    centred = x - x.mean(axis=1, keepdims=True)
    return (centred @ centred.T) / x.shape[1]


def solved(x: da.Array) -> da.Array:
    n = x.shape[0]
    return da.linalg.solve(x + 1000 * n * da.eye(n, chunks=size_of(x)), x[:, 0])


#: What is measured beside the programs of the tests; their results need not be whole numbers.
MORE: dict[str, Program] = {
    "rolled, halved": lambda x: again(4, lambda x: (da.roll(x, 1, 0) + da.roll(x, -1, 1)) / 2, x),
    "covariance": covariance,
    "da.cov": da.cov,
    "solved": solved,
    "standardized": lambda x: (x - x.mean(axis=0)) / x.std(axis=0),
    "sum": lambda x: x.sum(),
    "corner of anomalies": lambda x: (x - x.mean(axis=0))[:3, :3],
    "chosen by value": lambda x: da.where(x > 3, x, 0).sum(axis=1),
    "cumulated": lambda x: da.cumsum(x, axis=0),
    "coarsened": lambda x: da.coarsen(np.mean, x, {0: 2, 1: 2}),
    "histogram": lambda x: da.histogram(x, bins=8, range=(0, 50))[0],
    "argmax": lambda x: x.argmax(axis=1),
    "every third row": lambda x: x[np.arange(0, x.shape[0], 3)].sum(axis=0),
    "QR": lambda x: da.linalg.qr(x.rechunk((size_of(x), -1)))[1],
}

ALL: dict[str, Program] = {**PROGRAMS, **MORE}


def computed(x: da.Array) -> int:
    """How many keys are computed: what is read from, arrays or files or what functions hold, is data."""
    return sum([type(node) is not DataNode for node in dict(x.__dask_graph__()).values()])


def tasks_from_each(arrays: Mapping[str, Callable[[], da.Array]], program: Program, where: str) -> list[int]:
    """Tasks of a program from each source."""
    made = [program(make()) for make in arrays.values()]
    with dask.config.set(scheduler="threads", **COUNTED[where]):
        return [computed(dask_rewrite.optimize(x)) for x in made]


def above(arrays: Mapping[str, Any], tasks: Sequence[int]) -> list[bool]:
    """Which counts are too high, beside that of the best source."""
    best = min([count for source, count in zip(arrays, tasks) if source != IN_MEMORY])
    return [count > 1.15 * best for count in tasks]


def tasks_from_each_source(folder: Path, side: int) -> None:
    """One line for each program, one column for each source."""
    arrays = sources(folder, side)
    for where in COUNTED:
        lines, over = [], 0
        for name, program in ALL.items():
            one = program(arrays["random"]())
            before = len(stock(one.__dask_graph__(), list(flatten(one.__dask_keys__()))))
            tasks = tasks_from_each(arrays, program, where)
            high = above(arrays, tasks)
            over += sum(high)
            lines.append([name, str(before), *["*" * star + str(n) for star, n in zip(high, tasks)]])
        print(grid([f"program, {where}", "stock", *arrays], lines))
        print(f"\n{over} of {len(ALL) * len(arrays)} above 1.15 times the best\n", flush=True)


def memory_from_each_source(folder: Path) -> None:
    """One line for each source; for each machine bytes of stock, ours, and ours by those of random blocks."""
    arrays = sources(folder, LARGE, (4, 60))
    for name, program in (("x.dot(x.T)", lambda x: x.dot(x.T)), ("covariance", covariance)):
        lines = [[source] for source in arrays]
        for threads, workers in MACHINES:
            peaks = {}
            for source, make in arrays.items():
                found = dask_rewrite.forecast(program(make()), threads=threads, workers=workers)
                peaks[source] = found.before.peak, found.after.peak
            for line, (before, after) in zip(lines, peaks.values()):
                ratio = after / peaks["random"][1]
                line += [f"{before / 1e6:.0f}", f"{after / 1e6:.0f}", "*" * (ratio > 1.2) + f"{ratio:.2f}"]
        header = [name]
        for threads, workers in MACHINES:
            header += [f"{workers} workers: MB" if workers else f"{threads} threads: MB", "ours", "x"]
        print(grid(header, lines) + "\n")


def held_by_each_source(folder: Path, words: Sequence[str]) -> None:
    """One line for each source: bytes held by stock, by us, by us for random blocks; time."""
    machines = [word for word in words if word[0].isdigit()] or SCHEDULERS
    only = [word for word in words if word not in machines]
    arrays = sources(folder, LARGE, (4, 60))
    names = sorted([name for name in arrays if name in {*(only or arrays), "random"}], key="random".__ne__)
    for machine in map(Machine.parse, machines):
        lines: list[list[str]] = []
        least = 0  # what random blocks take
        with running(machine) as measure:
            for by in BOTH:
                measure(by, lambda: arrays["random"]()[:, :LARGE])  # imports
            for source in names:
                turns = [[measure(by, arrays[source]) for by in BOTH] for _ in range(TURNS)]
                sides = [zip(*runs) for runs in zip(*turns)]
                (before, slow), (after, fast) = [(max(held), min(seconds)) for held, seconds in sides]
                least = least or after
                ratio = after / least
                peaks = [f"{before / 1e6:.0f}", f"{after / 1e6:.0f}", "*" * (ratio > 1.2) + f"{ratio:.2f}"]
                lines.append([source, *peaks, f"{slow:.1f}", f"{fast / slow:.2f}"])
                print(*lines[-1], file=sys.stderr, flush=True)  # it takes a while
        on = f"{machine.processes} processes" if machine.processes else f"{machine.threads} threads"
        print(grid([f"x.dot(x.T), {on}", "MB", "ours", "x", "seconds", "time"], lines) + "\n", flush=True)


@contextmanager
def running(machine: Machine) -> Iterator[Callable[..., tuple[int, float]]]:
    """What computes a product on a machine, with an optimizer: bytes held at most, and seconds."""

    def product(optimize: Any, make: Callable[[], da.Array], compute: Callable[[da.Array], int]) -> Any:
        with dask.config.set(array_optimize=optimize):
            x, start = make(), perf_counter()
            return compute(x.dot(x.T)), perf_counter() - start

    def on_threads(y: da.Array) -> int:
        with Held() as held:
            y.compute()
        return held.peak

    if machine.processes:
        with cluster(machine) as client:
            yield lambda by, make: product(by, make, lambda y: managed(client, [y])[1])
        return
    with dask.config.set(scheduler="threads", num_workers=machine.threads):
        yield lambda by, make: product(by, make, on_threads)


def main() -> None:
    """The table that is asked for."""
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if "memory" in wanted:
            memory_from_each_source(Path(folder))
        elif wanted[:1] == ["held"]:
            held_by_each_source(Path(folder), wanted[1:])
        else:
            tasks_from_each_source(Path(folder), TINY if "tiny" in wanted else NORMAL)


if __name__ == "__main__":
    main()
