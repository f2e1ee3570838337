"""A graph as numbers: what each task needs, makes, and costs; and how a run of it went."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain


@dataclass(slots=True)
class Work:
    """A graph over tasks that are numbered in dask's order. All lists have an element for each task.

    Parameters
    ----------
    inputs : list of tuple of int
        Distinct tasks whose results a task needs.
    views : list of tuple of int
        Distinct inputs whose memory the result shares: that stays as long as the result does.
    nbytes : list of int
        Bytes of a result, as a cluster counts and sends them.
    owned : list of int
        Bytes of memory that a result has of its own.
    seconds : list of float
        How long a task takes; only the order in which tasks end depends on it.
    root : list of bool
        A cluster queues it until a worker is free.
    given : frozenset of int
        Data that stands in the graph: a scheduler of this process has it from the start.
    kept : frozenset of int
        Somebody asked for the result, so that it stays.
    arrays : dict of int to list of (int, int)
        For tasks that write into a result that is room for several arrays: numbers of these, and bytes. Room
        is made for an array when something is written into it.
    """

    inputs: list[tuple[int, ...]] = field(default_factory=list)
    views: list[tuple[int, ...]] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    owned: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    root: list[bool] = field(default_factory=list)
    given: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    arrays: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.inputs)

    def users(self) -> list[list[int]]:
        """Who needs each task: last to first."""
        found: list[list[int]] = [[] for _ in self.inputs]
        inputs = self.inputs
        for task in range(len(inputs) - 1, -1, -1):
            for one in inputs[task]:
                found[one].append(task)
        return found

    def missing(self, users: list[list[int]]) -> list[int]:
        """How many tasks each has to wait for: not for data, which is there from the start."""
        found = list(map(len, self.inputs))
        for task in self.given:
            for user in users[task]:
                found[user] -= 1
        return found

    def uses(self, users: list[list[int]], views: bool) -> list[int]:
        """How often each result is held on to: by users, by who asked for it, perhaps by views of it."""
        found = [len(each) for each in users]
        for task in chain(self.kept, chain.from_iterable(self.views) if views else ()):
            found[task] += 1
        return found


@dataclass(slots=True)
class Course:
    """How a run went. Steps are tasks that ended, counted from zero.

    Parameters
    ----------
    peak : int
        Most bytes held by all together at one time.
    at : int
        The step at which that was.
    peak_worker : int
        Most bytes that any one worker held.
    moved : int
        Bytes sent from worker to worker.
    ended : list of int
        Tasks in the order in which they ended.
    freed : list of int
        For each task, the step at which its result was let go of; -1: never.
    held : list of int
        Bytes held at each step: when a task had ended, and what it had needed was still there.
    """

    peak: int = 0
    at: int = 0
    peak_worker: int = 0
    moved: int = 0
    ended: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
