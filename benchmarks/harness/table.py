"""The rows as tables for a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from benchmarks.harness.rows import Row, geometric_mean


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


def grid(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]

    def one(line: Sequence[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    return "\n".join([one(header), "  ".join("-" * width for width in widths), *map(one, lines)])


def _x(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.0f}"


def seconds(rows: Sequence[Row]) -> str:
    """Seconds to optimize and to run."""
    header = ["workload", "n", "raw tasks", "optimize: stock", "ours", "x", "dask-array"]
    header += ["run: stock", "ours", "x", "dask-array", "both x", "same", "dask-array", "note"]
    lines = []
    for row in rows:
        line = [row.name, str(row.n), show(row["raw", "tasks"], "")]
        for figure in ("optimize", "run"):
            stock, ours, other = (show(row[side, figure]) for side in ("stock", "ours", "dask-array"))
            line += [stock, ours, _x(row.ratio(figure)), other]
        line += [_x(row.total_ratio()), row["ours", "same"] or "-", row["dask-array", "same"] or "-"]
        lines.append([*line, row.note])
    means = [
        _x(geometric_mean(row.ratio("optimize") for row in rows)),
        _x(geometric_mean(row.ratio("run") for row in rows)),
        _x(geometric_mean(row.total_ratio() for row in rows)),
    ]
    lines.append(["geometric mean", "", "", "", "", means[0], "", "", "", means[1], "", means[2], "", "", ""])
    return grid(header, lines)


def sizes(rows: Sequence[Row]) -> str:
    """What the graphs are like, and how many bytes they are."""
    figures = (("tasks", ""), ("depth", ""), ("fan_in", ""), ("bytes", "B"), ("task_bytes", "B"))
    figures += (("held", "B"),)
    used = [f for f in figures if any(row[side, f[0]] for row in rows for side in ("stock", "ours"))]
    header = ["workload", "n"]
    for figure, _ in used:
        header += [f"{figure.replace('_', ' ')}: stock", "ours", "dask-array"]
    lines = []
    for row in rows:
        line = [row.name, str(row.n)]
        for figure, unit in used:
            line += [show(row[side, figure], unit) for side in ("stock", "ours", "dask-array")]
        lines.append(line)
    mean = ["geometric mean", ""]
    for figure, _ in used:
        mean += ["", _x(geometric_mean(row.ratio(figure) for row in rows)), ""]
    return grid(header, [*lines, mean])


def computes(rows: Sequence[Row]) -> str:
    """Seconds of ``compute`` from end to end, for the rows that have them."""
    chosen = [row for row in rows if row["stock", "compute"]]
    header = ["compute(scheduler='sync')", "n", "stock", "ours", "x", "dask-array"]
    lines = [
        [
            row.name,
            str(row.n),
            show(row["stock", "compute"]),
            show(row["ours", "compute"]),
            _x(row.ratio("compute")),
            show(row["dask-array", "compute"]),
        ]
        for row in chosen
    ]
    return grid(header, lines) if chosen else ""


def schedulers(rows: Sequence[Row]) -> str:
    """From end to end on threads and processes: seconds, bytes, loads, by the name of the scheduler."""
    header = ["from end to end", "n", "on", "figure", "stock", "ours", "x", "scatter"]
    lines = []
    for row in rows:
        names = {figure: None for side in row.figures.values() for figure in side if " " in figure}
        for name in sorted(names, key=lambda name: name.split()[1]):
            figure, on = name.split()
            unit = "s" if figure == "seconds" else "" if figure == "loads" else "B"
            stock, ours, other = (show(row[side, name], unit) for side in ("stock", "ours", "scatter"))
            lines.append([row.name, str(row.n), on, figure, stock, ours, _x(row.ratio(name)), other])
    return grid(header, lines) if lines else ""


def growth(families: Sequence[Sequence[Row]]) -> str:
    """Factor of the optimizing time per doubling, for each family of three sizes."""
    header = ["growth of optimizing", "sizes", "raw tasks", "stock: per doubling", "ours: per doubling"]
    lines = []
    for family in families:
        line = [family[0].name, " ".join(str(row.n) for row in family)]
        line.append(" ".join(show(row["raw", "tasks"], "") for row in family))
        for side in ("stock", "ours"):
            times = [row.number(side, "optimize") for row in family]
            factors = [_x(b / a) if a and b else "-" for a, b in itertools.pairwise(times)]
            line.append(" ".join(factors))
        lines.append(line)
    return grid(header, lines)
