"""Several tasks as one program that alike tasks share: what differs between these is given to it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, NestedContainer, Task, TaskRef, _execute_subgraph
from dask.graph_manipulation import chunks
from dask.typing import Key
from dask.utils import ndeepmap

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.analysis.facts import Facts, nowhere
from dask_rewrite.analysis.knowledge import known_call
from dask_rewrite.graph.nodes import (
    GATHERING,
    Deps,
    call_with_dict,
    children,
    literal,
    make_container,
    nameless,
)
from dask_rewrite.graph.program import Programs, operation, shape_of
from dask_rewrite.graph.templates import calls_frame, is_template
from dask_rewrite.passes.steps import Opaque, ref_of, steps_of

#: Literals that may stand in a program: the same for all tasks, as a rule.
_PLAIN = frozenset([int, float, str, bool, type(None), slice, tuple, type, np.dtype])
#: Functions that call nothing of the user.
_OURS = GATHERING | {id(operator.iadd), id(chunks.bind), id(chunks.checkpoint)}
#: Calls that are read as a whole, with all their arguments: they are given to a program as they are.
_WHOLE = frozenset(map(id, (_execute_subgraph, ndeepmap)))


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
        stack: list[Any] = list(task.args)
        while stack:
            here = stack.pop()
            if not isinstance(here, Task):
                continue
            func = here.func
            if calls_frame(func):
                if self._effects.unknown(here):
                    return True
            elif type(here) is Task and id(func) not in _OURS and func is not dict:
                if known_call(func, here.args, here.kwargs) is None:
                    return True
            stack += children(here)
        return False


class _Outline:
    """Takes out of tasks what does not depend on others of them.

    What a program is given is there from its first step to its last. So work that later steps use is done
    in these, and only what it is done with is given: a long chain reads one block after the other.
    """

    def __init__(self, tasks: Mapping[Any, Any], effects: Effects) -> None:
        self._tasks, self._effects = tasks, effects
        self._known: dict[Any, TaskRef] = {}
        self._objects: dict[int, TaskRef] = {}
        self._begun = False  # there is a step already
        #: what the program is given, and what that depends on
        self.given: dict[str, Any] = {}
        self.needs: Deps = frozenset()

    def member(self, name: Any) -> Task | None:
        """The step of a task; None if it is given to the program as a whole."""
        task = self._tasks[name]
        if not task._dependencies.isdisjoint(self._tasks):
            made = self.expression(task)
        elif type(task) is Task and self._effects.unknown(task):
            # in a step, or its StopIteration would be lost; what differs from block to block is given
            made = _call(task, self._given)
        elif self._begun and type(task) is Task and self._is_work(task):
            made = self._own(task)
        else:
            self._known[name] = self._give(nameless(task) if type(task) is Task else task)
            return None
        self._begun = True
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
            known = self._is_work(node) and not self._effects.unknown(node)
            return self._own(node) if known else self._give(node)
        if kind is Task:
            return _call(node, self.expression)
        if isinstance(node, NestedContainer):
            args = tuple(map(self.expression, node.args))
            return make_container(node, args, operation(tuple, args)._dependencies)
        return node.substitute({dep: self._known[dep].key for dep in node._dependencies & self._known.keys()})

    def _is_work(self, node: Any) -> bool:
        """Whether it makes something, and does not only gather or take one of several results."""
        if isinstance(node, NestedContainer) or (type(node) is Task and id(node.func) in GATHERING):
            return any(map(self._is_work, node.args))
        if type(node) is not Task or id(node.func) in _WHOLE:
            return False
        return node.func is not operator.getitem or type(node.args[0]) is not TaskRef

    def _own(self, node: Any) -> Any:
        """Work that depends on no other task, in a step; what differs from block to block is given."""
        if not self._is_work(node):
            alike = node is None or type(node) in (bool, type) or is_template(node)
            return node if alike else self.expression(node) if type(node) is TaskRef else self._give(node)
        if isinstance(node, NestedContainer):
            args = tuple(map(self._own, node.args))
            return make_container(node, args, operation(tuple, args)._dependencies)
        args, named = tuple(map(self._own, node.args)), node.kwargs.items()
        options = _PLAIN if node.func is not dict else frozenset[type]()  # these are alike for all blocks
        kwargs = {name: arg if type(arg) in options else self._own(arg) for name, arg in named}
        return operation(node.func, args, kwargs)

    def _given(self, value: Any) -> Any:
        keeps = value is None or (callable(value) and not isinstance(value, GraphNode))
        return value if keeps else self._give(value)

    def _give(self, value: Any) -> TaskRef:
        found = literal(value)
        if isinstance(found, (GraphNode, TaskRef)) or type(found) in _PLAIN:
            return self._give_anew(value)
        if id(found) not in self._objects:  # such as a file, of which many blocks are read
            self._objects[id(found)] = self._give_anew(value)
        return self._objects[id(found)]

    def _give_anew(self, value: Any) -> TaskRef:
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
