"""Programs of tens of thousands of tasks, computed on a cluster of two processes beside stock dask.

    python -m benchmarks.at_size                     six of them
    python -m benchmarks.at_size "x + x.T" bag       these; `benchmarks.time_to_start` has their names
    python -m benchmarks.at_size --scale 0.3         with a tenth of the blocks

Seconds of the clock from `compute` to the answer, the better of two turns: to optimize, send, enter, run and
gather. The tasks themselves do next to nothing, so it is what a graph costs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import dask
import dask.array as da
from dask.base import unpack_collections

import dask_rewrite
from benchmarks.harness.figures import same
from benchmarks.harness.rows import geometric_mean
from benchmarks.harness.table import grid, show
from benchmarks.time_to_start import PROGRAMS
from distributed import Client, LocalCluster

#: Those that are computed where none is named: sums, halos, a transpose, rechunking, a bag, trees.
USUAL = ("standardized", "x + x.T", "five overlaps", "spectrum", "bag", "tree of delayed")
TURNS = 2


def computed(make: Callable[[int], Any], n: int, ours: bool) -> tuple[float, Any]:
    """Seconds, and the answer."""
    built = make(n)
    with dask_rewrite.enable() if ours else nullcontext():
        started = time.perf_counter()
        answer = dask.compute(built)
        return time.perf_counter() - started, answer


def row(name: str, scale: float) -> tuple[list[str], float]:
    """A line of the table, and the seconds by stock's."""
    make, blocks = PROGRAMS[name]
    n = max(2, round(blocks * scale))
    found, _ = unpack_collections(make(n))
    tasks = len(dict(dask.optimize(*found)[0].__dask_graph__()))
    runs = {ours: [computed(make, n, ours) for _ in range(TURNS)] for ours in (False, True)}
    stock, mine = (min(seconds for seconds, _ in runs[ours]) for ours in (False, True))
    alike = same(runs[True][0][1], runs[False][0][1])
    return [name, f"{tasks:,}", show(stock, "s"), show(mine, "s"), f"{mine / stock:.2f}", alike], mine / stock


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="programs of benchmarks.time_to_start")
    parser.add_argument("--scale", type=float, default=1.0, help="how many of the blocks along each axis")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in PROGRAMS]:
        parser.error(f"no program is called {unknown[0]!r}; there are: {', '.join(PROGRAMS)}")
    warnings.simplefilter("ignore", da.PerformanceWarning)
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster):
        rows = [row(name, options.scale) for name in options.names or USUAL]
    ratios = [ratio for _, ratio in rows]
    lines = [line for line, _ in rows] + [["geometric mean", "", "", "", f"{geometric_mean(ratios):.2f}", ""]]
    print(grid(["program", "tasks: stock", "seconds: stock", "ours", "x", "same"], lines))


if __name__ == "__main__":
    main()
