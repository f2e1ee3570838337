"""Only what is needed of each block is made: bounds inference, from the outputs down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod
from typing import Any, ClassVar

from dask._task_spec import Alias, GraphNode, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import believed
from dask_rewrite.analysis.fact_cache import intern
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph, Nodes, producers_first, reachable
from dask_rewrite.graph.names import fingerprint, layer_name, mark
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.beginnings import among, is_worth_it, sliced
from dask_rewrite.passes.demand.boxes import Box, hull, shape_of, size, whole, widen
from dask_rewrite.passes.demand.forms import Planned, Plans
from dask_rewrite.passes.demand.plans import has_rule, resized
from dask_rewrite.passes.demand.splits import without_splits
from dask_rewrite.passes.demand.takes import Takes
from dask_rewrite.passes.fuse_slices import FuseSlices
from dask_rewrite.passes.movement.memory_order import Order
from dask_rewrite.passes.site import Site

#: Percent of a block above which it is made as a whole where few elements less is all that is saved: to plan
#: a block and write it takes some 0.2 ms, in which so many can be copied.
_SHARE = 75
_MUCH = 32_768
#: Reads a slice of what is read at once, where dask does.
_AT_ONCE = FuseSlices(reassociate=False).rewrite


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
    min_bytes : int
        Bytes of a block from which on it is worth planning what is needed of it; less of a file is
        always worth it.
    """

    name: ClassVar[str] = "demand"
    max_share: int = 90
    min_bytes: int = 262_144
    reassociate: bool = True

    def run(self, graph: Graph, context: Context) -> Graph:
        takes = Takes(graph.nodes)
        started = sliced(graph, context, takes)
        if not started or not is_worth_it(graph, context, self.min_bytes):
            return graph
        site = Site(graph, context)
        plans = Plans(site.facts, self.reassociate)
        before, graph = graph, without_splits(graph, started, site, takes, plans, self.name)
        if graph is not before:
            takes = Takes(graph.nodes)
            started = sliced(graph, context, takes)
        search = _Search(self, graph, context, takes)
        search.run(started)
        return search.rewritten() if search.places else graph


class _Search:
    def __init__(self, options: Demand, graph: Graph, context: Context, takes: Takes) -> None:
        self.options = options
        self.graph = graph
        self.context = context
        self.remarks = context.remarks
        self.site = Site(graph, context)
        self.facts = self.site.facts
        self.wanted: dict[Key, Box | None] = {}  # of the blocks of which not all is wanted, so far
        self.plans: dict[Key, Planned] = {}
        self.forms = Plans(self.facts, options.reassociate)
        self._names: dict[tuple[Any, Box], str] = {}
        self._parts: dict[tuple[int, Box], Any] = {}  # what is known of boxes of blocks
        self.places: dict[Key, tuple[Key, Box]] = {}
        self.done: set[Key] = set()
        self.unwanted: set[Key] = set()  # the boxes of all users lie outside of it
        self.takes = takes
        self.order = Order(self.site)
        self._rules = ByIdentity[bool]()

    def run(self, sliced: Mapping[Key, list[Task]]) -> None:
        # Somewhere less must be taken than there is, by somebody who is made as a whole, for a start;
        # and what comes of a function that we do not know is made as a whole, and from all of its blocks.
        value, may_shrink = self.facts.value, self._may_shrink
        nodes = self.graph.nodes
        started = among(sliced, nodes, lambda k: may_shrink(k, sliced[k]) and shape_of(value(k)) is not None)
        if not started:
            return
        below = reachable(nodes, started)
        order = [key for key in nodes if key in below]
        for key in reversed(list(producers_first(order, nodes))):
            for user in self.site.consumers(key):
                if user not in below and user not in self.done:
                    self._whole(user)
            self._decide(key)

    def _may_shrink(self, key: Key, takers: Sequence[Task]) -> bool:
        """Not all of a block is wanted, as far as is believed of it, and if its users are made as a whole."""
        nodes = self.graph.nodes
        if self.site.wanted(key) or not self._has_rule(nodes[key]):
            return False
        believed_of_it = believed(self.facts, key)
        shape = None if believed_of_it is None else believed_of_it.shape
        box: Box | None = None
        for task in (takers[-1], *takers[:-1]):  # the last corner and the first one are often all of it
            found = None if shape is None else self.takes.box(task, shape)
            if shape is None or found is None:
                return True
            box = found if box is None else hull(box, found)
            if not self._is_worth(box, shape):
                return False
        users = self.site.consumers(key)
        if len(users) == len(takers):
            return True
        return all(self.takes.source(nodes[user]) == key or self.takes.selects(nodes[user]) for user in users)

    def _has_rule(self, node: GraphNode) -> bool:
        """Whether a task could be made for a part of its block, as far as its last function tells."""
        return type(node) is Alias or (type(node) is Task and self._rules.of(node.func, has_rule))

    def _is_worth(self, box: Box, shape: Sequence[int]) -> bool:
        wanted, there = size(box), prod(shape)
        share = self.options.max_share if there - wanted >= _MUCH else min(self.options.max_share, _SHARE)
        return 100 * wanted <= share * there

    def _decide(self, key: Key) -> None:
        """All users of a block have said what they need of it."""
        self.done.add(key)
        node = self.graph.nodes[key]
        if key not in self.wanted and type(node) is Task and not self.site.wanted(key):
            self.unwanted.add(key)
            return
        box = self.wanted.pop(key, None)
        if box is None or self.site.wanted(key) or type(key) is not tuple or not self._has_rule(node):
            self._whole(key)
            return
        shape = shape_of(self.facts.value(key))
        if shape is None or len(shape) != len(box) or not self._is_worth(box, shape):
            self._whole(key)
            return
        planned = self.forms.of(node, box)
        if planned is None or (made := planned.plan.box) is None or made == whole(shape):
            self._whole(key)
            return
        if not self.remarks.allow(self.options.name, key):
            self._whole(key)
            return
        self.places[key] = ((self._name(key[0], made), *key[1:]), made)
        self.remarks.applied(self.options.name, key, partial(_part, made, shape))
        self._keep(key, planned)

    def _whole(self, key: Key) -> None:
        """All of the result is wanted, which need not be all of what it is made from."""
        self.done.add(key)
        node = self.graph.nodes[key]
        if all(self._is_whole(dep) for dep in node._dependencies):
            return
        if (taken := self.takes.of(node, self.facts.value)) is not None:
            widen(self.wanted, *taken)
            return
        planned = self.forms.of(node, None) if self.takes.selects(node) else None
        if planned is None:
            for dep in node._dependencies:
                self.wanted[dep] = None
            return
        self._keep(key, planned)

    def _keep(self, key: Key, planned: Planned) -> None:
        self.plans[key] = planned
        for dep, box in planned.needs():
            widen(self.wanted, dep, box)

    def _is_whole(self, key: Key) -> bool:
        """It is made as a whole, whoever else wants it."""
        node = self.graph.nodes.get(key)
        return self.wanted.get(key, ()) is None or type(node) not in (Task, Alias) or self.site.wanted(key)

    def _name(self, layer: Any, box: Box) -> str:
        """The name of the blocks of a layer that are made for a box."""
        if (layer, box) not in self._names:
            token = fingerprint([self.options.name, self.graph.origin.token, repr(box)])
            self._names[layer, box] = mark(str(layer), token)
        return self._names[layer, box]

    # -- writing ---------------------------------------------------------------------------------

    def rewritten(self) -> Graph:
        graph, places = self.graph, self.places
        nodes: Nodes = {}
        annotations = dict(graph.annotations)
        lost = False
        texts: dict[Any, Task] = {}
        for key, node in graph.nodes.items():
            if key in self.unwanted:
                continue
            place = places.get(key)
            if place is None and places.keys().isdisjoint(node._dependencies):
                nodes[key] = node
                continue
            new = key if place is None else place[0]
            if place is not None:
                self._learn(key, *place)
            planned = self.plans.get(key) or self.forms.of(node, None)  # not there: a plain slice
            assert planned is not None
            nodes[new] = made = planned.written(new, places, partial(self._room, key), texts)
            lost = lost or len(made._dependencies) < len(node._dependencies)
            if new is not key and key in annotations:
                annotations[new] = annotations[key]
        names = {layer_name(key): layer_name(new) for key, (new, _) in places.items()}
        before = graph.origin.elementwise
        elementwise = before.union([names[name] for name in names if name in before])
        if lost:
            self.context.without_unused(nodes, graph.outputs)
        aliased = {new for key, (new, _) in places.items() if key in graph.origin.aliased}
        aliased |= graph.origin.aliased
        origin = replace(graph.origin, elementwise=elementwise, aliased=aliased)
        return replace(graph, annotations=annotations, origin=origin).with_nodes(nodes)

    def _learn(self, key: Key, new: Key, box: Box) -> None:
        """The new block is a box of the old one, of which all is known already."""
        value = self.facts.value(key)
        name = id(value), box
        if name not in self._parts:
            self._parts[name] = intern(resized(value, box))
        self.facts.tell(new, self._parts[name])

    def _room(self, user: Key, source: Key) -> float:
        """How many times a slice may be what it is a view of, where it was a copy; 0 if it has to stay one.

        A view may lie in another order, or be written into where others see it.
        """
        node: Any = self.graph.nodes[user]
        alone = self.takes.source(node) == source and len(self.site.consumers(user)) <= 1
        if (
            alone
            and self.takes.source(self.graph.nodes[source]) is None
            and type(_AT_ONCE(node, self.site)) is dict
        ):
            return inf  # dask fuses such a slice with the read: it lies as the file gives it
        own = self.site.used_once(source) and self.site.effect(source) == "fresh"
        return 1 if (own or self.site.read_only(user)) and self.order.is_c(source) else 0


def _part(box: Box, shape: Sequence[int]) -> str:
    return f"{_text(box)} of {_text(whole(shape))}"


def _text(box: Box) -> str:
    return ", ".join([":".join(map(str, positions)) for positions in box])
