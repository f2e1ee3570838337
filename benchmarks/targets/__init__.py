"""What the project must reach, as rows to measure and a judgement of their figures.

A later pass adds its own lines to :data:`TARGETS`.
"""

from __future__ import annotations

from benchmarks.harness.rows import Row
from benchmarks.targets.judges import Target, answers, at_most, doubling, mean, ratio, worst
from benchmarks.targets.memory import MEMORY
from benchmarks.targets.passes import PASSES

FOUNDATION = [
    Target(
        "one tile of a mosaic of 250x250 blocks: submits <= 20 kB",
        [("one-tile", 250)],
        at_most("one-tile", 250, "bytes", 20_000, "B"),
    ),
    Target(
        "window of a labelled array of 19,200 chunks: submits <= 20 kB",
        [("xarray-window", 19200)],
        at_most("xarray-window", 19200, "bytes", 20_000, "B"),
    ),
    Target(
        "total = total + x, 4000 steps: optimized in <= 1/20 of stock",
        [("adds", 4000)],
        ratio("adds", 4000, "optimize", 1 / 20),
    ),
    Target(
        "the same, 1000 / 2000 / 4000: doubling n costs <= 2.3x",
        [("adds", 1000), ("adds", 2000), ("adds", 4000)],
        doubling("adds", (1000, 2000, 4000), 2.3),
    ),
    Target(
        "the same, 10,000 steps: doubling from 4000 at 2.3x allows 3.01x",
        [("adds", 4000), ("adds", 10000)],
        doubling("adds", (4000, 10000), 2.3**1.322),
    ),
    Target(
        "(x + 1).sum() over 600x600 blocks: optimized in <= 1/4 of stock",
        [("ones-sum", 600)],
        ratio("ones-sum", 600, "optimize", 1 / 4),
        run=False,
    ),
    Target("over 100 tasks: to optimize, geometric mean <= 0.4", [], mean("optimize", 0.4)),
    Target("over 100 tasks: to optimize, none over 1.5", [], worst(lambda r: r.ratio("optimize"), 1.5)),
    Target("over 100 tasks: optimizing and running no longer than stock", [], worst(Row.total_ratio, 1.0)),
    Target("over 100 tasks: to run, geometric mean <= 0.4", [], mean("run", 0.4)),
    *(
        Target(
            f"leapfrog, {n} steps: seconds to {figure} <= {most}",
            [("leapfrog", n)],
            at_most("leapfrog", n, figure, most),
        )
        for n, most in ((1000, 0.1), (5000, 0.5))
        for figure in ("optimize", "run")
    ),
    Target(
        "(x + 1) * 2 - 3 on 2500 tiny blocks: compute() in <= 1/4 of stock",
        [("tiny-blocks", 50)],
        ratio("tiny-blocks", 50, "compute", 1 / 4),
    ),
    Target("every answer is the same: bit for bit, or close where sums are rearranged", [], answers),
]

GROUPS = {"foundation": FOUNDATION, "passes": PASSES, "memory": MEMORY}
TARGETS = [target for group in GROUPS.values() for target in group]
