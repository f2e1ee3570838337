"""Plans for a graph that holds more than ``rewrite.memory-limit``, in the order of what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from dask.typing import Key

from dask_rewrite.analysis.memory import graphs
from dask_rewrite.analysis.memory.blocks import Result
from dask_rewrite.analysis.memory.evictions import Evicted
from dask_rewrite.analysis.memory.original import Original
from dask_rewrite.analysis.memory.runs import Run, floor_of, simulate
from dask_rewrite.analysis.memory.sizes import SMALL
from dask_rewrite.analysis.memory.turns import thrifty_order
from dask_rewrite.config import Options
from dask_rewrite.graph.batches import is_batch
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import fingerprint, layer_name, marked, unmarked
from dask_rewrite.hook.reading_again import reading_again, with_copies
from dask_rewrite.passes.coalesce import Coalesce
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.reread import Reread
from dask_rewrite.passes.take_turns.gates import Ordered, Turns, taking_turns
from dask_rewrite.pipeline.final_names import with_names
from dask_rewrite.pipeline.selection import select
from dask_rewrite.pipeline.trace import Trace
from dask_rewrite.scheduler import machine

#: A plan that does not fit either has to hold so much less than one that costs less.
_LESS = 0.8
#: Where nothing waits, threads may happen to hold more than is forecast: it has to be so much less.
_SURELY = 0.5
#: Where what is done again takes so many times as long as all tasks, other plans are looked at first.
_MORE = 1.25
#: Tasks wait while so much of the limit is held: nothing waits for what is small.
_WAITED_FOR = 0.98
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
    tiny tasks, whose results are all held as long as one of them; then blocks are read again for which there
    is no room, or all that would wait for a reduction over many blocks, or for any other task.

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
    search = _Search(Original(raw), graph, outputs, context, rewrite is not None)
    hopeless = False  # one task alone needs more
    rest: list[tuple[Callable[[], bool], Trace | None]] = []

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
        if search.fits or search.is_full:
            break
    if not search.fits:
        any(look(way, steps) for way, steps in rest)
    best = search.found()
    if trace is not None and best.again:
        said = f"blocks that are read again where there is no room: {best.again}"
        trace.remarks.applied(Reread.name, None, said, best.again)
    if trace is not None and best.run.unknown:
        said = f"blocks of unknown size, so that more may be held: {best.run.unknown:,}"
        trace.remarks.missed("memory-limit", None, said)
    return best.graph, best.run


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
        options = replace(options, disable=options.disable | {Coalesce.name})
        others.append((options, True))
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


def _has_batches(graph: Graph) -> bool:
    return any(map(is_batch, graph.nodes.values()))


class _Best(NamedTuple):
    """A plan and its run; what it is called, and how many blocks it reads again beyond what passes did."""

    graph: Graph
    run: Run
    name: str
    again: int


class _Search:
    """The best of the plans that were looked at."""

    def __init__(
        self, original: Original, graph: Graph, outputs: list[Key], context: Context, may_repeat: bool
    ) -> None:
        self.best: _Best | None = None
        self.asked = 0  #: bytes of what is asked for, which every plan holds
        self._original, self._first, self._outputs = original, graph, outputs
        self._context, self._limit = context, context.options.memory_limit or 0
        self._may_repeat = may_repeat and any(
            each.name == Reread.name for each in select(context.options).passes
        )
        self._layout = machine().layout
        self.later: list[Callable[[], bool]] = []  #: ways to look at last of all: they do much again

    def look_at(self, plan: Graph, name: str) -> bool:
        """Look at a plan, and at the same with turns; true if nothing else needs to be looked at."""
        limit, self.later = self._limit, []
        sizes = self._sized(plan, self._original.rewritten(plan.nodes).of)
        self.asked = sum([sizes.works[0].nbytes[task] for task in sizes.works[0].kept])
        if self._take(plan, sizes, name, _SURELY * limit):
            return True
        order, peak = thrifty_order(sizes.likely, sizes.keys)
        # what waits holds as much as it does one by one: there is no need to simulate that
        ordered = Ordered(plan, sizes, order)
        if peak <= limit or sizes.unknown or peak < _LESS * self._least():
            if self._with_turns(ordered, name):
                return True
        least, floor = self._least(), _held_by_all(sizes)
        if least <= limit or (floor > limit and floor >= _LESS * least):
            return True
        if not self._may_repeat or floor > limit or sizes.unknown:
            return False
        whole = sum(sizes.likely.seconds)
        for way, found in enumerate(reading_again(ordered, limit, self._context)):
            look = partial(self._doing_again, ordered, found, f"{name} again {way}")
            if found.seconds(sizes.likely) > _MORE * whole:
                self.later.append(look)
            elif look():
                return True
        return False

    @property
    def fits(self) -> bool:
        """A plan was found that holds no more than the limit."""
        return self.best is not None and self._least() <= self._limit

    @property
    def is_full(self) -> bool:
        """What is asked for leaves no room, and no plan can hold so much less as to be taken."""
        if self.asked > self._limit:
            return True
        return self.asked > _WAITED_FOR * self._limit and self.asked >= _LESS * self._least()

    def found(self) -> _Best:
        """The best plan, under names that no other plan has."""
        assert self.best is not None
        graph, run, name, again = self.best
        if graph is self._first:
            return self.best
        token = fingerprint([graph.origin.token, "memory-limit", str(self._limit), name])
        outputs = frozenset(graph.outputs)
        names = {
            key: marked(key, token)
            for key, node in graph.nodes.items()
            if key not in outputs
            and type(name := layer_name(key)) is str
            and (node._dependencies or unmarked(name) != name)
        }
        renamed = with_names(graph, {old: new for old, new in names.items() if old != new})
        return _Best(renamed, run, name, again)

    def _doing_again(self, plan: Ordered, found: Evicted, name: str) -> bool:
        """Look at a plan with some tasks done again, where tasks wait; true if it fits."""
        return self._with_turns(with_copies(plan, found), name, len(found.copies))

    def _with_turns(self, plan: Ordered, name: str, again: int = 0) -> bool:
        """Look at a plan where tasks wait for each other; true if it fits."""
        most = int(_WAITED_FOR * self._limit)
        waiting = taking_turns(plan, Turns("memory-limit", most, most))
        if waiting is None:
            return False
        known = defaultdict(_gate, zip(plan.sized.keys, plan.sized.results))
        return self._take(waiting, self._sized(waiting, known.__getitem__), name, self._limit, again)

    def _take(self, plan: Graph, sizes: graphs.Sized, name: str, most: float, again: int = 0) -> bool:
        """Simulate a plan; true if it holds no more than so much."""
        run = simulate(sizes, *self._layout)
        if self.best is None or run.least <= most or run.least < _LESS * self.best.run.least:
            self.best = _Best(plan, run, name, again)
        return run.least <= most

    def _least(self) -> int:
        return 0 if self.best is None else self.best.run.least

    def _sized(self, plan: Graph, of: Callable[[Key], Result]) -> graphs.Sized:
        threads, workers = self._layout
        total = threads * max(1, workers)
        return graphs.sized(plan.nodes, self._outputs, of, total, graphs.order_of_numbers)


def _gate() -> Result:
    """What a gate gives; nothing else is new."""
    return Result(SMALL, SMALL)


def _held_by_all(sizes: graphs.Sized) -> int:
    """Bytes that every plan holds: of what is asked for, or of what one task needs and makes."""
    work = sizes.works[0]
    return max(floor_of(work), sum([work.owned[task] for task in work.kept]))
