"""Plans for a graph that holds more than ``rewrite.memory-limit``, in the order of what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Any

from dask.typing import Key

from dask_rewrite.analysis.memory import graphs
from dask_rewrite.analysis.memory.blocks import Result
from dask_rewrite.analysis.memory.original import Original
from dask_rewrite.analysis.memory.runs import Run, floor_of, simulate
from dask_rewrite.analysis.memory.sizes import SMALL
from dask_rewrite.analysis.memory.turns import thrifty_order
from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import fingerprint, mark, unmarked
from dask_rewrite.hook.taking_turns import taking_turns
from dask_rewrite.passes.reread import Reread
from dask_rewrite.pipeline.final_names import with_names
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
        Makes another plan: takes ``options`` and ``trace``; None if it is none.
    options : Options
        The options, with a limit.
    trace : Trace, optional
        Becomes that of the plan that is taken.
    """
    search = _Search(Original(raw), graph, outputs, options.memory_limit or 0)
    for number, (plan, steps) in enumerate(_plans(graph, rewrite, options, trace)):
        before = search.best
        done = search.look_at(plan, number)
        if search.best is not before and trace is not None and steps is not None:
            trace.steps, trace.remarks, trace.seconds = steps.steps, steps.remarks, steps.seconds
        if done:
            break
    return search.found()


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
    first = [] if trace is None else list(takewhile(lambda step: step.name != Reread.name, trace.steps))
    for other in (replace(options, reread=True), replace(options, reread=True, options=finer)):
        steps = None if trace is None else Trace(first[:], nbytes=trace.nbytes)
        if other != options and (plan := rewrite(options=other, trace=steps)) is not None:
            yield plan, steps


class _Search:
    """The best of the plans that were looked at."""

    def __init__(self, original: Original, graph: Graph, outputs: list[Key], limit: int) -> None:
        self.best: tuple[Graph, Run, int] | None = None
        self._original, self._first, self._outputs, self._limit = original, graph, outputs, limit
        self._layout = machine().layout

    def look_at(self, plan: Graph, number: int) -> bool:
        """Look at a plan, and at the same with turns; true if nothing else needs to be looked at."""
        limit = self._limit
        results = self._original.rewritten(plan.nodes)
        sizes = self._sized(plan, results.of)
        if self._take(plan, sizes, number, _SURELY * limit):
            return True
        order, peak = thrifty_order(sizes.likely)
        # what waits holds as much as it does one by one: there is no need to simulate that
        if peak <= limit or sizes.unknown or peak < _LESS * self._least():
            waiting = taking_turns(plan, sizes, order, limit)
            if waiting is not None:
                known = defaultdict(_gate, zip(sizes.keys, sizes.results))
                if self._take(waiting, self._sized(waiting, known.__getitem__), number, limit):
                    return True
        least, floor = self._least(), _held_by_all(sizes)
        return least <= limit or (floor > limit and floor >= _LESS * least)

    def found(self) -> tuple[Graph, Run]:
        """The best plan, under names that no other plan has."""
        assert self.best is not None
        graph, run, number = self.best
        if graph is self._first:
            return graph, run
        token = fingerprint([graph.origin.token, "memory-limit", str(self._limit), str(number)])
        outputs = frozenset(graph.outputs)
        names = {
            key: _marked(key, token)
            for key, node in graph.nodes.items()
            if key not in outputs and (node._dependencies or _is_marked(key))
        }
        return with_names(graph, {old: new for old, new in names.items() if old != new}), run

    def _take(self, plan: Graph, sizes: graphs.Sized, number: int, most: float) -> bool:
        """Simulate a plan; true if it holds no more than so much."""
        run = simulate(sizes, *self._layout)
        if self.best is None or run.least <= most or run.least < _LESS * self.best[1].least:
            self.best = plan, run, number
        return run.least <= most

    def _least(self) -> int:
        return 0 if self.best is None else self.best[1].least

    def _sized(self, plan: Graph, of: Callable[[Key], Result]) -> graphs.Sized:
        threads, workers = self._layout
        return graphs.sized(plan.nodes, self._outputs, of, threads * max(1, workers))


def _gate() -> Result:
    """What a gate gives; nothing else is new."""
    return Result(SMALL, SMALL)


def _held_by_all(sizes: graphs.Sized) -> int:
    """Bytes that every plan holds: of what is asked for, or of what one task needs and makes."""
    work = sizes.works[0]
    return max(floor_of(work), sum([work.owned[task] for task in work.kept]))


def _is_marked(key: Any) -> bool:
    name = key[0] if type(key) is tuple and key else key
    return type(name) is str and unmarked(name) != name


def _marked(key: Any, token: str) -> Any:
    if type(key) is tuple and key and type(key[0]) is str:
        return (mark(key[0], token), *key[1:])
    return mark(key, token) if type(key) is str else key


__all__ = ["chosen"]
