"""Elementwise work that writes into what the step before it has made."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dask._task_spec import DataNode, NestedContainer, Task, TaskRef
from dask.array import chunk
from dask.typing import Key
from dask.utils import methodcaller

from dask_rewrite.analysis.fact_cache import fact_of_array, name_here
from dask_rewrite.analysis.facts import Fact
from dask_rewrite.analysis.knowledge import known_call
from dask_rewrite.analysis.knowledge.blocks import block as fact_of_argument
from dask_rewrite.analysis.knowledge.in_place import IN_PLACE
from dask_rewrite.analysis.knowledge.known import through_partials
from dask_rewrite.analysis.knowledge.loading import Source
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nodes import NO_KWARGS, children, make_container, make_task, same, under
from dask_rewrite.graph.templates import called_by_keyword, calls_frame, frame_of
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement.memory_order import MAKERS, Order, lies_in_order
from dask_rewrite.passes.movement.moves import GETTER_IDS
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.steps import Values

_UFUNCS = {
    operator.add: np.add,
    operator.sub: np.subtract,
    operator.mul: np.multiply,
    operator.truediv: np.true_divide,
}
#: What may be done in place, by the identity of the function that makes a new array.
_WRITERS: dict[int, Any] = {
    id(func): writer
    for writer, plain in IN_PLACE.items()
    for func in (plain, _UFUNCS.get(plain))
    if func is not None
}
#: The same bits whichever argument comes first, if one of them is a number.
_COMMUTING = (operator.iadd, operator.imul)
#: Powers that NumPy makes by one exact function, in place or not.
_POWERS = (2, 0.5)
#: Besides ufuncs, these give new arrays that can be written into.
_MAKERS = frozenset(
    (
        *map(id, (*IN_PLACE, *IN_PLACE.values(), operator.floordiv, operator.mod, operator.neg)),
        *map(id, (operator.pos, operator.abs, builtins.abs, operator.invert, np.where, np.clip)),
        *map(id, (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)),
        *map(id, (chunk.astype, methodcaller("astype"))),
    )
)
#: Of tasks that call the same function under one name so many are looked at, before all of them are.
_SAMPLE = 8


@dataclass(frozen=True, slots=True)
class ReuseBuffers:
    """``(x * 1.8) + 32`` → ``operator.iadd(x * 1.8, 32)``, where both are steps of one task.

    A new array of some megabytes costs more than the arithmetic: the system maps and clears its pages.
    Legal where the first argument is a call that stands inside the task, so that nobody else has its result;
    is known to make a new NumPy array; and where the result has its shape, dtype and order in memory. Only
    operations whose bits do not depend on where they are written.

    Parameters
    ----------
    min_bytes : int
        Smaller results are new arrays: allocators hand out small ones again without clearing them.
    """

    name: ClassVar[str] = "reuse-buffers"
    min_bytes: int = 262_144

    def run(self, graph: Graph, context: Context) -> Graph:
        work = _Work(Site(graph, context), self.min_bytes)
        layers = filter(work.may_change, _alike(context.by_function(graph)))
        made = ((task, work.of(task)) for tasks in layers for task in tasks)
        return context.rewritten(graph, self.name, made, "tasks that write into their own arrays")


def _alike(by_function: Mapping[int, Sequence[Task]]) -> Iterator[list[Task]]:
    """Tasks that call the same function under one name: those of a layer."""
    for tasks in by_function.values():
        named: dict[Any, list[Task]] = {}
        for task in tasks:
            name = task.key[0] if type(task.key) is tuple else None
            named.setdefault(name, []).append(task)
        yield from named.values()


class _Scope(NamedTuple):
    """What references mean: what is known of values, and which are known to lie in C order."""

    values: Any
    in_c: Any


class _InOrder:
    """Which blocks of the graph lie in C order, and which files are read so."""

    def __init__(self, site: Site, order: Order) -> None:
        self._order = order
        self._site = site
        self._files = ByIdentity[bool]()

    def get(self, key: Key, default: Any = None) -> bool:
        node = self._site.node(key)
        if type(node) is not DataNode:
            return self._order.is_c(key)
        known = self._site.facts.value(key)
        return known.in_order if type(known) is Source else self._files.of(node, lies_in_order)


class _Work:
    def __init__(self, site: Site, min_bytes: int) -> None:
        self._site = site
        self._min_bytes = min_bytes
        self._order = Order(site)
        self._candidates = ByIdentity[bool]()
        self._taken = ByIdentity[list[Any]]()
        self._steps: dict[Any, Any] = {}
        self._choices: list[Any] = []  # what was written into in the step that is looked at
        self._made: dict[Any, Any] = {}
        self._top = _Scope(Values(site.facts), _InOrder(site, self._order))

    def of(self, task: Task) -> Any:
        """A task of the graph with steps in place."""
        return self.rewritten(task, self._top)

    def may_change(self, tasks: Sequence[Task]) -> bool:
        """Whether there are steps in place in one of the tasks of a layer that are looked at."""
        looked_at = tasks[:: -(-len(tasks) // _SAMPLE)]
        return any(self.is_candidate(task) and self.of(task) is not task for task in looked_at)

    def is_candidate(self, node: Any) -> bool:
        """Whether there is a step that could write into the one before: one look for each template."""
        stack = [node] if isinstance(node, Task) else []
        while stack:
            here = stack.pop()
            func, args = here.func, here.args
            if id(func) in _WRITERS and Task in map(type, args):
                return True
            if calls_frame(func) and (frame := frame_of(here)) is not None:
                if any(self._candidates.of(body, self.is_candidate) for body in frame.bodies):
                    return True
            stack += [arg for arg in (*args, *here.kwargs.values()) if isinstance(arg, Task)]
        return False

    def rewritten(self, node: Any, scope: _Scope) -> Any:
        """The same expression with steps in place; the same object if there are none."""
        if not isinstance(node, Task):
            return node
        if calls_frame(node.func) and frame_of(node) is not None:
            return self._frame(node, scope)
        if not any(isinstance(arg, Task) for arg in (*node.args, *node.kwargs.values())):
            return node  # no step stands in it that could be written into
        args = tuple([self.rewritten(arg, scope) if isinstance(arg, Task) else arg for arg in node.args])
        if isinstance(node, NestedContainer):
            return node if same(args, node.args) else make_container(node, args, node._dependencies)
        kwargs = {name: self.rewritten(arg, scope) for name, arg in node.kwargs.items()}
        func = self._writer(node, scope)
        self._choices.append(func)
        if func is None:
            if same(args, node.args) and same(kwargs.values(), node.kwargs.values()):
                return node
            func = node.func
        elif not isinstance(args[0], Task):
            args = args[::-1]
        return make_task(node.key, func, args, kwargs, node._dependencies, node._data_producer)

    def _frame(self, task: Task, scope: _Scope) -> Task:
        """A called template or a program: its inputs, then one body after the other."""
        held, *steps = task.args or task.kwargs.values()
        if not steps:
            steps = [task.func]
        inputs = held.kwargs
        if self.is_candidate(held):
            inputs = {name: self.rewritten(value, scope) for name, value in inputs.items()}
        inside = self._state(held.kwargs, scope)
        new = []
        for step in steps:
            body, then = self._step(step, inside)
            new.append(body)
            inside = then
        if same(inputs.values(), held.kwargs.values()) and same(new, steps):
            return task
        if task.kwargs:
            return under(task.key, called_by_keyword(new[0], inputs), task._data_producer)
        given = make_task(None, dict, (), inputs, held._dependencies)
        func, args = (task.func, (given, *new)) if task.args[1:] else (new[0], (given,))
        return make_task(task.key, func, args, NO_KWARGS, task._dependencies, task._data_producer)

    def _step(self, step: Any, scope: _Scope) -> tuple[Any, _Scope]:
        """A step over what is known of its inputs, and what is known after it."""
        body = step.__self__
        taken = self._taken.of(body, _taken)
        facts = [self._site.facts.within(node, scope.values) for node in taken]
        form = (id(body), *map(name_here, facts), *[self._is_in_c(node, scope) for node in taken])
        if (found := self._steps.get(form)) is None:
            before, self._choices = self._choices, []
            new = self.rewritten(body, scope)
            # indexes differ from block to block, and what is changed alike is one template all the same
            new = self._made.setdefault((id(body), *self._choices), new)
            self._choices = before
            after = self._state(body.kwargs if body.func is dict else {}, scope)
            call = step if new is body else new.__call__
            found = self._steps[form] = (call, after, step, facts)  # keeps alive what is named by identity
        self._choices.append(id(found[0].__self__))
        return found[:2]

    def _state(self, values: Mapping[str, Any], scope: _Scope) -> _Scope:
        known = {name: self._known(value, scope) for name, value in values.items()}
        return _Scope(known, {name: self._is_in_c(value, scope) for name, value in values.items()})

    def _known(self, node: Any, scope: _Scope) -> Any:
        """What is known of a value: the fact of data, as all blocks are alike; what may be an index stays."""
        value = self._site.facts.within(node, scope.values)
        is_block = type(value) is np.ndarray and (value.ndim > 1 or value.dtype.kind not in "biu")
        return fact_of_array(value) if is_block else value

    def _writer(self, node: Task, scope: _Scope) -> Any:
        """The function that does a step in place, None where that is not known to be the same."""
        writer = _WRITERS.get(id(node.func))
        if writer is None or len(node.args) != 2 or node.kwargs:
            return None
        block, other = node.args
        if type(block) in (int, float) and block == block and writer in _COMMUTING:
            block, other = other, block
        if type(block) is not Task or not _makes_array(block):
            return None
        if writer is operator.ipow and (type(other) not in (int, float) or other not in _POWERS):
            return None
        within = self._site.facts.within
        before, after = within(block, scope.values), within(node, scope.values)
        if type(before) is not Fact or type(after) is not Fact or before.scalar or not before.shape:
            return None
        if (before.shape, before.dtype) != (after.shape, after.dtype) or before.dtype.kind not in "biuf":
            return None
        if before.nbytes < self._min_bytes:
            return None
        added = fact_of_argument(within(other, scope.values))
        if added is not None and sum([n > 1 for n in added.shape]) > 1 and not self._is_in_c(block, scope):
            return None  # a new array might lie in the order of the other one
        return writer

    def _is_in_c(self, node: Any, scope: _Scope) -> bool:
        """Whether what an expression gives is known to lie in C order."""
        if isinstance(node, TaskRef):
            return bool(scope.in_c.get(node.key, False))
        if not isinstance(node, Task):
            return lies_in_order(node)
        if calls_frame(node.func) and (frame := frame_of(node)) is not None:
            for values in (frame.inputs, *[body.kwargs for body in frame.bodies[:-1]]):
                scope = self._state(values, scope)
            return self._is_in_c(frame.bodies[-1], scope)
        if id(node.func) in MAKERS:
            return True
        if id(node.func) in GETTER_IDS:
            of_file = type(self._site.facts.within(node.args[0], scope.values)) is Source
            return of_file and self._is_in_c(node.args[0], scope)
        return self._order.keeps(node) and all(self._is_in_c(child, scope) for child in children(node))


def _taken(body: Task) -> list[Any]:
    """What decides about a step: what is read for it, wherever in a file, and what else writers are given."""
    found: dict[Any, Any] = {}
    stack: list[tuple[Any, bool]] = [(body, body.func is dict)]
    while stack:
        node, counts = stack.pop()
        is_read = type(node) is Task and id(node.func) in GETTER_IDS and Task not in map(type, node.args)
        if is_read or type(node) is TaskRef:
            found.update({id(node) if is_read else node.key: node} if counts else {})
        elif isinstance(node, Task):
            counts = counts or id(node.func) in _WRITERS or calls_frame(node.func)
            stack += [(child, counts) for child in children(node)]
    return list(found.values())


def _makes_array(call: Task) -> bool:
    """Whether a call makes an array of its own that can be written into."""
    func, *_ = through_partials(call.func, (), {})
    if type(func) is not np.ufunc and id(func) not in _MAKERS:
        return False
    known = known_call(call.func, call.args, call.kwargs)
    return known is not None and known.fresh is True
