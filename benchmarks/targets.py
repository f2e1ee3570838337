"""What the project must reach, as rows to measure and a judgement of their figures.

A later pass adds its own lines to :data:`TARGETS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.rows import Row, geometric_mean

Verdict = tuple[str, bool | None]
Rows = dict[tuple[str, int], Row]


@dataclass(frozen=True, slots=True)
class Target:
    """One promise: what it says, the rows that it needs, and how to tell."""

    says: str
    needs: Sequence[tuple[str, int]]
    judge: Callable[[Rows], Verdict]
    #: whether the rows that it needs have to be run, not only optimized
    run: bool = True


def _at_most(name: str, n: int, figure: str, most: float, unit: str = "s") -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        row = rows[name, n]
        value = row.number("ours", figure)
        if value is None:
            return str(row["ours", figure] or row.note or "not measured"), None
        stock = row["stock", figure]
        return f"{show(value, unit)} (stock {show(stock, unit)})", value <= most

    return judge


def _ratio(name: str, n: int, figure: str, most: float) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        row = rows[name, n]
        ours, stock = row.number("ours", figure), row["stock", figure]
        if ours is None:
            return str(row["ours", figure] or row.note or "not measured"), None
        if isinstance(stock, str) and stock.startswith("> "):
            bound = ours / float(stock.split()[1])
            return f"{show(ours)} (stock {stock}): < {bound:.4f}", True if bound <= most else None
        if not isinstance(stock, (int, float)):
            return f"{show(ours)} (stock {stock})", None
        return f"{show(ours)} (stock {show(stock)}): {ours / stock:.4f}", ours / stock <= most

    return judge


def _doubling(name: str, sizes: Sequence[int], most: float) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        times = [rows[name, n].number("ours", "optimize") for n in sizes]
        if None in times:
            return "not measured", None
        known = [time for time in times if time is not None]
        factors = [b / a for a, b in itertools.pairwise(known)]
        return ", ".join(f"{factor:.2f}" for factor in factors), max(factors) <= most

    return judge


def _big(rows: Rows) -> list[Row]:
    return [row for row in rows.values() if (row.number("raw", "tasks") or 0) > 100]


def _mean(figure: str, most: float) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        ratios = [row.ratio(figure) for row in _big(rows)]
        mean = geometric_mean(ratios)
        if mean is None:
            return "not measured", None
        return f"{mean:.3f} over {sum(r is not None for r in ratios)} rows", mean <= most

    return judge


def _worst(ratio: Callable[[Row], float | None], most: float) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        found = [(value, row) for row in _big(rows) if (value := ratio(row)) is not None]
        if not found:
            return "not measured", None
        over = sorted((f"{row.name} {row.n}: {value:.2f}" for value, row in found if value > most))
        worst = max(value for value, _ in found)
        return "; ".join(over) or f"worst {worst:.2f}", not over

    return judge


def _answers(rows: Rows) -> Verdict:
    found = [(row["ours", "same"], row) for row in rows.values() if row["ours", "same"]]
    wrong = [f"{row.name} {row.n}: {value}" for value, row in found if value != "yes"]
    return "; ".join(wrong) or f"all {len(found)} rows", not wrong if found else None


def show(value: object, unit: str = "s") -> str:
    """A figure for people."""
    if value is None:
        return "-"
    if not isinstance(value, (int, float)):
        return str(value)
    if unit == "B":
        for size, name in ((1e6, "MB"), (1e3, "kB")):
            if value >= size:
                return f"{value / size:.1f} {name}"
        return f"{value:.0f} B"
    if unit != "s":
        return f"{value:,.0f}"
    for limit, scale, digits, name in ((0.001, 1e6, 0, "us"), (0.1, 1e3, 1, "ms")):
        if value < limit:
            return f"{value * scale:.{digits}f} {name}"
    return f"{value:.2f} s"


FOUNDATION = [
    Target(
        "one tile of a mosaic of 250x250 blocks: submits <= 20 kB",
        [("one-tile", 250)],
        _at_most("one-tile", 250, "bytes", 20_000, "B"),
    ),
    Target(
        "window of a labelled array of 19,200 chunks: submits <= 20 kB",
        [("xarray-window", 19200)],
        _at_most("xarray-window", 19200, "bytes", 20_000, "B"),
    ),
    Target(
        "total = total + x, 4000 steps: optimized in <= 1/20 of stock",
        [("adds", 4000)],
        _ratio("adds", 4000, "optimize", 1 / 20),
    ),
    Target(
        "the same, 1000 / 2000 / 4000: doubling n costs <= 2.3x",
        [("adds", 1000), ("adds", 2000), ("adds", 4000)],
        _doubling("adds", (1000, 2000, 4000), 2.3),
    ),
    Target(
        "the same, 10,000 steps: doubling from 4000 at 2.3x allows 3.01x",
        [("adds", 4000), ("adds", 10000)],
        _doubling("adds", (4000, 10000), 2.3**1.322),
    ),
    Target(
        "(x + 1).sum() over 600x600 blocks: optimized in <= 1/4 of stock",
        [("ones-sum", 600)],
        _ratio("ones-sum", 600, "optimize", 1 / 4),
        run=False,
    ),
    Target("over 100 tasks: to optimize, geometric mean <= 0.4", [], _mean("optimize", 0.4)),
    Target("over 100 tasks: to optimize, none over 1.5", [], _worst(lambda r: r.ratio("optimize"), 1.5)),
    Target("over 100 tasks: optimizing and running no longer than stock", [], _worst(Row.total_ratio, 1.0)),
    Target("over 100 tasks: to run, geometric mean <= 0.4", [], _mean("run", 0.4)),
    *(
        Target(
            f"leapfrog, {n} steps: seconds to {figure} <= {most}",
            [("leapfrog", n)],
            _at_most("leapfrog", n, figure, most),
        )
        for n, most in ((1000, 0.1), (5000, 0.5))
        for figure in ("optimize", "run")
    ),
    Target(
        "(x + 1) * 2 - 3 on 2500 tiny blocks: compute() in <= 1/4 of stock",
        [("tiny-blocks", 50)],
        _ratio("tiny-blocks", 50, "compute", 1 / 4),
    ),
    Target("every answer is the same bit for bit", [], _answers),
]

TARGETS = [*FOUNDATION]
