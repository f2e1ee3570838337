"""Resolving the references of task nodes, nested ones included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, NestedContainer, Task, TaskRef, _execute_subgraph
from dask.typing import Key

from dask_rewrite.graph.kinds import ALIAS, ITEMS, KINDS, NODE, RAW, REF
from dask_rewrite.graph.nesting import check_depth
from dask_rewrite.graph.nodes import NO_DEPS, NO_KWARGS, Deps, make_container, make_task
from dask_rewrite.lowering.references import References


class TooDeep(Exception):
    """A task is nested deeper than the limit."""


#: Tasks nested deeper than this are taken apart.
DEPTH_LIMIT = 32
_NESTED = (NODE, ITEMS)


class Resolver:
    """Resolves the references of task nodes; see :meth:`resolve`.

    Parameters
    ----------
    references : References
        Hands out references.
    """

    def __init__(self, references: References) -> None:
        self._external = references.external
        self._find = references.find
        self._refs = references.refs
        self._ref = references.ref
        self._new_ref = references.new_ref

    def _resolve_slice(self, task: Task, source: Key, key: Key) -> Task:
        """The shape that most tasks of rechunked and sliced arrays have: one reference and one value."""
        ref = self._refs.get(source) or self._new_ref(source)
        if ref.key == source and key == task.key:
            return task
        args = (ref, task.args[1])
        return make_task(key, task.func, args, NO_KWARGS, frozenset((ref.key,)), task._data_producer)

    def _resolve_pair(self, task: Task, source: Key, other: Key, key: Key) -> Task:
        """The shape of a slice whose index is data, and of arithmetic on two blocks: two references."""
        one = self._refs.get(source) or self._new_ref(source)
        two = self._refs.get(other) or self._new_ref(other)
        if one.key == source and two.key == other and key == task.key:
            return task
        deps = frozenset((one.key, two.key))
        return make_task(key, task.func, (one, two), NO_KWARGS, deps, task._data_producer)

    def resolve(self, node: GraphNode, depth: int = 0) -> GraphNode:
        """The node with its references resolved; the same object where nothing changed."""
        kind = type(node)
        if kind is DataNode or (not node._dependencies and kind is not Task):
            return node
        if depth > DEPTH_LIMIT:
            raise TooDeep
        if type(node) is Task:
            return self._resolve_task(node, depth, node.key)
        if type(node) is Alias:
            target = node.target
            ref = self._ref(target)
            if depth:
                return Alias(ref.key)
            return node if ref.key == target else Alias(node.key, ref.key)
        if isinstance(node, NestedContainer):
            return self._resolve_container(node, depth)
        for arg in getattr(node, "args", ()):
            if isinstance(arg, GraphNode):
                self.resolve(arg, depth + 1)  # raises if it is too deep
        subs: dict[Key, Key | GraphNode] = {}
        for dep in sorted(node._dependencies, key=str):  # the order of a set is not the same everywhere
            key = self._ref(dep).key
            if key != dep:
                subs[dep] = key
        return node.substitute(subs) if subs else node

    def _resolve_container(self, node: NestedContainer, depth: int) -> NestedContainer:
        if depth > DEPTH_LIMIT:
            raise TooDeep
        args, deps, changed = self._arguments(node.args, depth)
        return make_container(node, tuple(args), deps) if changed else node

    def _resolve_task(self, task: Task, depth: int, key: Key) -> Task:
        func = task.func
        if func is _execute_subgraph and type(task.args[0]) is dict:
            if any(map(_nests_graph, task.args[0].values())) and not check_depth(task, DEPTH_LIMIT + 1):
                raise TooDeep
        args, deps, changed = self._arguments(task.args, depth)
        kwargs = task.kwargs
        if kwargs:
            values, more, other = self._arguments(kwargs.values(), depth)
            if more:
                deps = deps | more
            if other:
                changed = True
                kwargs = dict(zip(kwargs, values))
        if not changed and key == task.key:
            return task
        return make_task(key, func, tuple(args), kwargs, deps, task._data_producer)

    def _arguments(self, values: Iterable[Any], depth: int) -> tuple[list[Any], Deps, bool]:
        """Resolved arguments, what they depend on, and whether any of them is another object now."""
        new_ref = self._new_ref
        args: list[Any] = []
        deps: list[Key] = []
        nested: list[Deps] = []
        changed = False
        known = self._refs.get
        for arg in values:
            kind = REF if type(arg) is TaskRef else KINDS[type(arg)]
            if kind == REF:
                new: Any = known(arg.key) or new_ref(arg.key)
                key = new.key
                deps.append(key)
                if key != arg.key:
                    changed = True
                    arg = new
            elif kind == RAW:
                pass
            elif kind == ALIAS:  # evaluates to its target, whatever it is called
                arg = self._ref(arg.target)
                deps.append(arg.key)
                changed = True
            elif kind in _NESTED:
                new = (
                    self._resolve_container(arg, depth + 1) if kind == ITEMS else self.resolve(arg, depth + 1)
                )
                if new is not arg:
                    changed = True
                    arg = new
                nested.append(new._dependencies)
            else:  # a future: stays the object that it is
                deps.append(self._outside(arg))
            args.append(arg)
        if nested:
            return args, frozenset(deps).union(*nested), changed
        return args, frozenset(deps) if deps else NO_DEPS, changed

    def _outside(self, future: Any) -> Key:
        """The key of a future: known to the scheduler, not to this graph."""
        key: Key = future.key
        self._external.add(key)
        return key


def _nests_graph(task: Any) -> bool:
    """Whether a task inside a graph is or directly holds another graph: each such level costs a call."""
    if type(task) is not Task:
        return False
    return task.func is _execute_subgraph or any(
        type(arg) is Task and arg.func is _execute_subgraph for arg in task.args
    )
