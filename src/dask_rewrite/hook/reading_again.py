"""Blocks that are let go of and read again, as few as there is no room for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from dask._task_spec import TaskRef
from dask.typing import Key

from dask_rewrite.analysis.memory.evictions import Evicted, evictions
from dask_rewrite.analysis.memory.graphs import Sized
from dask_rewrite.analysis.memory.turns import depth_first
from dask_rewrite.graph.names import fingerprint, marked
from dask_rewrite.graph.nodes import renamed
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.reread.repeatable import Repeatable
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.take_turns.gates import Ordered

#: What is so many times smaller than the limit is held.
_SMALL = 1024
#: Blocks are read again so many times at most, taken all together.
_TIMES = 8
#: Room for what runs side by side, if there is any: of the limit so much is filled.
_FILLED = (0.75, 0.95)


class ReadingAgain:
    """The same tasks, of which some are done twice: what they read is let go of meanwhile.

    Along one order, whenever there is no room, the block goes that is used last (Belady's rule), and is read
    again before that. The order that holds little computes much that waits for other blocks; where there is
    no room for that, all is read for one task after the other. Legal for what pass ``reread`` reads again,
    and for what is made of it and of what is held meanwhile.

    Parameters
    ----------
    plan : Ordered
        The plan, and an order in which it holds little.
    context : Context
        What is known of the program.
    """

    def __init__(self, plan: Ordered, context: Context) -> None:
        self.plan, self._context = plan, context
        self._found: dict[bool, list[int]] = {}  # what may be done again, with costly work and without

    def ways(self, limit: int) -> Iterator[Evicted]:
        """Ways for which there is room one by one, those that do least again first; costly work comes last.

        Parameters
        ----------
        limit : int
            Bytes.
        """
        work, before = self.plan.sized.likely, frozenset[int]()
        for costly in (False, True):
            again = self._repeatable(limit // _SMALL, costly)
            if again == before:
                continue
            before = again
            most = _TIMES * sum([again.isdisjoint(work.inputs[task]) for task in again])
            orders = self.plan.order, self._depth_first
            ways = [
                evictions(work, each, int(limit * part), again, most) for each in orders for part in _FILLED
            ]
            yield from sorted(
                [found for found in ways if found is not None and found.copies],
                key=lambda found: found.seconds(work),
            )

    @cached_property
    def _depth_first(self) -> list[int]:
        return depth_first(self.plan.sized.likely)

    def _repeatable(self, least: int, costly: bool) -> frozenset[int]:
        """The tasks that may be done again: what weighs enough to be let go of, and views."""
        if costly not in self._found:
            self._found[costly] = self._find(costly)
        owned = self.plan.sized.likely.owned
        return frozenset([task for task in self._found[costly] if owned[task] > least or not owned[task]])

    def _find(self, costly: bool) -> list[int]:
        context = self._context.forked(self._context.options)
        try:
            found = Repeatable(Site(self.plan.graph, context), 0, costly).found
        finally:
            context.close()
        return [task for task, key in enumerate(self.plan.sized.keys) if key in found]


def with_copies(plan: Ordered, found: Evicted) -> Ordered:
    """A plan with the tasks that are done again."""
    graph, sized, _ = plan
    token = fingerprint([graph.origin.token, "again"])
    nodes: dict[Key, Any] = dict(graph.nodes)
    annotations = dict(graph.annotations)
    keys = list(sized.keys)
    for number, task in enumerate(found.copies):
        old = keys[task]
        new = marked(old, fingerprint([token, str(number)]))
        nodes[new] = renamed(nodes[old], new)
        if old in annotations:
            annotations[new] = annotations[old]
        keys.append(new)
    results = [*sized.results, *[sized.results[task] for task in found.copies]]
    for user, taken in found.taken.items():
        copies = {keys[one]: keys[copy] for one, copy in taken.items()}
        refs = {one: TaskRef(copy) for one, copy in copies.items()}
        nodes[keys[user]] = with_values(nodes[keys[user]], refs)
        view = results[user].view
        results[user] = results[user]._replace(view=copies.get(view or "", view))
    other = Sized(keys, results, [found.work(sized.likely)])
    return Ordered(replace(graph, nodes=nodes, annotations=annotations), other, found.order)
