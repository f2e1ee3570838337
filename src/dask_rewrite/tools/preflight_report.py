"""What ``preflight`` found, as data and as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from dask.typing import Key
from dask.utils import format_bytes

from dask_rewrite.graph.nesting import NESTING_LIMIT
from dask_rewrite.tools.tables import html_table, shorten, text_table

_WIDE = 100
_PAYLOAD_HEADER = ["total", "each", "objects", "tasks", "object", "where", "function", "layer"]
_PAYLOAD_TEXT = (4, 5, 6, 7)
_PAYLOADS_SHOWN = 10
_LAYERS_SHOWN = 5


@dataclass(slots=True)
class Problem:
    """Something that cannot be pickled.

    Parameters
    ----------
    layer, key, function : str, Key, str
        The first task in which it was met, and what that task calls.
    path : tuple of str
        From the task to the part at fault, in words.
    kind, error : str
        Type of that part, and what pickling it says.
    tasks : int
        How many tasks of the layer fail.
    """

    layer: str
    key: Key | None
    function: str
    path: tuple[str, ...]
    kind: str
    error: str
    tasks: int = 0


@dataclass(slots=True)
class Payload:
    """An object that tasks carry with them.

    Parameters
    ----------
    value : object
        The object itself.
    kind : str
        Its type.
    where : str
        What it is to the first task that carries it: an argument, a closure variable, an attribute.
    function, layer, key : str, str, Key
        That task.
    tasks : int
        How many tasks carry this very object.
    nbytes : int or None
        Bytes of one copy, pickled.
    """

    value: Any = field(repr=False)
    kind: str
    where: str
    function: str
    layer: str
    key: Key
    tasks: int = 0
    nbytes: int | None = None

    @property
    def total(self) -> int:
        """Bytes of all copies: a cluster gives every task its own."""
        return (self.nbytes or 0) * self.tasks


@dataclass(frozen=True, slots=True)
class Shape:
    """An extreme of the graph, and the task where it is reached."""

    size: int
    key: Key | None = None
    layer: str = ""


@dataclass(slots=True, repr=False)
class PreflightReport:
    """What ``preflight`` found.

    Parameters
    ----------
    tasks : int
        Tasks that are needed, before any optimization.
    layers : dict of str to int or None
        Pickled bytes of each layer; None where it cannot be pickled.
    problems : list of Problem
        What cannot be pickled.
    payloads : list of Payload
        Objects of a kilobyte and more, the heaviest by the bytes of all their copies first.
    deepest, widest : Shape
        The task nested deepest, and the one with the most inputs.
    """

    tasks: int
    layers: dict[str, int | None]
    problems: list[Problem]
    payloads: list[Payload]
    deepest: Shape
    widest: Shape

    @property
    def ok(self) -> bool:
        """Whether the graph can be sent at all."""
        return not self.problems and self.deepest.size <= NESTING_LIMIT

    def __repr__(self) -> str:
        lines = [f"dask_rewrite preflight: {self._headline()}"]
        for problem in self.problems:
            lines += ["", "does not pickle"]
            lines += [f"  {name:<9} {text}" for name, text in _describe(problem)]
        if self.payloads:
            lines += [
                "",
                "heaviest payloads",
                *text_table(_PAYLOAD_HEADER, self._payload_rows(), left=_PAYLOAD_TEXT),
            ]
        lines += ["", *(f"{name:<15} {text}" for name, text in self._shapes())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>dask_rewrite preflight</b>: {escape(self._headline())}</p>"]
        for problem in self.problems:
            parts.append(html_table(["does not pickle", ""], _describe(problem), left=(0, 1)))
        parts.append(html_table(_PAYLOAD_HEADER, self._payload_rows(), left=_PAYLOAD_TEXT))
        parts.append(html_table(["", ""], self._shapes(), left=(0, 1)))
        return f"<div>{''.join(parts)}</div>"

    def _headline(self) -> str:
        size = sum(size or 0 for size in self.layers.values())
        tasks, layers = _count(self.tasks, "task"), _count(len(self.layers), "layer")
        outcome = _count(len(self.problems), "problem") if self.problems else "all of it pickles"
        return f"{tasks} in {layers}, {format_bytes(size)} pickled; {outcome}"

    def _payload_rows(self) -> list[list[str]]:
        """The heaviest places; objects that stand in the same place of different tasks share a row."""
        places: dict[tuple[str, ...], list[Payload]] = {}
        for payload in self.payloads:
            place = payload.kind, payload.where, payload.function, payload.layer
            places.setdefault(place, []).append(payload)
        heaviest = sorted(places.items(), key=lambda item: -sum(payload.total for payload in item[1]))
        rows = []
        for (kind, where, function, layer), payloads in heaviest[:_PAYLOADS_SHOWN]:
            total, tasks = sum(p.total for p in payloads), sum(p.tasks for p in payloads)
            numbers = [format_bytes(total), format_bytes(total // tasks), f"{len(payloads):,}", f"{tasks:,}"]
            rows.append([*numbers, kind, shorten(where, 50), shorten(function, 30), shorten(layer, 40)])
        return rows

    def _shapes(self) -> list[list[str]]:
        deepest, widest = self.deepest, self.widest
        heavy = sorted((-size, name) for name, size in self.layers.items() if size)
        layers = [f"{shorten(name, 40)} {format_bytes(-size)}" for size, name in heavy[:_LAYERS_SHOWN]]
        too_deep = " (too deep to be safe)" if deepest.size > NESTING_LIMIT else ""
        return [
            ["deepest nesting", f"{_count(deepest.size, 'task')}{too_deep}{_at(deepest)}"],
            ["widest fan-in", f"{_count(widest.size, 'input')}{_at(widest)}"],
            ["heaviest layers", ", ".join(layers) or "-"],
        ]


def _describe(problem: Problem) -> list[list[str]]:
    more = f" (and {problem.tasks - 1:,} more tasks)" if problem.tasks > 1 else ""
    rows = [["layer", shorten(problem.layer, _WIDE)], ["key", f"{shorten(repr(problem.key), _WIDE)}{more}"]]
    if problem.function:
        rows.append(["function", shorten(problem.function, _WIDE)])
    if problem.path:
        rows.append(["where", " -> ".join(problem.path)])
    return [*rows, ["object", problem.kind], ["error", shorten(problem.error, 2 * _WIDE)]]


def _at(shape: Shape) -> str:
    return "" if shape.key is None else f", at {shorten(repr(shape.key), _WIDE)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
