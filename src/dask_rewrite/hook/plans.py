"""Plans for a graph that holds more than ``rewrite.memory-limit``, in the order of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from dask.typing import Key

from dask_rewrite.analysis.memory.original import Original
from dask_rewrite.analysis.memory.runs import Run
from dask_rewrite.config import Options
from dask_rewrite.graph.batches import is_batch
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import layer_name
from dask_rewrite.hook.plan_search import Best, Search
from dask_rewrite.passes.coalesce import Coalesce
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.contract import Contract
from dask_rewrite.passes.reread import Reread
from dask_rewrite.pipeline.trace import Trace

#: Blocks of which parts are taken are read in so many parts: in few, which decodes less, or in more.
_PARTS = (2, 8)
#: A task reads so many blocks that only it needs.
_LOADS = 16
#: Blocks that are so many times smaller than the limit are never read again.
_SMALL = 64


def chosen(
    raw: Any,
    graph: Graph,
    outputs: list[Key],
    rewrite: Callable[..., Graph | None] | None,
    context: Context,
    trace: Trace | None = None,
) -> tuple[Graph, Run]:
    """The first plan that fits, or else the one that holds least; and its simulated run.

    Tried are the graph as it is, and what :func:`taking_turns` makes of it; then the same without batches of
    tiny tasks, whose results are all held as long as one of them, and without accumulated products; then
    blocks are read again for which there is no room, or all that would wait for a reduction over many blocks,
    or for any other task. Where nothing fits, it is tried to hold somewhat more than the limit.

    Parameters
    ----------
    raw : HighLevelGraph or mapping
        The graph as it came.
    graph : Graph
        The plan that costs least.
    outputs : list of Key
        What is asked of it.
    rewrite : callable or None
        Makes another plan: takes ``options`` and ``trace``; None if it is none.
    context : Context
        What is known of the program; its options have a limit.
    trace : Trace, optional
        Becomes that of the plan that is taken.
    """
    search = Search(Original(raw), graph, outputs, context, rewrite is not None)
    refused = context.options.on_memory == "raise"
    hopeless = False  # one task alone needs more
    rest: list[tuple[Callable[[], bool], Trace | None]] = []
    above: list[tuple[Callable[[int], bool], Trace | None]] = []

    def look(at: Callable[[], bool], steps: Trace | None) -> bool:
        before = search.best
        done = at()
        if search.best is not before and trace is not None and steps is not None:
            trace.steps, trace.remarks, trace.seconds = steps.steps, steps.remarks, steps.seconds
        return done

    for number, (make, steps, in_parts) in enumerate(_plans(graph, rewrite, context.options, trace)):
        if (hopeless and not in_parts) or (plan := make()) is None:
            continue
        done = look(partial(search.look_at, plan, str(number)), steps)
        hopeless = done and not search.fits and not _has_batches(plan)
        rest += [(way, steps) for way in search.later]
        above += [(way, steps) for way in search.above]
        if search.fits or search.is_full:
            break
    if not search.fits:
        done = any(look(way, steps) for way, steps in rest)
        for aim in () if done or refused else search.aims():
            any(look(partial(at, aim), steps) for at, steps in above)
    best = search.found()
    if trace is not None:
        _tell(best, trace)
    return best.graph, best.run


def _tell(best: Best, trace: Trace) -> None:
    """Note what was done for a plan, and what is not known of it."""
    if best.again:
        said = f"blocks that are read again where there is no room: {best.again}"
        trace.remarks.applied(Reread.name, None, said, best.again)
    if best.run.unknown:
        said = f"blocks of unknown size, so that more may be held: {best.run.unknown:,}"
        trace.remarks.missed("memory-limit", None, said)


def _plans(
    graph: Graph, rewrite: Callable[..., Graph | None] | None, options: Options, trace: Trace | None
) -> Iterator[tuple[Callable[[], Graph | None], Trace | None, bool]]:
    """The plan that there is, one without batches, and those that compute more than once.

    Each comes with what is done for it, and whether single tasks may need less in it.
    """
    yield lambda: graph, None if trace is None else replace(trace), True
    if rewrite is None:
        return
    before, others = options, []
    if _has_batches(graph):
        options = _without(Coalesce.name, options)
        others.append((options, True))
    if any(str(layer_name(key)).startswith(Contract.name) for key in graph.nodes):
        others.append((_without(Contract.name, options), True))
    least = max(1, min(Reread().min_bytes, (options.memory_limit or 0) // _SMALL))
    given = options.options.get(Reread.name, {})

    def again(**more: Any) -> Options:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return replace(options, reread=True, options={**options.options, Reread.name: {**named, **given}})

    finer = {"min_bytes": least, "min_blocks": 1}
    others += [(again(**finer, parts=parts), True) for parts in _PARTS]
    others += [(again(**finer, costly=True), False)]
    others += [(again(**finer, parts=_PARTS[-1], loads=max(1, _LOADS)), True)]
    first = [] if trace is None else list(takewhile(lambda step: step.name != Reread.name, trace.steps))
    for other, smaller in others:
        steps = None if trace is None else Trace(first[:], nbytes=trace.nbytes)
        if other != before:
            yield partial(rewrite, options=other, trace=steps), steps, smaller


def _without(name: str, options: Options) -> Options:
    return replace(options, disable=options.disable | {name})


def _has_batches(graph: Graph) -> bool:
    return any(map(is_batch, graph.nodes.values()))
