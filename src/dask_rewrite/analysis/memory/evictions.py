"""Which blocks to let go of and read again, where one task after the other would hold more than a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from dask_rewrite.analysis.memory.turns import last_uses
from dask_rewrite.analysis.memory.work import Work


@dataclass(slots=True)
class Evicted:
    """An order in which some tasks are done again. Numbers beyond those of the tasks are copies.

    Parameters
    ----------
    order : list of int
        Tasks and copies, one after the other.
    copies : list of int
        The task that each copy does again.
    taken : dict of int to dict of int to int
        For tasks that take copies: which copy, by the task that it is one of.
    """

    order: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    taken: dict[int, dict[int, int]] = field(default_factory=dict)

    def seconds(self, work: Work) -> float:
        """How long what is done again takes."""
        return sum([work.seconds[task] for task in self.copies])

    def work(self, work: Work) -> Work:
        """The graph with the copies, as numbers."""

        def more(column: list[Any]) -> list[Any]:
            return [*column, *[column[task] for task in self.copies]]

        inputs, views = more(work.inputs), more(work.views)
        for task, copies in self.taken.items():
            for column in inputs, views:
                column[task] = tuple([copies.get(one, one) for one in column[task]])
        sizes = more(work.nbytes), more(work.owned), more(work.seconds)
        return Work(inputs, views, *sizes, more(work.root), work.given, work.kept)


def evictions(work: Work, order: Sequence[int], limit: int, again: Set[int], most: int) -> Evicted | None:
    """Go through an order; where it holds too much, let go of what is used last of what can be done again.

    Parameters
    ----------
    work : Work
        The graph.
    order : sequence of int
        Its tasks, each after what it needs.
    limit : int
        Bytes.
    again : set of int
        Tasks that may be done again: of what they need, what is not among them is held until then.
    most : int
        No more copies than so many of tasks that need none that may be done again.

    Returns
    -------
    Evicted or None
        None if more is held whatever is let go of.

    Examples
    --------
    Two blocks of 10 bytes, the sum of both, and what takes each of them and the sum: both are read again.

    >>> inputs = [(), (), (0,), (1, 2), (0, 3), (1, 3)]
    >>> sizes = [10, 10, 1, 1, 1, 1]
    >>> work = Work(inputs, [()] * 6, sizes, sizes, [1.0] * 6, [True] * 6)
    >>> evictions(work, [0, 2, 1, 3, 4, 5], 15, frozenset([0, 1]), 4)
    Evicted(order=[0, 2, 1, 3, 6, 4, 7, 5], copies=[0, 1], taken={4: {0: 6}, 5: {1: 7}})
    """
    run = _Run(work, order, limit, again)
    for place, task in enumerate(order):
        if not run.step(place, task) or run.reads > most:
            return None
    return run.found


class _Run:
    """The state of :func:`evictions`."""

    def __init__(self, work: Work, order: Sequence[int], limit: int, again: Set[int]) -> None:
        self.found = Evicted()
        self.reads = 0  # copies of tasks that need none that may be done again
        self._work, self._limit = work, limit
        self._blocks: set[int] = set()  # what is let go of
        self._parts: dict[int, int] = {}  # views that are made anew of each copy, and what they are views of
        self._find(order, again - work.kept - work.given)
        #: of what can be done again what each task needs, views standing for what they are of
        self._needed = [
            sorted(self._blocks.intersection([self._parts.get(one, one) for one in inputs]))
            for inputs in work.inputs
        ]
        self._of: dict[int, tuple[int, int]] = {}  # for each of these what it is of now, and its number
        self._uses: dict[int, list[int]] = {task: [] for task in self._blocks}  # places, the next one last
        self._goes = [0] * (len(order) + 1)  # bytes that are let go of after each place, of all others
        self._last = last_uses(work, order, self._blocks | self._parts.keys())
        for task, last in enumerate(self._last):
            if task not in self._blocks and last >= 0:
                self._goes[last] += work.owned[task]
        for place in range(len(order) - 1, -1, -1):
            for one in self._needed[order[place]]:
                self._uses[one].append(place)
        self._views = [0] * len(work)  # views of each block that are there: it stays as long
        self._ends: dict[int, list[int]] = {}  # whose views go after a place
        self._held = 0
        self._there: dict[int, int] = {}  # the task itself, or the copy that is there now
        self._farthest: list[tuple[int, int]] = []

    def _find(self, order: Sequence[int], again: Set[int]) -> None:
        """Which tasks give memory of their own, and which give views of that."""
        work, blocks, parts = self._work, self._blocks, self._parts
        viewed = {one for seen in work.views for one in seen}
        there = again | work.given
        for task in order:
            if task not in again:
                continue
            if not all(one in blocks or one in parts for one in again & set(work.inputs[task])):
                continue  # it needs a view that would stay, and what that is a view of
            of = work.views[task]
            if blocks.isdisjoint(of) and parts.keys().isdisjoint(of):
                stays = [work.owned[one] for one in work.inputs[task] if one not in there]
                if work.owned[task] > sum(stays):
                    blocks.add(task)
            elif len(of) == 1 and of[0] in blocks and task not in viewed and not work.owned[task]:
                parts[task] = of[0]

    def step(self, place: int, task: int) -> bool:
        """Make room for a task and do it; false if there is no room."""
        owned, there, found = self._work.owned, self._there, self.found
        needed = self._needed[task]
        if not all(one in there or self._redo(place, one) for one in needed):
            return False
        if not self._make_room(place, owned[task]):
            return False
        if taken := self._taken(task):
            found.taken[task] = taken
        found.order.append(task)
        if task in self._parts:
            self._of[task] = there[self._parts[task]], task
        self._held += owned[task] - self._goes[place]
        for one in self._blocks.intersection(self._work.views[task]) if task not in self._parts else ():
            self._views[one] += 1
            self._ends.setdefault(self._last[task], []).append(one)
        for one in needed:
            self._uses[one].pop()
            self._keep(one)
        for one in self._ends.pop(place, ()):
            self._views[one] -= 1
            self._keep(one)
        if task in self._blocks:
            there[task] = task
            self._keep(task)
        return True

    def _redo(self, place: int, task: int) -> bool:
        """Do a block again, and before that all that it is made of and that is not there."""
        new = self._missing(task)
        needed = Counter([one for each in new for one in self._needed[each]])  # by those to come
        for each in new:
            if not self._make_room(place, self._work.owned[each], needed.keys()):
                return False
            self._there[each] = self._copy(each)
            self._held += self._work.owned[each]
            for one in self._needed[each]:
                needed[one] -= 1
                if not needed[one]:
                    del needed[one]
                    self._keep(one)
        return True

    def _missing(self, task: int) -> list[int]:
        """What has to be done again for a block: what others need first, itself last."""
        missing: dict[int, None] = {}
        stack = [task]
        while stack:
            more = [one for one in self._needed[stack[-1]] if one not in self._there and one not in missing]
            stack.extend(more)
            if not more:
                missing[stack.pop()] = None
        return list(missing)

    def _make_room(self, place: int, nbytes: int, used: Set[int] = frozenset()) -> bool:
        """Let go of what is used last until so much fits, but not of what is used now."""
        while self._held + nbytes > self._limit:
            if (victim := self._next_victim(place)) is None:
                return False
            if victim not in used:
                self._held -= self._work.owned[victim]
                del self._there[victim]
        return True

    def _copy(self, task: int) -> int:
        taken = self._taken(task)
        number = len(self._work) + len(self.found.copies)
        self.reads += not self._needed[task]
        self.found.order.append(number)
        self.found.copies.append(task)
        if taken:
            self.found.taken[number] = taken
        return number

    def _taken(self, task: int) -> dict[int, int]:
        """The copies that a task takes; views of what is another copy now are made anew."""
        taken = {}
        for one in sorted(self._work.inputs[task]):  # in whatever order sets of keys are gone through
            if one in self._parts:
                base = self._there[self._parts[one]]
                if self._of[one][0] != base:
                    self._of[one] = base, self._copy(one)
                taken[one] = self._of[one][1]
            elif one in self._blocks:
                taken[one] = self._there[one]
        return {one: copy for one, copy in taken.items() if one != copy}

    def _keep(self, task: int) -> None:
        """Keep a block for its next use; let go of it if there is none."""
        if self._views[task]:
            return
        if uses := self._uses[task]:
            heappush(self._farthest, (-uses[-1], task))
        elif task in self._there:
            self._held -= self._work.owned[task]
            del self._there[task]

    def _next_victim(self, place: int) -> int | None:
        """What is there and used last, but not now."""
        heap = self._farthest
        while heap and -heap[0][0] > place:
            use, task = heappop(heap)
            if task in self._there and not self._views[task] and self._uses[task][-1] == -use:
                return task
        return None
