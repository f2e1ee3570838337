"""The order in which programs run: bytes held on threads, held and moved on simulated workers, beside stock.

    python -m benchmarks.order                     all programs
    python -m benchmarks.order siblings turned     some of them
    python -m benchmarks.order --without fuse-small,share

Held bytes are counted while two threads run the graph, and on one thread; what two workers of one
thread hold and move is simulated, so that it repeats exactly. A row where ours is above stock by more
than a twentieth is marked.
"""

from __future__ import annotations

import argparse
from typing import Any
from unittest.mock import patch

import dask
from dask.array.optimization import optimize as stock

import dask_rewrite
from benchmarks.forecasts import Added
from benchmarks.harness.table import grid
from benchmarks.order_programs import PROGRAMS
from dask_rewrite.passes import context
from dask_rewrite.scheduler import Machine

#: More than this part of stock's is marked.
MOST = 1.05


def held(collections: Any, optimizer: Any, threads: int) -> int:
    """The most bytes that were held while these were computed."""
    how = {"scheduler": "threads", "num_workers": threads} if threads > 1 else {"scheduler": "sync"}
    with dask.config.set(array_optimize=optimizer, **how), Added() as found:
        dask.compute(*collections)
    return found.peak


def figures(collections: tuple[Any, ...]) -> list[tuple[float, float]]:
    """Stock's figure and ours: held on two threads and on one, forecast, held and moved on two workers."""
    both = (stock, dask_rewrite.optimize)
    with dask.config.set(num_workers=2, scheduler="threads"):
        here = dask_rewrite.forecast(*collections, threads=2)
    with patch.object(context, "machine", return_value=Machine(threads=2, workers=2, memory=0)):
        there = dask_rewrite.forecast(*collections, threads=1, workers=2)
    runs = [(here.before, here.after), (there.before, there.after)]
    return [
        tuple(min(held(collections, each, 2) for _ in range(2)) for each in both),
        tuple(run.peak for run in runs[0]),
        tuple(run.peak for run in runs[1]),
        tuple(run.moved for run in runs[1]),
        tuple(run.tasks for run in runs[1]),
    ]


def main() -> None:
    """A table with a line for each program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--without", default="", help="passes to leave out")
    args = parser.parse_args()
    names = [n for n in PROGRAMS if not args.programs or any(given in n for given in args.programs)]
    lines = []
    for name in names:
        with dask.config.set({"rewrite.disable": [p for p in args.without.split(",") if p]}):
            made_of = PROGRAMS[name]()
            found = figures(made_of if isinstance(made_of, tuple) else (made_of,))
        line = [name]
        for before, after in found[:-1]:
            mark = " !" if after > MOST * before else ""
            line += [f"{before / 1e6:,.2f}", f"{after / 1e6:,.2f}{mark}"]
        lines.append([*line, *(f"{n:,}" for n in found[-1])])
    kinds = ["held 2", "forecast", "2 workers", "moved"]
    header = ["program", *(f"{k} {who}" for k in kinds for who in ("stock", "ours")), "tasks", "ours"]
    print(grid(header, lines))


if __name__ == "__main__":
    main()
