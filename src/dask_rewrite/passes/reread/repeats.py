"""Which tasks may be done again: reads, numbers from a seed, and work known to be pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cached_property, partial
from typing import Any

import numpy as np
from dask._task_spec import DataNode, GraphNode, NestedContainer, Task

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.analysis.knowledge import known_call
from dask_rewrite.analysis.knowledge.creation import CREATION
from dask_rewrite.analysis.knowledge.elementwise import ELEMENTWISE
from dask_rewrite.analysis.knowledge.file_readers import adds_axis, lasts, reads_file
from dask_rewrite.analysis.knowledge.joining import JOINING
from dask_rewrite.analysis.knowledge.movement import MOVEMENT
from dask_rewrite.analysis.knowledge.random import DRAWING
from dask_rewrite.analysis.memory.calls import calls_of
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Nodes
from dask_rewrite.graph.nodes import may_move
from dask_rewrite.graph.places import room_shown
from dask_rewrite.graph.templates import calls_frame, frame_of
from dask_rewrite.passes.movement.moves import GETTER_IDS
from dask_rewrite.passes.reread.overwritten import Overwritten
from dask_rewrite.passes.reread.steady import is_steady

_DRAWS = frozenset(map(id, DRAWING))
#: Work that takes about as long as going through the block once.
_CHEAP = frozenset([id(func) for table in (CREATION, ELEMENTWISE, MOVEMENT, JOINING) for func in table])
_FORWARDERS = frozenset([id(dict), id(tuple), id(list)])
#: Whoever draws from these changes them.
_GENERATORS = (np.random.BitGenerator, np.random.Generator, np.random.RandomState)


class Effort(IntEnum):
    """What it takes to do a task again; no more than to go through its block once is cheap."""

    NEVER, COSTLY, CHEAP = range(3)


class Repeats:
    """Which tasks of a program may be done again, in whichever of its plans they stand.

    Parameters
    ----------
    nodes : mapping of Key to GraphNode
        One of the plans. All of them store into the same arrays, and call the same unknown functions.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._first = nodes
        self._overwritten = Overwritten(nodes)
        self._steady = ByIdentity[bool]()
        self._bodies, self._tasks = ByIdentity[Effort](), ByIdentity[Effort]()

    def may_repeat(self, task: Task, nodes: Nodes, costly: bool) -> bool:
        """Whether a task may be done again, given the same.

        Parameters
        ----------
        task : Task
            Of any plan.
        nodes : mapping of Key to GraphNode
            The plan, in which what it is given stands.
        costly : bool
            Also if that takes longer than to go through the block once.
        """
        effort = self._tasks.of(task, lambda task: self._look(task, nodes))
        return effort >= (Effort.COSTLY if costly else Effort.CHEAP)

    def is_steady(self, value: Any) -> bool:
        """Whether a function that is given a value twice is given the same."""
        return self._steady.of(value, self._is_steady)

    def _look(self, task: Task, nodes: Nodes) -> Effort:
        effort = self._effort(task)
        if not effort or not may_move(task.func) or self._overwritten.is_taken_by(task, nodes):
            return Effort.NEVER
        return effort if self._finds_its_files(task, nodes) else Effort.NEVER

    def _finds_its_files(self, node: Task, nodes: Nodes) -> bool:
        """Whoever reads files is given paths, and nothing that the first read has used up or moved on."""
        if not any(reads_file(call.func, call.args, call.kwargs) for call in calls_of(node)):
            return True
        given = [nodes.get(dep) for dep in node._dependencies]
        if not all(type(each) is DataNode and lasts(each.value) for each in given):
            return False
        return not self._overwritten.may_be_files and all(map(lasts, _literals(node)))

    def _effort(self, node: Any) -> Effort:
        """Of known functions, which give the same when they are called again: the costliest of all calls."""
        effort, stack = Effort.CHEAP, [node]
        while effort and stack:
            here = stack.pop()
            if isinstance(here, _GENERATORS):
                return Effort.NEVER
            if isinstance(here, NestedContainer):
                stack.extend(here.args)
            elif type(here) is Task:
                if not calls_frame(here.func):
                    effort = min(effort, _effort_of_call(here.func, here.args, here.kwargs))
                    stack.extend(_given(here))
                elif (frame := frame_of(here)) is None:
                    return Effort.NEVER
                else:
                    effort = min([effort, *[self._bodies.of(body, self._effort) for body in frame.bodies]])
                    stack.extend(frame.inputs.values())
            elif type(here) is DataNode:
                stack.append(here.value)
            elif isinstance(here, GraphNode) or not self._is_steady(here):
                return Effort.NEVER
        return effort

    def _is_steady(self, value: Any) -> bool:
        return is_steady(value, lambda: self._lists_stay)

    @cached_property
    def _lists_stay(self) -> bool:
        """No function of which nothing is known is given a list, a dict or a set, which it could change."""
        nodes, effects = self._first, Effects()
        for node in nodes.values():
            if type(node) is Task and effects.unknown(node) and room_shown(node, nodes.get) is None:
                data = [each.value for dep in node._dependencies if type(each := nodes.get(dep)) is DataNode]
                if not all(is_steady(each) for each in (*_literals(node), *data) if _may_hold_lists(each)):
                    return False
        return True


def _may_hold_lists(value: Any) -> bool:
    return type(value) in (list, set, dict, tuple)


def _given(task: Task) -> Iterator[Any]:
    """What a call is given, by what is bound to its function too; of a getter what it reads, no lock."""
    func, bound = task.func, [*task.args, *task.kwargs.values()]
    while type(func) is partial:
        bound += [*func.args, *func.keywords.values()]
        func = func.func
    yield from task.args[:2] if id(func) in GETTER_IDS else bound


def _effort_of_call(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Effort:
    inner = func
    while type(inner) is partial:
        inner = inner.func
    if id(inner) in GETTER_IDS or id(inner) in _DRAWS or adds_axis(inner) or reads_file(func, args, kwargs):
        return Effort.CHEAP
    found = known_call(func, args, kwargs)
    if found is None or not found.pure:
        return Effort.NEVER
    return Effort.CHEAP if _is_cheap(inner) else Effort.COSTLY


def _is_cheap(func: Any) -> bool:
    try:  # ``methodcaller`` objects are equal, and do not share an identity
        return id(func) in _CHEAP or id(func) in _FORWARDERS or func in ELEMENTWISE or func in MOVEMENT
    except TypeError:  # not hashable
        return False


def _literals(node: Any) -> Iterator[Any]:
    """What stands in a task itself, and in the templates that it calls."""
    stack = [node]
    while stack:
        here = stack.pop()
        if type(here) is Task:
            frame = frame_of(here)
            stack.extend([*here.args, *here.kwargs.values()] if frame is None else frame.inputs.values())
            stack.extend(() if frame is None else frame.bodies)
        elif isinstance(here, NestedContainer):
            stack.extend(here.args)
        else:
            yield here
