"""What the optimizer does to a collection: ``explain(x)``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dask_rewrite.tools.expressions import expression_of
from dask_rewrite.tools.report import Report

if TYPE_CHECKING:
    from dask.highlevelgraph import HighLevelGraph

    from dask_rewrite.analysis.memory.reads import Reads
    from dask_rewrite.graph.graph import Metrics

__all__ = ["Report", "explain"]

#: Larger graphs are not made into tasks for the sake of a report.
_MEASURED = 200_000
#: Graphs of more tasks are not made with dask's own optimizer as well, to see what it reads.
_COMPARED = 20_000
_NOT_ASKED = (
    "dask asks no optimizer for dataframes and expressions; compute dask_rewrite.optimize(x) instead of x"
)


def explain(*collections: Any, nbytes: bool = False, forecast: bool = False) -> Report:
    """Rewrite dask collections together, as computing them would, and tell what every pass did.

    Nothing is computed, and the collections stay as they are.

    Parameters
    ----------
    *collections : dask collections
        Arrays, delayed objects, bags, dataframes, xarray objects.
    nbytes : bool
        Also measure the pickled graph before and after each pass. This takes longer than the rewriting.
    forecast : bool
        Also say how much memory computing takes; see :func:`dask_rewrite.forecast`.

    Returns
    -------
    Report
        Shows itself as a table, in a terminal and in a notebook; ``steps`` and ``remarks`` hold the data.

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_rewrite
    >>> report = dask_rewrite.explain(da.ones((8, 8), chunks=4)[:4].sum())
    >>> report.after.tasks <= report.before.tasks
    True
    """
    from dask_rewrite.hook.recorder import Recorder
    from dask_rewrite.pipeline.trace import Step, Trace
    from dask_rewrite.tools.too_large import too_large

    if not nbytes and not forecast and (report := too_large(collections)) is not None:
        return report
    recorder = Recorder(nbytes)
    rewritten = expression_of(collections, recorder)
    trace = recorder.trace
    if trace is None:
        trace = Trace(form="stock")
        trace.remarks.missed("lower", None, _NOT_ASKED)
    if recorder.raw is not None:
        raw = _raw_metrics(recorder.raw, nbytes)
        if not trace.steps:  # it goes out as the layers that it is
            trace.steps.append(Step("lower", raw, raw, trace.seconds))
        else:
            trace.steps[0] = replace(trace.steps[0], before=raw)
            if trace.form == "stock":
                trace.steps[0] = replace(trace.steps[0], after=raw)
    report = Report(trace)
    report.built, report.sent = recorder.raw, rewritten
    report.reads = _reads(collections, report)
    if forecast:
        from dask_rewrite.tools.forecast import forecast_of

        report.forecast = forecast_of(recorder.raw, expression_of(collections), rewritten)
    return report


def _reads(collections: Any, report: Report) -> tuple[Reads | None, Reads | None]:
    """What is read of files by dask's own graph, and by the one that is sent.

    Of graphs of so many tasks dask's own is not made for that.
    """
    from dask._task_spec import convert_legacy_graph

    from dask_rewrite.analysis.memory.reads import reads_in

    after = reads_in(convert_legacy_graph(report.graph))
    if after is None or report.before is None or report.before.tasks > _COMPARED:
        return None, after
    return reads_in(convert_legacy_graph(dict(expression_of(collections).__dask_graph__()))), after


def _raw_metrics(graph: HighLevelGraph, nbytes: bool) -> Metrics:
    """Size of a graph as it was built. Layers can tell how many tasks they stand for without making them."""
    from dask._task_spec import convert_legacy_graph
    from dask.utils import ensure_dict

    from dask_rewrite.graph.graph import Metrics, metrics_of
    from dask_rewrite.graph.pickling import size_if_pickled
    from dask_rewrite.lowering.sizes import tasks_of

    size = size_if_pickled(graph) if nbytes else None
    tasks = tasks_of(graph)
    if tasks > _MEASURED:
        return Metrics(tasks, 0, 0, size)
    try:
        measured = metrics_of(convert_legacy_graph(ensure_dict(graph)))
    except RecursionError:
        return Metrics(tasks, 0, 0, size)
    return Metrics(tasks, measured.depth, measured.max_fan_in, size)
