"""The search for a plan that holds no more than a limit, or else for the one that holds least."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from dask.typing import Key

from dask_rewrite.analysis.memory import graphs
from dask_rewrite.analysis.memory.blocks import Result
from dask_rewrite.analysis.memory.evictions import Evicted
from dask_rewrite.analysis.memory.original import Original
from dask_rewrite.analysis.memory.runs import Run, floor_of, simulate
from dask_rewrite.analysis.memory.sizes import SMALL
from dask_rewrite.analysis.memory.turns import thrifty_order
from dask_rewrite.graph.gates import ungated
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import fingerprint, layer_name, marked, unmarked
from dask_rewrite.graph.nodes import keeps_name
from dask_rewrite.hook.reading_again import ReadingAgain, with_copies
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.reread import Reread
from dask_rewrite.passes.take_turns.gates import Ordered, Turns, taking_turns
from dask_rewrite.pipeline.final_names import with_names
from dask_rewrite.pipeline.selection import select
from dask_rewrite.scheduler import machine

#: A plan that does not fit either has to hold so much less than one that costs less.
_LESS = 0.8
#: Where nothing waits, threads may happen to hold more than is forecast: it has to be so much less.
_SURELY = 0.5
#: Where what is done again takes so many times as long as all tasks, other plans are looked at first.
_MORE = 1.25
#: Where the limit is out of reach, the least that can be held is looked for in so many steps.
_AIMS = 4
#: Tasks wait while so much of the limit is held: nothing waits for what is small.
_WAITED_FOR = 0.98


class Best(NamedTuple):
    """A plan and its run; what it is called, and how many blocks it reads again beyond what passes did."""

    graph: Graph
    run: Run
    name: str
    again: int


class Search:
    """The best of the plans that were looked at."""

    def __init__(
        self, original: Original, graph: Graph, outputs: list[Key], context: Context, may_repeat: bool
    ) -> None:
        self.best: Best | None = None
        self.asked = 0  #: bytes of what is asked for, which every plan holds
        self._original, self._first, self._outputs = original, graph, outputs
        self._context, self._limit = context, context.options.memory_limit or 0
        self._may_repeat = may_repeat and any(
            each.name == Reread.name for each in select(context.options).passes
        )
        self._layout = machine().layout
        self.later: list[Callable[[], bool]] = []  #: ways to look at last of all: they do much again
        self.above: list[Callable[[int], bool]] = []  #: and those that hold more than the limit

    def look_at(self, plan: Graph, name: str) -> bool:
        """Look at a plan, and at the same with turns; true if nothing else needs to be looked at."""
        limit, self.later, self.above = self._limit, [], []
        sizes = self._sized(plan, self._original.rewritten(plan.nodes).of)
        self.asked = sum([sizes.works[0].nbytes[task] for task in sizes.works[0].kept])
        if self._take(plan, sizes, name, _SURELY * limit):
            return True
        order, peak = thrifty_order(sizes.likely, sizes.keys)
        # what waits holds as much as it does one by one: there is no need to simulate that
        ordered = Ordered(plan, sizes, order)
        if peak <= limit or sizes.unknown or peak < _LESS * self._least():
            if self._with_turns(ordered, name, limit):
                return True
        least, floor = self._least(), _held_by_all(sizes)
        if least <= limit or (floor > limit and floor >= _LESS * least):
            return True
        if sizes.unknown:
            return False
        again = ReadingAgain(ordered, self._context)
        self.above.append(partial(self._look_above, again, name, peak, floor))
        if not self._may_repeat or floor > limit:
            return False
        whole = sum(sizes.likely.seconds)
        for way, found in enumerate(again.ways(limit)):
            look = partial(self._doing_again, ordered, found, f"{name} again {way}", limit)
            if found.seconds(sizes.likely) > _MORE * whole:
                self.later.append(look)
            elif look():
                return True
        return False

    def _look_above(self, again: ReadingAgain, name: str, peak: int, floor: int, aim: int) -> bool:
        """Look at a plan, for one that holds no more than ``aim``; true if there is one."""
        name = f"{name} at {aim}"
        if peak <= aim and self._with_turns(again.plan, name, aim):
            return True
        ways = again.ways(aim) if self._may_repeat and floor <= aim else ()
        return any(
            self._doing_again(again.plan, found, f"{name} again {way}", aim) for way, found in enumerate(ways)
        )

    def aims(self) -> Iterator[int]:
        """Bytes to aim at, one after the other, where the limit is out of reach; less once one is reached."""
        low, high = self._limit, int(_LESS * self._least())
        for _ in range(_AIMS):
            if self.is_full or low >= high:
                return
            aim = math.isqrt(low * high)
            yield aim
            if (found := int(_LESS * self._least())) < high:
                high = found
            else:
                low = aim

    @property
    def fits(self) -> bool:
        """A plan was found that holds no more than the limit."""
        return self.best is not None and self._least() <= self._limit

    @property
    def is_full(self) -> bool:
        """What is asked for leaves no room, and no plan can hold so much less as to be taken."""
        return self.asked > _WAITED_FOR * self._limit and self.asked >= _LESS * self._least()

    def found(self) -> Best:
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
            and not (keeps_name(node) or keeps_name(ungated(node)))
        }
        renamed = with_names(graph, {old: new for old, new in names.items() if old != new})
        return Best(renamed, run, name, again)

    def _doing_again(self, plan: Ordered, found: Evicted, name: str, aim: int) -> bool:
        """Look at a plan with some tasks done again, where tasks wait; true if it holds no more than that."""
        return self._with_turns(with_copies(plan, found), name, aim, len(found.copies))

    def _with_turns(self, plan: Ordered, name: str, aim: int, again: int = 0) -> bool:
        """Look at a plan where tasks wait for each other; true if it holds no more than that."""
        most = int(_WAITED_FOR * aim)
        waiting = taking_turns(plan, Turns("memory-limit", most, most))
        if waiting is None:
            return False
        known = defaultdict(_gate, zip(plan.sized.keys, plan.sized.results))
        return self._take(waiting, self._sized(waiting, known.__getitem__), name, aim, again)

    def _take(self, plan: Graph, sizes: graphs.Sized, name: str, most: float, again: int = 0) -> bool:
        """Simulate a plan; true if it holds no more than so much."""
        run = simulate(sizes, *self._layout)
        if self.best is None or run.least <= most or run.least < _LESS * self.best.run.least:
            self.best = Best(plan, run, name, again)
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
