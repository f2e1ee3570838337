"""Several tasks as one program that alike tasks share: what differs between these is given to it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from dask._task_spec import GraphNode, NestedContainer, Task, TaskRef
from dask.graph_manipulation import chunks
from dask.typing import Key

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.analysis.facts import Facts, nowhere
from dask_rewrite.analysis.knowledge import known_call
from dask_rewrite.graph.nodes import GATHERING, Deps, call_with_dict, make_container
from dask_rewrite.graph.program import Programs, operation, shape_of
from dask_rewrite.graph.templates import calls_frame, is_template
from dask_rewrite.passes.steps import Opaque, ref_of, steps_of

#: Literals that may stand in a program: the same for all tasks, as a rule.
_PLAIN = frozenset([int, float, str, bool, type(None), slice, tuple, type])
#: Functions that call nothing of the user.
_OURS = GATHERING | {id(operator.iadd), id(chunks.bind), id(chunks.checkpoint)}


class Outliner:
    """Writes programs; those that do the same are one object."""

    def __init__(self) -> None:
        self._effects = Effects()
        self._programs = Programs()

    def program(self, key: Key, members: Mapping[Any, Any], result: Any, producer: bool) -> Task:
        """One task for several and an expression over them.

        Parameters
        ----------
        key : Key
            Its key.
        members : mapping
            By name the tasks, producers first.
        result : object
            The expression; a reference to the last of the tasks, if it gives what that gives.
        producer : bool
            Whether it loads or creates data.
        """
        if not isinstance(result, TaskRef) and self._nests_unknown(result):
            last = steps_of(result, Facts(nowhere))
            members = {**members, **{step: step.task for step in last}}
            result = ref_of(last[-1])
        outline = _Outline(members, self._effects)
        steps = [(name, made) for name in members if (made := outline.member(name)) is not None]
        if not isinstance(result, TaskRef):
            steps.append((key, outline.expression(result)))
        shapes = [shape_of(task) for _, task in steps]
        functions = self._programs.of(steps, {name: name for name in outline.given}, shapes)
        return call_with_dict(key, functions, outline.given, outline.needs, producer)

    def apart(self, task: Task) -> Task | None:
        """The same task; where calls that nobody knows are nested in it, each is a step of its own.

        Dask would take a ``StopIteration`` that one of them raises for the end of the arguments. None if
        such a task cannot be taken apart.
        """
        if not self._nests_unknown(task):
            return task
        try:
            steps = steps_of(task, Facts(nowhere))
        except Opaque:
            return None
        members = {step: step.task for step in steps}
        return self.program(task.key, members, ref_of(steps[-1]), task.data_producer)

    def _nests_unknown(self, task: Task) -> bool:
        """Whether something in an argument calls what nobody knows."""
        stack: list[tuple[Any, ...]] = [task.args]
        while stack:
            for arg in stack.pop():
                if isinstance(arg, Task):
                    if self._calls_unknown(arg):
                        return True
                    stack.append((*arg.args, *arg.kwargs.values()) if arg.kwargs else arg.args)
        return False

    def _calls_unknown(self, task: Task) -> bool:
        func = task.func
        if calls_frame(func):
            return self._effects.unknown(task)
        if type(task) is not Task or id(func) in _OURS or func is dict:
            return False
        return known_call(func, task.args, task.kwargs) is None


class _Outline:
    """Takes out of tasks what does not depend on others of them."""

    def __init__(self, tasks: Mapping[Any, Any], effects: Effects) -> None:
        self._tasks, self._effects = tasks, effects
        self._known: dict[Any, TaskRef] = {}
        #: what the program is given, and what that depends on
        self.given: dict[str, Any] = {}
        self.needs: Deps = frozenset()

    def member(self, name: Any) -> Task | None:
        """The step of a task; None if it is given to the program as a whole."""
        task = self._tasks[name]
        if task._dependencies.isdisjoint(self._tasks):
            if type(task) is not Task:
                self._known[name] = self._give(task)
                return None
            # in a step: it is there no sooner than it is used, and its StopIteration is not lost;
            # what differs from block to block is given
            return _call(task, self._given)
        made = self.expression(task)
        assert isinstance(made, Task)
        return made

    def expression(self, node: Any) -> Any:
        """An expression over members and names; as deep as tasks nest, which is bounded."""
        kind = type(node)
        if kind is TaskRef:
            if node.key in self._known:
                return self._known[node.key]
            if node.key in self._tasks:
                return node
            made = self._known[node.key] = self._give(node)
            return made
        if not isinstance(node, GraphNode):
            # nothing is known of a program whose steps are given to it
            return node if kind in _PLAIN or is_template(node) else self._give(node)
        if node._dependencies.isdisjoint(self._tasks):
            return self._given(node)
        if kind is Task:
            return _call(node, self.expression)
        if isinstance(node, NestedContainer):
            args = tuple(map(self.expression, node.args))
            return make_container(node, args, operation(tuple, args)._dependencies)
        return node.substitute({dep: self._known[dep].key for dep in node._dependencies & self._known.keys()})

    def _given(self, value: Any) -> Any:
        """What needs none of the tasks: its calls stay in the step, but for those that nobody knows."""
        if type(value) is TaskRef:
            return self.expression(value)
        if type(value) is Task and not self._effects.unknown(value):
            return _call(value, self._given)
        if isinstance(value, NestedContainer) and any(type(item) is Task for item in value.args):
            args = tuple(map(self._given, value.args))
            return make_container(value, args, operation(tuple, args)._dependencies)
        keeps = value is None or (callable(value) and not isinstance(value, GraphNode))
        return value if keeps else self._give(value)

    def _give(self, value: Any) -> TaskRef:
        name = f"x{len(self.given)}"
        self.given[name] = value
        if type(value) is TaskRef:
            self.needs |= {value.key}
        elif isinstance(value, GraphNode):
            self.needs |= value._dependencies
        return TaskRef(name)


def _call(task: Any, made: Callable[[Any], Any]) -> Task:
    """The same call of what is made of its arguments."""
    args = tuple(map(made, task.args))
    return operation(task.func, args, {name: made(arg) for name, arg in task.kwargs.items()})
