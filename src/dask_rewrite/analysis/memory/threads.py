"""Dask's schedulers of one process, without work: what became ready last runs first."""

from __future__ import annotations

from heapq import heappop, heappush

from dask_rewrite.analysis.memory.work import Course, Work


def on_threads(work: Work, threads: int) -> Course:
    """Go through a graph as ``dask.local.get_async`` does, with so many threads.

    Results are counted when their task ends, with all that was held while it ran; what tasks hold inside
    while they run is not. Data that stands in the graph was there before.

    Examples
    --------
    A block of 8 bytes, and one made of it.

    >>> work = Work([(), (0,)], [(), ()], [8, 8], [8, 8], [1.0, 1.0], [True, False], kept=frozenset([1]))
    >>> course = on_threads(work, threads=2)
    >>> course.peak, course.held, course.freed
    (16, [8, 16], [1, -1])
    """
    users = work.users()
    inputs, views, seconds = work.inputs, work.views, work.seconds
    owned, arrays = _empty(work), set[tuple[int, int]]()
    waiting, uses, given = _counts(work, users)
    ready = [task for task in range(len(work) - 1, -1, -1) if not waiting[task] and not given[task]]
    running: list[tuple[float, int, int]] = []
    course = Course(freed=[-1] * len(work))
    freed, ended, history = course.freed, course.ended, course.held
    now, held, started, step, idle = 0.0, 0, 0, 0, threads
    while ready or running:
        while ready and idle:
            task = ready.pop()
            started += 1
            idle -= 1
            heappush(running, (now + seconds[task], started, task))
        now, _, task = heappop(running)
        idle += 1
        held += owned[task]
        for number, nbytes in work.arrays.get(task, ()):
            room = views[task][0]
            if (room, number) not in arrays:
                arrays.add((room, number))
                owned[room] += nbytes
                held += nbytes
        history.append(held)
        ended.append(task)
        for one in inputs[task]:
            uses[one] -= 1
            if not uses[one]:
                held -= _release(one, uses, views, owned, freed, step)
        for user in users[task]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
        step += 1
    if history:
        course.peak = max(history)
        course.at = history.index(course.peak)
    return course


def _empty(work: Work) -> list[int]:
    """Bytes that results own, of which those that are room for arrays have none yet."""
    owned = work.owned[:]
    for task in work.arrays:
        owned[work.views[task][0]] = 0
    return owned


def _counts(work: Work, users: list[list[int]]) -> tuple[list[int], list[int], list[bool]]:
    """What each task waits for, who holds on to its result, and whether it was there before."""
    uses = work.uses(users, views=True)
    given = [False] * len(work)
    for task in work.given:
        given[task] = True
        uses[task] = -1  # never let go of
    return work.missing(users), uses, given


def _release(
    task: int, uses: list[int], views: list[tuple[int, ...]], owned: list[int], freed: list[int], step: int
) -> int:
    """Let go of a result, and of what it was a view of: the bytes that this frees."""
    freed[task] = step
    nbytes = owned[task]
    if not views[task]:
        return nbytes
    stack = [*views[task]]
    while stack:
        one = stack.pop()
        uses[one] -= 1
        if not uses[one]:
            freed[one] = step
            nbytes += owned[one]
            stack.extend(views[one])
    return nbytes
