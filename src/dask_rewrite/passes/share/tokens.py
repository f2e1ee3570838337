"""Tokens of tasks: equal where two tasks compute the same, bit for bit.

Functions are told apart by identity, constants by their bits and types, never by ``==``: nan equals
itself, 0.0 is not -0.0, and 1 is not True. What is too large or too strange to look into equals only itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, Set, Task, TaskRef, Tuple
from dask.typing import Key
from toolz import functoolz

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.nodes import args_of, func_of, key_of, kwargs_of
from dask_rewrite.graph.templates import is_template
from dask_rewrite.passes.share.array_keys import SMALL, Contents
from dask_rewrite.passes.share.immutable import adapted, index_parts

_ATOMS = frozenset([int, str, bytes, bool, type(None)])
_NODES = frozenset([DataNode, Alias, List, Tuple, Set, Dict])
_LISTS = frozenset([List, Tuple, Set, Dict])
_PARTS_OF_INDEX = _ATOMS | {slice}
_BY_IDENTITY = frozenset([FunctionType, BuiltinFunctionType, np.ufunc, type])
_COMPOSED = _LISTS | {Task, TaskRef}
_CONTAINERS = frozenset([tuple, list])

#: Longer containers, and those nested deeper, are told apart by identity.
MAX_ITEMS = 256
MAX_DEPTH = 8
#: Fewer nodes are looked at one by one.
FEW = 6


class Identity:
    """Tokens of the tasks of one graph, which must be kept alive as long as they are compared.

    Parameters
    ----------
    numbers : mapping
        What stands in a token for the key of another task; keys that are not in it stand for themselves.
    budget : int
        Bytes of arrays that may be read; beyond it each array equals only itself.

    Examples
    --------
    >>> import operator
    >>> identity = Identity({})
    >>> one = Task("a", operator.add, TaskRef("x"), float("nan"))
    >>> identity.of(one) == identity.of(Task("b", operator.add, TaskRef("x"), float("nan")))
    True
    >>> identity.of(one) == identity.of(Task("b", operator.sub, TaskRef("x"), float("nan")))
    False
    """

    def __init__(self, numbers: Mapping[Key, Hashable], budget: int = 2**25) -> None:
        self._number_of: Callable[[Key, Key], Hashable] = numbers.get
        self._budget = budget
        self._bodies = ByIdentity[int]()
        self._seen: dict[Hashable, int] = {}  # numbers of templates, by their tokens
        self._functions = ByIdentity[Hashable]()
        self._keyword_dicts: dict[int, tuple[Any, Hashable]] = {}
        self._contents: dict[int, Hashable] = {}  # tokens by the identity of the array that each holds

    def of(self, node: Any) -> Hashable:
        """The token of a node or of a constant."""
        kind = type(node)
        if kind is Task:
            args = tuple([self.of(arg) for arg in node.args])
            if node.kwargs:
                return (self._function(node.func), args, self._keywords(node))
            return (self._function(node.func), args)
        if kind is TaskRef:
            return (TaskRef, self._number_of(node.key, node.key))
        if kind in _NODES:
            if kind is DataNode:
                return self._constant(node.value, 0)
            if kind is Alias:
                return (TaskRef, self._number_of(node.target, node.target))
            return (kind, tuple([self.of(arg) for arg in node.args]))
        return self._constant(node, 0)

    def many(self, nodes: Sequence[Any]) -> list[Hashable]:
        """The tokens of many nodes, column by column: blocks of a layer have the same form.

        Examples
        --------
        >>> import operator
        >>> tasks = [Task(None, operator.add, TaskRef("x"), i) for i in range(10)]
        >>> identity = Identity({})
        >>> identity.many(tasks) == [identity.of(task) for task in tasks]
        True
        """
        if len(nodes) < FEW:
            return [self.of(node) for node in nodes]
        kinds = set(map(type, nodes))
        if len(kinds) == 1:
            (kind,) = kinds
            if kind is TaskRef:
                keys = list(map(key_of, nodes))
                return list(zip(repeat(TaskRef), map(self._number_of, keys, keys)))
            if kind is Task:
                calls = map(id, map(func_of, nodes)), map(len, map(args_of, nodes))
                return self._in_groups(nodes, list(zip(*calls)), self._tasks)
            if kind in _LISTS:
                return self._in_groups(nodes, list(map(len, map(args_of, nodes))), self._lists)
            if kind in _ATOMS:
                return list(zip(repeat(kind), nodes))
            if kind is tuple and set(map(type, chain.from_iterable(nodes))) == {int}:
                return [((int,) * len(node), node) for node in nodes]
        elif not kinds.isdisjoint(_COMPOSED):
            return self._in_groups(nodes, list(map(type, nodes)), self.many)
        at = list(map(id, nodes))
        known = {place: self.of(node) for place, node in dict(zip(at, nodes)).items()}
        return list(map(known.__getitem__, at))

    def _in_groups(
        self, nodes: Sequence[Any], forms: list[Hashable], tokens: Callable[[Sequence[Any]], list[Hashable]]
    ) -> list[Hashable]:
        """The tokens of nodes, those of one form at a time."""
        if len(set(forms)) == 1:
            return tokens(nodes)
        groups: dict[Hashable, list[int]] = {}
        for i, each in enumerate(forms):
            groups.setdefault(each, []).append(i)
        found: list[Hashable] = [None] * len(nodes)
        for places in groups.values():
            if len(places) < FEW:
                for i in places:
                    found[i] = self.of(nodes[i])
            else:
                for i, token in zip(places, tokens([nodes[i] for i in places])):
                    found[i] = token
        return found

    def _tasks(self, tasks: Sequence[Task]) -> list[Hashable]:
        """The tokens of tasks that call one function with so many arguments."""
        held = list(map(kwargs_of, tasks))
        shared = len(set(map(id, held))) == 1
        names: list[Hashable] = [tuple(each) for each in held] if not shared and any(held) else []
        if len(set(names)) > 1:
            return self._in_groups(tasks, names, self._tasks)
        function = repeat(self._function(tasks[0].func))
        args = self._columns(list(map(args_of, tasks)))
        if not tasks[0].kwargs:
            return list(zip(function, args))
        if shared:
            return list(zip(function, args, repeat(self._keywords(tasks[0]))))
        named = [zip(repeat(name), self.many([each[name] for each in held])) for name in sorted(held[0])]
        return list(zip(function, args, zip(*named)))

    def _lists(self, nodes: Sequence[Any]) -> list[Hashable]:
        return list(zip(repeat(type(nodes[0])), self._columns(list(map(args_of, nodes)))))

    def _columns(self, rows: list[Sequence[Any]]) -> list[Hashable]:
        if not rows[0]:
            return [()] * len(rows)
        return list(zip(*map(self.many, zip(*rows))))

    def _keywords(self, task: Task) -> Hashable:
        """Blocks of a layer often share the dict itself."""
        kwargs = task.kwargs
        found = self._keyword_dicts.get(id(kwargs))
        if found is not None:
            return found[1]
        token = tuple([(name, self.of(value)) for name, value in sorted(kwargs.items())])
        if not any(isinstance(value, (GraphNode, TaskRef)) for value in kwargs.values()):
            self._keyword_dicts[id(kwargs)] = (kwargs, token)
        return token

    def _function(self, func: Any) -> Hashable:
        if is_template(func):
            return (MethodType, self._bodies.of(func.__self__, self._body))
        if type(func) is not partial and type(func) is not functoolz.Compose:
            return id(func)
        return self._functions.of(func, self._inside)

    def _inside(self, func: Any) -> Hashable:
        if type(func) is partial:
            keywords = tuple([(k, self._constant(v, 0)) for k, v in sorted(func.keywords.items())])
            args = tuple([self._constant(arg, 0) for arg in func.args])
            return (partial, self._function(func.func), args, keywords)
        return (functoolz.Compose, tuple([self._function(each) for each in (func.first, *func.funcs)]))

    def _body(self, body: Task) -> int:
        """The number of a template; blocks share one, and layers that do the same have equal ones."""
        names, self._number_of = self._number_of, _name
        try:
            token = self.of(body)
        finally:
            self._number_of = names
        return self._seen.setdefault(token, len(self._seen))

    def _constant(self, value: Any, depth: int) -> Hashable:
        kind = type(value)
        if kind in _ATOMS:
            return (kind, value)
        if kind is tuple:
            kinds = tuple(map(type, value))
            if _ATOMS.issuperset(kinds):
                return (kinds, value)
            if _PARTS_OF_INDEX.issuperset(kinds):
                ends = tuple([(v.start, v.stop, v.step) if type(v) is slice else (v,) for v in value])
                inner = tuple(map(type, chain.from_iterable(ends)))
                if _ATOMS.issuperset(inner):
                    return (kinds, inner, ends)
        if kind is np.ndarray:
            return self._array(value)
        if kind in _BY_IDENTITY:
            return id(value)
        if kind is float:
            return (kind, struct.pack("d", value))
        if kind is complex:
            return (kind, struct.pack("dd", value.real, value.imag))
        if kind is slice:
            ends = (value.start, value.stop, value.step)
            return (kind, tuple([self._constant(end, depth) for end in ends]))
        if kind in _CONTAINERS and depth < MAX_DEPTH and len(value) <= MAX_ITEMS:
            return (kind, tuple([self._constant(item, depth + 1) for item in value]))
        if kind is dict and depth < MAX_DEPTH and len(value) <= MAX_ITEMS:
            items = [(self._constant(k, depth + 1), self._constant(v, depth + 1)) for k, v in value.items()]
            return (kind, tuple(items))
        if isinstance(value, np.dtype):
            return (np.dtype, kind, _dtype(value))
        if isinstance(value, np.generic):
            return (kind, _dtype(value.dtype), value.tobytes()) if not value.dtype.hasobject else id(value)
        if isinstance(value, (partial, MethodType, functoolz.Compose)):
            return self._function(value)
        parts = adapted(value) or index_parts(value)
        if parts is not None and depth < MAX_DEPTH:
            return (kind, tuple([self._constant(part, depth + 1) for part in parts]))
        return id(value)

    def _array(self, array: np.ndarray[Any, Any]) -> Hashable:
        if array.dtype.hasobject or array.dtype.char in "gG":  # some of the bytes of these mean nothing
            return id(array)
        # layout too: it decides in which order numbers are added up
        described = (np.ndarray, _dtype(array.dtype), array.shape, array.strides, array.flags.writeable)
        if array.nbytes <= SMALL:
            return (*described, array.tobytes())
        found = self._contents.get(id(array))
        if found is None:
            if array.nbytes > self._budget:
                return id(array)
            self._budget -= array.nbytes
            found = self._contents[id(array)] = (*described, Contents(array))
        return found


def _name(key: Key, default: Key) -> Hashable:
    return key


def _dtype(dtype: np.dtype[Any]) -> Hashable:
    return id(dtype) if dtype.metadata or dtype.hasobject else dtype
