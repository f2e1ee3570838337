"""Turning the values of a raw graph into task nodes whose references are resolved.

Follows the rules of dask's own ``convert_legacy_task``: a tuple whose head is callable is a task, a
value equal to a key refers to it, containers are looked into. References are asked for one by one,
which is what makes lowering demand-driven: what nobody refers to is never converted.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from dask._task_spec import Alias, DataNode, Dict, GraphNode, Task, TaskRef, _wrap_namedtuple_task
from dask.typing import Key
from dask.utils import is_namedtuple_instance
from toolz import concat

from dask_rewrite.graph.kinds import ATOM, CONTAINER, FUTURE, KINDS, LEGACY_KINDS, NODE, RAW, REF, TUPLE
from dask_rewrite.graph.nodes import (
    MARKER,
    NO_DEPS,
    NO_KWARGS,
    Deps,
    cast_to,
    make_container,
    make_task,
    renamed,
)
from dask_rewrite.lowering.resolve import DEPTH_LIMIT, Resolver, TooDeep

_NO_ITEMS = Dict()


class Converter(Resolver):
    """Converts values of a raw graph; see :meth:`node`."""

    def node(self, value: Any, new: Key) -> GraphNode:
        """The node for a raw value, to stand under the key ``new``.

        Raises
        ------
        TooDeep
            If the value nests tasks deeper than the limit.
        """
        while type(value) is Task:
            args = value.args
            if value.func is MARKER:
                value = args[0]  # dask's marker against shared keys: the key is new anyway
                continue
            if len(args) == 2 and type(args[0]) is TaskRef and not value.kwargs:
                kind = KINDS[type(args[1])]
                if kind == RAW:
                    return self._resolve_slice(value, args[0].key, new)
                if kind == REF:
                    return self._resolve_pair(value, args[0].key, args[1].key, new)
            return self._resolve_task(value, 0, new)
        if isinstance(value, GraphNode):
            node = self.resolve(value)
            return node if node.key == new else renamed(node, new)
        result = self._legacy(new, value, 0)
        return result if isinstance(result, GraphNode) else DataNode(new, result)

    def _legacy(self, key: Key | None, value: Any, depth: int) -> Any:
        kind = LEGACY_KINDS[type(value)]
        if kind == RAW:
            return value
        if kind == NODE:
            return self.resolve(value, depth)
        if kind == TUPLE and value and callable(value[0]):
            if depth > DEPTH_LIMIT:
                raise TooDeep
            args, deps, _ = self._legacy_parts(value[1:], depth, True)
            return make_task(key, value[0], args, NO_KWARGS, deps)
        if kind <= ATOM:
            try:
                ref = self._find(value)
            except TypeError:  # not hashable
                ref = None
            if ref is not None:
                return ref if key is None else Alias(key, ref.key)
            if kind == ATOM:
                return value
        if kind <= CONTAINER:
            if kind == TUPLE and is_namedtuple_instance(value):
                return _wrap_namedtuple_task(key, value, partial(self._nested_value, depth=depth + 1))
            if depth > DEPTH_LIMIT:
                raise TooDeep
            parts, deps, nested = self._legacy_parts(value, depth, False)
            made = type(value)
            if deps or nested:
                return cast_to(made, key, parts, deps)
            return made(parts)
        if kind == REF:
            ref = self._ref(value.key)
            return ref if key is None else Alias(key, ref.key)
        self._outside(value)
        return value if key is None else Alias(key, value.key)

    def _legacy_parts(
        self, values: Iterable[Any], depth: int, task: bool
    ) -> tuple[tuple[Any, ...], Deps, bool]:
        """The parts, what they depend on, and whether nodes are among them."""
        parts: list[Any] = []
        deps: list[Key] = []
        nested: list[Deps] = []
        find = self._find
        for value in values:
            kind = LEGACY_KINDS[type(value)]
            if kind == RAW:
                if not (task and isinstance(value, dict)):
                    parts.append(value)
                    continue
                items, more, _ = self._arguments(concat(value.items()), depth)
                part: Any = make_container(_NO_ITEMS, tuple(items), more)
            elif kind == ATOM or (kind == TUPLE and value and not callable(value[0])):
                try:
                    part = find(value)
                except TypeError:  # not hashable
                    part = None
                if part is not None:  # a key, as most tuples are
                    parts.append(part)
                    deps.append(part.key)
                    continue
                if kind == ATOM:
                    parts.append(value)
                    continue
                part = self._legacy(None, value, depth + 1)
            else:
                part = self._legacy(None, value, depth + 1)
            parts.append(part)
            kind = KINDS[type(part)]
            if kind in (REF, FUTURE):
                deps.append(part.key)
            elif kind != RAW:
                nested.append(part._dependencies)
        if nested:
            return tuple(parts), frozenset(deps).union(*nested), True
        return tuple(parts), frozenset(deps) if deps else NO_DEPS, False

    def legacy_argument(self, value: Any) -> Any:
        """A value that stands inside a legacy task, converted."""
        return self._legacy(None, value, 0)

    def _nested_value(self, value: Any, depth: int) -> Any:
        new = self._legacy(None, value, depth)
        return Alias(new.key) if isinstance(new, TaskRef) else new
