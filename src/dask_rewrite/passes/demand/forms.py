"""Plans that tasks share which differ in their references alone: blocks of one layer nearly always do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.facts import UNKNOWN, Facts
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.analysis.knowledge.loading import LOADING_IDS
from dask_rewrite.graph.nodes import identity_of, make_task, renamed
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.demand.boxes import Box, lengths
from dask_rewrite.passes.demand.plans import Plan
from dask_rewrite.passes.demand.write import written
from dask_rewrite.passes.steps import Opaque

#: Types of literals that are told apart by their values; all others are by identity.
_BY_VALUE = frozenset([int, bool, str, type(None), type(Ellipsis)])
_ENDS = frozenset([int, type(None)])
_NOTHING = object()


@dataclass(slots=True)
class Planned:
    """What a task needs for a box of its result: a plan, and what the plan's references stand for.

    Parameters
    ----------
    plan : Plan
        Of this task, or of another one of its form.
    known : tuple of Key
        The keys that the plan refers to, in the order in which they first stand in a task.
    keys : tuple of Key
        Those of this task.
    further : tuple of int
        By how much the part of a file that it reads lies further on each axis than in the plan.
    """

    plan: Plan
    known: tuple[Key, ...]
    keys: tuple[Key, ...]
    further: tuple[int, ...]

    def needs(self) -> list[tuple[Key, Box | None]]:
        """What is needed of each block."""
        own = dict(zip(self.known, self.keys))
        return [(own[key], box) for key, box in self.plan.needs.items()]

    def written(
        self,
        key: Key,
        places: Mapping[Key, tuple[Key, Box]],
        room: Callable[[Key], float],
        texts: dict[Any, Task],
    ) -> GraphNode:
        """The task under a new key; ``texts`` keeps what was written for others, see `write.written`."""
        plan, known, keys = self.plan, self.known, self.keys
        there = [places.get(each) for each in keys]
        rooms = tuple(map(room, keys)) if plan.slices else ()
        form = (id(plan), tuple([place and place[1] for place in there]), rooms)
        text = texts.get(form)
        if text is None:
            boxes = {old: (old, place[1]) for old, place in zip(known, there) if place is not None}
            text = texts[form] = written(plan, plan.node.key, boxes, dict(zip(known, rooms)).__getitem__)
        new = [own if place is None else place[0] for own, place in zip(keys, there)]
        values = {old: TaskRef(here) for old, here in zip(known, new) if here != old}
        made = with_values(text, values)
        return _moved(made, key, self.further) if any(self.further) else renamed(made, key)


class Plans:
    """Makes plans, one for all tasks of a form.

    Parameters
    ----------
    facts : Facts
        What is known of blocks.
    reassociate : bool
        Whether sums of floats may be grouped differently.
    """

    def __init__(self, facts: Facts, reassociate: bool) -> None:
        self._facts = facts
        self._reassociate = reassociate
        self._known: dict[Any, tuple[Plan, tuple[Key, ...], Box] | None] = {}

    def of(self, node: GraphNode, box: Box | None) -> Planned | None:
        """What a task needs for a box of its result, or for all of it; None if its inside cannot be read."""
        value = self._facts.value
        ranges = _ranges(node, value)
        form, keys = form_of(node, value, node.args[1] if ranges else _NOTHING)  # type: ignore[attr-defined] # a read
        name = (form, box, lengths(ranges)) if ranges else (form, box)
        if name not in self._known:
            try:
                self._known[name] = Plan(node, self._facts, self._reassociate, box), keys, ranges
            except (Opaque, KeyError):
                self._known[name] = None
        found = self._known[name]
        if found is None:
            return None
        plan, known, first = found
        return Planned(plan, known, keys, tuple([a - b for (a, _), (b, _) in zip(ranges, first)]))


def _ranges(node: GraphNode, value: Callable[[Key], Any]) -> Box:
    """The box of a file that a task reads, and does nothing else, where all of that is there; empty if not.

    What becomes of such a read is the same for all of one shape, but for where they lie.
    """
    if type(node) is not Task or id(node.func) not in LOADING_IDS or len(node.args) < 2:
        return ()
    source, index = node.args[:2]
    if type(source) is not TaskRef or type(index) is not tuple:
        return ()
    for item in index:
        if type(item) is not slice or item.step is not None or not type(item.start) is type(item.stop) is int:
            return ()
    box = tuple([(item.start, item.stop) for item in index])
    if any(a < 0 for a, _ in box) or type(value(source.key)) is Fact:
        return ()
    fact = value(node.key)
    return box if type(fact) is Fact and fact.shape == lengths(box) else ()


def _moved(task: Task, key: Key, further: Sequence[int]) -> Task:
    """A read of a file so much further on each axis."""
    source, index, *rest = task.args
    there = [slice(i.start + n, i.stop + n, i.step) for i, n in zip(index, further)]
    args = source, tuple(there), *rest
    return make_task(key, task.func, args, task.kwargs, task._dependencies, task._data_producer)


def form_of(
    node: GraphNode, value: Callable[[Key], Any], blank: Any = _NOTHING
) -> tuple[Any, tuple[Key, ...]]:
    """Something hashable that is equal for tasks that differ in the keys they refer to alone, and these keys.

    Parameters
    ----------
    node : GraphNode
        A task or an alias, which must be kept alive as long as its form is compared.
    value : callable
        What is known of the block under a key.
    blank : object
        What stands in the task itself, in an argument or a node of its own, and may differ as well.

    Examples
    --------
    >>> import operator
    >>> def form(*args):
    ...     return form_of(Task("y", operator.add, *args), {}.get)[0]
    >>> form(TaskRef("a"), 1) == form(TaskRef("b"), 1)
    True
    >>> form(TaskRef("a"), TaskRef("a")) == form(TaskRef("a"), TaskRef("b")), form(1) == form(True)
    (False, False)
    """
    places: dict[Key, int] = {}
    return _named(node, places, value, blank), tuple(places)


def unknown(key: Key) -> Any:
    """What is known of blocks, for :func:`form_of`, where that does not matter."""
    return UNKNOWN


def _named(here: Any, places: dict[Key, int], value: Callable[[Key], Any], blank: Any) -> Any:
    kind = type(here)
    if here is blank:
        return _NOTHING
    if kind in _BY_VALUE:
        return kind, here
    if kind is TaskRef or kind is Alias:
        key = here.key if kind is TaskRef else here.target
        known = value(key)
        fact: Any = known.number if type(known) is Fact else 0
        if fact and known.fill is not None and not known.scalar:
            fact = known.shape, known.dtype  # which constant a block holds does not matter
        return kind, places.setdefault(key, len(places)), fact or (known is not UNKNOWN and id(known))
    if kind is Task:
        args = [_named(arg, places, value, blank) for arg in here.args]
        kwargs = [(name, _named(arg, places, value, blank)) for name, arg in here.kwargs.items()]
        return (identity_of(here.func), here._data_producer, *args, *kwargs)
    if kind is slice:
        if _ENDS.issuperset((type(here.start), type(here.stop), type(here.step))):
            return kind, here.start, here.stop, here.step
        return kind, *[_named(end, places, value, blank) for end in (here.start, here.stop, here.step)]
    if kind is tuple or kind is List:
        return kind, *[_named(item, places, value, blank) for item in (here if kind is tuple else here.args)]
    if kind is DataNode:
        return _NOTHING if here.value is blank else id(here.value)
    return id(here)
