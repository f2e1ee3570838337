"""Programs as people write them, under a limit of half of what stock holds: is it kept, and at what cost?

    python -m benchmarks.limits               all of them, small, on two threads
    python -m benchmarks.limits large cells   only this one, large

A limit is kept if no more than that is held; where it cannot be, the forecast should have said so. The floor
is what one task of the plan needs and makes together, mostly the result and its parts: no order holds less.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from statistics import median

import dask

import dask_rewrite
from benchmarks.as_written import PROGRAMS, collections, computed, switched
from benchmarks.harness.rows import geometric_mean
from benchmarks.harness.table import grid, show
from benchmarks.workloads.written_data import SIZES, Data

TURNS = 3


def row(name: str, data: Data) -> tuple[list[str], str, float] | None:
    """A line; what became of the limit, and the time by stock's."""
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
            floor = dask_rewrite.forecast(*collections(program(data))[0], threads=2).after.floor
    ours, cost = median([held for held, _ in runs]), min([seconds for _, seconds in runs]) / seconds
    warned = any("rewrite.memory-limit is" in str(each.message) for each in said)
    verdict = "kept" if ours <= limit else "NO" if not warned else "refused" if floor > limit else "warned"
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


def main(arguments: list[str]) -> int:
    """Measure and print."""
    size = arguments[0] if arguments and arguments[0] in SIZES else "small"
    names = [name for name in arguments if name not in SIZES] or list(PROGRAMS)
    lines, costs, verdicts = [], [], Counter[str]()
    with tempfile.TemporaryDirectory(prefix="dask-rewrite-limits-") as folder:
        data = Data(Path(folder), size)
        for name in names:
            if (found := row(name, data)) is None:
                continue
            line, verdict, cost = found
            lines.append(line)
            print(*line, file=sys.stderr, flush=True)
            verdicts[verdict] += 1
            costs.append(cost)
    print(grid(["program", "stock", "limit", "floor", "held", "", "processor x"], lines))
    mean = geometric_mean(costs)
    print(
        f"\n{len(lines)}: kept {verdicts['kept']}, refused for one task {verdicts['refused']}, ",
        end="",
    )
    print(f"warned of {verdicts['warned']}, without a word {verdicts['NO']}; processor {mean:.2f}")
    print(f"at most 1.3 times stock's processor: {sum(cost <= 1.3 for cost in costs)} of {len(costs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
