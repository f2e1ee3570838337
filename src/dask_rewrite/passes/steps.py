"""A task as steps: what it computes one after the other, however it is nested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef, _identity_cast
from dask.typing import Key
from toolz import identity, pipe
from toolz.functoolz import Compose

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.graph.nesting import survey
from dask_rewrite.graph.nodes import NO_KWARGS, list_of, under
from dask_rewrite.graph.program import operation, program_task
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.graph.templates import frame_of, is_template

#: Tasks are nested no deeper than this; what is deeper becomes a program.
_DEPTH = 16


class Step:
    """One call; its task refers to earlier steps and to keys of the graph.

    Parameters
    ----------
    task : Task
        The call, over references, lists of these and literals.
    value : object
        What is known of its result.
    """

    __slots__ = ("task", "value")

    def __init__(self, task: Task, value: Any) -> None:
        self.task = task
        self.value = value


def ref_of(step: Step) -> TaskRef:
    """A reference to a step, in the tasks of later ones."""
    return TaskRef(step)  # type: ignore[arg-type] # a step is no key of a graph


def step_of(ref: Any) -> Step | None:
    """The step that a reference names, None for a key of the graph."""
    return ref.key if type(ref.key) is Step else None


class Opaque(Exception):
    """A task whose inside cannot be read."""


def steps_of(node: GraphNode, facts: Facts) -> list[Step]:
    """The steps of a task, each after those that it uses.

    Raises
    ------
    Opaque
        If it holds something else than calls and lists.

    Examples
    --------
    >>> import operator
    >>> task = Task("y", operator.add, Task(None, operator.neg, TaskRef("x")), 1)
    >>> [step.task.func.__name__ for step in steps_of(task, Facts({}.get))]
    ['neg', 'add']
    """
    reader = _Reader(facts)
    result = reader.argument(node, None)
    if type(result) is not TaskRef or step_of(result) is None:
        reader.add(identity, (result,), NO_KWARGS)
    return reader.steps


class Values:
    """What is known of steps and of blocks of the graph, by what a reference names."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def get(self, key: Any, default: Any = None) -> Any:
        return key.value if type(key) is Step else self._facts.value(key)


class _Reader:
    def __init__(self, facts: Facts) -> None:
        self.steps: list[Step] = []
        self._facts = facts
        self._values: Any = Values(facts)

    def add(self, func: Any, args: Any, kwargs: Any) -> TaskRef:
        task = operation(func, args, kwargs)
        value = self._facts.within(task, self._values)
        step = Step(task, value)
        self.steps.append(step)
        return ref_of(step)

    def argument(self, node: Any, scope: Mapping[Any, Any] | None) -> Any:
        kind = type(node)
        if kind is TaskRef:
            return node if scope is None else scope[node.key]
        if kind is Alias:
            return TaskRef(node.target) if scope is None else scope[node.target]
        if kind is List:
            return list_of([self.argument(item, scope) for item in node.args])
        if kind is Task:
            return self._task(node, scope)
        if isinstance(node, GraphNode) and kind is not DataNode:
            raise Opaque
        return node

    def _task(self, task: Task, scope: Mapping[Any, Any] | None) -> Any:
        func: Any = task.func
        if func is pipe or is_template(func):
            return self._frame(task, scope)
        if func is _identity_cast and task.kwargs.get("typ") is list:
            return list_of([self.argument(arg, scope) for arg in task.args])
        args = [self.argument(arg, scope) for arg in task.args]
        kwargs = task.kwargs
        if kwargs:
            filled = {name: self.argument(arg, scope) for name, arg in kwargs.items()}
            kwargs = kwargs if all(filled[name] is kwargs[name] for name in kwargs) else filled
        if type(func) is Compose:
            found = self.add(func.first, args, kwargs)
            for each in func.funcs:
                found = self.add(each, (found,), NO_KWARGS)
            return found
        return self.add(func, args, kwargs or NO_KWARGS)

    def _frame(self, task: Task, scope: Mapping[Any, Any] | None) -> Any:
        frame = frame_of(task)
        if frame is None:
            raise Opaque
        state = {name: self.argument(arg, scope) for name, arg in frame.inputs.items()}
        for body in frame.bodies[:-1]:
            if body.func is not dict or body.args:
                raise Opaque
            state = {name: self.argument(arg, state) for name, arg in body.kwargs.items()}
        return self.argument(frame.bodies[-1], state)


def references(arg: Any) -> Iterator[TaskRef]:
    """The references in an argument of a step, also those in lists."""
    stack = [arg]
    while stack:
        here = stack.pop()
        if type(here) is TaskRef:
            yield here
        elif type(here) is List:
            stack.extend(here.args)


def references_of(task: Task) -> list[TaskRef]:
    """The references in all arguments of a step."""
    return [ref for arg in (*task.args, *task.kwargs.values()) for ref in references(arg)]


def assembled(key: Key, steps: Sequence[tuple[Step, Task]], producer: bool) -> Task:
    """The steps, each with the call that is made of it, as one task: nested, or a program."""
    nested = _nested(steps)
    if nested is not None:
        return under(key, nested, producer)
    return program_task(key, steps, producer)


def _nested(steps: Sequence[tuple[Step, Task]]) -> Task | None:
    """The steps as nested tasks; None if one is used twice, if they are deep, or if one may raise what ends
    the evaluation of arguments."""
    made: dict[Any, Task] = {}
    depth: dict[Any, int] = {}
    used: set[Any] = set()
    effects = Effects()
    if any(effects.unknown(task) for _, task in steps[:-1]):
        return None
    for step, task in steps:
        below: list[Any] = [dep for dep in task._dependencies if type(dep) is Step]
        depth[step] = 1 + max([depth[dep] for dep in below], default=0)
        if depth[step] > _DEPTH or not used.isdisjoint(below):
            return None
        if below:
            references = survey(task)[1]
            if any(references.count(dep) > 1 for dep in below):
                return None
            used.update(below)
        made[step] = with_values(task, made)
    return made[steps[-1][0]]
