"""Does it work on what users have? The same programs over blocks of files, of known and of unknown functions.

    python -m benchmarks.reach            tasks of each program from each source, beside the best source's
    python -m benchmarks.reach tiny       the same over blocks of 8 x 8
    python -m benchmarks.reach memory     what products of 4 x 60 blocks would hold, as forecast
    python -m benchmarks.reach held       what they hold when they run on threads, and the time beside
                                          stock's; names of sources may follow

A star marks what is more than 1.15 times the best source's tasks, or 1.2 times the bytes of random blocks.

The best source is one whose blocks have to be made or read: arrays in memory are carried by the tasks that
use them. Tasks are counted twice. On two threads several reads of a file, or several blocks of random
numbers, go into one task where enough tasks are left for all threads; calls of functions that nobody knows
must not, since each may take an hour. On 64 threads each block has a thread of its own, and none is put
together with others: there the same can be asked of all sources.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import dask
import dask.array as da
import numpy as np
from dask._task_spec import DataNode
from dask.array.optimization import optimize as stock
from dask.core import flatten

import dask_rewrite
from benchmarks.every_source import PROGRAMS, again, size_of, sources
from benchmarks.harness.memory import Held
from benchmarks.harness.table import grid

#: Sides of blocks: 74 kB, half a kilobyte, and 1.3 MB.
NORMAL, TINY, LARGE = 96, 8, 400
#: Threads for which tasks are counted: few, and one for each block.
THREADS = (2, 64)
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
MORE: dict[str, Callable[[da.Array], da.Array]] = {
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


def computed(x: da.Array) -> int:
    """How many keys are computed: what is read from, arrays or files or what functions hold, is data."""
    return sum([type(node) is not DataNode for node in dict(x.__dask_graph__()).values()])


def tasks_from_each_source(folder: Path, side: int, threads: int) -> None:
    """One line for each program, one column for each source."""
    folder.mkdir()
    arrays = sources(folder, side)
    lines, over = [], 0
    programs = {**PROGRAMS, **MORE}
    for name, program in programs.items():
        made = {source: program(make()) for source, make in arrays.items()}
        one = made["random"]
        before = len(stock(one.__dask_graph__(), list(flatten(one.__dask_keys__()))))
        with dask.config.set(scheduler="threads", num_workers=threads):
            tasks = {s: computed(dask_rewrite.optimize(x)) for s, x in made.items()}
        best = min([count for source, count in tasks.items() if source != IN_MEMORY])
        above = [count > 1.15 * best for count in tasks.values()]
        over += sum(above)
        lines.append([name, str(before), *["*" * high + str(n) for high, n in zip(above, tasks.values())]])
    print(grid([f"program, {threads} threads", "stock", *arrays], lines))
    print(f"\n{over} of {len(programs) * len(arrays)} above 1.15 times the best\n")


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


def held_by_each_source(folder: Path, only: Sequence[str]) -> None:
    """One line for each source: bytes held on threads by stock, by us, by us for random blocks; time."""
    arrays = sources(folder, LARGE, (4, 60))
    lines = {source: [source] for source in arrays if not only or source in {*only, "random"}}
    for threads in (2, 8):
        ours: dict[str, int] = {}
        for source in sorted(lines, key=lambda source: source != "random"):
            peaks, seconds = [], []
            for optimize in (stock, dask_rewrite.optimize):
                with dask.config.set(array_optimize=optimize, scheduler="threads", num_workers=threads):
                    x = arrays[source]()
                    y, start = x.dot(x.T), perf_counter()
                    with Held() as held:
                        y.compute()
                    peaks.append(held.peak)
                    seconds.append(perf_counter() - start)
            ours[source] = peaks[1]
            ratio = peaks[1] / ours["random"]
            lines[source] += [f"{peak / 1e6:.0f}" for peak in peaks]
            lines[source] += ["*" * (ratio > 1.2) + f"{ratio:.2f}", f"{seconds[1] / seconds[0]:.2f}"]
    header = ["x.dot(x.T)"]
    for threads in (2, 8):
        header += [f"{threads} threads: MB", "ours", "x", "time"]
    print(grid(header, list(lines.values())))


def main() -> None:
    """The table that is asked for."""
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if "memory" in wanted:
            memory_from_each_source(Path(folder))
        elif wanted[:1] == ["held"]:
            held_by_each_source(Path(folder), wanted[1:])
        else:
            for threads in THREADS:
                tasks_from_each_source(
                    Path(folder) / str(threads), TINY if "tiny" in wanted else NORMAL, threads
                )


if __name__ == "__main__":
    main()
