"""The passes in their order, and the run that is always safe.

A pass that raises, or whose result fails verification, is dropped: the graph before it goes on, with
one warning that names it. If lowering itself fails, the raw graph goes to dask's own optimizer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key
from dask.utils import ensure_dict

from dask_rewrite.config import Options
from dask_rewrite.graph.collector import collector_paused
from dask_rewrite.graph.graph import Graph, Metrics
from dask_rewrite.graph.nesting import NESTING_LIMIT
from dask_rewrite.graph.verify import VerificationError, verify
from dask_rewrite.lowering.fusion import FuseBlockwise
from dask_rewrite.lowering.layer_order import as_layers
from dask_rewrite.lowering.lower import Lowering
from dask_rewrite.lowering.sizes import OverBudget, tasks_of
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.fuse_small import FuseSmall
from dask_rewrite.pipeline.callbacks import Callback, Checkpoint, Printing, Tracing, Verifying, watchers
from dask_rewrite.pipeline.final_names import data_keys, settle_names
from dask_rewrite.pipeline.one_by_one import Pipeline, warn_of
from dask_rewrite.pipeline.selection import LAYER_PASSES, Selection, select
from dask_rewrite.pipeline.trace import Step, Trace
from dask_rewrite.remarks import Remarks

logger = logging.getLogger("dask_rewrite")


def rewrite_tasks(
    dsk: HighLevelGraph | Mapping[Key, Any],
    keys: Any,
    *,
    fuse_text_keys: bool = True,
    shared: bool = False,
    max_tasks: int | None = None,
    trace: Trace | None = None,
    checkpoint: Checkpoint | None = None,
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
    checkpoint : Checkpoint, optional
        Filled in, for :func:`resumed`.

    Returns
    -------
    Graph or None
        None if the graph stays as it is: it is larger than ``rewrite.lower-limit`` tasks, or lowering
        took longer than ``rewrite.lower-seconds``, or failed.
    """
    options = Options.current()
    selection = select(options)
    most = options.lower_limit if max_tasks is None else min(options.lower_limit, max_tasks)
    options = replace(options, lower_limit=most)
    outputs = tuple(dict.fromkeys(flatten(keys if isinstance(keys, (list, set)) else [keys])))
    callbacks = [*_callbacks(options, trace), *([] if checkpoint is None else [checkpoint])]
    remarks = Remarks(options.bisect_limit, [each.allow for each in watchers()])
    context = Context(remarks, options, fuse_text_keys=fuse_text_keys)
    started = perf_counter()
    with collector_paused():
        try:
            graph = _lowered(as_layers(dsk), outputs, selection, context, callbacks, trace, shared)
            if graph is not None:
                graph = _settled(graph, Pipeline(selection.passes, callbacks), context, trace)
        except Exception as error:
            if options.on_error == "raise":
                raise
            _lowering_failed(dsk, error, remarks)
            graph = None
        finally:
            context.close()
    _report(graph, context, trace, perf_counter() - started)
    return graph


def resumed(checkpoint: Checkpoint, *, options: Options, trace: Trace | None = None) -> Graph | None:
    """Another plan for the same graph: from a checkpoint on, with other options for what comes then.

    Its inner tasks may have the names of others in the first plan.

    Parameters
    ----------
    checkpoint : Checkpoint
        Of the first plan.
    options : Options
        Those of this plan.
    trace : Trace, optional
        Goes on with what each pass did.

    Returns
    -------
    Graph or None
        None if it was never reached, or if the same passes went on with the same tasks in another plan.
    """
    if checkpoint.graph is None or checkpoint.context is None:
        return None
    context, callbacks = checkpoint.context.forked(options), _callbacks(options, trace)
    passes = select(options).passes
    at = [each.name for each in passes].index(checkpoint.name)
    started = perf_counter()
    try:
        graph = Pipeline(passes[at : at + 1], callbacks).run(checkpoint.graph, context)
        if not checkpoint.is_new(graph, context):
            return None
        graph = _settled(graph, Pipeline(passes[at + 1 :], callbacks), context, trace)
    finally:
        context.close()
    _report(graph, context, trace, perf_counter() - started)
    return graph


def _lowering_failed(dsk: HighLevelGraph | Mapping[Key, Any], error: Exception, remarks: Remarks) -> None:
    """Tell of it, unless the layers give no tasks: of arrays that do not fit together dask tells itself."""
    remarks.failed("lower", None, repr(error))
    try:
        ensure_dict(dsk)
    except Exception:
        return
    warn_of("lower", error)


def _callbacks(options: Options, trace: Trace | None) -> list[Callback]:
    callbacks: list[Callback] = [*watchers()]
    if options.verify in ("each", "rule"):
        callbacks.append(Verifying())
    if trace is not None:
        callbacks.append(Tracing(trace))
    if options.print_after:
        callbacks.append(Printing(options.print_after))
    return callbacks


def _salt(selection: Selection, context: Context, fuse: bool) -> str:
    """What graphs depend on beside the program: a cluster may grow while it holds some results of one."""
    options = context.options
    how = [fuse, context.fuse_text_keys, options.assume, options.reread, options.bisect_limit]
    return f"{selection.salt} {how} {context.machine}"


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
        salt=_salt(selection, context, fuse),
        assume=options.assume == "declared",
        small=next((each.max_bytes for each in selection.passes if isinstance(each, FuseSmall)), 0),
    )
    try:
        graph = lowering.run()
        context.declared = lowering.declared
        context.leftovers = lowering.twice
        context.values = data_keys(graph)
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


def _settled(graph: Graph, pipeline: Pipeline, context: Context, trace: Trace | None) -> Graph:
    return settle_names(_checked(graph, pipeline, context, trace), context.values, context.regrouped)


def _checked(graph: Graph, pipeline: Pipeline, context: Context, trace: Trace | None) -> Graph:
    """The graph after all passes, verified; one whose result is wrong is left out."""
    lowered, steps = graph, 0 if trace is None else len(trace.steps)
    graph = pipeline.run(graph, context)
    if context.options.verify != "end":
        return graph
    # Lowering and the passes of this package bound the nesting themselves.
    ours = all(type(each).__module__.startswith("dask_rewrite.") for each in pipeline.passes)
    try:
        verify(graph, external=graph.external, limit=None if ours else NESTING_LIMIT)
    except VerificationError:  # find out which pass it was, and leave that one out
        if trace is not None:
            del trace.steps[steps:]
        verify(lowered, external=lowered.external)
        checked = Pipeline(pipeline.passes, [Verifying(), *pipeline.callbacks])
        return checked.run(lowered, context)
    return graph


def _report(graph: Graph | None, context: Context, trace: Trace | None, seconds: float) -> None:
    remarks, wanted = context.remarks, context.options.remarks
    if trace is not None:
        trace.remarks, trace.seconds = remarks, seconds
        trace.form = "tasks" if graph is not None else "stock"
    for remark in remarks if wanted else ():
        if remark.kind in wanted:
            logger.info("%s", remark)
