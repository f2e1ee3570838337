"""What is known of a block without computing it.

Facts come from the functions that make a block, never from what a collection says of itself: users can
state dtypes and chunks wrongly. Unknown stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MethodType
from typing import Any

import numpy as np
from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, NestedContainer, Task, TaskRef
from dask._task_spec import Set as SetNode
from dask._task_spec import Tuple as TupleNode
from dask.typing import Key
from toolz import last, pipe

from dask_rewrite.fact_memory import (
    NOTHING,
    call_signature,
    fact_of_array,
    intern,
    recall,
    remember,
    signature,
    tidy,
)
from dask_rewrite.knowledge import Known, known
from dask_rewrite.knowledge.fact import Fact
from dask_rewrite.opened import template_of
from dask_rewrite.writes import written_block


class _Unknown:
    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


#: Stands for a value of which nothing is known.
UNKNOWN = _Unknown()


class Facts:
    """Facts of the blocks of a graph, found out when asked for.

    Parameters
    ----------
    lookup : callable
        From a key to its node, or None for what lies outside the graph.

    Examples
    --------
    >>> import operator
    >>> nodes = {
    ...     "x": DataNode("x", np.arange(6).reshape(2, 3)),
    ...     "y": Task("y", operator.getitem, TaskRef("x"), (slice(1), slice(2))),
    ...     "z": Task("z", lambda block: block, TaskRef("y")),
    ... }
    >>> facts = Facts(nodes.get)
    >>> facts.of("y")
    Fact(shape=(1, 2), dtype=dtype('int64'), fill=None, scalar=False)
    >>> facts.of("z") is None
    True
    """

    __slots__ = (
        "_calls",
        "_functions",
        "_lookup",
        "_owners",
        "_templates",
        "_values",
    )

    def __init__(self, lookup: Callable[[Key], GraphNode | None]) -> None:
        tidy()
        self._lookup = lookup
        self._owners: list[object] = []
        self._values: dict[Key, Any] = {}
        self._functions: dict[int, tuple[Any, Known | None]] = {}
        self._calls: dict[Any, tuple[Any, ...]] = {}  # blocks of a layer have the same arguments
        self._templates: dict[Any, tuple[Any, ...]] = {}

    def looking_in(self, lookup: Callable[[Key], GraphNode | None], owner: object = None) -> Facts:
        """These facts, for a later form of the same graph; ``owner`` is emptied with them."""
        tidy()
        self._lookup = lookup
        self._owners.append(owner)
        return self

    def close(self) -> None:
        """Let go of the graph and of all that looked at it, which refer to each other."""
        self._lookup = _nowhere
        for owner in self._owners:
            getattr(owner, "__dict__", {}).clear()

    def of(self, key: Key) -> Fact | None:
        """The fact of a block, None if nothing is known."""
        value = self._value_of(key)
        return value if type(value) is Fact else None

    def of_node(self, node: GraphNode) -> Fact | None:
        """The fact of what a node computes, which need not stand in the graph itself."""
        for dep in node.dependencies:
            self._value_of(dep)
        value = self._top(node)
        return value if type(value) is Fact else None

    def same(self, key: Key, others: Iterable[Key]) -> None:
        """Other keys stand for the same value, so that it need not be found out again."""
        if key in self._values:
            self._values.update(dict.fromkeys(others, self._values[key]))

    def _value_of(self, key: Key) -> Any:
        values = self._values
        if key in values:
            return values[key]
        stack = [key]
        opened: set[Key] = set()
        while stack:
            here = stack[-1]
            if here in values:
                stack.pop()
                continue
            node = self._lookup(here)
            if node is None or not self._may_be_known(node):
                values[here] = UNKNOWN
                stack.pop()
                continue
            missing = [dep for dep in node.dependencies if dep not in values]
            if missing and here not in opened:
                opened.add(here)
                stack.extend(missing)
                continue
            # what is missing now waits for this task: a cycle, which is the verifier's business
            values[here] = UNKNOWN if missing else self._top(node)
            stack.pop()
        return values[key]

    def _may_be_known(self, node: GraphNode) -> bool:
        """Whether it is worth looking below: the outermost function is one that we know."""
        if type(node) is not Task:
            return True
        func = node.func
        return type(func) is MethodType or func is pipe or self._known(func) is not None

    def _top(self, node: GraphNode) -> Any:
        if type(node) is DataNode:
            return self._data(node.value)
        return self._evaluate(node, self._values)

    def _data(self, value: Any) -> Any:
        if type(value) is not np.ndarray:
            return value
        return fact_of_array(value)

    def _known(self, func: Any) -> Known | None:
        remembered = self._functions.get(id(func))
        if remembered is None:
            remembered = self._functions[id(func)] = (func, known(func))
        return remembered[1]

    def _evaluate(self, node: Any, env: Mapping[Any, Any]) -> Any:
        """The abstract value of an expression: a fact, a literal, a list of these, or UNKNOWN."""
        if isinstance(node, TaskRef):
            return env.get(node.key, UNKNOWN)
        if not isinstance(node, GraphNode):
            return node
        kind = type(node)
        if kind is Task:
            return self._call(node, env)  # type: ignore[arg-type]
        if kind is DataNode:
            return node.value  # type: ignore[attr-defined]
        if kind is Alias:
            return env.get(node.target, UNKNOWN)  # type: ignore[attr-defined]
        if isinstance(node, NestedContainer):
            return self._container(node, env)
        return UNKNOWN

    def _container(self, node: NestedContainer, env: Mapping[Any, Any]) -> Any:
        kind = type(node)
        if kind is Dict:
            items = [self._evaluate(arg, env) for arg in node.args]
            if any(item is UNKNOWN for item in items):
                return UNKNOWN
            return dict(zip(items[::2], items[1::2]))
        values = [self._evaluate(arg, env) for arg in node.args]
        if any(value is UNKNOWN for value in values):
            return UNKNOWN
        if kind is List:
            return values
        if kind is TupleNode:
            return tuple(values)
        return set(values) if kind is SetNode else UNKNOWN

    def _call(self, task: Task, env: Mapping[Any, Any]) -> Any:
        func = task.func
        if type(func) is MethodType:
            return self._template(task, env)
        if func is pipe:
            return self._program(task, env)
        if func is last and (block := written_block(task)) is not None:
            fact = self._evaluate(block, env)
            return intern(replace(fact, fill=None)) if type(fact) is Fact else UNKNOWN
        args = []
        for arg in task.args:
            value = env.get(arg.key, UNKNOWN) if type(arg) is TaskRef else self._evaluate(arg, env)
            if value is UNKNOWN:
                return UNKNOWN
            args.append(value)
        kwargs = task.kwargs
        if kwargs and any(isinstance(arg, (GraphNode, TaskRef)) for arg in kwargs.values()):
            kwargs = {name: self._evaluate(arg, env) for name, arg in kwargs.items()}
            if any(value is UNKNOWN for value in kwargs.values()):
                return UNKNOWN
            return self._transferred(task, args, kwargs)
        try:
            memo = (id(func), *map(signature, args), *map(signature, kwargs.items()))
        except TypeError:  # an argument that cannot be compared
            return self._transferred(task, args, kwargs)
        remembered = self._calls.get(memo)
        if remembered is None:  # keeps alive what the memo names by identity
            found = self._transferred(task, args, kwargs)
            remembered = self._calls[memo] = (found, func, args, kwargs)
        return remembered[0]

    def _transferred(self, task: Task, args: list[Any], kwargs: dict[str, Any]) -> Any:
        transfer = self._known(task.func)
        if transfer is None or transfer.fact is None:
            return UNKNOWN
        try:
            call = call_signature(task.func, args, kwargs)
        except TypeError:  # an argument that cannot be compared
            return _found(transfer.fact, args, kwargs)
        found = recall(call)
        return (
            found
            if found is not NOTHING
            else remember(call, _found(transfer.fact, args, kwargs), (args, kwargs))
        )

    def _template(self, task: Task, env: Mapping[Any, Any]) -> Any:
        found = template_of(task)
        if found is None:
            return UNKNOWN
        template, inputs = found
        inner = {name: self._evaluate(value, env) for name, value in inputs.items()}
        try:
            memo = (id(template), *map(signature, inner.values()))
        except TypeError:  # an input that cannot be hashed
            return self._evaluate(template, inner)
        remembered = self._templates.get(memo)
        if remembered is None:
            remembered = self._templates[memo] = (self._evaluate(template, inner), template, inner)
        return remembered[0]

    def _program(self, task: Task, env: Mapping[Any, Any]) -> Any:
        held, *steps = task.args
        if type(held) is not Task or held.func is not dict or held.args:
            return UNKNOWN
        state: Any = {name: self._evaluate(value, env) for name, value in held.kwargs.items()}
        for step in steps:
            body = step.__self__ if type(step) is MethodType else None
            if type(body) is not Task or type(state) is not dict:
                return UNKNOWN
            if body.func is dict and not body.args:
                state = {name: self._evaluate(value, state) for name, value in body.kwargs.items()}
            else:
                state = self._evaluate(body, state)
        return state


def _nowhere(key: Key) -> None:
    """Nothing is in the graph any more."""


def _found(fact: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        found = fact(*args, **kwargs)
    except Exception:  # what would fail or is unusual: nothing is known
        return UNKNOWN
    return UNKNOWN if found is None else intern(found)


__all__ = ["UNKNOWN", "Fact", "Facts"]
