"""Tasks that wait for each other, so that a graph holds no more than a limit however it is scheduled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.memory.graphs import Sized
from dask_rewrite.analysis.memory.turns import Footprint
from dask_rewrite.graph.gates import gate, waiting
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import fingerprint, mark
from dask_rewrite.graph.nodes import may_move, nameless, under

#: What is so many times smaller than the limit waits for nothing.
_SMALL = 1024


class Turns(NamedTuple):
    """When tasks wait, and until when.

    Parameters
    ----------
    name : str
        What gates are called after.
    limit : int
        Bytes: no task begins while it may make more than so many held.
    room : int
        Bytes: who waits does so until there is no more than that. The less it is, the fewer gates there are,
        and the fewer tasks run side by side.
    allow : callable
        From the key of a task to whether it may wait.
    """

    name: str
    limit: int
    room: int
    allow: Callable[[Key], bool] = bool


class Ordered(NamedTuple):
    """A plan and an order for it.

    Parameters
    ----------
    graph : Graph
        The plan, after all passes.
    sized : Sized
        The same as numbers.
    order : sequence of int
        One in which tasks hold little, see :func:`dask_rewrite.analysis.memory.turns.thrifty_order`.
    """

    graph: Graph
    sized: Sized
    order: Sequence[int]


def taking_turns(plan: Ordered, turns: Turns) -> Graph | None:
    """The same tasks, of which some wait until enough of what came before has been let go of.

    Tasks that make something large wait for a *gate*, a task without a result that depends on what has to be
    done before. As much runs side by side as the limit has room for; where one task after the other holds
    more than that already, it is as if there was one thread. Nothing is computed twice, or in another way.

    Parameters
    ----------
    plan : Ordered
        The plan, and an order in which it holds little.
    turns : Turns
        How much may be held.

    Returns
    -------
    Graph or None
        None if nothing needs to wait, or others whom nobody knows may hold the same blocks.
    """
    graph = plan.graph
    if graph.origin.shared:
        return None
    token = fingerprint([graph.origin.token, turns.name, str(turns.limit)])
    gates = _Gates(plan, mark(turns.name, token))
    gates.put(turns)
    return replace(graph, nodes=gates.nodes) if gates.made else None


class _Gates:
    """Puts gates into a graph, along one order of its tasks."""

    def __init__(self, plan: Ordered, name: str) -> None:
        order, work = plan.order, plan.sized.likely
        self.nodes: dict[Key, Any] = dict(plan.graph.nodes)
        self.made: set[Key] = set()
        self._keys, self._work, self._order, self._name = plan.sized.keys, work, order, name
        self._outputs = frozenset(plan.graph.outputs)
        self._last, self._seen = 0, 0  # where the last gate stands, and how far was looked since
        self._waiting: list[int] = []  # places since the last gate that have no user before `_seen`
        place = {task: i for i, task in enumerate(order)}
        users = work.users()
        self._first = [min([place[user] for user in users[task]], default=len(order)) for task in order]

    def put(self, turns: Turns) -> None:
        """Have each large task that may make too much held wait until there is room."""
        work, keys = self._work, self._keys
        held = Footprint(work, self._order)
        bounds = held.waits(turns.room)
        limit = max(turns.limit, held.peak)
        known = [0] * len(work)  # so many are done when a task begins, for what it waits for already
        for place, task in enumerate(self._order):
            bound = bounds[place]
            known[task] = max([known[one] for one in work.inputs[task]], default=0)
            key = keys[task]
            node = self.nodes[key]
            if bound <= known[task] or work.owned[task] * _SMALL < turns.limit:
                continue
            if held.between(known[task], place) <= limit:
                continue
            if type(node) is not Task or not may_move(node.func) or key in self._outputs:
                continue
            if not turns.allow(key):
                continue
            if bound > self._last:
                ends = self._ends(bound)
                if known[task] >= self._last and set(ends) <= set(work.inputs[task]):
                    known[task] = bound  # it waits for all of them anyway
                    continue
                self._make(bound, ends)
            waits = waiting(nameless(node), [TaskRef((self._name, self._last))])
            self.nodes[key] = under(key, waits, node._data_producer)
            known[task] = self._last

    def _ends(self, bound: int) -> list[int]:
        """What was begun since the last gate and has no user before this one."""
        places = chain(self._waiting, range(self._seen, bound))
        self._waiting = [place for place in places if self._first[place] >= bound]
        self._seen = bound
        return [self._order[place] for place in self._waiting]

    def _make(self, bound: int, ends: Sequence[int]) -> None:
        needs = [self._keys[task] for task in ends]
        if self._last:
            needs.append((self._name, self._last))
        key: Key = (self._name, bound)
        self.nodes[key] = gate(key, needs)
        self.made.add(key)
        self._last, self._waiting = bound, []
