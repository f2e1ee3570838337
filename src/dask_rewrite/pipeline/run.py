"""The passes in their order, and the run that is always safe.

A pass that raises, or whose result fails verification, is dropped: the graph before it goes on, with
one warning that names it. If lowering itself fails, the raw graph goes to dask's own optimizer.
"""

from __future__ import annotations

import gc
import logging
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key

from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph, Metrics
from dask_rewrite.graph.nesting import NESTING_LIMIT
from dask_rewrite.graph.verify import VerificationError, verify
from dask_rewrite.lowering.fusion import FuseBlockwise
from dask_rewrite.lowering.layer_order import as_layers
from dask_rewrite.lowering.lower import Lowering, OverBudget
from dask_rewrite.passes.base import Pass
from dask_rewrite.pipeline.selection import LAYER_PASSES, Selection, select
from dask_rewrite.pipeline.trace import Step, Trace
from dask_rewrite.pipeline.verify_facts import verify_thoroughly
from dask_rewrite.remarks import Remarks, RewriteWarning

logger = logging.getLogger("dask_rewrite")


#: Young objects above which a collection would cost a good part of what the rewriting did.
MANY_OBJECTS = 10_000


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Collecting garbage while a graph is built costs as much as building it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            # What was made here is alive: after much of it, let the next collection not look at it. Small
            # graphs leave that alone, since all that is young would go unseen until a full collection.
            if gc.get_count()[0] > MANY_OBJECTS and gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def rewrite_tasks(
    dsk: HighLevelGraph | Mapping[Key, Any],
    keys: Any,
    *,
    fuse_text_keys: bool = True,
    trace: Trace | None = None,
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
    trace : Trace, optional
        Filled in with what each pass did; measuring takes time of its own.

    Returns
    -------
    Graph or None
        None if the graph stays as it is: it is larger than ``rewrite.lower-limit`` tasks, or lowering
        took longer than ``rewrite.lower-seconds``, or failed.
    """
    options = Options.current()
    selection = select(options)
    dsk = as_layers(dsk)
    outputs = tuple(dict.fromkeys(flatten(keys if isinstance(keys, (list, set)) else [keys])))
    remarks = Remarks(options.bisect_limit)
    started = perf_counter()
    with _collector_paused():
        try:
            graph = _lowered(dsk, outputs, selection, remarks, options, trace)
            if graph is not None:
                graph.fuse_text_keys = fuse_text_keys
                graph = _run_passes(graph, selection.passes, remarks, options, trace)
                _forget(graph)
        except Exception as error:
            if options.on_error == "raise":
                raise
            _warn("lower", error)
            remarks.failed("lower", None, repr(error))
            graph = None
    if trace is not None:
        trace.remarks = remarks
        trace.seconds = perf_counter() - started
        trace.form = "tasks" if graph is not None else "stock"
    _log(remarks, options)
    return graph


def _lowered(
    hlg: HighLevelGraph,
    outputs: Sequence[Key],
    selection: Selection,
    remarks: Remarks,
    options: Options,
    trace: Trace | None,
) -> Graph | None:
    started = perf_counter()
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
        salt=f"{selection.salt} {fuse}",
    )
    try:
        graph = lowering.run()
    except OverBudget as reason:
        remarks.missed("lower", None, f"left to dask's own optimizer: {reason}")
        if trace is not None:
            size = Metrics(sum(map(len, hlg.layers.values())), 0, 0)
            trace.steps.append(Step("lower", size, size, perf_counter() - started))
        return None
    if graph.annotations:
        names = sorted(set().union(*graph.annotations.values()))
        remarks.applied("annotations", None, f"{', '.join(names)} take effect; dask's own fusion drops them")
    if trace is not None:
        seconds = perf_counter() - started
        trace.steps.append(Step("lower", None, _measured(graph, trace), seconds))
    if not options.print_after.isdisjoint(("changed", *LAYER_PASSES)):
        _print("lower", graph)
    return graph


def _run_passes(
    graph: Graph, passes: Sequence[Pass], remarks: Remarks, options: Options, trace: Trace | None
) -> Graph:
    lowered = graph
    each_time = options.verify in ("each", "rule")
    if each_time:
        verify_thoroughly(graph)
    for each in passes:
        graph = _run_pass(each, graph, remarks, options, trace, each_time)
    if options.verify != "end":
        return graph
    # Lowering and the passes of this package bound the nesting themselves.
    ours = all(type(each).__module__.startswith("dask_rewrite.") for each in passes)
    try:
        verify(graph, external=graph.external, limit=None if ours else NESTING_LIMIT)
    except VerificationError:  # find out which pass it was, and leave that one out
        if trace is not None:
            del trace.steps[1:]
        graph = lowered
        verify(graph, external=graph.external)
        for each in passes:
            graph = _run_pass(each, graph, remarks, options, trace, True)
    return graph


def _forget(graph: Graph) -> None:
    """Let go of what only passes need; it refers to itself, and would wait for a collection of garbage."""
    if graph.facts is not None:
        graph.facts.close()
        graph.facts = None


def _run_pass(
    each: Pass, before: Graph, remarks: Remarks, options: Options, trace: Trace | None, checked: bool
) -> Graph:
    """One pass; the graph before it if it fails."""
    started = perf_counter()
    if options.verify == "rule":
        remarks.check = partial(verify_thoroughly, before=before)
    try:
        graph = each.run(before, remarks)
        if checked and graph is not before:
            verify_thoroughly(graph, before)
    except Exception as error:
        if options.on_error == "raise":
            raise
        graph = before
        verify(graph, external=graph.external)  # the pass may have spoilt what it was given
        _warn(each.name, error)
        remarks.failed(each.name, None, repr(error))
        if "failure" in options.print_after:
            _print(each.name, graph)
    seconds = perf_counter() - started
    if trace is not None:
        last = trace.steps[-1].after if trace.steps else None
        after = last if graph is before and last is not None else _measured(graph, trace)
        trace.steps.append(Step(each.name, last, after, seconds))
    if each.name in options.print_after or ("changed" in options.print_after and graph is not before):
        _print(each.name, graph)
    return graph


def _measured(graph: Graph, trace: Trace) -> Metrics:
    metrics = graph.metrics()
    if trace.nbytes:
        from dask_rewrite.graph.pickling import pickled_size

        try:
            metrics = replace(metrics, nbytes=pickled_size(graph.nodes))
        except Exception:  # preflight tells why
            return metrics
    return metrics


def _warn(name: str, error: Exception) -> None:
    where = traceback.extract_tb(error.__traceback__)[-1]
    warnings.warn(
        f"dask_rewrite: pass {name!r} failed and was left out: {error!r} "
        f"({where.name}, line {where.lineno}); the computation goes on without it",
        RewriteWarning,
        stacklevel=2,
    )


def _print(name: str, graph: Graph) -> None:
    lines = [f"-- after {name}: {len(graph.nodes)} tasks"]
    lines += [f"{key!r}: {node!r}" for key, node in graph.nodes.items()]
    print("\n".join(lines), file=sys.stderr)


def _log(remarks: Remarks, options: Options) -> None:
    if options.remarks:
        for remark in remarks:
            if remark.kind in options.remarks:
                logger.info("%s", remark)


__all__ = ["rewrite_tasks"]
