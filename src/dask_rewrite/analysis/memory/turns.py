"""Orders in which tasks hold little, and what each has to wait for so that no schedule holds more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate

from dask.typing import Key

from dask_rewrite.analysis.memory.sweeps import sweeps
from dask_rewrite.analysis.memory.threads import on_threads
from dask_rewrite.analysis.memory.work import Work
from dask_rewrite.graph.postorder import postorder

#: How far down what a task waits for is looked for.
_STEPS = 64


def thrifty_order(work: Work, keys: Sequence[Key] = ()) -> tuple[list[int], int]:
    """The order in which one task after the other holds least, of those that are tried, and what that is.

    Parameters
    ----------
    work : Work
        The graph as numbers.
    keys : sequence of Key, optional
        The names of its tasks; with them orders along arrays are tried, too.

    Examples
    --------
    Two sums, each of a block of its own; a block weighs ten times as much as its sum.

    >>> work = Work([(), (), (0,), (1,)], [()] * 4, [10, 10, 1, 1], [10, 10, 1, 1], [1.0] * 4, [True] * 4)
    >>> thrifty_order(work)
    ([0, 2, 1, 3], 11)
    """
    best: tuple[list[int], int] | None = None
    numbers = [task for task in range(len(work)) if task not in work.given]
    along = sweeps(work, keys) if keys else ()
    for order in (on_threads(work, 1).ended, list(_Thrifty(work)), numbers, *along):
        peak = Footprint(work, order).peak
        if best is None or peak < best[1]:
            best = order, peak
    assert best is not None
    return best


def depth_first(work: Work) -> list[int]:
    """The order in which all that one task needs is done for it, whoever may need it later, then the next.

    It holds much where many need the same. But what waits there are blocks that were read, which can be let
    go of and read again, and not what is made of several of them.

    Examples
    --------
    Two blocks, a part of each for either of two sums.

    >>> inputs = [(), (), (0,), (1,), (2, 3), (0,), (1,), (5, 6)]
    >>> depth_first(Work(inputs, [()] * 8))
    [0, 2, 1, 3, 4, 5, 6, 7]
    """
    ends = [task for task, users in enumerate(work.users()) if not users]
    return list(postorder(ends, work.inputs.__getitem__, int, work.given))


class Footprint:
    """What is held along an order of tasks, and how much at most if some run side by side.

    Parameters
    ----------
    work : Work
        The graph as numbers.
    order : sequence of int
        Its tasks, each after what it needs.

    Attributes
    ----------
    peak : int
        Bytes held at most, one after the other.

    Examples
    --------
    >>> work = Work([(), (), (0,), (1,)], [()] * 4, [10, 10, 1, 1], [10, 10, 1, 1], [1.0] * 4, [True] * 4)
    >>> held = Footprint(work, [0, 2, 1, 3])
    >>> held.peak, held.between(0, 2), held.between(2, 2)
    (11, 21, 10)
    """

    def __init__(self, work: Work, order: Sequence[int]) -> None:
        self._owned = [work.owned[task] for task in order]
        goes = [0] * (len(order) + 1)
        last = last_uses(work, order)
        for task in order:
            goes[last[task]] += work.owned[task]
        self._left: list[int] = []  # bytes after each task
        held = self.peak = 0
        for owned, gone in zip(self._owned, goes):
            held += owned
            self.peak = max(self.peak, held)
            held -= gone
            self._left.append(held)

    @cached_property
    def _made(self) -> list[int]:
        """Bytes that are made before each place."""
        return list(accumulate(self._owned, initial=0))

    def between(self, done: int, place: int) -> int:
        """Bytes held at most when the task at a place ends, where so many before it are done for certain.

        What those left for later is still there, and all that comes between may be there as well.
        """
        return (self._left[done - 1] if done else 0) + self._made[place + 1] - self._made[done]

    def waits(self, room: int) -> list[int]:
        """For each place, how many tasks must be done before that one may begin.

        Whatever runs side by side, no more is held than `room`, or than the order itself holds one by one.

        Examples
        --------
        >>> work = Work([(), (), (0,), (1,)], [()] * 4, [10, 10, 1, 1], [10, 10, 1, 1], [1.0] * 4, [True] * 4)
        >>> Footprint(work, [0, 2, 1, 3]).waits(room=12)
        [0, 0, 2, 2]
        >>> Footprint(work, [0, 2, 1, 3]).waits(room=100)
        [0, 0, 0, 0]
        """
        room = max(room, self.peak)
        found, done = [], 0
        for place in range(len(self._left)):
            while done < place and self.between(done, place) > room:
                done += 1
            found.append(done)
        return found


def last_uses(work: Work, order: Sequence[int], again: Set[int] = frozenset()) -> list[int]:
    """For each task the place of its last user, of what is a view of it, or beyond the end.

    What may be done again needs the same as long as it is used itself.
    """
    end = len(order)
    last = [-1] * len(work)
    for task in work.kept:
        last[task] = end
    for place in range(end - 1, -1, -1):
        task = order[place]
        last[task] = max(last[task], place)
        until = last[task] if task in again else place
        for one in work.inputs[task]:
            last[one] = max(last[one], until)
        for one in work.views[task]:
            last[one] = max(last[one], last[task])
    return last


class _Thrifty:
    """What frees as much as it makes first, then what became ready last, then what lacks least."""

    def __init__(self, work: Work) -> None:
        self._work, self._users = work, work.users()
        given = work.given
        self._missing = work.missing(self._users)
        self._needs = _needs(work, self._users)
        self._lacks = [sum([self._needs[one] for one in needed]) for needed in work.inputs]
        self._done = [task in given for task in range(len(work))]
        self._uses = work.uses(self._users, views=True)
        #: the users that are left of each task, added up: the last of them is what remains
        self._rest = [sum(users) for users in self._users]
        self._frees = [0] * len(work)
        for task, users in enumerate(self._users):
            if self._uses[task] == 1 and users and task not in given:
                self._frees[users[0]] += work.owned[task]
        self._ready: list[tuple[int, int, int]] = []
        self._lacking: list[tuple[int, int]] = []
        self._inputs: dict[int, list[int]] = {}  # of tasks that are waited for, the first one last

    def __iter__(self) -> Iterator[int]:
        roots = [task for task, missing in enumerate(self._missing) if not missing and not self._done[task]]
        roots.reverse()
        stamp = 0
        while True:
            task = self._next(roots)
            if task is None:
                return
            self._done[task] = True
            yield task
            stamp += 1
            self._finish(task, stamp)

    def _next(self, roots: list[int]) -> int | None:
        done = self._done
        while self._ready:
            task = heappop(self._ready)[2]
            if not done[task]:
                return task
        while self._lacking:
            lacks, task = heappop(self._lacking)
            if done[task] or lacks != self._lacks[task]:
                continue
            heappush(self._lacking, (lacks, task))
            for _ in range(_STEPS):
                if not self._missing[task]:
                    return task
                task = self._first_missing(task)
            break
        while roots:
            task = roots.pop()
            if not done[task]:
                return task
        return None

    def _first_missing(self, task: int) -> int:
        """The first input that is not done: each is passed over once, however often a wide task is asked."""
        if task not in self._inputs:
            self._inputs[task] = sorted(self._work.inputs[task], reverse=True)
        inputs = self._inputs[task]
        while self._done[inputs[-1]]:
            inputs.pop()
        return inputs[-1]

    def _finish(self, task: int, stamp: int) -> None:
        work, uses, given = self._work, self._uses, self._work.given
        for one in work.inputs[task]:
            if one in given:
                continue
            uses[one] -= 1
            self._rest[one] -= task
            if uses[one] == 1 and not work.views[task] and (user := self._rest[one]) >= 0:
                # what is left may be no user at all
                if not self._done[user] and (user or one in work.inputs[0]):
                    self._frees[user] += work.owned[one]
                    if not self._missing[user]:
                        self._push(user, stamp)
        for user in self._users[task]:
            self._missing[user] -= 1
            self._lacks[user] -= self._needs[task]
            if not self._missing[user]:
                self._push(user, stamp)
            else:
                heappush(self._lacking, (self._lacks[user], user))

    def _push(self, task: int, stamp: int) -> None:
        gain = self._work.owned[task] - self._frees[task]
        heappush(self._ready, (gain, 0, task) if gain <= 0 else (1, -stamp, task))


def _needs(work: Work, users: Sequence[Sequence[int]]) -> list[int]:
    """For each task, bytes that have to be held at some time to make it, at least."""
    waiting = [len(needed) for needed in work.inputs]
    ready = [task for task, missing in enumerate(waiting) if not missing]
    needs = [0] * len(work)
    while ready:
        task = ready.pop()
        if task not in work.given:
            inputs = work.inputs[task]
            at_once = work.owned[task] + sum([work.owned[one] for one in inputs if one not in work.given])
            needs[task] = max(at_once, *[needs[one] for one in inputs], 0)
        for user in users[task]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return needs
