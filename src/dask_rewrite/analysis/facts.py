"""What is known of a block without computing it.

Facts come from the functions that make a block, never from what a collection says of itself: users can
state dtypes and chunks wrongly. Unknown stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MethodType, NoneType
from typing import Any

import numpy as np
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
from dask._task_spec import Set as SetNode
from dask._task_spec import Tuple as TupleNode
from dask.typing import Key
from toolz import last, pipe

from dask_rewrite.analysis.declared import Assumed, Declared
from dask_rewrite.analysis.fact_cache import (
    NOTHING,
    RESULTS,
    UNKNOWN,
    Function,
    Keywords,
    fact_of_array,
    function_of,
    gives_nothing,
    intern,
    keywords_of,
    name_here,
    signature,
    tidy,
    transferred,
)
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.loading import FILES, source_of
from dask_rewrite.graph.templates import template_of
from dask_rewrite.graph.writes import written_block

#: Types of most arguments that are neither nodes nor references.
_DATA = frozenset([tuple, int, slice, str, NoneType, bool, float, dict, list])


class Facts:
    """Facts of the blocks of a graph, found out when asked for.

    Parameters
    ----------
    lookup : callable
        From a key to its node, or None for what lies outside the graph.
    estimate : callable, optional
        From the key of a block of which nothing is known to what is taken for granted of it, or None. For
        estimates only: what follows is not proven.
    declared : Declared, optional
        What collections say of blocks.

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
        *("_estimate", "_functions", "_here", "_keywords", "_owners", "_sources", "_values"),
        *("beliefs", "declared", "lookup"),
    )

    def __init__(
        self,
        lookup: Callable[[Key], GraphNode | None],
        estimate: Callable[[Key], Any] | None = None,
        declared: Declared | None = None,
    ) -> None:
        tidy()
        self.lookup = lookup
        self.declared = declared
        self.beliefs: Facts | None = None  #: see `dask_rewrite.analysis.estimates`
        self._estimate = estimate
        self._owners: list[object] = []
        self._values: dict[Key, Any] = {}
        self._functions: dict[int, Function] = {}
        self._keywords: dict[int, Keywords] = {}
        self._here: dict[Any, tuple[Any, ...]] = {}  # what is named by identity, and so is good here only
        self._sources: dict[int, tuple[Any, Any]] = {}

    def looking_in(self, lookup: Callable[[Key], GraphNode | None], owner: object = None) -> Facts:
        """These facts, for a later form of the same graph; ``owner`` is emptied with them."""
        tidy()
        self.lookup = lookup
        self._owners.append(owner)
        return self

    def close(self) -> None:
        """Let go of the graph and of all that looked at it, which refer to each other."""
        self.lookup = _nowhere
        self.declared = self.beliefs = None
        for owner in self._owners:
            getattr(owner, "__dict__", {}).clear()

    def of(self, key: Key) -> Fact | None:
        """The fact of a block, None if nothing is known."""
        value = self._values.get(key)
        if value is None:
            value = self._value_of(key)
        return value if type(value) is Fact else None

    def value(self, key: Key) -> Any:
        """What is known of a key: a fact, a list or dict of facts, data, or `UNKNOWN`."""
        return self._value_of(key)

    def within(self, node: Any, values: Any) -> Any:
        """What is known of an expression; ``values.get(name, UNKNOWN)`` tells of what it refers to."""
        return self._evaluate(node, values)

    def assumed(self, key: Key) -> Assumed | None:
        """What is declared of a block of which nothing is proven, as far as dask relies on it too."""
        declared = self.declared
        return None if declared is None else declared.of(key, self.lookup(key))

    @property
    def assumes(self) -> bool:
        """Declarations may be relied on."""
        return self.declared is not None and self.declared.assume

    def of_node(self, node: GraphNode) -> Fact | None:
        """The fact of what a node computes, which need not stand in the graph itself."""
        value = self.value_of_node(node)
        return value if type(value) is Fact else None

    def value_of(self, key: Key) -> Any:
        """What stands for a block: a fact, a list or dict of such, a literal, or `UNKNOWN`."""
        return self._value_of(key)

    def value_of_node(self, node: GraphNode) -> Any:
        """The same of what a node computes."""
        for dep in node.dependencies:
            self._value_of(dep)
        return self._top(node)

    def knows(self, func: Any) -> bool:
        """Whether there may be facts of what a function gives."""
        return (self._functions.get(id(func)) or function_of(func, self._functions)).is_known

    def same(self, key: Key, others: Iterable[Key]) -> None:
        """Other keys stand for the same value, so that it need not be found out again."""
        if key in self._values:
            self._values.update(dict.fromkeys(others, self._values[key]))

    def _value_of(self, key: Key) -> Any:
        values = self._values
        if key in values:
            return values[key]
        lookup, known, functions = self.lookup, values.keys(), self._functions
        stack = [key]
        opened: set[Key] = set()
        while stack:
            here = stack.pop()
            if here in known:
                continue
            node: Any = lookup(here)
            is_task = type(node) is Task
            if is_task and gives_nothing(node, functions):
                node = None  # not worth looking below
            if node is None:
                values[here] = self._guess(here)
                continue
            deps = node._dependencies
            if deps and not known >= deps:
                if here in opened:  # a cycle, which is the verifier's business
                    values[here] = UNKNOWN
                    continue
                opened.add(here)
                stack.append(here)
                stack.extend([dep for dep in deps if dep not in known])
                continue
            found = self._call(node, values) if is_task else self._top(node)
            values[here] = self._guess(here) if found is UNKNOWN else found
        return values[key]

    def _guess(self, key: Key) -> Any:
        """What is taken for granted of a block of which nothing is known."""
        found = None if self._estimate is None else self._estimate(key)
        return UNKNOWN if found is None else found

    def _top(self, node: GraphNode) -> Any:
        if type(node) is DataNode:
            value = node.value
            return fact_of_array(value) if type(value) is np.ndarray else self._literal(value)
        return self._evaluate(node, self._values)

    def _literal(self, value: Any) -> Any:
        """The value of data, with what stands for a file of blocks in the place of the file."""
        if type(value).__name__ not in FILES:
            return value
        found = self._sources.get(id(value))
        if found is None:
            found = self._sources[id(value)] = (value, source_of(value))
        return found[1]

    def _evaluate(self, node: Any, env: Mapping[Any, Any]) -> Any:
        """The abstract value of an expression: a fact, a literal, a list of these, or UNKNOWN."""
        kind = type(node)
        if kind in _DATA:
            return node
        if kind is TaskRef:
            return env.get(node.key, UNKNOWN)
        if kind is Task:
            return self._call(node, env)
        if kind is List:
            return self._list(node.args, env)
        if kind is DataNode:
            return self._literal(node.value)
        if kind is Alias:
            return env.get(node.target, UNKNOWN)
        if not isinstance(node, GraphNode):
            return env.get(node.key, UNKNOWN) if isinstance(node, TaskRef) else self._literal(node)
        return self._container(node, env) if isinstance(node, NestedContainer) else UNKNOWN

    def _list(self, args: Iterable[Any], env: Mapping[Any, Any]) -> Any:
        values = []
        for arg in args:
            value = env.get(arg.key, UNKNOWN) if type(arg) is TaskRef else self._evaluate(arg, env)
            if value is UNKNOWN:
                return UNKNOWN
            values.append(value)
        return values

    def _container(self, node: NestedContainer, env: Mapping[Any, Any]) -> Any:
        values = self._list(node.args, env)
        if values is UNKNOWN:
            return UNKNOWN
        kind = type(node)
        if kind is Dict:
            return dict(zip(values[::2], values[1::2]))
        if kind is TupleNode:
            return tuple(values)
        return set(values) if kind is SetNode else UNKNOWN

    def _call(self, task: Task, env: Mapping[Any, Any]) -> Any:
        func = task.func
        function = self._functions.get(id(func)) or function_of(func, self._functions)
        if function.is_special and (found := self._special(task, env)) is not NOTHING:
            return found
        args = []
        call: list[Any] = [function.number]
        is_compared = function.number is not None
        for arg in task.args:
            value = env.get(arg.key, UNKNOWN) if type(arg) is TaskRef else self._evaluate(arg, env)
            if value is UNKNOWN:
                return UNKNOWN
            args.append(value)
            if type(value) is Fact and value.number:
                call.append(value.number)
            elif is_compared:
                try:
                    call.append(signature(value))
                except TypeError:  # an argument that cannot be compared
                    is_compared = False
        kwargs = task.kwargs
        if kwargs:
            given = self._keywords.get(id(kwargs)) or keywords_of(kwargs, self._keywords)
            if given.has_blocks:
                kwargs = {name: self._evaluate(arg, env) for name, arg in kwargs.items()}
                if any(value is UNKNOWN for value in kwargs.values()):
                    return UNKNOWN
            call.append(given.signature)
            is_compared = is_compared and given.signature is not None
        if is_compared:
            form = tuple(call)
            found = RESULTS.get(form, NOTHING)
            if found is NOTHING:
                found = RESULTS[form] = transferred(func, args, kwargs)
            return found
        mine = (id(func), *map(name_here, args), None, *map(name_here, kwargs.items()))
        return self._remembered(mine, partial(transferred, func, args, kwargs))

    def _remembered(self, name: Any, find: partial[Any]) -> Any:
        """What was found under a name that holds in this graph only, or is found now."""
        known_already = self._here.get(name)
        if known_already is None:  # keeps alive what is named by identity
            known_already = self._here[name] = (find(), find)
        return known_already[0]

    def _special(self, task: Task, env: Mapping[Any, Any]) -> Any:
        """The value of what is more than a call of its function; `NOTHING` where it is not."""
        func = task.func
        if type(func) is MethodType:
            return self._template(task, env)
        if func is pipe:
            return self._program(task, env)
        if func is last and (block := written_block(task)) is not None:
            fact = self._evaluate(block, env)
            return intern(replace(fact, fill=None)) if type(fact) is Fact else UNKNOWN
        if func is _identity_cast and len(task.kwargs) == 1 and task.kwargs.get("typ") is list:
            return self._list(task.args, env)
        return NOTHING

    def _template(self, task: Task, env: Mapping[Any, Any]) -> Any:
        found = template_of(task)
        if found is None:
            return UNKNOWN
        template, inputs = found
        inner = {name: self._evaluate(value, env) for name, value in inputs.items()}
        memo = (id(template), *map(name_here, inner.values()))
        known_already = self._here.get(memo)
        if known_already is None:
            known_already = self._here[memo] = (self._evaluate(template, inner), template, inner)
        return known_already[0]

    def _program(self, task: Task, env: Mapping[Any, Any]) -> Any:
        held, *steps = task.args
        if type(held) is not Task or held.func is not dict or held.args:
            return UNKNOWN
        state = {name: self._evaluate(value, env) for name, value in held.kwargs.items()}
        bodies = [step.__self__ if type(step) is MethodType else None for step in steps]
        return self._remembered(
            (*map(id, bodies), pipe, *map(name_here, state.values())), partial(self._run, bodies, state)
        )

    def _run(self, bodies: list[Any], state: Any) -> Any:
        for body in bodies:
            if type(body) is not Task or type(state) is not dict:
                return UNKNOWN
            if body.func is dict and not body.args:
                state = {name: self._evaluate(value, state) for name, value in body.kwargs.items()}
            else:
                state = self._evaluate(body, state)
        return state


def _nowhere(key: Key) -> None:
    """Nothing is in the graph any more."""


__all__ = ["UNKNOWN", "Fact", "Facts"]
