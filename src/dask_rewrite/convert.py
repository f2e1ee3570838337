"""Turning the values of a raw graph into task nodes whose references are resolved.

Follows the rules of dask's own ``convert_legacy_task``: a tuple whose head is callable is a task, a
value equal to a key refers to it, containers are looked into. References are asked for one by one,
which is what makes lowering demand-driven: what nobody refers to is never converted.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from dask._expr import ProhibitReuse
from dask._task_spec import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    NestedContainer,
    Task,
    TaskRef,
    _execute_subgraph,
    _identity_cast,
    _wrap_namedtuple_task,
)
from dask.typing import Key
from dask.utils import is_namedtuple_instance

from dask_rewrite.nodes import NO_DEPS, NO_KWARGS, Deps, make_container, make_task, renamed


class Resolver(Protocol):
    """Answers for references: who is known, and what a reference to it looks like."""

    external: set[Key]

    def knows(self, key: Any) -> bool: ...

    def ref(self, key: Key) -> TaskRef: ...


class TooDeep(Exception):
    """A task is nested deeper than the limit."""


#: Tasks nested deeper than this are taken apart.
DEPTH_LIMIT = 32


class Converter:
    """Converts values of a raw graph; see :meth:`node`.

    Parameters
    ----------
    resolver : Resolver
        Hands out references.
    """

    __slots__ = ("_external", "_knows", "_ref")

    def __init__(self, resolver: Resolver) -> None:
        self._external = resolver.external
        self._knows = resolver.knows
        self._ref = resolver.ref

    def node(self, value: Any, old: Key, new: Key) -> GraphNode:
        """The node for a raw value that stands under ``old``, to stand under ``new``.

        Raises
        ------
        TooDeep
            If the value nests tasks deeper than the limit.
        """
        if isinstance(value, GraphNode):
            while type(value) is Task and value.func is ProhibitReuse._identity:
                value = value.args[0]  # dask's marker against shared keys: the key is new anyway
            if type(value) is Task:
                return self._resolve_task(value, 0, new)
            node = self.resolve(value)
            if node.key != new:
                node = renamed(node, new)
            return node
        result = self._legacy(new, value, 0)
        return result if isinstance(result, GraphNode) else DataNode(new, result)

    def resolve(self, node: GraphNode, depth: int = 0) -> GraphNode:
        """The node with its references resolved; the same object where nothing changed."""
        kind = type(node)
        if kind is DataNode or (not node._dependencies and kind is not Task):
            return node
        if depth > DEPTH_LIMIT:
            raise TooDeep
        if kind is Task:
            return self._resolve_task(node, depth, node.key)  # type: ignore[arg-type]
        if kind is Alias:
            target = node.target  # type: ignore[attr-defined]
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
        ref = self._ref
        deps: list[Key] = []
        nested: list[Deps] = []
        args: list[Any] = []
        changed = False
        for arg in node.args:
            if type(arg) is TaskRef:
                new: Any = ref(arg.key)
                deps.append(new.key)
                if new.key == arg.key:
                    new = arg
            elif type(arg) is Alias:
                new = ref(arg.target)
                deps.append(new.key)
            elif isinstance(arg, GraphNode):
                new = self.resolve(arg, depth + 1)
                nested.append(new._dependencies)
            else:
                new = arg
                if isinstance(arg, TaskRef):
                    deps.append(self._outside(arg))
            if new is not arg:
                changed = True
            args.append(new)
        if not changed:
            return node
        return make_container(
            node, tuple(args), frozenset(deps).union(*nested) if nested else frozenset(deps)
        )

    def _resolve_task(self, task: Task, depth: int, key: Key) -> Task:
        if task.func is _execute_subgraph and type(task.args[0]) is dict:
            if any(type(v) is Task and _nests_graph(v) for v in task.args[0].values()):
                raise TooDeep
        deps: list[Key] = []
        changed = key != task.key
        args = []
        nested: list[Deps] = []
        for arg in task.args:
            if type(arg) is TaskRef:
                ref = self._ref(arg.key)
                deps.append(ref.key)
                if ref.key != arg.key:
                    changed = True
                    arg = ref
            elif type(arg) is Alias:  # evaluates to its target, whatever it is called
                arg = self._ref(arg.target)
                deps.append(arg.key)
                changed = True
            elif isinstance(arg, GraphNode):
                new = self.resolve(arg, depth + 1)
                if new is not arg:
                    changed = True
                    arg = new
                nested.append(new._dependencies)
            elif isinstance(arg, TaskRef):  # a future: stays the object that it is
                deps.append(self._outside(arg))
            args.append(arg)
        kwargs = task.kwargs
        if kwargs:
            fresh = {}
            for name, arg in kwargs.items():
                if isinstance(arg, (GraphNode, TaskRef)):
                    new = self._argument(arg, depth)
                    changed = changed or new is not arg
                    if isinstance(new, TaskRef):
                        deps.append(new.key if type(new) is TaskRef else self._outside(new))
                    else:
                        nested.append(new._dependencies)
                    fresh[name] = new
                else:
                    fresh[name] = arg
            if changed:
                kwargs = fresh
        if not changed:
            return task
        all_deps = frozenset(deps).union(*nested) if nested else frozenset(deps)
        return make_task(key, task.func, tuple(args), kwargs, all_deps, task._data_producer)

    def _outside(self, future: Any) -> Key:
        """The key of a future: known to the scheduler, not to this graph."""
        self._external.add(future.key)
        return future.key  # type: ignore[no-any-return]

    def _argument(self, arg: Any, depth: int) -> Any:
        if type(arg) is TaskRef:
            ref = self._ref(arg.key)
            return arg if ref.key == arg.key else ref
        if type(arg) is Alias:
            return self._ref(arg.target)
        if isinstance(arg, GraphNode):
            return self.resolve(arg, depth + 1)
        return arg

    def _legacy(self, key: Key | None, value: Any, depth: int) -> Any:
        if isinstance(value, GraphNode):
            return self.resolve(value, depth)
        kind = type(value)
        if kind is tuple and value and callable(value[0]):
            if depth > DEPTH_LIMIT:
                raise TooDeep
            args = [self._legacy_argument(arg, depth) for arg in value[1:]]
            return make_task(key, value[0], tuple(args), NO_KWARGS, _deps(args))
        if isinstance(value, (int, float, str, tuple)):
            try:
                known = self._knows(value)
            except TypeError:
                known = False
            if known:
                ref = self._ref(value)
                return ref if key is None else Alias(key, ref.key)
        if isinstance(value, (list, tuple, set, frozenset)):
            if is_namedtuple_instance(value):
                return _wrap_namedtuple_task(key, value, partial(self._nested_value, depth=depth + 1))
            if depth > DEPTH_LIMIT:
                raise TooDeep
            parsed = [self._legacy(None, item, depth + 1) for item in value]
            if any(isinstance(item, (GraphNode, TaskRef)) for item in parsed):
                return make_task(key, _identity_cast, tuple(parsed), {"typ": kind}, _deps(parsed))
            return kind(parsed)
        if type(value) is TaskRef:
            ref = self._ref(value.key)
            return ref if key is None else Alias(key, ref.key)
        if _is_dask_future(value):
            self._outside(value)
            return value if key is None else Alias(key, value.key)
        return value

    def legacy_argument(self, value: Any) -> Any:
        """A value that stands inside a legacy task, converted."""
        return self._legacy(None, value, 0)

    def _legacy_argument(self, arg: Any, depth: int) -> Any:
        if isinstance(arg, dict):
            return self._resolve_container(Dict(arg), depth)
        return self._legacy(None, arg, depth + 1)

    def _nested_value(self, value: Any, depth: int) -> Any:
        new = self._legacy(None, value, depth)
        return Alias(new.key) if isinstance(new, TaskRef) else new


def _is_dask_future(value: Any) -> bool:
    """A future of `distributed`, or of a scheduler that marks its own as such."""
    return isinstance(value, TaskRef) or getattr(value, "__dask_future__", False) is True


def _nests_graph(task: Task) -> bool:
    """Whether a task inside a graph is or directly holds another graph: each such level costs a call."""
    if task.func is _execute_subgraph:
        return True
    return any(type(arg) is Task and arg.func is _execute_subgraph for arg in task.args)


def _deps(args: list[Any]) -> Deps:
    keys = [arg.key for arg in args if isinstance(arg, TaskRef)]
    nested = [arg._dependencies for arg in args if isinstance(arg, GraphNode)]
    if nested:
        return frozenset(keys).union(*nested)
    return frozenset(keys) if keys else NO_DEPS
