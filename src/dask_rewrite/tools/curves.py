"""Curves and bars as SVG, a few lines of text that notebooks draw."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dask.utils import format_bytes

_WIDTH, _HEIGHT = 560, 160
#: Height of a bar and of its row, width of the longest one, and where it starts.
_BAR, _ROW, _LONGEST, _START = 12, 18, 260, 130
_COLORS = ("#9aa0a6", "#1a73e8", "#188038")


def curve(series: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Bytes held over the course of runs, each from its first task to its last.

    Examples
    --------
    >>> curve([("a", [0, 8, 4])]).count("<polyline")
    1
    >>> curve([("a", [])])
    ''
    """
    top = max((max(values, default=0) for _, values in series), default=0)
    if not top:
        return ""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT + 24}" '
        f'viewBox="0 -12 {_WIDTH} {_HEIGHT + 24}" font-family="sans-serif" font-size="11">',
        f'<path d="M0 0V{_HEIGHT}H{_WIDTH}" fill="none" stroke="currentColor" opacity="0.4"/>',
        f'<text x="4" y="0" fill="currentColor">{format_bytes(top)}</text>',
    ]
    for i, (name, values) in enumerate(series):
        color = _COLORS[i % len(_COLORS)]
        points = " ".join(
            f"{_WIDTH * (at + 1) / len(values):.1f},{_HEIGHT * (1 - value / top):.1f}"
            for at, value in enumerate(values)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts.append(f'<text x="{_WIDTH - 160 + 80 * i}" y="0" fill="{color}">{escape(name)}</text>')
    return "".join(parts) + "</svg>"


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Bars for rows of a name, a number and how it is written.

    Examples
    --------
    >>> bars([("cull", 8, "8"), ("sweep", 4, "4")]).count("<rect")
    2
    """
    top = max((value for _, value, _ in rows), default=0) or 1
    width, height = _START + _LONGEST + 90, _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    ]
    for i, (name, value, text) in enumerate(rows):
        y, length = i * _ROW, max(1.0, _LONGEST * value / top)
        parts.append(
            f'<text x="{_START - 8}" y="{y + 11}" text-anchor="end" fill="currentColor">{escape(name)}</text>'
            f'<rect x="{_START}" y="{y + 1}" width="{length:.1f}" height="{_BAR}" fill="{_COLORS[1]}"/>'
            f'<text x="{_START + length + 6:.1f}" y="{y + 11}" fill="currentColor">{escape(text)}</text>'
        )
    return "".join(parts) + "</svg>"
