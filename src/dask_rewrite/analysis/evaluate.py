"""Abstract interpretation: what an expression gives, from what is known of what it refers to."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, NestedContainer, Task, TaskRef
from dask._task_spec import Set as SetNode
from dask._task_spec import Tuple as TupleNode
from dask._task_spec import _identity_cast as identity_cast
from dask.graph_manipulation import chunks
from dask.utils import ndeepmap
from toolz import last

from dask_rewrite.analysis.fact_cache import (
    NOTHING,
    RESULTS,
    UNKNOWN,
    intern,
    name_here,
    signature,
    transferred,
)
from dask_rewrite.analysis.functions import Function, Keywords, function_of, keywords_of
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.loading import FILES, is_unknown_source, source_of
from dask_rewrite.graph.batches import cells_of
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.gates import first_argument
from dask_rewrite.graph.templates import calls_frame, frame_of
from dask_rewrite.graph.writes import written_block

#: Types of most arguments that are neither nodes nor references.
_DATA = frozenset([tuple, int, slice, str, NoneType, bool, float, dict, list])


class Evaluator:
    """Evaluates expressions over what is known of blocks, each call of a graph once.

    Parameters
    ----------
    through_gates : bool
        Whether what waits for others is what it gives in the end: for sizes only. Where a constant is
        proven, nobody would wait any more.

    Examples
    --------
    >>> import operator
    >>> import numpy as np
    >>> block = Fact((2, 3), np.dtype("i8"))
    >>> Evaluator().of(Task("y", operator.getitem, TaskRef("x"), (slice(1),)), {"x": block}).shape
    (1, 3)
    """

    def __init__(self, through_gates: bool = False) -> None:
        self.functions = ByIdentity[Function]()
        if through_gates:
            gate = Function(is_known=True, number=None, is_special=True, seed=None)
            self.functions.of(chunks.bind, lambda _: gate)
        self._keywords = ByIdentity[Keywords]()
        self._here: dict[Any, tuple[Any, ...]] = {}  # what is named by identity, and so is good here only
        self._sources = ByIdentity[Any]()

    def literal(self, value: Any) -> Any:
        """The value of data, with what stands for a file of blocks in the place of the file."""
        if type(value).__name__ not in FILES:
            return value
        return self._sources.of(value, source_of)

    def of(self, node: Any, env: Mapping[Any, Any]) -> Any:
        """The abstract value of an expression: a fact, a literal, a list of these, or UNKNOWN."""
        kind = type(node)
        if kind in _DATA:
            return node
        if kind is TaskRef:
            return env.get(node.key, UNKNOWN)
        if kind is Task:
            return self.call(node, env)
        if kind is List:
            return self._list(node.args, env)
        if kind is DataNode:
            return self.literal(node.value)
        if kind is Alias:
            return env.get(node.target, UNKNOWN)
        if not isinstance(node, GraphNode):
            return env.get(node.key, UNKNOWN) if isinstance(node, TaskRef) else self.literal(node)
        return self._container(node, env) if isinstance(node, NestedContainer) else UNKNOWN

    def _list(self, args: Iterable[Any], env: Mapping[Any, Any]) -> Any:
        values = []
        for arg in args:
            value = env.get(arg.key, UNKNOWN) if type(arg) is TaskRef else self.of(arg, env)
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

    def call(self, task: Task, env: Mapping[Any, Any]) -> Any:
        func = task.func
        function = self.functions.of(func, function_of)
        if function.is_special and (found := self._special(task, env)) is not NOTHING:
            return found
        if func is operator.getitem and (found := _element(task.args, env)) is not NOTHING:
            return found
        args = []
        call: list[Any] = [function.number]
        is_compared = function.number is not None
        for arg in task.args:
            kind = type(arg)
            value = (
                env.get(arg.key, UNKNOWN) if kind is TaskRef else arg if kind in _DATA else self.of(arg, env)
            )
            if value is UNKNOWN:
                return UNKNOWN
            args.append(value)
            if type(value) is Fact and value.number:
                call.append(value.number)
            elif is_compared:
                try:
                    call.append(signature(value))
                except TypeError:  # an argument that cannot be compared
                    if len(args) == 1 and is_unknown_source(func, value):
                        return UNKNOWN
                    if len(args) - 1 == function.seed:
                        call.append(type(value))
                    else:
                        is_compared = False
        kwargs = task.kwargs
        if kwargs:
            given = self._keywords.of(kwargs, keywords_of)
            if given.has_blocks:
                kwargs = {name: self.of(arg, env) for name, arg in kwargs.items()}
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
        known_already = self._here.get(mine)
        if known_already is None:  # keeps alive what is named by identity
            known_already = self._here[mine] = (transferred(func, args, kwargs), func, args, kwargs)
        return known_already[0]

    def _special(self, task: Task, env: Mapping[Any, Any]) -> Any:
        """The value of what is more than a call of its function; `NOTHING` where it is not."""
        func = task.func
        if calls_frame(func):
            return self._frame(task, env)
        if func is last and (block := written_block(task)) is not None:
            fact = self.of(block, env)
            return intern(replace(fact, fill=None)) if type(fact) is Fact else UNKNOWN
        if func is identity_cast and len(task.kwargs) == 1 and task.kwargs.get("typ") is list:
            return self._list(task.args, env)
        if func is chunks.bind:
            return self.of(first_argument(task), env)
        return self._batch(task, env) if func is ndeepmap else NOTHING

    def _batch(self, task: Task, env: Mapping[Any, Any]) -> Any:
        """What a batch gives row by row; rows that are given the same are gone through once."""
        if (found := cells_of(task)) is None:
            return NOTHING
        body, cells, rows = found
        if not cells:
            return self._list([body] * rows, env)
        columns = [[self.of(cell, env) for cell in column] for column in cells.values()]
        names, known, values = tuple(cells), dict[Any, Any](), []
        for row in zip(*columns):
            name = tuple(map(name_here, row))
            if name not in known:
                known[name] = self.of(body, dict(zip(names, row)))
            if known[name] is UNKNOWN:
                return UNKNOWN
            values.append(known[name])
        return values

    def _frame(self, task: Task, env: Mapping[Any, Any]) -> Any:
        frame = frame_of(task)
        if frame is None:
            return UNKNOWN
        state = {name: self.of(value, env) for name, value in frame.inputs.items()}
        name = (*map(id, frame.bodies), *map(name_here, state.values()))
        known_already = self._here.get(name)
        if known_already is None:  # keeps alive what is named by identity
            known_already = self._here[name] = (self._run(frame.bodies, state), frame, state)
        return known_already[0]

    def _run(self, bodies: Sequence[Task], state: Mapping[Any, Any]) -> Any:
        for body in bodies[:-1]:
            if body.func is not dict or body.args:
                return UNKNOWN
            state = {name: self.of(value, state) for name, value in body.kwargs.items()}
        return self.of(bodies[-1], state)


def _element(args: Sequence[Any], env: Mapping[Any, Any]) -> Any:
    """One of many results, without a look at the others; `NOTHING` for any other item."""
    if len(args) == 2 and type(args[1]) is int and type(args[0]) is TaskRef:
        values = env.get(args[0].key)
        if type(values) is list and 0 <= args[1] < len(values):
            return values[args[1]]
    return NOTHING
