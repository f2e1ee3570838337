"""Does it work on what users have? The same programs over blocks of files, of known and of unknown functions.

    python -m benchmarks.reach            tasks of each program from each source, beside the best source's
    python -m benchmarks.reach tiny       the same over blocks of 8 x 8
    python -m benchmarks.reach memory     what products of 4 x 60 blocks would hold, as forecast

A star marks what is more than 1.15 times the best source's tasks, or 1.2 times the bytes of random blocks.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import dask.array as da
import numpy as np
from dask.array.optimization import optimize as stock
from dask.core import flatten

import dask_rewrite
from benchmarks.every_source import PROGRAMS, again, size_of, sources
from benchmarks.harness.table import grid

#: Sides of blocks: 74 kB, half a kilobyte, and 1.3 MB.
NORMAL, TINY, LARGE = 96, 8, 400
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


def tasks_from_each_source(folder: Path, side: int) -> None:
    """One line for each program, one column for each source."""
    arrays = sources(folder, side)
    lines, over = [], 0
    programs = {**PROGRAMS, **MORE}
    for name, program in programs.items():
        made = {source: program(make()) for source, make in arrays.items()}
        one = made["random"]
        before = len(stock(one.__dask_graph__(), list(flatten(one.__dask_keys__()))))
        tasks = [len(dict(dask_rewrite.optimize(x).__dask_graph__())) for x in made.values()]
        above = [count > 1.15 * min(tasks) for count in tasks]
        over += sum(above)
        lines.append([name, str(before), *["*" * high + str(n) for high, n in zip(above, tasks)]])
    print(grid(["program", "stock", *arrays], lines))
    print(f"\n{over} of {len(programs) * len(arrays)} above 1.15 times the best")


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


def main() -> None:
    """The table that is asked for."""
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if "memory" in wanted:
            memory_from_each_source(Path(folder))
        else:
            tasks_from_each_source(Path(folder), TINY if "tiny" in wanted else NORMAL)


if __name__ == "__main__":
    main()
