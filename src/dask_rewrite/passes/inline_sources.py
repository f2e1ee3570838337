"""Cheap blocks that are made out of nothing, and the tasks that use them."""

from __future__ import annotations

import builtins
import functools
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.array import chunk
from dask.typing import Key

from dask_rewrite.analysis.knowledge.creation import CREATION
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.elementwise import ELEMENTWISE
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nesting import survey
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.graph.templates import template_of
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Site

_PURE = {func for func, known in {**CREATION, **ELEMENTWISE}.items() if known.pure}
#: Constants of one element, broadcast: whatever their shape, they take no memory.
_CONSTANT = frozenset([func for func in _PURE if getattr(func, "__module__", "") == "dask.array.wrap"])
_MAKING = frozenset(_PURE - _CONSTANT - {builtins.sum, functools.reduce})
_GETITEMS = frozenset([operator.getitem, of_dask(chunk, "getitem")])
_VIEWS = frozenset([np.broadcast_to, np.expand_dims, np.transpose, np.swapaxes, np.moveaxis, np.atleast_1d])
_ITEM = 8  # bytes of an element on the way, though the result may have smaller ones


@dataclass(frozen=True, slots=True)
class InlineSources:
    """``f(x0, r), f(x1, r), ...`` and ``r = arange(n)`` → ``f(x0, arange(n)), f(x1, arange(n)), ...``.

    Blocks of a grid of coordinates, constants and what is broadcast of them are used by whole rows of
    blocks: all of these wait for one task, are tied to each other, and hold its result. To make such a
    block again costs less than a task (compilers call it rematerialization of constants). Legal where all
    functions on the way are known to be pure and the block to be a NumPy array; never for random numbers
    and loads, nor for what somebody asked for. Small arrays in memory stay where they are: what is worked
    out of two of them or more is worked out where it is used.

    Parameters
    ----------
    max_bytes : int
        Bytes that are made anew for one task, at most.
    share : int
        More may be made where that is at most one part in so many of the block that is used: rows and
        columns that are broadcast.
    max_of_data : int
        Bytes of arrays in memory of which sources are made, of each, and that are made of them.
    max_sources : int
        Sources that one task may make.
    max_depth : int
        Nesting that tasks may reach.
    """

    name: ClassVar[str] = "inline-sources"
    max_bytes: int = 65_536
    share: int = 8
    max_of_data: int = 16_384
    max_sources: int = 8
    max_depth: int = 12

    def run(self, graph: Graph, context: Context) -> Graph:
        if graph.origin.shared:  # others may hold what waits for these
            return graph
        sources = _Sources(self, graph, context)
        roots = sources.roots()
        if not roots:
            return graph
        consumers = context.consumers(graph)
        made = sources.closure(sources.leading_on(roots, consumers), consumers)
        if not made:
            return graph
        users = {user: None for key in made for user in consumers.get(key, ()) if user not in made}
        nodes = dict(graph.nodes)
        inlined = 0
        for user in users:
            taken = self._taken(user, made, sources.site, context)
            if taken:
                nodes[user] = with_values(graph.nodes[user], taken)
                inlined += len(taken)
                context.regrouped.add(user)
        if not inlined:
            return graph
        context.without_unused(nodes, graph.outputs)
        context.remarks.applied(self.name, None, f"sources made where they are used: {inlined}", inlined)
        return graph.with_nodes(nodes)

    def _taken(self, user: Key, made: dict[Key, _Source], site: Site, context: Context) -> dict[Key, Task]:
        """The sources that a task will make itself."""
        task = site.graph.nodes[user]
        if type(task) is not Task or not context.may_move(task.func):
            return {}
        if not context.fuse_text_keys and type(user) is str:
            return {}
        depth, references, levels = survey(task)
        twice: set[Key] = set()  # what is referred to twice would be made twice
        if len(references) > len(task._dependencies):
            twice = {key for key, times in Counter(references).items() if times > 1}
        taken: dict[Key, Task] = {}
        room = self.max_bytes
        for key, level in zip(references, levels):
            source = made.get(key)
            if source is None or len(taken) == self.max_sources or key in twice:
                continue
            if len(source.task._dependencies) == 1:  # it ties blocks no more than the data that it is made of
                continue
            if max(depth, level + 1 + source.depth) > self.max_depth or not site.same_annotations(user, key):
                continue
            if source.cost > max(room, source.nbytes // self.share):
                continue
            if context.remarks.allow(self.name, user):
                room -= min(room, source.cost)
                taken[key] = source.task
        return taken


class _Source(NamedTuple):
    """A block that waits for nothing: how it is made, how deep that nests, what that costs, and its size."""

    task: Task
    depth: int
    cost: int
    nbytes: int


class _Sources:
    """Which tasks make cheap blocks out of nothing, of small arrays in memory, or of such blocks."""

    def __init__(self, bounds: InlineSources, graph: Graph, context: Context) -> None:
        self._bounds, self._graph, self._context = bounds, graph, context
        self.site = Site(graph, context)
        self._outputs = frozenset(graph.outputs)
        self._costs = ByIdentity[int | None]()
        self._small = ByIdentity[bool]()

    def roots(self) -> list[Key]:
        """Blocks that are made out of nothing: few graphs have any."""
        found = []
        for tasks in self._context.by_function(self._graph).values():
            if not self._may_make(tasks[0]):
                continue
            found += [task.key for task in tasks if not self._waits(task) and self._is_free(task)]
        return found

    def leading_on(self, roots: Sequence[Key], consumers: Any) -> list[Key]:
        """The roots that are made of nothing or of several arrays, or of which others are made."""
        nodes = self._graph.nodes
        ready = set(roots)
        known: dict[Key, bool] = {}

        def goes_on(user: Key) -> bool:
            if user not in known:
                task = nodes[user]
                known[user] = (
                    type(task) is Task
                    and self._is_free(task)
                    and all(
                        dep in ready or self._small.of(nodes.get(dep), self._is_small)
                        for dep in task._dependencies
                    )
                    and self._may_make(task)
                )
            return known[user]

        return [
            key
            for key in roots
            if len(nodes[key]._dependencies) != 1 or any(map(goes_on, consumers.get(key, ())))
        ]

    def closure(self, roots: Sequence[Key], consumers: Any) -> dict[Key, _Source]:
        """The roots and all that is made of nothing else."""
        nodes = self._graph.nodes
        made: dict[Key, _Source] = {}
        waiting: dict[Key, int] = {}
        stack = list(reversed(roots))
        while stack:
            key = stack.pop()
            task = nodes[key]
            source = self._source(task, made)  # type: ignore[arg-type] # only tasks are put there
            if source is None:
                continue
            made[key] = source
            for user in consumers.get(key, ()):
                left = waiting.get(user)
                if left is None:
                    node = nodes[user]
                    left = self._waits(node) if type(node) is Task and self._is_free(node) else -1
                waiting[user] = left - 1
                if left == 1:
                    stack.append(user)
        return made

    def _waits(self, task: Task) -> int:
        """How many blocks a task waits for; small arrays in memory are at hand."""
        find = self._graph.nodes.get
        return sum(not self._small.of(find(dep), self._is_small) for dep in task._dependencies)

    def _is_small(self, node: GraphNode | None) -> bool:
        value = node.value if type(node) is DataNode else None
        return type(value) is np.ndarray and value.nbytes <= self._bounds.max_of_data

    def _is_free(self, task: Task) -> bool:
        """Nobody asked for it, and nobody watches it."""
        return type(task.key) is tuple and task.key not in self._outputs and not task._data_producer

    def _source(self, task: Task, made: dict[Key, _Source]) -> _Source | None:
        per_element = self._cost(task)
        if per_element is None:
            return None
        below = {dep: made[dep] for dep in task._dependencies if dep in made}  # the others are data
        depth, references, levels = survey(task)
        if len(references) > len(task._dependencies) or not all(
            self.site.same_annotations(task.key, dep) for dep in references
        ):
            return None
        nested = [level + 1 + below[key].depth for key, level in zip(references, levels) if key in below]
        depth = max([depth, *nested])
        if depth > self._bounds.max_depth // 2:
            return None
        fact = self.site.facts.of(task.key)
        if fact is None or not self.site.effects.pure(task):
            return None
        cost = per_element * fact.size + sum(source.cost for source in below.values())
        values = {dep: source.task for dep, source in below.items()}
        made_of = with_values(task, values) if values else task
        if made_of._dependencies and cost > self._bounds.max_of_data:
            return None
        return _Source(made_of, depth, cost, fact.nbytes)

    def _cost(self, task: Task) -> int | None:
        """Bytes that are made for each element of the result; None for what is not cheap, or not known."""
        if type(task.func) is not MethodType:
            return _cost_of([task], task)
        found = template_of(task)
        if found is None or any(isinstance(value, GraphNode) for value in found[1].values()):
            return None
        return self._costs.of(found[0], _cost_of_template)

    def _may_make(self, task: Task) -> bool:
        """Whether tasks that call this function may make something out of nothing."""
        if type(task.func) is MethodType:
            found = template_of(task)
            return found is not None and self._costs.of(found[0], _cost_of_template) is not None
        func = task.func.func if type(task.func) is partial else task.func
        try:
            return func in _MAKING or func in _CONSTANT or func in _GETITEMS or func in _VIEWS
        except TypeError:  # not hashable
            return False


def _cost_of_template(template: Any) -> int | None:
    return _cost_of([template], None)


def _cost_of(stack: list[Any], top: Task | None) -> int | None:
    cost = 0
    while stack:
        task = stack.pop()
        if type(task) is not Task:
            return None
        func = task.func.func if type(task.func) is partial else task.func
        arguments = [*task.args, *task.kwargs.values()]
        try:
            if func in _MAKING:
                cost = _ITEM
            elif func in _GETITEMS:
                if not (_keeps_all(task.args) or (task is top and type(task.args[0]) is TaskRef)):
                    return None  # what it takes a part of may be large
            elif func not in _VIEWS and func not in _CONSTANT:
                return None
        except TypeError:  # not hashable
            return None
        stack += [arg for arg in arguments if isinstance(arg, GraphNode)]
    return cost


def _keeps_all(args: Sequence[Any]) -> bool:
    """Whether an index only adds axes."""
    index = args[1] if len(args) == 2 else None
    return type(index) is tuple and all(
        part is None or (type(part) is slice and part == slice(None)) for part in index
    )
