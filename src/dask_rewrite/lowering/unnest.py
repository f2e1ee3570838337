"""Taking over-nested tasks apart: any nesting, however deep, becomes a straight-line program.

Deep nesting reaches us in three ways: tuples in tuples, nodes in nodes, and graphs inside
``_execute_subgraph`` inside graphs (every turn of an array → delayed → array loop adds one). None of
them can be pickled or run beyond a few hundred levels. As a program the values stay inside one task,
so that even what cannot travel between processes, a generator say, goes on working.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeAlias

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
)
from dask.typing import Key
from dask.utils import is_namedtuple_instance
from toolz import identity

from dask_rewrite.graph.kinds import is_call
from dask_rewrite.graph.nodes import MARKER, NO_KWARGS, call_with_dict, is_coroutine
from dask_rewrite.graph.program import Step, operation, straight_line
from dask_rewrite.graph.templates import frame_of
from dask_rewrite.lowering.convert import Converter
from dask_rewrite.lowering.references import References

#: Nesting that is left inside one step.
STEP_DEPTH = 8

#: An expression over value references, and how deep it nests.
Flat: TypeAlias = tuple[Any, int]
#: A computation of a `Flat` that asks for others by yielding them: a loop stands in for the call stack.
Walk: TypeAlias = Generator[Any, Any, Any]
#: What names mean inside a subgraph, template or program; None: keys of the graph.
Scope: TypeAlias = "dict[Any, Any] | None"


class _Pending:
    """A task of an inner graph that nobody asked for yet."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node


def unnest(value: Any, key: Key, references: References) -> Task:
    """The same task without nesting.

    Parameters
    ----------
    value : GraphNode or legacy task
        What stands in the raw graph.
    key : Key
        Key of the new task.
    references : References
        Hands out the references to other keys.

    Raises
    ------
    ValueError
        If the task contains something that cannot be taken apart.
    """
    func = value.func if isinstance(value, Task) else value[0]
    if is_coroutine(func):
        raise ValueError(f"task {key!r} is a coroutine function nested too deep to be taken apart")
    work = _Unnesting(references)
    expression, _ = _run(work.flat(value, None))
    work.name(expression)
    functions = straight_line(work.steps, {name: name for name in work.inputs})
    deps = frozenset().union(*[work.depends(v) for v in work.inputs.values()])
    return call_with_dict(key, functions, dict(work.inputs), deps, work.producer)


def _run(walk: Walk) -> Any:
    stack: list[Any] = [walk]
    value: Any = None
    while stack:
        try:
            request = stack[-1].send(value)
        except StopIteration as done:
            stack.pop()
            value = done.value
        else:
            stack.append(request)
            value = None
    return value


class _Unnesting:
    def __init__(self, references: References) -> None:
        self.references = references
        self.converter = Converter(references)
        self.inputs: dict[str, Any] = {}
        self.by_key: dict[Key, TaskRef] = {}
        self.steps: list[Step] = []
        self.producer = False

    @staticmethod
    def depends(value: Any) -> Iterable[Key]:
        return (value.key,) if isinstance(value, TaskRef) else value._dependencies

    def input(self, key: Key) -> TaskRef:
        ref = self.by_key.get(key)
        if ref is None:
            ref = self.by_key[key] = self.constant(self.references.ref(key))
        return ref

    def constant(self, value: Any) -> TaskRef:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = value
        return TaskRef(name)

    def name(self, expression: Any) -> TaskRef:
        """Give an expression a name, as a step of its own."""
        if type(expression) is TaskRef and self.steps and expression.key == self.steps[-1][0]:
            return expression
        if not isinstance(expression, Task):
            expression = operation(identity, (expression,))
        value = (len(self.steps),)
        self.steps.append((value, expression))
        return TaskRef(value)

    def flat(self, node: Any, scope: Scope) -> Walk:
        """Walk one node in post-order, arguments from left to right."""
        if isinstance(node, TaskRef):
            if type(node) is not TaskRef:
                return self.constant(node), 0  # a future
            return (yield self.lookup(node.key, scope))
        if type(node) is Alias:
            return (yield self.lookup(node.target, scope))
        if type(node) is DataNode:
            return node, 0
        if isinstance(node, Task):
            return (yield self.task(node, scope))
        if is_call(node):
            return (
                yield self.operation(
                    node[0], [Dict(a) if isinstance(a, dict) else a for a in node[1:]], {}, scope, legacy=True
                )
            )
        if isinstance(node, GraphNode):
            raise ValueError(f"cannot take apart a {type(node).__name__}")
        if scope is None:
            return (yield self.raw(node))
        return node, 0

    def lookup(self, key: Key, scope: Scope) -> Walk:
        if scope is None:
            return self.input(key), 0
        value = scope[key]
        if type(value) is _Pending:
            expression, _ = yield self.flat(value.node, scope)
            value = scope[key] = expression if type(expression) is TaskRef else self.name(expression)
        return value, 0

    def task(self, node: Task, scope: Scope) -> Walk:
        self.producer = self.producer or node.data_producer
        args = node.args
        if node.func is _execute_subgraph and type(args[0]) is dict:
            graph, outkey, inkeys, *values = args
            inner: dict[Any, Any] = {k: _Pending(v) for k, v in graph.items()}
            for name, value in zip(inkeys, values, strict=True):
                inner[name] = yield self.named(value, scope)
            return (yield self.lookup(outkey, inner))
        if node.func is MARKER:
            return (yield self.flat(args[0], scope))
        if (frame := frame_of(node)) is not None:
            held = yield self.environment(frame.inputs, scope)
            for body in frame.bodies[:-1]:
                held = yield self.environment(body.kwargs, held)
            return (yield self.flat(frame.bodies[-1], held))
        if type(node) is not Task and not isinstance(node, NestedContainer):
            raise ValueError(f"cannot take apart a {type(node).__name__}")
        return (yield self.operation(node.func, args, node.kwargs, scope))

    def environment(self, given: dict[str, Any], scope: Scope) -> Generator[Any, Any, dict[Any, Any]]:
        """The names that a step of a program hands on."""
        held = {}
        for name, value in given.items():
            held[name] = yield self.named(value, scope)
        return held

    def named(self, value: Any, scope: Scope) -> Generator[Any, Any, Any]:
        if not isinstance(value, (GraphNode, TaskRef)):
            return DataNode("literal", value)
        expression, _ = yield self.flat(value, scope)
        return self.name(expression) if isinstance(expression, Task) else expression

    def operation(
        self, func: Any, args: Iterable[Any], kwargs: dict[str, Any], scope: Scope, legacy: bool = False
    ) -> Walk:
        parts, deepest = yield self.each(args, scope, legacy)
        named, deeper = yield self.each(kwargs.values(), scope)
        task = operation(func, parts, dict(zip(kwargs, named)) if kwargs else NO_KWARGS)
        return self.step(task, max(deepest, deeper))

    def each(
        self, values: Iterable[Any], scope: Scope, legacy: bool = False
    ) -> Generator[Any, Any, tuple[list[Any], int]]:
        """The expressions of several arguments, and how deep the deepest of them nests."""
        parts, deepest = [], 0
        for value in values:
            expression, depth = yield self.argument(value, scope, legacy)
            parts.append(expression)
            deepest = max(deepest, depth)
        return parts, deepest

    def step(self, task: Task, deepest: int) -> Flat:
        """A call of what nests so deep, under a name of its own if that is too deep."""
        return (self.name(task), 0) if deepest >= STEP_DEPTH else (task, deepest + 1)

    def argument(self, arg: Any, scope: Scope, legacy: bool = False) -> Walk:
        if legacy or isinstance(arg, (GraphNode, TaskRef)):
            return (yield self.flat(arg, scope))
        return arg, 0  # what stands in a task as it is names no key, even if it is equal to one

    def raw(self, value: Any) -> Walk:
        """A value of a legacy task: a key, a container that may hold keys and tasks, or just data."""
        if isinstance(value, (int, float, str, tuple)):
            try:
                known = self.references.find(value)
            except TypeError:
                known = None
            if known is not None:
                return self.input(value), 0
        if isinstance(value, (list, tuple, set, frozenset)):
            if is_namedtuple_instance(value):
                converted = self.converter.legacy_argument(value)
                return (self.constant(converted) if isinstance(converted, GraphNode) else converted), 0
            parts, deepest = yield self.each(value, None, legacy=True)
            if any(isinstance(part, (GraphNode, TaskRef)) for part in parts):
                return self.step(operation(_identity_cast, parts, {"typ": type(value)}), deepest)
        return value, 0
