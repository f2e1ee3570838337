"""Which blocks may be made again: reads, numbers from a seed, and cheap work on these alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import DataNode, GraphNode, NestedContainer, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.analysis.knowledge import known_call
from dask_rewrite.analysis.knowledge.creation import CREATION
from dask_rewrite.analysis.knowledge.elementwise import ELEMENTWISE
from dask_rewrite.analysis.knowledge.file_readers import adds_axis, lasts, reads_file
from dask_rewrite.analysis.knowledge.joining import JOINING
from dask_rewrite.analysis.knowledge.movement import MOVEMENT
from dask_rewrite.analysis.knowledge.random import DRAWING
from dask_rewrite.analysis.memory.calls import calls_of
from dask_rewrite.analysis.memory.stores import gives_nothing
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import producers_first
from dask_rewrite.graph.templates import calls_frame, frame_of
from dask_rewrite.passes.movement.moves import GETTER_IDS
from dask_rewrite.passes.reread.overwritten import Overwritten
from dask_rewrite.passes.reread.steady import is_steady
from dask_rewrite.passes.site import Site

_DRAWS = frozenset(map(id, DRAWING))
#: Work that takes about as long as going through the block once.
_CHEAP = frozenset([id(func) for table in (CREATION, ELEMENTWISE, MOVEMENT, JOINING) for func in table])
_FORWARDERS = frozenset([id(dict), id(tuple), id(list)])
#: Whoever draws from these changes them.
_GENERATORS = (np.random.BitGenerator, np.random.Generator, np.random.RandomState)
#: Blocks that are read for one block, and tasks that make it, at most.
_MOST_READS, _MOST_STEPS = 8, 32
#: What so many tasks use, such as a mean, is there for all of them anyway.
_MANY = 4
#: What is read to make a block is at most so many times as large, else the block is held for less.
_LARGER = 4


class Again(NamedTuple):
    """A block that may be made again.

    Parameters
    ----------
    reads : frozenset of Key
        What is read for it.
    shared : frozenset of Key
        What is there for many such blocks: means of them.
    nbytes : int
        Bytes of what is read.
    held : int
        Bytes that stay as long as the block: of what it is a view of, none where that is in memory anyway.
    steps : int
        Tasks that make it, those that are used twice counted twice.
    """

    reads: frozenset[Key]
    shared: frozenset[Key]
    nbytes: int
    held: int
    steps: int


class Repeatable:
    """The blocks of a graph that may be made again, and which of these are worth it.

    Parameters
    ----------
    site : Site
        The graph and what is known of it.
    min_bytes : int
        Smaller blocks are held.
    costly : bool
        Whether work may be done again that takes longer than to go through the block once.
    """

    def __init__(self, site: Site, min_bytes: int, costly: bool = False) -> None:
        self._site, self._min_bytes, self._costly = site, min_bytes, costly
        self._bodies, self._steady = ByIdentity[bool](), ByIdentity[bool]()
        self._overwritten = Overwritten(site.graph.nodes)
        self.order = list(producers_first(list(site.graph.nodes), site.graph.nodes))
        self._users = site.context.users(site.graph)
        self._bytes: dict[Key, int] = {}
        self.found: dict[Key, Again] = {}
        for key in self.order:
            if (again := self._again(key)) is not None:
                self.found[key] = again

    def worth(self, key: Key) -> bool:
        """Whether a block holds much memory, and not much less than is read to make it again."""
        again = self.found[key]
        return again.held >= self._min_bytes and again.held * _LARGER >= again.nbytes

    def stays(self, key: Key, user: Key) -> bool:
        """Whether what becomes of a block is as large, and wanted: that is held instead, sooner or later."""
        site = self._site
        if not site.wanted(user) and not any(map(site.wanted, site.consumers(user))):
            return False
        size, made = estimate(site.facts, key), estimate(site.facts, user)
        if size is None or made is None or gives_nothing(site.node(user)):
            return False
        return 2 * made.nbytes >= size.nbytes

    def gathered(self, key: Key, user: Key) -> bool:
        """Whether a block itself is wanted: it is held until the end."""
        return self._site.wanted(user) and self.stays(key, user)

    def _again(self, key: Key) -> Again | None:
        site, nodes = self._site, self._site.graph.nodes
        node = nodes[key]
        if type(node) is not Task or site.wanted(key):
            return None
        below = []
        shared: set[Key] = set()
        for dep in node._dependencies:
            if (found := self.found.get(dep)) is not None:
                below.append(found)
            elif type(data := nodes.get(dep)) is DataNode:
                if not self._steady.of(data.value, self._is_steady):
                    return None
            else:
                if self._users[dep] < _MANY:
                    return None
                shared.add(dep)
        if (shared and not below) or not self._may_repeat(node) or not site.context.may_move(node.func):
            return None
        if self._overwritten.is_taken_by(node) or not self._finds_its_files(node):
            return None
        size = estimate(site.facts, key)
        own = 0 if size is None else size.nbytes
        view = site.effect(key) == "view"
        if not below:
            self._bytes[key] = own
            held = 0 if view and _is_in_memory(node, nodes) else own
            return Again(frozenset([key]), frozenset(), own, held, 1)
        reads = frozenset().union(*[each.reads for each in below])
        steps = 1 + sum(each.steps for each in below)
        if len(reads) > _MOST_READS or steps > _MOST_STEPS:
            return None
        shared.update(*[each.shared for each in below])
        held = max([each.held for each in below]) if view else own
        nbytes = sum(map(self._bytes.__getitem__, reads))
        if self._costly and held * _LARGER < nbytes:
            return None  # what is left of blocks once they are reduced is no block
        return Again(reads, frozenset(shared), nbytes, held, steps)

    def _finds_its_files(self, node: Task) -> bool:
        """Whoever reads files is given paths, and nothing that the first read has used up or moved on."""
        if not any(reads_file(call.func, call.args, call.kwargs) for call in calls_of(node)):
            return True
        nodes = self._site.graph.nodes
        given = [nodes.get(dep) for dep in node._dependencies]
        if not all(type(each) is DataNode and lasts(each.value) for each in given):
            return False
        return not self._overwritten.may_be_files and all(map(lasts, _literals(node)))

    def _may_repeat(self, node: Any) -> bool:
        """Only known functions are called, which give the same when they are called again, and soon."""
        stack = [node]
        while stack:
            here = stack.pop()
            if isinstance(here, _GENERATORS):
                return False
            if isinstance(here, NestedContainer):
                stack.extend(here.args)
            elif type(here) is Task:
                if calls_frame(here.func):
                    frame = frame_of(here)
                    if frame is None or not all(self._bodies.of(b, self._may_repeat) for b in frame.bodies):
                        return False
                    stack.extend(frame.inputs.values())
                    continue
                if not _may_call(here.func, here.args, here.kwargs, self._costly):
                    return False
                stack.extend(_given(here))
            elif type(here) is DataNode:
                stack.append(here.value)
            elif isinstance(here, GraphNode) or not self._is_steady(here):
                return False
        return True

    def _is_steady(self, value: Any) -> bool:
        return is_steady(value, lambda: self._lists_stay)

    @cached_property
    def _lists_stay(self) -> bool:
        """No function of which nothing is known is given a list, a dict or a set, which it could change."""
        nodes = self._site.graph.nodes
        for node in nodes.values():
            if type(node) is Task and self._site.effects.unknown(node):
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


def _may_call(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], costly: bool) -> bool:
    inner = func
    while type(inner) is partial:
        inner = inner.func
    if id(inner) in GETTER_IDS or id(inner) in _DRAWS or adds_axis(inner) or reads_file(func, args, kwargs):
        return True
    if not costly and not _is_cheap(inner):
        return False
    found = known_call(func, args, kwargs)
    return found is not None and found.pure


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


def _is_in_memory(task: Task, nodes: Mapping[Key, GraphNode]) -> bool:
    """Whether a task takes a part of an array that stands in the graph."""
    sources = [getattr(nodes[dep], "value", None) for dep in task._dependencies] or task.args
    return any(type(source) is np.ndarray for source in sources)
