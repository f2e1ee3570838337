"""How to tell from measured rows whether a promise is kept: each judge gives a text and a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness.rows import Row, geometric_mean
from benchmarks.harness.table import show
from benchmarks.workloads import WORKLOADS

Verdict = tuple[str, bool | None]
Rows = dict[tuple[str, int], Row]

#: "no slower": two runs of the same program differ by this much on a quiet machine
NOISE = 1.05


@dataclass(frozen=True, slots=True)
class Target:
    """One promise: what it says, the rows that it needs, and how to tell."""

    says: str
    needs: Sequence[tuple[str, int]]
    judge: Callable[[Rows], Verdict]
    #: whether the rows that it needs have to be run, not only optimized
    run: bool = True


def _failed(row: Row, figure: str) -> Verdict:
    """Not measured: nobody knows. An error, or no end in time: missed."""
    found = row["ours", figure]
    return str(found or row.note or "not measured"), False if found else None


def at_most(name: str, n: int, figure: str, most: float, unit: str = "s") -> Callable[[Rows], Verdict]:
    """Our figure is this at most."""

    def judge(rows: Rows) -> Verdict:
        row = rows[name, n]
        value = row.number("ours", figure)
        if value is None:
            return _failed(row, figure)
        stock = row["stock", figure]
        return f"{show(value, unit)} (stock {show(stock, unit)})", value <= most

    return judge


def ratio(
    name: str, n: int, figure: str, most: float, unit: str = "s", beside: str = "stock"
) -> Callable[[Rows], Verdict]:
    """Our figure is this part of another side's at most."""

    def judge(rows: Rows) -> Verdict:
        row = rows[name, n]
        ours, stock = row.number("ours", figure), row[beside, figure]
        if ours is None:
            return _failed(row, figure)
        if isinstance(stock, str) and stock.startswith("> "):
            bound = ours / float(stock.split()[1])
            return f"{show(ours, unit)} ({beside} {stock}): < {bound:.4f}", True if bound <= most else None
        if not isinstance(stock, (int, float)):
            return f"{show(ours, unit)} ({beside} {stock})", None
        text = f"{show(ours, unit)} ({beside} {show(stock, unit)})"
        return (f"{text}: {ours / stock:.4f}", ours / stock <= most) if stock else (text, ours <= stock)

    return judge


def doubling(
    name: str, sizes: Sequence[int], most: float, figure: str = "optimize"
) -> Callable[[Rows], Verdict]:
    """From each size to the next the figure grows by this factor at most."""

    def judge(rows: Rows) -> Verdict:
        times = [rows[name, n].number("ours", figure) for n in sizes]
        if None in times:
            return "not measured", None
        known = [time for time in times if time is not None]
        factors = [b / a for a, b in itertools.pairwise(known)]
        return ", ".join(f"{factor:.2f}" for factor in factors), max(factors) <= most

    return judge


def big(rows: Rows) -> list[Row]:
    return [row for row in rows.values() if (row.number("raw", "tasks") or 0) > 100]


def mean(figure: str, most: float) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        ratios = [row.ratio(figure) for row in big(rows)]
        mean = geometric_mean(ratios)
        if mean is None:
            return "not measured", None
        return f"{mean:.3f} over {sum(r is not None for r in ratios)} rows", mean <= most

    return judge


def worst(ratio: Callable[[Row], float | None], most: float) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        found = [(value, row) for row in big(rows) if (value := ratio(row)) is not None]
        if not found:
            return "not measured", None
        over = sorted((f"{row.name} {row.n}: {value:.2f}" for value, row in found if value > most))
        worst = max(value for value, _ in found)
        return "; ".join(over) or f"worst {worst:.2f}", not over

    return judge


def never_longer(rows: Rows) -> Verdict:
    """No row takes longer than stock from end to end, on any scheduler that it names."""
    found = [
        (found, f"{row.name} {row.n} on {figure.split()[1]}: {found:.2f}")
        for row in rows.values()
        for figure in row.figures.get("ours", {})
        if figure.startswith("seconds ") and (found := row.ratio(figure)) is not None
    ]
    if not found:
        return "not measured", None
    over = [text for value, text in found if value > NOISE]
    return "; ".join(over) or f"all {len(found)}, worst {max(value for value, _ in found):.2f}", not over


def answers(rows: Rows) -> Verdict:
    found = [(row["ours", "same"], row) for row in rows.values() if row["ours", "same"]]
    wrong = [
        f"{row.name} {row.n}: {value}"
        for value, row in found
        if value != "yes" and (value != "close" or WORKLOADS[row.name].exact)
    ]
    return "; ".join(wrong) or f"all {len(found)} rows", not wrong if found else None
