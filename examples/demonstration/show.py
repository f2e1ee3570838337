"""The table of the demonstration."""

from __future__ import annotations

from typing import Any

COLUMNS = (
    ("same answer", 11),
    ("tasks", 14),
    ("bytes submitted", 19),
    ("bytes to workers", 20),
    ("seconds", 22),
    ("results held", 18),
    ("memory grows by", 18),
)
TITLE = 46


def header() -> str:
    """Two lines: what the columns are."""
    names = "  ".join(name.rjust(width) for name, width in COLUMNS)
    return f"{'stock -> rewritten':<{TITLE}}  {names}\n" + "-" * (TITLE + 2 + len(names))


def size(value: int | None) -> str:
    """Bytes for people."""
    if value is None:
        return "-"
    for unit, name in ((1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value} B"


def pair(stock: dict[str, Any], ours: dict[str, Any], name: str, write: Any) -> str:
    """One figure of both sides."""
    return " -> ".join(write(side[name]) if name in side else "-" for side in (stock, ours))


def seconds(stock: dict[str, Any], ours: dict[str, Any]) -> str:
    """Seconds, or how a side failed."""
    return " -> ".join(
        f"{side['seconds']:.2f}" if "seconds" in side else side["failure"] for side in (stock, ours)
    )


def line(title: str, verdict: str, stock: dict[str, Any], ours: dict[str, Any]) -> str:
    """One case."""
    cells = [
        verdict,
        pair(stock, ours, "tasks", lambda n: f"{n:,}"),
        pair(stock, ours, "submitted", size),
        pair(stock, ours, "to_workers", size),
        seconds(stock, ours),
        pair(stock, ours, "held", size),
        pair(stock, ours, "memory", size),
    ]
    joined = "  ".join(cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True))
    return f"{title:<{TITLE}}  {joined}"
