"""Programs as people write them, under a limit of half of what stock holds: is it kept, and at what cost?

    python -m benchmarks.limits               all of them, small, on two threads
    python -m benchmarks.limits large cells   only this one, large

A limit is kept if no more than that is held; where it cannot be, the forecast should have said so.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median

import dask

from benchmarks.as_written import PROGRAMS, computed, switched
from benchmarks.harness.rows import geometric_mean
from benchmarks.harness.table import grid, show
from benchmarks.workloads.written_data import SIZES, Data

TURNS = 3


def row(name: str, data: Data) -> tuple[list[str], bool, bool, float] | None:
    """A line; whether the limit was kept, whether a warning came, and the time by stock's."""
    program = PROGRAMS[name]
    with switched("stock"):
        runs = [computed(program, data)[:2] for _ in range(TURNS)]
    held, seconds = median([held for held, _ in runs]), min([seconds for _, seconds in runs])
    if not held:
        return None
    limit = int(held / 2)
    with switched("ours"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with dask.config.set({"rewrite.memory-limit": limit}):
            runs = [computed(program, data)[:2] for _ in range(TURNS)]
    ours, cost = median([held for held, _ in runs]), min([seconds for _, seconds in runs]) / seconds
    warned = any("rewrite.memory-limit is" in str(each.message) for each in said)
    kept = ours <= limit
    verdict = "kept" if kept else "warned" if warned else "NO"
    line = [name, show(held, "B"), show(limit, "B"), show(ours, "B"), verdict, f"{cost:.2f}"]
    return line, kept, warned, cost


def main(arguments: list[str]) -> int:
    """Measure and print."""
    size = arguments[0] if arguments and arguments[0] in SIZES else "small"
    names = [name for name in arguments if name not in SIZES] or list(PROGRAMS)
    lines, kept, told, costs = [], 0, 0, []
    with tempfile.TemporaryDirectory(prefix="dask-rewrite-limits-") as folder:
        data = Data(Path(folder), size)
        for name in names:
            if (found := row(name, data)) is None:
                continue
            line, is_kept, warned, cost = found
            lines.append(line)
            print(*line, file=sys.stderr, flush=True)
            kept, told = kept + is_kept, told + (warned and not is_kept)
            costs.append(cost)
    print(grid(["program", "stock", "limit", "held", "", "processor x"], lines))
    mean = geometric_mean(costs)
    print(f"\nkept by {kept} of {len(lines)}, {told} more were warned of; processor {mean:.2f}")
    print(f"at most 1.3 times stock's processor: {sum(cost <= 1.3 for cost in costs)} of {len(costs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
