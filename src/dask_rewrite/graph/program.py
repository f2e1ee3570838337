"""Straight-line programs: many operations in one task, without nesting and without a graph inside.

A program is ``toolz.pipe(inputs, step, step, ..., result)``: each step is a dask `Task` called with the
dict of the values that are alive, and returns the dict of those alive after it. Names of dead values
are given out again, as registers are, so that the steps of a loop become the same few objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeAlias

from dask._task_spec import Alias, Task, TaskRef
from dask.typing import Key
from toolz import groupby, pipe

from dask_rewrite.graph.nodes import GATHERING, NO_KWARGS, call_with_dict, make_task, nameless, needs_of
from dask_rewrite.graph.substitute import with_values

#: What is compared with ``==`` when two steps are the same; all else by identity.
_BY_VALUE = frozenset([int, str, bytes, bool, type(None), type, FunctionType, BuiltinFunctionType])


#: A value of a program and the expression that computes it, over references to earlier values.
Step: TypeAlias = tuple[Hashable, Task]
#: What an expression does, and to which values in which order.
Shape: TypeAlias = tuple[Hashable, list[Any]]
_ALONE: Shape = ((), [])


def straight_line(
    steps: Sequence[Step], inputs: Mapping[Any, str], shapes: Iterable[Shape] = ()
) -> tuple[Any, ...]:
    """The functions of a program; the last step's value is its result.

    Parameters
    ----------
    steps : sequence of (value, expression)
        Each expression is a task over `TaskRef` of inputs and of earlier values.
    inputs : mapping of value to str
        The values that come in, under the names that they come with.
    shapes : iterable of Shape
        The shapes of the expressions, if they are known already.

    Returns
    -------
    tuple
        ``pipe``, then the functions that it applies to the dict of inputs.

    Examples
    --------
    >>> import operator
    >>> steps = [
    ...     (("y",), operation(operator.add, (TaskRef("x"), 1))),
    ...     (("z",), operation(operator.mul, (TaskRef(("y",)), TaskRef(("y",))))),
    ... ]
    >>> pipe, *functions = straight_line(steps, {"x": "x"})
    >>> pipe({"x": 2}, *functions)
    9
    """
    last_use, dying = _lifetimes(steps)
    registers = _Registers({v: name for v, name in inputs.items() if v in last_use})
    live, refs = registers.live, registers.refs
    interned: dict[Hashable, Any] = {}
    functions: list[Any] = []
    final = len(steps) - 1
    shapes = shapes or _shapes_of(steps)
    for position, ((value, expression), (shape, used)) in enumerate(zip(steps, shapes)):
        names = {v: refs[live[v]] for v in expression._dependencies}
        if position == final:
            functions.append(nameless(with_values(expression, names)).__call__)
            break
        for dead in dying.get(position, ()):
            registers.release(live.pop(dead))
        name = registers.take()
        keep = {n: refs[n] for n in sorted(live.values())}
        if value in last_use:
            live[value] = name
        else:
            registers.release(name)
        same = (name, tuple(keep), shape, tuple([names[v].key if v in names else v for v in used]))
        call = interned.get(same) if shape else None
        if call is None:
            body = nameless(with_values(expression, names))
            step = make_task(None, dict, (), {name: body, **keep}, body._dependencies.union(keep))
            call = interned[same] = step.__call__  # one object a step: pickled once
        functions.append(call)
    return (pipe, *functions)


def program_task(key: Key, steps: Sequence[Step], producer: bool) -> Task:
    """A program as a task, which is given the blocks that its steps refer to and none of them makes.

    Examples
    --------
    >>> steps = [("a", operation(abs, (TaskRef("x"),))), ("b", operation(max, (TaskRef("a"), 2)))]
    >>> task = program_task("y", steps, False)
    >>> task({"x": -3}), sorted(task.dependencies)
    (3, ['x'])
    """
    values = frozenset([value for value, _ in steps])
    inputs: dict[Any, str] = {}
    for _, expression in steps:
        for dep in sorted(expression._dependencies - values, key=str):
            inputs.setdefault(dep, f"x{len(inputs)}")
    given = {name: TaskRef(dep) for dep, name in inputs.items()}
    return call_with_dict(key, straight_line(steps, inputs), given, frozenset(inputs), producer)


class Programs(dict[Hashable, tuple[Any, ...]]):
    """Programs made before, by what they do: blocks share one."""

    def of(
        self, steps: Sequence[Step], inputs: Mapping[Any, str], shapes: Sequence[Shape]
    ) -> tuple[Any, ...]:
        """The functions of a program, see :func:`straight_line`."""
        place = {**inputs, **{value: i for i, (value, _) in enumerate(steps)}}
        alike = tuple([(shape, *[place[value] for value in used]) for shape, used in shapes])
        functions = self.get(alike)
        if functions is None:
            functions = self[alike] = straight_line(steps, inputs, shapes)
        return functions


def _shapes_of(steps: Sequence[Step]) -> list[Shape]:
    """The shapes of expressions that others may be equal to: their functions are the same."""
    func_of = [id(expression.func) for _, expression in steps[:-1]]
    often = Counter(func_of)
    shapes = [shape_of(steps[i][1]) if often[func] > 1 else _ALONE for i, func in enumerate(func_of)]
    return [*shapes, _ALONE]


def _lifetimes(steps: Sequence[Step]) -> tuple[dict[Hashable, int], dict[int, list[Hashable]]]:
    """Which step is the last to use each value, and which values each step is the last to use."""
    last_use: dict[Hashable, int] = {}
    for position, (_, expression) in enumerate(steps):
        for value in expression._dependencies:
            last_use[value] = position
    return last_use, groupby(last_use.__getitem__, last_use)


class _Registers:
    """Names of the values that are alive; those that this gave out are given out again."""

    def __init__(self, live: dict[Hashable, str]) -> None:
        self.live = live
        self.refs = {name: TaskRef(name) for name in live.values()}
        self._free: list[str] = []  # a heap, so that the same loop is given the same names

    def take(self) -> str:
        if self._free:
            return heappop(self._free)
        name = f"v{len(self.refs)}"
        self.refs[name] = TaskRef(name)
        return name

    def release(self, name: str) -> None:
        if name[0] == "v":
            heappush(self._free, name)


def shape_of(expression: Task) -> Shape:
    """What makes two expressions the same: functions and large values by identity, small ones by value.

    Examples
    --------
    >>> shape, used = shape_of(operation(max, (TaskRef("a"), 2)))
    >>> used, shape == shape_of(operation(max, (TaskRef("b"), 2)))[0]
    (['a'], True)
    """
    used: list[Any] = []
    parts: list[Any] = []
    _shape([expression], used, False, parts)
    return tuple(parts), used


def _shape(stack: list[Any], used: list[Any], by_items: bool, parts: list[Any]) -> None:
    """Write down nodes in one row: each kind is followed by how much belongs to it."""
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind in _BY_VALUE:
            parts += (kind, node)
        elif kind is TaskRef:
            parts.append(kind)
            used.append(node.key)
        elif kind is Task or isinstance(node, Task):
            func, args, kwargs = node.func, node.args, node.kwargs
            if id(func) in GATHERING:
                parts += (kind, len(args), *kwargs.values())
                stack += args
                continue
            parts += (kind, id(func), len(args), *kwargs)
            if not by_items and type(func) is FunctionType and _describes_blocks(func):
                _shape([*kwargs.values(), *args], used, True, parts)
                continue
            if kwargs:
                stack += kwargs.values()
            stack += args
        elif kind is tuple or (by_items and kind in (list, dict)):
            parts += (kind, len(node))
            stack += node
            if kind is dict:
                stack += node.values()
        elif kind is float:
            parts += (kind, node.hex())
        elif kind is slice:
            parts.append(kind)
            stack += (node.start, node.stop, node.step)
        elif kind is Alias:
            parts.append(kind)
            used.append(node.target)
        elif by_items and kind is set:
            parts += (kind, frozenset(map(_item, node)))
        else:
            parts += (id, id(node))


def _item(value: Any) -> Hashable:
    """An item of a set, which comes in no order."""
    if type(value) in _BY_VALUE:
        return (type(value), value)
    shape, used = shape_of(value)
    return (shape, *used)


def _describes_blocks(func: FunctionType) -> bool:
    """xarray's wrapper in ``map_blocks``: each block has its own copy of the same description, only read."""
    return func.__qualname__ == "map_blocks.<locals>._wrapper" and func.__module__ == "xarray.core.parallel"


def operation(func: Any, args: Sequence[Any], kwargs: dict[str, Any] = NO_KWARGS) -> Task:
    """A nested task, its dependencies gathered from its arguments.

    Examples
    --------
    >>> sorted(operation(max, (TaskRef("a"), operation(abs, (TaskRef("b"),)))).dependencies)
    ['a', 'b']
    """
    return make_task(None, func, tuple(args), kwargs, needs_of((*args, *kwargs.values()) if kwargs else args))
