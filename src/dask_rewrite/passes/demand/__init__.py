"""Only what is needed of each block is made: bounds inference, from the outputs down."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, ClassVar

from dask._task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef
from dask.array import chunk
from dask.typing import Key

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph, Nodes, producers_first, without_users
from dask_rewrite.graph.names import fingerprint, layer_name, mark
from dask_rewrite.graph.templates import calls_frame, frame_of
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.boxes import Box, hull, shape_of, size, whole
from dask_rewrite.passes.demand.moves import SELECTING
from dask_rewrite.passes.demand.plans import Plan
from dask_rewrite.passes.demand.write import written
from dask_rewrite.passes.movement.pieces import selection
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.steps import Opaque

_SELECTING = frozenset(map(id, SELECTING))
_PLAIN = frozenset(map(id, (chunk.getitem, operator.getitem)))


@dataclass(frozen=True, slots=True)
class Demand:
    """``getitem(add(getter(z, all), 1), part)`` → ``add(getter(z, part), 1)``, through any number of tasks.

    A slice at the end of a pipeline lets everything before it be computed, and read, for whole blocks.
    Here each block is made only for the box that its users need together, found in one pass from the
    outputs down. Legal where the functions on the way are known to give each element from elements at
    known places, and all blocks are known to be NumPy arrays; a function that we do not know wants all
    of its block, and so does an output. Sums of floats along another axis may then be grouped differently
    (``reassociate``).

    Parameters
    ----------
    max_share : int
        Percent of a block above which it is made as a whole: the rest is not worth a task of its own.
    """

    name: ClassVar[str] = "demand"
    max_share: int = 90
    reassociate: bool = True

    def run(self, graph: Graph, context: Context) -> Graph:
        started = _sliced(graph, context)
        if not started:
            return graph
        search = _Search(self, graph, context)
        search.run(started)
        return search.rewritten() if search.places else graph


def _sliced(graph: Graph, context: Context) -> list[Key]:
    """The blocks of the graph that slices are taken from."""
    found: dict[Key, None] = {}
    nodes = graph.nodes
    for task in context.calling(graph, _SELECTING):
        source = task.args[0] if task.args else None
        if type(source) is TaskRef and type(source.key) is tuple and type(nodes.get(source.key)) is Task:
            found[source.key] = None
    return list(found)


class _Search:
    def __init__(self, options: Demand, graph: Graph, context: Context) -> None:
        self.options = options
        self.graph = graph
        self.context = context
        self.remarks = context.remarks
        self.site = Site(graph, context)
        self.facts = self.site.facts
        self.wanted: dict[Key, Box | None] = {}  # of the blocks of which not all is wanted, so far
        self.plans: dict[Key, Plan] = {}
        self.places: dict[Key, tuple[Key, Box]] = {}
        self.done: set[Key] = set()
        self._templates = ByIdentity[bool]()

    def run(self, started: list[Key]) -> None:
        nodes = self.graph.nodes
        value = self.facts.value
        # What comes of a function that we do not know is made as a whole, and from all of its blocks.
        started = [key for key in started if shape_of(value(key)) is not None]
        # Somewhere less must be taken than there is, by somebody who is made as a whole, for a start.
        if not any(self._may_shrink(key, frozenset()) for key in started):
            return
        below = self._below(started)
        started = [key for key in started if self._may_shrink(key, below)]
        if not started:
            return
        below = self._below(started)
        order = [key for key in nodes if key in below]
        for key in reversed(list(producers_first(order, nodes))):
            for user in self.site.consumers(key):
                if user not in below and user not in self.done:
                    self._whole(user)
            self._decide(key)

    def _may_shrink(self, key: Key, below: Set[Key]) -> bool:
        """Not all of a block is wanted, as far as its users tell that are made as a whole for certain."""
        nodes = self.graph.nodes
        if self.site.wanted(key):
            return False
        box: Box | None = None
        for user in self.site.consumers(key):
            if user in below:
                return True
            found = self._taken(nodes[user])
            if found is None:
                return self._selects(nodes[user])
            box = found[1] if box is None else hull(box, found[1])
        shape = shape_of(self.facts.value(key))
        return box is not None and shape is not None and self._is_worth(box, shape)

    def _is_worth(self, box: Box, shape: Sequence[int]) -> bool:
        return 100 * size(box) <= self.options.max_share * prod(shape)

    def _taken(self, node: GraphNode) -> tuple[Key, Box] | None:
        """The block that a task is a plain slice of, and its box; None for any other task."""
        if type(node) is not Task or id(node.func) not in _PLAIN or len(node.args) != 2:
            return None
        ref, index = node.args
        shape = shape_of(self.facts.value(ref.key)) if type(ref) is TaskRef else None
        if shape is None or self.facts.of(node.key) is None:
            return None
        found = selection(index.value if type(index) is DataNode else index, shape)
        if found is None or 0 in found[0]:
            return None
        counts = found[0]
        ends = []
        for offset, step, along in found[1]:
            last = offset + step * (counts[along] - 1) if along >= 0 else offset
            ends.append((min(offset, last), max(offset, last) + 1))
        return ref.key, tuple(ends)

    def _below(self, started: Iterable[Key]) -> set[Key]:
        nodes = self.graph.nodes
        found = set(started)
        stack = list(found)
        while stack:
            node = nodes[stack.pop()]
            for dep in node._dependencies:
                if dep not in found and dep in nodes:
                    found.add(dep)
                    stack.append(dep)
        return found

    def _decide(self, key: Key) -> None:
        """All users of a block have said what they need of it."""
        self.done.add(key)
        box = self.wanted.pop(key, None)
        node = self.graph.nodes[key]
        if box is None or self.site.wanted(key) or type(key) is not tuple or type(node) not in (Task, Alias):
            self._whole(key)
            return
        shape = shape_of(self.facts.value(key))
        if shape is None or len(shape) != len(box) or not self._is_worth(box, shape):
            self._whole(key)
            return
        plan = self._plan(node)
        if plan is None:
            self._whole(key)
            return
        plan.demand(box)
        if plan.box is None or plan.box == whole(shape) or not self.remarks.allow(self.options.name, key):
            plan.demand(None)
        else:
            self.places[key] = (self._name(key, plan.box), plan.box)
            self.remarks.applied(self.options.name, key, f"{_text(plan.box)} of {_text(whole(shape))}")
        self._keep(key, plan)

    def _whole(self, key: Key) -> None:
        """All of the result is wanted, which need not be all of what it is made from."""
        self.done.add(key)
        node = self.graph.nodes[key]
        if (taken := self._taken(node)) is not None:
            self._want(*taken)
            return
        plan = self._plan(node) if self._selects(node) else None
        if plan is None:
            for dep in node._dependencies:
                self.wanted[dep] = None
            return
        plan.demand(None)
        self._keep(key, plan)

    def _keep(self, key: Key, plan: Plan) -> None:
        self.plans[key] = plan
        for dep, box in plan.needs.items():
            self._want(dep, box)

    def _want(self, key: Key, box: Box | None) -> None:
        if key not in self.wanted:
            self.wanted[key] = box
            return
        before = self.wanted[key]
        self.wanted[key] = None if box is None or before is None else hull(before, box)

    def _plan(self, node: GraphNode) -> Plan | None:
        try:
            return Plan(node, self.facts, self.options.reassociate)
        except (Opaque, KeyError):
            return None

    def _selects(self, node: Any) -> bool:
        """Whether something in a task takes a part of a block."""
        stack = [node]
        while stack:
            here = stack.pop()
            kind = type(here)
            if kind is not Task and kind is not List:
                continue
            if id(here.func) in _SELECTING:
                return True
            frame = frame_of(here) if calls_frame(here.func) else None
            if frame is not None and any(self._templates.of(body, self._selects) for body in frame.bodies):
                return True
            stack += here.args
            if here.kwargs:
                stack += here.kwargs.values()
        return False

    def _name(self, key: Any, box: Box) -> Key:
        token = fingerprint([self.options.name, self.graph.origin.token, repr(box)])
        return (mark(str(key[0]), token), *key[1:])

    # -- writing ---------------------------------------------------------------------------------

    def rewritten(self) -> Graph:
        graph, places = self.graph, self.places
        nodes: Nodes = {}
        annotations = dict(graph.annotations)
        lost = False
        for key, node in graph.nodes.items():
            place = places.get(key)
            if place is None and places.keys().isdisjoint(node._dependencies):
                nodes[key] = node
                continue
            new = key if place is None else place[0]
            plan = self.plans.get(key)
            if plan is None:  # a plain slice
                plan = Plan(node, self.facts, self.options.reassociate)
                plan.demand(None)
            made = written(plan, new, places, partial(self._shows, key))
            nodes[new] = made
            lost = lost or len(made._dependencies) < len(node._dependencies)
            if new is not key and key in annotations:
                annotations[new] = annotations[key]
        names = {layer_name(key): layer_name(new) for key, (new, _) in places.items()}
        before = graph.origin.elementwise
        elementwise = before.union([names[name] for name in names if name in before])
        if lost:
            without_users(nodes, graph.outputs)
        origin = replace(graph.origin, elementwise=elementwise)
        return replace(graph, annotations=annotations, origin=origin).with_nodes(nodes)

    def _shows(self, user: Key, source: Key) -> bool:
        """Whether a view of a block could be written into, where somebody else would see it."""
        own = self.site.used_once(source) and self.site.effect(source) == "fresh"
        return not own and not self.site.read_only(user)


def _text(box: Box) -> str:
    return ", ".join([f"{a}:{b}" for a, b in box])


__all__ = ["Demand"]
