"""Making dask's task nodes fast, and following the references inside them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeAlias, cast

import numpy as np
from dask._expr import ProhibitReuse
from dask._task_spec import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    List,
    NestedContainer,
    Task,
    TaskRef,
    _identity_cast,
)
from dask.typing import Key
from toolz import identity
from toolz.functoolz import Compose

Deps: TypeAlias = frozenset[Key]

#: Kinds of callables that are never awaited, numpy's among them; to inspect a `Compose` takes 0.5 ms.
_NO_COROUTINES = frozenset([BuiltinFunctionType, np.ufunc, type(np.sum), Compose])

#: What nodes consist of, to be mapped over many of them.
args_of, func_of, key_of = attrgetter("args"), attrgetter("func"), attrgetter("key")
kwargs_of, producer_of = attrgetter("kwargs"), attrgetter("_data_producer")
dependencies_of, value_of = attrgetter("_dependencies"), attrgetter("value")

#: What dask wraps tasks in that must not share their key with another.
MARKER = ProhibitReuse._identity

NO_DEPS: Deps = frozenset()
NO_KWARGS: dict[str, Any] = {}

_SLOTS = ["_data_producer", "_dependencies", "_is_coro", "_repr", "_token", "args", "func", "key", "kwargs"]
_KNOWN_SLOTS = Task.get_all_slots() == _SLOTS
_new = Task.__new__


def _slot_task(
    key: Key | None,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    deps: Deps,
    producer: bool = False,
) -> Task:
    """A `Task` whose dependencies are known already: a quarter of the constructor's time."""
    task: Task = _new(Task)
    task.key = key  # type: ignore[assignment] # nested tasks have none
    task.func = func
    task.args = args
    task.kwargs = kwargs
    task._dependencies = deps
    task._data_producer = producer
    task._token = None
    task._is_coro = None
    task._repr = None
    return task


def _constructed_task(
    key: Any, func: Any, args: Any, kwargs: Any, deps: Deps, producer: bool = False
) -> Task:
    return Task(key, func, *args, _data_producer=producer, **kwargs)


def _slot_container(node: NestedContainer, args: tuple[Any, ...], deps: Deps) -> NestedContainer:
    """The same kind of container around other arguments."""
    kind = type(node)
    new: NestedContainer = _new(kind)
    new.key = node.key
    new.func = node.func
    new.args = args
    new.kwargs = node.kwargs
    new._dependencies = deps
    new._data_producer = node._data_producer
    new._token = None
    new._is_coro = None
    new._repr = None
    return new


def _constructed_container(node: NestedContainer, args: tuple[Any, ...], deps: Deps) -> NestedContainer:
    return type(node)(list(args)) if type(node) is Dict else type(node)(*args)


make_container = _slot_container if _KNOWN_SLOTS else _constructed_container

#: Builds a task from its parts; falls back to the constructor should dask's slots ever change.
make_task = _slot_task if _KNOWN_SLOTS else _constructed_task


def needs_of(parts: Iterable[Any]) -> Deps:
    """What a node with these arguments depends on.

    >>> sorted(needs_of([TaskRef("x"), 1, Task(None, abs, TaskRef("y"))]))
    ['x', 'y']
    """
    deps: set[Key] = set()
    for part in parts:
        if isinstance(part, TaskRef):
            deps.add(part.key)
        elif isinstance(part, GraphNode):
            deps |= part._dependencies
    return frozenset(deps) if deps else NO_DEPS


_NO_ITEMS = List()


def list_of(items: Sequence[Any]) -> List:
    """Dask's `List` of these, in a third of its constructor's time.

    >>> sorted(list_of([TaskRef("x"), 1, Task(None, abs, TaskRef("y"))]).dependencies)
    ['x', 'y']
    """
    return cast(List, make_container(_NO_ITEMS, tuple(items), needs_of(items)))


def call_with_dict(
    key: Key, funcs: tuple[Any, ...], inputs: dict[str, Any], deps: Deps, producer: bool
) -> Task:
    """``funcs[0](dict(**inputs), *funcs[1:])`` as a task: the frame of templates and programs."""
    held = make_task(None, dict, (), inputs, deps)
    return make_task(key, funcs[0], (held, *funcs[1:]), NO_KWARGS, deps, producer)


#: Identities of the functions that gather their arguments: their keyword argument only says into what.
GATHERING = frozenset([id(_identity_cast), id(NestedContainer.to_container)])
#: Keyword arguments that many tasks share.
_TYPES: dict[type, dict[str, Any]] = {kind: {"typ": kind} for kind in (list, tuple, set, frozenset)}


def cast_to(kind: type, key: Key | None, parts: tuple[Any, ...], deps: Deps) -> Task:
    """``kind(parts)`` as a task, the way dask writes collections that hold nodes in legacy tasks."""
    return make_task(key, _identity_cast, parts, _TYPES.get(kind) or {"typ": kind}, deps)


def under(key: Key | None, task: Task, producer: bool = False) -> Task:
    """The same call under another key; a producer loads data, and schedulers spread those over workers."""
    return make_task(key, task.func, task.args, task.kwargs, task._dependencies, producer)


def renamed(node: GraphNode, key: Key) -> GraphNode:
    """The same node under another key."""
    if type(node) is Task:
        return under(key, node, node._data_producer)
    if type(node) is Alias:
        return Alias(key, node.target)
    if isinstance(node, NestedContainer):  # holds no key of its own
        return make_task(key, identity, (node,), NO_KWARGS, node._dependencies)
    return node.substitute({}, key=key)


def children(node: Task) -> Iterator[GraphNode | TaskRef]:
    """Nodes and references that stand directly in a task's arguments."""
    for arg in (*node.args, *node.kwargs.values()):
        if isinstance(arg, (GraphNode, TaskRef)):
            yield arg


def literal(arg: Any) -> Any:
    """The value of an argument that stands in the task as data."""
    return arg.value if type(arg) is DataNode else arg


def same(new: Iterable[Any], old: Iterable[Any]) -> bool:
    """Whether these are the same objects, one by one: what was written anew and did not change."""
    return all(map(operator.is_, new, old))


def nameless(task: Task) -> Task:
    """The same task without a key, to stand inside another."""
    return make_task(None, task.func, task.args, task.kwargs, task._dependencies)


def is_coroutine(func: Any) -> bool:
    """Whether a worker would await what this function returns."""
    if type(func) is FunctionType:
        return bool(func.__code__.co_flags & inspect.CO_COROUTINE)
    inner = func
    while type(inner) is partial:
        inner = inner.func
    if type(inner) in _NO_COROUTINES:
        return False
    try:
        return inspect.iscoroutinefunction(func)
    except Exception:
        return False


def identity_of(func: Any) -> tuple[int, ...]:
    """What tells functions apart: methods are made anew for each look at them, and share their object.

    >>> task = Task("y", abs, -1)
    >>> call = identity_of(task.__call__)
    >>> call == identity_of(task.__call__), call == identity_of(task.copy)
    (True, False)
    """
    return (id(func.__self__), id(func.__func__)) if type(func) is MethodType else (id(func),)


def may_move(func: Any) -> bool:
    """Whether a task that calls this may be merged: a worker awaits some, or knows them by name."""
    module = getattr(func, "__module__", None) or ""
    return not is_coroutine(func) and not module.startswith("distributed.")


def keeps_name(value: Any) -> bool:
    """Tasks of a running shuffle are known to its workers by name."""
    if type(value) is Task:
        return (getattr(value.func, "__module__", None) or "")[:19] == "distributed.shuffle"
    return isinstance(value, Task) and value.block_fusion
