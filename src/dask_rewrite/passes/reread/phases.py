"""Phases: which uses of a block wait for a reduction over that block and many others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask._task_spec import GraphNode
from dask.typing import Key

from dask_rewrite.graph.names import layer_name
from dask_rewrite.passes.reread.repeatable import Again

_NOTHING: frozenset[Key] = frozenset()


@dataclass(slots=True)
class Phases:
    """When the blocks of a graph are used.

    A *barrier* is a task that waits for more than so many blocks which are read since the barrier before it.
    A task's *level* is the number of barriers on a path below it.

    Attributes
    ----------
    level : dict of Key to int
        Barriers below each task, itself included; those that may be made again are not there.
    uses : dict of Key to dict of int to list of Key
        For each block that may be made again its users in each phase: the first, or what waits for the
        block itself through a barrier, by level.
    since : dict of Key to frozenset of Key
        What is read for each task since the last barrier.
    """

    level: dict[Key, int] = field(default_factory=dict)
    uses: dict[Key, dict[int, list[Key]]] = field(default_factory=dict)
    since: dict[Key, frozenset[Key]] = field(default_factory=dict)
    _passed: dict[Key, int] = field(default_factory=dict)
    _bits: dict[Any, int] = field(default_factory=dict)
    _next: int = 0

    def waits(self, key: Key, block: Key, repeatable: Mapping[Key, Again]) -> bool:
        """Whether a task waits for a barrier that the array of a block has gone through."""
        return bool(self._passed.get(key, 0) & self._arrays(repeatable[block].reads))

    def opens(self, key: Key, phase: int) -> bool:
        """Whether a task comes before all reads of a phase: it waits for none of them."""
        return self.level[key] < phase or (self.level[key] == phase and not self.since[key])

    def _arrays(self, reads: Iterable[Key]) -> int:
        """The arrays of some reads that went through barriers, as bits."""
        found = 0
        for read in reads:
            found |= self._bits.get(layer_name(read), 0)
        return found

    def _pass(self, reads: Iterable[Key]) -> int:
        """The same, when they do so now: arrays of many small files go together, and share a bit."""
        names = {layer_name(read) for read in reads}
        fresh = [name for name in names if name not in self._bits]
        if fresh:
            self._bits.update(dict.fromkeys(fresh, 1 << self._next))
            self._next += 1
        return self._arrays(reads)


def find_phases(
    nodes: Mapping[Key, GraphNode], order: Sequence[Key], repeatable: Mapping[Key, Again], most: int
) -> Phases:
    """Go through a graph, producers first.

    Parameters
    ----------
    nodes : mapping of Key to GraphNode
        The graph.
    order : sequence of Key
        Its keys, producers first.
    repeatable : mapping of Key to Again
        What may be made again.
    most : int
        A task that waits for more blocks is a barrier.
    """
    phases = Phases()
    level, passed, uses, since = phases.level, phases._passed, phases.uses, phases.since
    for key in order:
        if key in repeatable:
            continue
        deps = nodes[key]._dependencies
        late = below(key, nodes, repeatable)
        here = max([level[dep] for dep in late], default=0)
        gone = 0
        reads: set[Key] = set()
        for dep in late:
            gone |= passed[dep]
            if level[dep] == here:
                reads |= since[dep]
            elif since[dep]:  # what is above a barrier waits for these as well
                gone |= phases._pass(since[dep])
        for dep in deps:
            if (again := repeatable.get(dep)) is not None:
                phase = here if gone & phases._arrays(again.reads) else 0
                uses.setdefault(dep, {}).setdefault(phase, []).append(key)
                reads |= again.reads
        if len(reads) > most:
            here, gone, reads = here + 1, gone | phases._pass(reads), set()
        level[key], passed[key] = here, gone
        since[key] = frozenset(reads) if reads else _NOTHING
    return phases


def below(key: Key, nodes: Mapping[Key, GraphNode], repeatable: Mapping[Key, Again]) -> set[Key]:
    """What a task waits for, without what may be made again: what that waits for counts instead."""
    found: set[Key] = set()
    for dep in nodes[key]._dependencies:
        again = repeatable.get(dep)
        if again is not None:
            found |= again.shared
        elif dep in nodes:
            found.add(dep)
    return found
