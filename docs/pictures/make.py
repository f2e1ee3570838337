"""Draw before-and-after.svg, the picture of the landing page: ``python docs/pictures/make.py``."""

from __future__ import annotations

import re
from pathlib import Path

import dask.array as da

import dask_rewrite
from dask_rewrite.tools.pictures import picture

TARGET = Path(__file__).with_name("before-and-after.svg")
_TITLE = 34


def program() -> da.Array:
    """What the picture shows; its page prints these lines too."""
    x = da.random.random((4000, 4000), chunks=500)
    return (x + x.T)[:500].sum()


def drawn() -> str:
    """The graph as it was built and the one that is sent, side by side."""
    report = dask_rewrite.explain(program())
    assert report.built is not None
    built = picture(report.built.dependencies, {name: len(one) for name, one in report.built.layers.items()})
    sent = picture({key: task.dependencies for key, task in report.graph.items()})
    assert report.before is not None
    assert report.after is not None
    titles = (f"as you wrote it: {report.before.tasks} tasks", f"as it is sent: {report.after.tasks} tasks")
    parts, left, height = [], 20.0, 0.0
    for title, svg in zip(titles, (built, sent), strict=True):
        wide, high = map(float, re.findall(r'(?:width|height)="([\d.]+)"', svg)[:2])
        inner = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
        middle = max(wide, 9 * len(title)) / 2
        parts.append(
            f'<text x="{left + middle:.0f}" y="22" text-anchor="middle" font-size="14">{title}</text>'
        )
        parts.append(f'<g transform="translate({left + middle - wide / 2:.0f} {_TITLE})">{inner}</g>')
        left, height = left + 2 * middle + 40, max(height, high + _TITLE)
    size = f'width="{left:.0f}" height="{height:.0f}" viewBox="0 0 {left:.0f} {height:.0f}"'
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11" fill="#222">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
    text = re.sub(r'style="fill:[^"]*Canvas\)"', 'fill="#dde9fb"', text)
    return text.replace("currentColor", "#222")  # a picture in a page has no colours of the page


if __name__ == "__main__":
    TARGET.write_text(drawn(), encoding="utf-8")
