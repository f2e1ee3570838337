"""The passes in their order, and the run that is always safe.

A pass that raises, or whose result fails verification, is dropped: the graph before it goes on, with
one warning that names it. If lowering itself fails, the raw graph goes to dask's own optimizer.
"""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key

from dask_rewrite.config import Options
from dask_rewrite.graph.collector import collector_paused
from dask_rewrite.graph.graph import Graph, Metrics
from dask_rewrite.graph.nesting import NESTING_LIMIT
from dask_rewrite.graph.verify import VerificationError, verify
from dask_rewrite.lowering.fusion import FuseBlockwise
from dask_rewrite.lowering.layer_order import as_layers
from dask_rewrite.lowering.lower import Lowering
from dask_rewrite.lowering.sizes import OverBudget, tasks_of
from dask_rewrite.passes.base import Pass
from dask_rewrite.passes.context import Context
from dask_rewrite.pipeline.callbacks import Callback, Printing, Tracing, Verifying, watchers
from dask_rewrite.pipeline.final_names import data_keys, settle_names
from dask_rewrite.pipeline.selection import LAYER_PASSES, Selection, select
from dask_rewrite.pipeline.trace import Step, Trace
from dask_rewrite.pipeline.verify_facts import verify_thoroughly
from dask_rewrite.remarks import Remarks, RewriteWarning

logger = logging.getLogger("dask_rewrite")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in their order, and what looks on while they run.

    Parameters
    ----------
    passes : sequence of Pass
        Run one after the other, each over what the one before returned.
    callbacks : sequence of Callback
        Told before and after each.

    Examples
    --------
    >>> graph = Graph({}, ())
    >>> Pipeline(()).run(graph, Context()) is graph
    True
    """

    passes: Sequence[Pass]
    callbacks: Sequence[Callback] = ()

    def run(self, graph: Graph, context: Context) -> Graph:
        """The graph after all passes; one that fails is left out, with a warning."""
        for each in self.passes:
            graph = self._step(each, graph, context)
        return graph

    def _step(self, each: Pass, before: Graph, context: Context) -> Graph:
        started = perf_counter()
        try:
            graph = each.run(before, context)
            for callback in self.callbacks:
                callback.check(each.name, before, graph)
        except Exception as error:
            error = _guilty_rewrite(each, before, context, error)
            if context.options.on_error == "raise":
                raise error
            graph = before
            verify(graph, external=graph.external)  # the pass may have spoilt what it was given
            _warn(each.name, error)
            context.remarks.failed(each.name, None, repr(error))
            for callback in self.callbacks:
                callback.failed(each.name, graph)
        seconds = perf_counter() - started
        for callback in self.callbacks:
            callback.done(each.name, before, graph, seconds)
        return graph


def _guilty_rewrite(each: Pass, before: Graph, context: Context, error: Exception) -> Exception:
    """The error, with the first single rewrite after which it comes (``rewrite.verify: rule``)."""
    if context.options.verify != "rule":
        return error

    def failure(limit: int) -> tuple[Exception | None, Remarks]:
        again = Context(Remarks(limit), context.options, fuse_text_keys=context.fuse_text_keys)
        again.declared = context.declared
        try:
            verify_thoroughly(each.run(before, again), before)
        except Exception as found:
            return found, again.remarks
        return None, again.remarks

    good, bad = 0, 1
    while failure(bad)[0] is None:
        good, bad = bad, 2 * bad
        if bad > 2 * len(before.nodes):
            return error  # it does not do the same each time
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if failure(middle)[0] is None else (good, middle)
    found, remarks = failure(bad)
    last = next((remark for remark in reversed(remarks.kept) if remark.kind == "applied"), None)
    if found is not None and last is not None and last.key is not None:
        found.add_note(f"single rewrite {bad:,} of pass {each.name!r}, of task {last.key!r}")
    return found or error


def rewrite_tasks(
    dsk: HighLevelGraph | Mapping[Key, Any],
    keys: Any,
    *,
    fuse_text_keys: bool = True,
    shared: bool = False,
    max_tasks: int | None = None,
    trace: Trace | None = None,
    options: Options | None = None,
) -> Graph | None:
    """Rewrite a raw graph to tasks.

    Parameters
    ----------
    dsk : HighLevelGraph or mapping
        The graph as collections built it.
    keys : Key or nested lists of Key
        What is wanted of it.
    fuse_text_keys : bool
        Whether delayed tasks may be fused.
    shared : bool
        Whether others whom nobody knows may hold the same blocks, as where dask optimizes collections one
        by one: all blocks keep their names, and loads stay tasks of their own.
    max_tasks : int, optional
        Tasks above which the graph stays as it is, if they are fewer than ``rewrite.lower-limit``.
    trace : Trace, optional
        Filled in with what each pass did; measuring takes time of its own.
    options : Options, optional
        Instead of the current configuration: those of another plan.

    Returns
    -------
    Graph or None
        None if the graph stays as it is: it is larger than ``rewrite.lower-limit`` tasks, or lowering
        took longer than ``rewrite.lower-seconds``, or failed.
    """
    options = Options.current() if options is None else options
    selection = select(options)
    most = options.lower_limit if max_tasks is None else min(options.lower_limit, max_tasks)
    options = replace(options, lower_limit=most)
    outputs = tuple(dict.fromkeys(flatten(keys if isinstance(keys, (list, set)) else [keys])))
    callbacks = _callbacks(options, trace)
    remarks = Remarks(options.bisect_limit, [each.allow for each in watchers()])
    context = Context(remarks, options, fuse_text_keys=fuse_text_keys)
    started = perf_counter()
    with collector_paused():
        try:
            graph = _lowered(as_layers(dsk), outputs, selection, context, callbacks, trace, shared)
            if graph is not None:
                graph = _run_passes(graph, Pipeline(selection.passes, callbacks), context, trace)
        except Exception as error:
            if options.on_error == "raise":
                raise
            _warn("lower", error)
            remarks.failed("lower", None, repr(error))
            graph = None
        finally:
            context.close()
    _report(graph, context, trace, perf_counter() - started)
    return graph


def _callbacks(options: Options, trace: Trace | None) -> list[Callback]:
    callbacks: list[Callback] = [*watchers()]
    if options.verify in ("each", "rule"):
        callbacks.append(Verifying())
    if trace is not None:
        callbacks.append(Tracing(trace))
    if options.print_after:
        callbacks.append(Printing(options.print_after))
    return callbacks


def _lowered(
    hlg: HighLevelGraph,
    outputs: Sequence[Key],
    selection: Selection,
    context: Context,
    callbacks: Sequence[Callback],
    trace: Trace | None,
    shared: bool,
) -> Graph | None:
    started = perf_counter()
    options, remarks = context.options, context.remarks
    fuse = selection.fusion is not None and remarks.allow("fuse-blockwise")
    bounds = selection.fusion or FuseBlockwise()
    lowering = Lowering(
        hlg,
        outputs,
        remarks,
        fuse=fuse,
        fold=any(each.name == "tree-sum" for each in selection.passes),
        max_inputs=bounds.max_inputs,
        max_loads=bounds.max_loads,
        annotated=options.annotations == "keep",
        max_tasks=options.lower_limit,
        max_seconds=options.lower_seconds,
        shared=shared,
        salt=f"{selection.salt} {fuse}{'' if options.assume == 'declared' else ' proven'}"
        f"{' reread' if options.reread else ''}",
        assume=options.assume == "declared",
    )
    try:
        graph = lowering.run()
        context.declared = lowering.declared
        context.leftovers = lowering.twice
    except OverBudget as reason:
        remarks.missed("lower", None, f"left to dask's own optimizer: {reason}")
        if trace is not None:
            size = Metrics(tasks_of(hlg), 0, 0)
            trace.steps.append(Step("lower", size, size, perf_counter() - started))
        return None
    if graph.annotations:
        names = sorted(set().union(*graph.annotations.values()))
        remarks.applied("annotations", None, f"{', '.join(names)} take effect; dask's own fusion drops them")
    seconds = perf_counter() - started
    wanted = options.print_after.intersection(LAYER_PASSES)
    for callback in callbacks:
        callback.check("lower", None, graph)
        callback.done(min(wanted, default="lower"), None, graph, seconds)
    return graph


def _run_passes(graph: Graph, pipeline: Pipeline, context: Context, trace: Trace | None) -> Graph:
    values = data_keys(graph)
    return settle_names(_checked(graph, pipeline, context, trace), values, context.regrouped)


def _checked(graph: Graph, pipeline: Pipeline, context: Context, trace: Trace | None) -> Graph:
    """The graph after all passes, verified; one whose result is wrong is left out."""
    lowered = graph
    graph = pipeline.run(graph, context)
    if context.options.verify != "end":
        return graph
    # Lowering and the passes of this package bound the nesting themselves.
    ours = all(type(each).__module__.startswith("dask_rewrite.") for each in pipeline.passes)
    try:
        verify(graph, external=graph.external, limit=None if ours else NESTING_LIMIT)
    except VerificationError:  # find out which pass it was, and leave that one out
        if trace is not None:
            del trace.steps[1:]
        verify(lowered, external=lowered.external)
        checked = Pipeline(pipeline.passes, [Verifying(), *pipeline.callbacks])
        return checked.run(lowered, context)
    return graph


def _warn(name: str, error: Exception) -> None:
    where = traceback.extract_tb(error.__traceback__)[-1]
    warnings.warn(
        f"dask_rewrite: pass {name!r} failed and was left out: {error!r} "
        f"({where.name}, line {where.lineno}); the computation goes on without it",
        RewriteWarning,
        stacklevel=2,
    )


def _report(graph: Graph | None, context: Context, trace: Trace | None, seconds: float) -> None:
    remarks, wanted = context.remarks, context.options.remarks
    if trace is not None:
        trace.remarks, trace.seconds = remarks, seconds
        trace.form = "tasks" if graph is not None else "stock"
    for remark in remarks if wanted else ():
        if remark.kind in wanted:
            logger.info("%s", remark)


__all__ = ["rewrite_tasks"]
