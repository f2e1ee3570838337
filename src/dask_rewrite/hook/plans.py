"""Plans for a graph that holds more than ``rewrite.memory-limit``, in the order of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dask.typing import Key

from dask_rewrite.analysis.memory import graphs
from dask_rewrite.analysis.memory.original import Original
from dask_rewrite.analysis.memory.runs import Run, simulate
from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.hook.taking_turns import taking_turns
from dask_rewrite.passes.reread import Reread
from dask_rewrite.pipeline.trace import Trace
from dask_rewrite.scheduler import machine

#: A plan that does not fit either has to hold so much less than one that costs less.
_LESS = 0.8
#: Where nothing waits, threads may happen to hold more than is forecast: it has to be so much less.
_SURELY = 0.5
#: Blocks that are so many times smaller than the limit are never read again.
_SMALL = 64


def chosen(
    raw: Any,
    graph: Graph,
    outputs: list[Key],
    rewrite: Callable[..., Graph | None] | None,
    options: Options,
    trace: Trace | None = None,
) -> tuple[Graph, Run]:
    """The first plan that fits, or else the one that holds least; and its simulated run.

    Tried are the graph as it is, and what :func:`taking_turns` makes of it; then, with that again, blocks
    that would wait for a reduction over many blocks are read again, and those that wait for any other task.

    Parameters
    ----------
    raw : HighLevelGraph or mapping
        The graph as it came.
    graph : Graph
        The plan that costs least.
    outputs : list of Key
        What is asked of it.
    rewrite : callable or None
        Makes another plan: takes ``options`` and ``trace``.
    options : Options
        The options, with a limit.
    trace : Trace, optional
        Becomes that of the plan that is taken.
    """
    limit = options.memory_limit or 0
    original = Original(raw)
    best: tuple[Graph, Run] | None = None
    for plan, steps in _plans(graph, rewrite, options, trace):
        for each, run, most in _with_turns(original, plan, outputs, limit):
            if best is None or run.least <= most or run.least < _LESS * best[1].least:
                best = each, run
                if trace is not None and steps is not None:
                    trace.steps, trace.remarks, trace.seconds = steps.steps, steps.remarks, steps.seconds
            if run.least <= most:
                return best
        if best is not None and best[1].least <= limit:
            return best
    assert best is not None
    return best


def _plans(
    graph: Graph, rewrite: Callable[..., Graph | None] | None, options: Options, trace: Trace | None
) -> Iterator[tuple[Graph, Trace | None]]:
    """The plan that there is, and those that compute more than once, each with what was done for it."""
    yield graph, None
    if rewrite is None:
        return
    least = max(1, min(Reread().min_bytes, (options.memory_limit or 0) // _SMALL))
    given = options.options.get(Reread.name, {})
    finer = {**options.options, Reread.name: {"min-bytes": least, "min-blocks": 1, **given}}
    for other in (replace(options, reread=True), replace(options, reread=True, options=finer)):
        steps = None if trace is None else Trace(nbytes=trace.nbytes)
        if other != options and (plan := rewrite(options=other, trace=steps)) is not None:
            yield plan, steps


def _with_turns(
    original: Original, plan: Graph, outputs: list[Key], limit: int
) -> Iterator[tuple[Graph, Run, float]]:
    """A plan, its run, and what that may hold; then the same where tasks wait for each other."""
    run, sizes = _run(original, plan, outputs)
    yield plan, run, _SURELY * limit
    waiting = taking_turns(plan, sizes, limit)
    if waiting is not None:
        yield waiting, _run(original, waiting, outputs)[0], limit


def _run(original: Original, graph: Graph, outputs: list[Key]) -> tuple[Run, graphs.Sized]:
    """The simulated run of a graph on the scheduler in use, and the graph as numbers."""
    threads, workers = machine().layout
    results = original.rewritten(graph.nodes)
    sizes = graphs.sized(graph.nodes, outputs, results.of, threads * max(1, workers))
    return simulate(sizes, threads, workers), sizes


__all__ = ["chosen"]
