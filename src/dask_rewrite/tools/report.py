"""What every pass did to a graph, as data, as text and as HTML."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes, format_time

from dask_rewrite.tools.tables import html_table, shorten, text_table

if TYPE_CHECKING:
    from dask.highlevelgraph import HighLevelGraph
    from dask.typing import Key

    from dask_rewrite.analysis.memory.reads import Reads
    from dask_rewrite.graph.graph import Metrics
    from dask_rewrite.pipeline.trace import Step, Trace
    from dask_rewrite.remarks import Remark
    from dask_rewrite.tools.forecast import Forecast

_KINDS = ("failed", "applied", "missed")
#: Different reasons that are shown per rule, and characters of each; all of them are in ``Report.remarks``.
_REASONS, _WIDTH = 3, 110
#: Tasks of larger graphs are neither drawn nor weighed.
_DRAWN = 100_000


class Report:
    """What each pass did to a graph.

    Attributes
    ----------
    steps : list of Step
        Per pass its name, the metrics before and after it, and the seconds it took.
    remarks : list of Remark
        What was applied, nearly applied (``missed``) and ``failed``; the first hundred per rule and kind.
    counts : dict
        How many remarks of each ``(rule, kind)`` there were in all.
    seconds : float
        Time of the whole rewriting.
    form : str
        ``"tasks"``, or ``"stock"`` where the graph is left to dask's own optimizer.
    forecast : Forecast or None
        How much memory computing takes, if that was asked for.
    reads : tuple of Reads or None
        What dask's own graph reads of files, and what is read now, where these tell their sizes.
    """

    def __init__(self, trace: Trace) -> None:
        self.steps: list[Step] = list(trace.steps)
        self.remarks: list[Remark] = list(trace.remarks)
        self.counts: dict[tuple[str, str], int] = dict(trace.remarks.counts.items())
        self.seconds: float = trace.seconds
        self.form: str = trace.form
        self.forecast: Forecast | None = None
        self.reads: tuple[Reads | None, Reads | None] = (None, None)
        #: The graph as the program built it, and what dask sends, as an expression.
        self.built: HighLevelGraph | None = None
        self.sent: Any = None

    @property
    def graph(self) -> dict[Key, Any]:
        """The tasks that are sent to the scheduler."""
        return {} if self.sent is None else dict(self.sent.__dask_graph__())

    @property
    def before(self) -> Metrics | None:
        """The graph as the program built it; depth and fan-in are zero where it was too large to measure."""
        return self.steps[0].before if self.steps else None

    @property
    def after(self) -> Metrics | None:
        """The graph that is sent to the scheduler."""
        return self.steps[-1].after if self.steps else None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for ``json.dumps``."""
        extra = {} if self.forecast is None else {"forecast": self.forecast.to_dict()}
        return {
            **extra,
            "form": self.form,
            "seconds": self.seconds,
            "before": None if self.before is None else asdict(self.before),
            "after": None if self.after is None else asdict(self.after),
            "files": [None if reads is None else reads._asdict() for reads in self.reads],
            "steps": [asdict(step) for step in self.steps],
            "counts": [
                {"rule": rule, "kind": kind, "count": count} for (rule, kind), count in self.counts.items()
            ],
            "remarks": [
                {**asdict(remark), "key": None if remark.key is None else repr(remark.key)}
                for remark in self.remarks
            ],
        }

    def to_json(self, **kwargs: Any) -> str:
        """The same as JSON; ``kwargs`` go to ``json.dumps``."""
        return json.dumps(self.to_dict(), **kwargs)

    def to_networkx(self) -> Any:
        """The tasks that are sent, as a ``networkx.DiGraph`` from inputs to consumers.

        Its nodes are keys; ``name`` is what dashboards call the task, ``functions`` what it calls.
        """
        try:
            import networkx as nx
        except ImportError as error:
            raise ImportError("to_networkx() needs networkx: pip install networkx") from error
        from dask.utils import key_split

        from dask_rewrite.graph.labels import functions_of

        tasks = self.graph
        graph = nx.DiGraph()
        for key, task in tasks.items():
            graph.add_node(key, name=key_split(key), functions=functions_of(task))
        graph.add_edges_from((dep, key) for key, task in tasks.items() for dep in task.dependencies)
        return graph

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One page with tables, bars, pictures, remarks to filter and, if it was asked for, the forecast.

        Parameters
        ----------
        path : path, optional
            Where to write it.

        Returns
        -------
        str
            The page. It needs no other file and no network.

        Examples
        --------
        >>> import dask.array as da
        >>> import dask_rewrite
        >>> dask_rewrite.explain(da.ones(8, chunks=4).sum()).to_html()[:15]
        '<!DOCTYPE html>'
        """
        from dask_rewrite.tools.page import graphs_shown, page, passes_shown, remarks_shown

        drawn = self.after is None or self.after.tasks <= _DRAWN
        text = page(
            "; ".join([self.headline, *self._files()]),
            html_table(*self.table),
            *passes_shown(self.before, self.steps),
            *graphs_shown(self.built, self.graph if drawn else {}),
            *remarks_shown(self.remarks, sum(self.counts.values())),
            *([] if self.forecast is None else ["<h2>Memory</h2>", self.forecast._repr_html_()]),
        )
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __repr__(self) -> str:
        lines = [f"dask_rewrite: {self.headline}", *self._files()]
        if self.steps:
            lines += ["", *text_table(*self.table)]
        if rows := self._remark_rows():
            lines += ["", *text_table(_REMARKS_HEADER, rows, left=(0, 1, 3))]
        if self.forecast is not None:
            lines += ["", repr(self.forecast)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>dask_rewrite</b>: {escape(self.headline)}</p>", html_table(*self.table)]
        parts[1:1] = [f"<p>{escape(line)}</p>" for line in self._files()]
        if rows := self._remark_rows():
            parts += [
                f"<details><summary>{sum(self.counts.values())} remarks</summary>",
                html_table(_REMARKS_HEADER, rows, left=(0, 1, 3)),
                "</details>",
            ]
        if self.forecast is not None:
            parts.append(self.forecast._repr_html_())
        return f"<div>{''.join(parts)}</div>"

    @property
    def headline(self) -> str:
        """What became of the graph, on one line."""
        failed = sum(count for (_, kind), count in self.counts.items() if kind == "failed")
        end = f" in {format_time(self.seconds)}" + (f"; {failed} FAILED" if failed else "")
        if self.form != "tasks":
            if self.before is None:
                return "not rewritten, left to dask's own optimizer"
            return f"{self.before.tasks:,} tasks, left to dask's own optimizer, decided{end}"
        if self.before is None or self.after is None:
            return f"nothing was done{end}"
        text = f"{self.before.tasks:,} tasks as written, {self.after.tasks:,} as sent"
        if self.before.nbytes is not None and self.after.nbytes is not None:
            text += f", {_bytes_change(self.before.nbytes, self.after.nbytes)}"
        return text + end

    def _files(self) -> list[str]:
        """What is read of files, on a line of its own."""
        before, after = self.reads
        if after is None:
            return []
        own = after if before is None else before  # of large graphs dask's own is not made
        changes = [f"{_bytes_change(*pair)} {name}" for name, *pair in zip(after._fields, own, after)]
        return [f"files: {', '.join(changes)}{' (dask -> as sent)' if own != after else ''}"]

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """The header and the rows of the table of passes."""
        measured = [metrics for step in self.steps for metrics in (step.before, step.after)]
        sized = any(metrics is not None and metrics.nbytes is not None for metrics in measured)
        header = ["pass", "tasks", "depth", "max fan-in", *(["pickled"] if sized else []), "time", "applied"]
        rows = []
        for step in self.steps:
            applied = self.counts.get((step.name, "applied"), 0)
            rows.append([step.name, *_cells(step.before, step.after, sized), format_time(step.seconds)])
            rows[-1].append(f"{applied:,}" if applied else "-")
        if self.steps:
            applied = sum(count for (_, kind), count in self.counts.items() if kind == "applied")
            rows.append(["total", *_cells(self.before, self.after, sized), format_time(self.seconds)])
            rows[-1].append(f"{applied:,}")
        return header, rows

    def _remark_rows(self) -> list[list[str]]:
        """One row per rule and kind, with its commonest reasons below one another."""
        reasons: dict[tuple[str, str], Counter[str]] = {}
        for remark in self.remarks:
            reasons.setdefault((remark.rule, remark.kind), Counter())[remark.reason] += 1
        rows = []
        for rule, kind in sorted(self.counts, key=lambda rule_kind: _KINDS.index(rule_kind[1])):
            common = reasons.get((rule, kind), Counter()).most_common()
            shown: Sequence[tuple[str, int]] = [
                (reason, times) for reason, times in common[:_REASONS] if reason
            ]
            # A single reason stands for all, also for those beyond the first hundred.
            texts = [reason if len(common) == 1 else f"{reason} ({times})" for reason, times in shown]
            if len(common) > _REASONS:
                texts.append(f"and {len(common) - _REASONS} more reasons")
            first, *others = [shorten(text, _WIDTH) for text in texts] or [""]
            rows.append([kind, rule, f"{self.counts[rule, kind]:,}", first])
            rows += [["", "", "", text] for text in others]
        return rows


_REMARKS_HEADER = ["remark", "rule", "count", "reason"]


def _cells(before: Metrics | None, after: Metrics | None, sized: bool) -> list[str]:
    old, new = _measured(before), _measured(after)
    cells = [_change(one, two) for one, two in zip(old[:3], new[:3], strict=True)]
    return [*cells, _bytes_change(old[3], new[3])] if sized else cells


def _measured(metrics: Metrics | None) -> tuple[int | None, int | None, int | None, int | None]:
    """Tasks, depth, fan-in and bytes; None for what was not measured."""
    if metrics is None:
        return None, None, None, None
    if metrics.tasks and not metrics.depth:
        return metrics.tasks, None, None, metrics.nbytes
    return metrics.tasks, metrics.depth, metrics.max_fan_in, metrics.nbytes


def _change(before: int | None, after: int | None) -> str:
    if before == after:
        return _number(before)
    return f"{_number(before)} -> {_number(after)}"


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _bytes_change(before: int | None, after: int | None) -> str:
    old, new = ("?" if size is None else format_bytes(size) for size in (before, after))
    return old if old == new else f"{old} -> {new}"
