"""Programs as people write them, under a limit of half of what stock holds: is it kept, and at what cost?

    python -m benchmarks.limits               all of them, small, on two threads
    python -m benchmarks.limits large cells   only this one, large
    python -m benchmarks.limits cluster eof   on a cluster of two processes of one thread, copies included

A limit is kept if no more than that is held; where it cannot be, the forecast should have said so. The floor
is what one task of the plan needs and makes together, mostly the result and its parts: no order holds less.
Where one task of dask's own graph needs more than the limit, no plan is asked for. Seconds are those of the
processor, and on a cluster those of the clock.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import dask

import dask_rewrite
from benchmarks.as_written import PROGRAMS, collections, computed, switched
from benchmarks.harness.memory import managed
from benchmarks.harness.rows import geometric_mean
from benchmarks.harness.table import grid, show
from benchmarks.workloads.written_data import SIZES, Data

TURNS = 3


def ran(name: str, data: Data, client: Any) -> tuple[int, float]:
    """Bytes held at most, and seconds."""
    if client is None:
        return computed(PROGRAMS[name], data)[:2]
    parts, _ = collections(PROGRAMS[name](data))
    start = time.perf_counter()
    held = managed(client, parts)[1]
    return held, time.perf_counter() - start


def row(name: str, data: Data, client: Any = None) -> tuple[list[str], str, float] | None:
    """A line; what became of the limit, and the time by stock's."""
    with switched("stock"), dask.config.set(scheduler=client or "threads"):
        runs = [ran(name, data, client) for _ in range(TURNS)]
    held, seconds = median([held for held, _ in runs]), min([seconds for _, seconds in runs])
    if not held:
        return None
    limit = int(held / 2)
    with switched("ours"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with dask.config.set({"rewrite.memory-limit": limit, "scheduler": client or "threads"}):
            runs = [ran(name, data, client) for _ in range(TURNS)]
            how = {"threads": 2} if client is None else {"threads": 1, "workers": 2}
            found = dask_rewrite.forecast(*collections(PROGRAMS[name](data))[0], **how)
    floor = found.after.floor
    ours, cost = median([held for held, _ in runs]), min([seconds for _, seconds in runs]) / seconds
    warned = any("rewrite.memory-limit" in str(each.message) for each in said)
    cannot = "no plan" if found.before.floor > limit else "refused" if floor > limit else "warned"
    verdict = "kept" if ours <= limit else cannot if warned else "NO"
    line = [
        name,
        show(held, "B"),
        show(limit, "B"),
        show(floor, "B"),
        show(ours, "B"),
        verdict,
        f"{cost:.2f}",
    ]
    return line, verdict, cost


def _client(stack: ExitStack) -> Any:
    from distributed import Client, LocalCluster

    workers = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    return stack.enter_context(Client(stack.enter_context(workers)))


def main(arguments: list[str]) -> int:
    """Measure and print."""
    size = arguments[0] if arguments and arguments[0] in SIZES else "small"
    names = [name for name in arguments if name not in (*SIZES, "cluster")] or list(PROGRAMS)
    lines, costs, verdicts = [], [], Counter[str]()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dask-rewrite-limits-"))
        data = Data(Path(folder), size)
        client = _client(stack) if "cluster" in arguments else None
        for name in names:
            if (found := row(name, data, client)) is None:
                continue
            line, verdict, cost = found
            lines.append(line)
            print(*line, file=sys.stderr, flush=True)
            verdicts[verdict] += 1
            costs.append(cost)
    print(grid(["program", "stock", "limit", "floor", "held", "", "seconds x"], lines))
    print(f"\n{len(lines)}: kept {verdicts['kept']}", end="; no plan for one task of dask's own graph ")
    print(f"{verdicts['no plan']}, refused for one task {verdicts['refused']}, warned of ", end="")
    print(f"{verdicts['warned']}, without a word {verdicts['NO']}; seconds {geometric_mean(costs):.2f}")
    print(f"at most 1.3 times stock's seconds: {sum(cost <= 1.3 for cost in costs)} of {len(costs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
