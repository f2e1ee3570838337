"""A graph as a picture of its layers, as SVG: what there is, how many tasks each has, who waits for whom."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from html import escape
from operator import attrgetter
from typing import Any

from dask.utils import key_split
from toolz import groupby

from dask_rewrite.graph.names import layer_name
from dask_rewrite.tools.tables import shorten

#: Boxes of a picture: more layers are put together by their names, and the smallest left out.
_MOST = 40
#: Height of a box and of its row, the gap between boxes, width of a letter, and letters that are shown.
_BOX, _ROW, _GAP, _LETTER, _LETTERS = 22, 52, 14, 6.6, 34


@dataclass(slots=True)
class _Box:
    """Layers of one name, or a single one."""

    label: str
    tasks: int = 0
    rank: int = 0
    below: set[Hashable] = field(default_factory=set)
    x: float = 0.0
    width: float = 0.0

    @property
    def text(self) -> str:
        return f"{shorten(self.label, _LETTERS)} \N{MULTIPLICATION SIGN} {self.tasks:,}"


def picture(needs: Mapping[Any, Iterable[Any]], tasks: Mapping[Any, int] | None = None) -> str:
    """Draw a graph, inputs above what waits for them.

    Parameters
    ----------
    needs : mapping of key to keys
        For each task, or each layer, what it waits for.
    tasks : mapping of key to int, optional
        How many tasks each stands for. Default: one.

    Examples
    --------
    >>> svg = picture({("x-1", 0): [], ("x-1", 1): [], ("y-2", 0): [("x-1", 0), ("x-1", 1)]})
    >>> svg.count("<rect"), svg.count("<line"), "x × 2" in svg
    (2, 1, True)
    """
    boxes = _boxes(needs, tasks or {}, layer_name)
    if len(boxes) > _MOST:
        boxes = _boxes(needs, tasks or {}, key_split)
    kept = sorted(boxes, key=lambda name: -boxes[name].tasks)[:_MOST]
    return _drawn({name: boxes[name] for name in boxes if name in set(kept)}, len(boxes) - len(kept))


def _boxes(needs: Mapping[Any, Iterable[Any]], tasks: Mapping[Any, int], name_of: Any) -> dict[Any, _Box]:
    boxes: dict[Any, _Box] = {}
    ranks: dict[Any, int] = {}
    for key in TopologicalSorter(needs).static_order():
        if key not in needs:
            continue  # a future: it is there already
        below = [dep for dep in needs[key] if dep in needs]
        ranks[key] = max((ranks[dep] + 1 for dep in below), default=0)
        name = name_of(key)
        box = boxes.setdefault(name, _Box(key_split(key)))
        box.tasks += tasks.get(key, 1)
        box.rank = max(box.rank, ranks[key])
        box.below.update(other for other in map(name_of, below) if other != name)
    with suppress(CycleError):  # layers that wait for each other stay where their tasks are
        for name in TopologicalSorter({name: box.below for name, box in boxes.items()}).static_order():
            boxes[name].rank = max((boxes[other].rank + 1 for other in boxes[name].below), default=0)
    return boxes


def _drawn(boxes: dict[Any, _Box], left_out: int) -> str:
    rows: dict[int, list[_Box]] = groupby(attrgetter("rank"), boxes.values())
    place = {rank: i for i, rank in enumerate(sorted(rows))}
    width = 0.0
    for rank in sorted(rows):  # each box as near below what it waits for as its neighbours let it
        row = rows[rank]
        above = {id(box): [boxes[n].x for n in box.below if n in boxes] for box in row}
        row.sort(key=lambda box: sum(above[id(box)]) / (len(above[id(box)]) or 1))
        at = 0.0
        for box in row:
            box.width = _LETTER * len(box.text) + 16
            box.x = at + box.width / 2
            at += box.width + _GAP
        width = max(width, at)
    for row in rows.values():  # rows in the middle
        shift = (width - row[-1].x - row[-1].width / 2) / 2
        for box in row:
            box.x += shift
    height = _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="monospace" font-size="11">'
    ]
    for box in boxes.values():
        bottom = place[box.rank] * _ROW + 2
        for other in sorted((boxes[n] for n in box.below if n in boxes), key=lambda other: other.x):
            top = place[other.rank] * _ROW + 2 + _BOX
            parts.append(
                f'<line x1="{other.x:.0f}" y1="{top}" x2="{box.x:.0f}" y2="{bottom}" '
                'stroke="currentColor" opacity="0.4"/>'
            )
    for box in boxes.values():
        y = place[box.rank] * _ROW + 2
        parts.append(
            f'<rect x="{box.x - box.width / 2:.0f}" y="{y}" width="{box.width:.0f}" height="{_BOX}" rx="5" '
            'stroke="#1a73e8" style="fill: color-mix(in srgb, #1a73e8 15%, Canvas)"/>'
            f'<text x="{box.x:.0f}" y="{y + 15}" text-anchor="middle" fill="currentColor">'
            f"{escape(box.text)}</text>"
        )
    more = f"<p>and {left_out:,} more</p>" if left_out else ""
    return "".join(parts) + f"</svg>{more}"
