"""How much memory a computation will take, before it runs: ``forecast(x)``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import dask
from dask._task_spec import convert_legacy_graph
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.utils import format_bytes

from dask_rewrite.analysis.memory.graphs import sized
from dask_rewrite.analysis.memory.original import Original
from dask_rewrite.analysis.memory.runs import Run, Standing, simulate
from dask_rewrite.graph.collector import collector_paused
from dask_rewrite.scheduler import as_if, machine
from dask_rewrite.tools.curves import curve
from dask_rewrite.tools.expressions import expression_of
from dask_rewrite.tools.tables import html_table, shorten, text_table

__all__ = ["Forecast", "Run", "Standing", "forecast"]

#: Kinds of results that are shown.
_SHOWN = 6


@dataclass(slots=True, repr=False)
class Forecast:
    """What a computation will hold, read, decode, move and write.

    Parameters
    ----------
    before, after : Run
        With dask's own optimizer, which sends fewer tasks than were written, and as rewritten.
    threads : int
        Threads of this process, or of each worker.
    workers : int
        Workers of the cluster; 0 for a scheduler of this process.
    """

    before: Run
    after: Run
    threads: int
    workers: int

    @property
    def peak(self) -> int:
        """Most bytes that the rewritten graph holds at one time."""
        return self.after.peak

    def to_dict(self) -> dict[str, Any]:
        """The forecast as plain data, ready for ``json.dumps``."""
        return asdict(self)

    def __repr__(self) -> str:
        lines = [f"dask_rewrite forecast: {self._headline()}", ""]
        lines += text_table(["", "dask's own", "rewritten"], self._figures())
        if rows := self._standing():
            done = f"at the peak of the rewritten graph, {self.after.at:.0%} through"
            lines += ["", done, *text_table(_HEADER, rows, left=(0, 3))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>dask_rewrite forecast</b>: {escape(self._headline())}</p>"]
        parts.append(curve([("dask's own", self.before.curve), ("rewritten", self.after.curve)]))
        parts.append(html_table(["", "dask's own", "rewritten"], self._figures()))
        if rows := self._standing():
            parts.append(html_table(_HEADER, rows, left=(0, 3)))
        return f"<div>{''.join(parts)}</div>"

    def _headline(self) -> str:
        where = f"{self.threads} thread{'s' * (self.threads != 1)}"
        if self.workers:
            where = f"{self.workers} worker{'s' * (self.workers != 1)} of {where}"
        return f"{_held(self.after)} held on {where} ({_held(self.before)} by dask's own graph)"

    def _figures(self) -> list[list[str]]:
        both = (self.before, self.after)
        rows = [["tasks as sent", *(f"{run.tasks:,}" for run in both)], ["peak", *map(_held, both)]]
        if self.workers:
            rows.append(["peak of a worker", *(format_bytes(run.peak_worker) for run in both)])
        for name in ("read", "decoded", "moved", "written"):
            if any(getattr(run, name) for run in both):
                rows.append([name, *(format_bytes(getattr(run, name)) for run in both)])
        if any(run.unknown for run in both):
            rows.append(["blocks of unknown size", *(f"{run.unknown:,}" for run in both)])
        return rows

    def _standing(self) -> list[list[str]]:
        return [
            [shorten(each.name, 40), f"{each.tasks:,}", _weight(each), each.waits_for or "-"]
            for each in self.after.standing[:_SHOWN]
        ]


_HEADER = ["held", "results", "bytes", "until"]


def forecast(*collections: Any, threads: int | None = None, workers: int | None = None) -> Forecast:
    """Say how many bytes computing these collections together will hold, before anything runs.

    The scheduler is gone through task by task without doing the work. What blocks weigh is known from
    the functions that make them, or else taken from what the collection states. Counted are the results
    that the scheduler holds; what a task allocates inside while it runs comes on top of that, and so do
    arrays that stand in the graph already, except on a cluster.

    Parameters
    ----------
    *collections : dask collections
        Arrays, delayed objects, bags, dataframes, xarray objects.
    threads : int, optional
        Threads of this process, or of each worker. Default: as the scheduler in use has.
    workers : int, optional
        Workers of a cluster. Default: those of the current client; 0, a scheduler of this process, if
        there is none or if only ``threads`` is given.

    Returns
    -------
    Forecast
        Shows itself as a table, and in a notebook with a picture; ``before`` and ``after`` hold the data.

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_rewrite
    >>> x = da.random.random((4096, 1024), chunks=(256, 1024))
    >>> found = dask_rewrite.forecast(x - x.mean(axis=0), threads=2)
    >>> found.before.peak >= x.nbytes
    True
    """
    from dask_rewrite.hook.recorder import Recorder

    recorder = Recorder()
    # rewritten for what was asked about
    asked = {} if threads is None and workers is None else as_if(*_where(threads, workers))
    with dask.config.set(asked):
        rewritten = expression_of(collections, recorder, "forecast")
    stock = expression_of(collections)
    return forecast_of(recorder.raw, stock, rewritten, threads, workers)


def forecast_of(
    raw: HighLevelGraph | None,
    stock: Any,
    rewritten: Any,
    threads: int | None = None,
    workers: int | None = None,
) -> Forecast:
    """The forecast for expressions that dask would send, over the raw graph that both come from."""
    threads, workers = _where(threads, workers)
    with collector_paused():
        original = Original(raw)
        graphs = []
        for expression, results_of in ((stock, original.stock), (rewritten, original.rewritten)):
            nodes = dict(convert_legacy_graph(dict(expression.__dask_graph__())))
            total = threads * max(1, workers)
            keys = list(flatten(expression.__dask_keys__()))
            graphs.append(sized(nodes, keys, results_of(nodes).of, total))
        before, after = (simulate(graph, threads, workers) for graph in graphs)
    return Forecast(before, after, threads, workers)


def _where(threads: int | None, workers: int | None) -> tuple[int, int]:
    """Threads of each worker, and workers, as given or as the scheduler in use has them."""
    for name, value, least in (("threads", threads, 1), ("workers", workers, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"forecast({name}=...): expected a number of at least {least}, got {value!r}")
    if workers is None and threads is None:
        return machine().layout
    if threads is None:
        threads = 1 if workers else machine().threads
    return threads, workers or 0


def _held(run: Run) -> str:
    """A peak, with its interval where there is one."""
    if run.unknown and not run.most:
        return "unknown"
    if run.least == run.most:
        return str(format_bytes(run.peak))
    return f"{format_bytes(run.peak)} ({format_bytes(run.least)} to {format_bytes(run.most)})"


def _weight(each: Standing) -> str:
    """Bytes of results, as far as somebody can guess them."""
    if each.uncounted == each.tasks:
        return "unknown"
    return f"{format_bytes(each.nbytes)}{' and unknown' if each.uncounted else ''}"
