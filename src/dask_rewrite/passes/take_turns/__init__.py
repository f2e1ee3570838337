"""Tasks that wait for each other, where far more would be held than one after the other needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from typing import ClassVar, NamedTuple

from dask.utils import format_bytes

from dask_rewrite.analysis.memory.graphs import Sized
from dask_rewrite.analysis.memory.runs import needs_of, peak_of
from dask_rewrite.analysis.memory.turns import thrifty_order
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.base import Missed
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.take_turns.gates import Ordered, Turns, taking_turns
from dask_rewrite.passes.take_turns.numbers import numbers_of
from dask_rewrite.passes.take_turns.sharing import may_take_turns
from dask_rewrite.scheduler import Machine, on_event_loop

#: Less is held: to plan it takes as long as to schedule some tasks.
MIN_BYTES = 2**24
#: So much of that is looked at where blocks wait for neighbours because of us: dask's graph, in
#: which they do not, may hold far less.
_OURS = 0.25
#: What is held before tasks wait, over what is held once they need not wait any more: a gate lets many go on.
_LOOSE = 1.25
#: Room for so many times what tasks that run side by side need: some of them wait for others.
_AT_ONCE = 2
#: On a cluster blocks travel more where tasks wait: there is room for one part in so many of its memory.
_ROOM = 4


@dataclass(frozen=True, slots=True)
class TakeTurns:
    """Blocks that wait for their neighbours → the next ones are made when these have been let go of.

    Schedulers go for one result after the other (depth first). Where results share blocks, as the steps of a
    stencil do, all blocks may be there before any can go, though row by row a few are enough. With an order
    in which little is held (Sethi and Ullman 1970, Liu 1987 for trees; a heuristic here), tasks that
    make much wait for a gate, until enough of what came before is gone. Nothing is computed twice or in
    another way.

    Parameters
    ----------
    min_bytes : int
        Less than this is held, as are blocks of one kind with several users that weigh less together. A
        quarter of it where ``regrid`` has blocks wait for their neighbours.
    gain : int
        Percent of what is held with gates that has to be held without, at least.
    """

    name: ClassVar[str] = "take-turns"
    min_bytes: int = MIN_BYTES
    gain: int = 150

    def run(self, graph: Graph, context: Context) -> Graph:
        if graph.origin.shared or context.options.memory_limit is not None:
            return graph  # which is kept with gates of its own, where they are needed
        if on_event_loop():
            return graph  # which waits meanwhile
        site, remarks = Site(graph, context), context.remarks
        least = int(self.min_bytes * _OURS) if context.coarsened else self.min_bytes
        if not may_take_turns(site, least, self.gain * _LOOSE / 100):
            return graph
        sizes = numbers_of(site)
        way = self._way(sizes, context.machine, least)
        if isinstance(way, Missed):
            remarks.missed(self.name, None, way.reason)
            return graph
        turns = Turns(self.name, int(_LOOSE * way.room), way.room, partial(remarks.allow, self.name))
        made = taking_turns(Ordered(graph, sizes, way.order), turns)
        if made is None:
            return graph
        gates = len(made.nodes) - len(graph.nodes)
        said = f"{format_bytes(way.held)} would be held, and are {format_bytes(turns.limit)}; gates: {gates}"
        remarks.applied(self.name, None, said, gates)
        return made

    def _way(self, sizes: Sized, running: Machine, least: int) -> _Way | Missed:
        """An order that holds little, if others hold much more.

        Next to what is held one after the other, so many tasks need room as there are threads.
        """
        work, no_use = sizes.likely, Missed("no order holds much less")
        needs = nlargest(running.threads, needs_of(work))
        held = peak_of(work, *running.layout)
        if held < least or not self._is_much_more(held, sum(needs)):
            return no_use  # one task alone needs no less
        if running.workers > 1 and held * _ROOM < running.memory:
            return Missed("the cluster has room for all: blocks stay where they are made")
        order, peak = thrifty_order(work, sizes.keys)
        room = peak + _AT_ONCE * sum(needs[1:])
        return _Way(order, room, held) if self._is_much_more(held, room) else no_use

    def _is_much_more(self, held: int, room: int) -> bool:
        """Whether it is worth while to hold what there is room for, and a bit, instead of this."""
        return held * 100 >= self.gain * _LOOSE * room


class _Way(NamedTuple):
    """An order of tasks, the bytes that it needs, and those that are held without it."""

    order: Sequence[int]
    room: int
    held: int
