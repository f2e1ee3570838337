"""What the passes must reach: movement, assignments, tree sums, hoisting, sharing."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.harness.table import show
from benchmarks.targets.judges import NOISE, Rows, Target, Verdict, at_most, doubling, ratio
from benchmarks.workloads.payloads import WAYS


def _as_one_trip(figure: str) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        many, one = (
            rows["round-trips", 40].number("ours", figure),
            rows["round-trips", 1].number("stock", figure),
        )
        if many is None or one is None:
            return "not measured", None
        stock = rows["round-trips", 40]["stock", figure]
        return f"{many:.0f} (stock {show(stock, '')}, one trip {one:.0f})", many <= one

    return judge


def _as_scattered(name: str, figure: str, on: str) -> Callable[[Rows], Verdict]:
    """Within a fifth of what ``Client.scatter`` needs, and a megabyte of noise."""

    def judge(rows: Rows) -> Verdict:
        row = rows[name, 1000]
        ours, best = row.number("ours", f"{figure} {on}"), row.number("scatter", f"{figure} {on}")
        if ours is None or best is None:
            return row.note or "not measured", None
        stock = row["stock", f"{figure} {on}"]
        text = f"{show(ours, 'B')} (scatter {show(best, 'B')}, stock {show(stock, 'B')})"
        return text, ours <= 1.2 * best + 1e6

    return judge


APPENDS = [
    Target(
        "1000 appends of one block: optimized in <= 1/10 of stock",
        [("append-block", 1000)],
        ratio("append-block", 1000, "optimize", 1 / 10),
        run=False,
    ),
    Target(
        "500 / 1000 / 2000 appends: doubling n at most doubles the bytes of tasks",
        [("append-block", n) for n in (500, 1000, 2000)],
        doubling("append-block", (500, 1000, 2000), 2.1, "task_bytes"),
        run=False,
    ),
]

BORDERS = [
    Target(
        "12 constant borders, summed: <= 2,500 tasks",
        [("image-borders", 12)],
        at_most("image-borders", 12, "tasks", 2500, ""),
    ),
    Target(
        "12 constant borders, summed: computed in <= 0.6 s",
        [("image-borders", 12)],
        at_most("image-borders", 12, "compute", 0.6),
    ),
    Target(
        "the same on a machine of another speed: <= 1/7 of stock, as 0.6 s is of 4.2 s",
        [("image-borders", 12)],
        ratio("image-borders", 12, "compute", 1 / 7),
    ),
]

MOVEMENT = [
    *APPENDS,
    *BORDERS,
    *(
        Target(
            f"40 rechunk round trips: {figure} of one trip",
            [("round-trips", 40), ("round-trips", 1)],
            _as_one_trip(figure),
        )
        for figure in ("tasks", "depth")
    ),
    Target(
        "m[i, i] = 1, 1200 times on 16 blocks: <= 4 tasks a block",
        [("diagonal", 1200)],
        at_most("diagonal", 1200, "tasks", 64, ""),
    ),
    Target("the same: depth <= 10", [("diagonal", 1200)], at_most("diagonal", 1200, "depth", 10, "")),
    Target(
        "heat equation, 120 steps: tasks <= 1/3 of stock",
        [("heat-periodic", 120)],
        ratio("heat-periodic", 120, "tasks", 1 / 3, ""),
    ),
    Target(
        "the same: computed in <= 1/2 of stock",
        [("heat-periodic", 120)],
        ratio("heat-periodic", 120, "seconds 2", 1 / 2),
    ),
]

SUMS = [
    Target(
        "sum() of 96 members of 8 MB: holds <= 1/4 of stock",
        [("large-members", 96)],
        ratio("large-members", 96, "held 2", 1 / 4, "B"),
    ),
    Target("the same: fan-in <= 8", [("large-members", 96)], at_most("large-members", 96, "fan_in", 8, "")),
    Target("the same: no slower", [("large-members", 96)], ratio("large-members", 96, "seconds 2", NOISE)),
    *(
        Target(
            f"linalg.solve of {name} 20 x 20 blocks: fan-in <= 8",
            [(name, 20)],
            at_most(name, 20, "fan_in", 8, ""),
        )
        for name in ("solve", "large-solve")
    ),
    Target("the same: no slower", [("large-solve", 20)], ratio("large-solve", 20, "seconds 2", NOISE)),
    Target("the same: no more memory", [("large-solve", 20)], ratio("large-solve", 20, "held 2", 1.0, "B")),
]

PAYLOADS = [
    *(
        Target(
            f"240 kB as {way} on 1000 blocks: pickled tasks <= 3.5 MB",
            [(f"payload-{way}", 1000)],
            at_most(f"payload-{way}", 1000, "task_bytes", 3_500_000, "B"),
        )
        for way in WAYS
    ),
    *(
        Target(
            f"the same as {way}, persisted: workers {what} as with scatter",
            [(f"persisted-{way}", 1000)],
            _as_scattered(f"persisted-{way}", figure, "2x1"),
        )
        for way in WAYS
        for figure, what in (("growth", "grow"), ("after", "are afterwards"))
    ),
    Target(
        "xarray.map_blocks 100 times on one object: submits <= 0.3 MB",
        [("xarray-hundred-calls", 100)],
        at_most("xarray-hundred-calls", 100, "bytes", 300_000, "B"),
        run=False,
    ),
]

READS = [
    Target(
        "2000 reads of 6 kB on a cluster: <= 0.35 of stock's seconds",
        [("tiny-reads", 2000)],
        ratio("tiny-reads", 2000, "seconds 2x1", 0.35),
    ),
    Target(
        "the same on threads: <= 0.6 of stock's seconds",
        [("tiny-reads", 2000)],
        ratio("tiny-reads", 2000, "seconds 2", 0.6),
    ),
    Target(
        "meshgrid of 8 x 8 blocks: no slower",
        [("shared-coordinates", 8)],
        ratio("shared-coordinates", 8, "seconds 2", NOISE),
    ),
    Target(
        "the same: peak memory <= 0.9 of stock's",
        [("shared-coordinates", 8)],
        ratio("shared-coordinates", 8, "traced 2", 0.9, "B"),
    ),
    Target(
        "a point of an anomaly: 1/100 of stock's seconds",
        [("anomaly-of-a-point", 8)],
        ratio("anomaly-of-a-point", 8, "seconds 2", 1 / 100),
    ),
    Target(
        "the same: holds <= 1/100 of stock",
        [("anomaly-of-a-point", 8)],
        ratio("anomaly-of-a-point", 8, "held 2", 1 / 100, "B"),
    ),
]

GRIDS = [
    Target(
        "running means of 20 x 20 blocks, reduced: tasks <= 1/2 of stock",
        [("window-totals", 20)],
        ratio("window-totals", 20, "tasks", 1 / 2, ""),
    ),
    *(
        Target(f"{name}, {n} steps: tasks <= 5 % of stock", [(name, n)], ratio(name, n, "tasks", 1 / 20, ""))
        for name, n in (("pad-stencil", 6), ("coarse-wave", 5))
    ),
    *(
        Target(
            f"{name}, {n} steps: computed in <= 1/5 of stock",
            [(name, n)],
            ratio(name, n, "seconds 2", 1 / 5),
        )
        for name, n in (("pad-stencil", 6), ("coarse-wave", 5))
    ),
    Target(
        "anomalies of 2 years of days: tasks <= 1/2 of stock",
        [("day-anomalies", 2)],
        ratio("day-anomalies", 2, "tasks", 1 / 2, ""),
    ),
    Target(
        "the same: computed in <= 1/2 of stock",
        [("day-anomalies", 2)],
        ratio("day-anomalies", 2, "seconds 2", 1 / 2),
    ),
]

WINDOWS = [
    Target(
        "xarray's rolling mean over 31 rows, blocks of 10: tasks <= 1/6 of stock",
        [("rolling-mean", 6)],
        ratio("rolling-mean", 6, "tasks", 1 / 6, ""),
    ),
    *(
        Target(f"{name}: computed in <= {most} of stock", [(name, n)], ratio(name, n, "seconds 2", most))
        for name, n, most in (("rolling-mean", 6, 0.6), ("xarray-day-anomalies", 2, 0.5))
    ),
    *(
        Target(f"{name}: holds <= {most} of stock", [(name, 10)], ratio(name, 10, "held 2", most, "B"))
        for name, most in (("column-spectra", 0.6), ("detrended-columns", 0.85))
    ),
]

PASSES = [*MOVEMENT, *SUMS, *PAYLOADS, *READS, *GRIDS, *WINDOWS]
