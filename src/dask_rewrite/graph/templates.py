"""Called templates (outlined functions): what tasks have in common apart from what each has of its own.

Made of tasks, and opened again into nested tasks for passes that look inside. In `calls_alike` and
`template_of_call`, objects are told apart by their identity: those in ``common`` belong to the template,
functions in ``own`` belong to the one task. References, numbers and all else are inputs, other functions
are common.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence, Set
from types import MethodType
from typing import Any, NamedTuple

from dask._task_spec import DataNode, NestedContainer, Task, TaskRef
from toolz import pipe

from dask_rewrite.graph.kinds import ITEMS, KINDS
from dask_rewrite.graph.nesting import survey
from dask_rewrite.graph.nodes import (
    args_of,
    func_of,
    kwargs_of,
    literal,
    make_container,
    make_task,
    needs_of,
)
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import with_values


class Frame(NamedTuple):
    """A called template, or a program: what is computed over which inputs.

    Parameters
    ----------
    inputs : dict of str to object
        The values that come in, under the names that the first body knows them by.
    bodies : tuple of Task
        Each but the last makes the dict of the values that the next one is computed over.
    """

    inputs: dict[str, Any]
    bodies: tuple[Task, ...]


def calls_frame(func: Any) -> bool:
    """Whether a task that calls this may be a called template or a program."""
    return type(func) is MethodType or func is pipe


def is_template(value: Any) -> bool:
    """Whether it is the call of a template, ``T.__call__``: a function of a task, or a step of a program.

    Examples
    --------
    >>> is_template(Task(None, abs, TaskRef("x0")).__call__), is_template([].append)
    (True, False)
    """
    return type(value) is MethodType and isinstance(value.__self__, Task)


def called_by_keyword(call: Any, inputs: dict[str, Any]) -> Task:
    """A called template (``T.__call__``) whose inputs may call what nobody knows.

    Dask evaluates keywords one by one; among positional arguments it would take a ``StopIteration`` that one
    raises for the end of them.

    Examples
    --------
    >>> body = Task(None, abs, TaskRef("x0"))
    >>> called_by_keyword(body.__call__, {"x0": Task(None, min, TaskRef("x"))})({"x": [-3, 1]})
    3
    """
    return operation(call, (), {"values": operation(dict, (), inputs)})


def frame_of(node: Any) -> Frame | None:
    """A called template or a program taken apart; None for anything else.

    Examples
    --------
    >>> import operator
    >>> body = Task(None, operator.neg, TaskRef("x0"))
    >>> frame = frame_of(Task("y", body.__call__, Task(None, dict, x0=TaskRef("x"))))
    >>> frame.inputs, frame.bodies[0] is body
    ({'x0': TaskRef('x')}, True)
    >>> frame_of(body) is None
    True
    """
    if type(node) is not Task or bool(node.args) is bool(node.kwargs):
        return None
    held, *steps = node.args or node.kwargs.values()
    if type(node.func) is MethodType and not steps:
        steps = [node.func]
    elif node.func is not pipe or not steps:
        return None
    if type(held) is not Task or held.func is not dict or held.args:
        return None
    bodies = tuple([step.__self__ for step in steps if is_template(step)])
    return Frame(held.kwargs, bodies) if len(bodies) == len(steps) else None


def template_of(node: Any) -> tuple[Task, dict[str, Any]] | None:
    """The template of a called template and the inputs that it is called with; None for anything else.

    Examples
    --------
    >>> import operator
    >>> template = Task(None, operator.neg, TaskRef("x0"))
    >>> call = Task("y", template.__call__, Task(None, dict, x0=TaskRef("x")))
    >>> template_of(call)[1]
    {'x0': TaskRef('x')}
    """
    frame = None if type(node) is not Task or node.func is pipe else frame_of(node)
    return None if frame is None else (frame.bodies[0], frame.inputs)


def opened(node: Any) -> Task | None:
    """A called template, or a program that uses each value once, as nested tasks under the same key.

    None for anything else. No call that nobody knows may be sent nested, see the module ``outline``.

    Examples
    --------
    >>> import operator
    >>> template = Task(None, operator.add, TaskRef("x0"), 1)
    >>> call = Task("y", template.__call__, Task(None, dict, x0=TaskRef("x")))
    >>> task = opened(call)
    >>> task.key, task.func.__name__, task.args
    ('y', 'add', (TaskRef('x'), 1))
    """
    frame = frame_of(node)
    if frame is None or type(frame.bodies[-1]) is not Task:
        return None
    *steps, last = frame.bodies
    state: Any = frame.inputs
    made, used = dict[int, Any](), list[int]()  # what steps compute, and how often that is used

    def filled(task: Task) -> Any:
        found = [id(state[key]) for key in survey(task)[1]] if made else ()
        used.extend([value for value in found if value in made])
        return with_values(task, state)

    for step in steps:
        if step.func is not dict or step.args:
            return None
        after = {name: state[arg.key] for name, arg in step.kwargs.items() if type(arg) is TaskRef}
        fresh = {name: filled(arg) for name, arg in step.kwargs.items() if name not in after}
        made.update({id(value): value for value in fresh.values()})
        state = after | fresh
    body = filled(last)
    if len(set(used)) < len(used):
        return None
    return make_task(node.key, body.func, body.args, body.kwargs, node._dependencies, node._data_producer)


class Calls(NamedTuple):
    """Tasks of which the templates are the same.

    Parameters
    ----------
    tasks : sequence of Task
        The tasks.
    shape : list
        What makes their template: the type of the task and the identity of its function come first.
    inputs : list of sequence
        The inputs of these templates, each of all tasks.
    """

    tasks: Sequence[Task]
    shape: list[Any]
    inputs: list[Sequence[Any]]


def calls_alike(tasks: Sequence[Task], common: Set[int], own: Set[int]) -> Iterator[Calls]:
    """Tasks in groups of which the templates are the same, found column by column.

    Examples
    --------
    >>> table = [1, 2]
    >>> tasks = [Task(i, zip, TaskRef(("x", i)), table, 3) for i in range(2)]
    >>> (found,) = calls_alike(tasks, {id(table)}, set())
    >>> found.inputs, found.shape.index(id(table))
    ([(TaskRef(('x', 0)), TaskRef(('x', 1))), (3, 3)], 4)
    """
    groups = [tasks] if tasks else []
    while groups:
        group = groups.pop()
        calls = Calls(group, [], [])
        differs = _differs(group, common, own, calls)
        if differs is None:
            yield calls
        else:
            apart: dict[Any, list[Task]] = {}
            for task, how in zip(group, differs):
                apart.setdefault(how, []).append(task)
            groups += apart.values()


def _differs(nodes: Sequence[Any], common: Set[int], own: Set[int], calls: Calls) -> Sequence[Any] | None:
    """Where the templates of nodes that stand in one place differ, what tells them apart; or None."""
    kinds = list(map(type, nodes))
    if len(set(kinds)) > 1:
        return kinds
    kind = kinds[0]
    nested = KINDS[kind] == ITEMS
    if not nested and kind is not Task:
        return _leaves([node.value for node in nodes] if kind is DataNode else nodes, nodes, common, calls)
    functions, arguments = list(map(func_of, nodes)), list(map(args_of, nodes))
    at = list(map(id, functions))
    if not nested and not own.isdisjoint(at):
        at = [0 if each in own else each for each in at]
    lengths = list(map(len, arguments))
    names = [()] * len(nodes) if nested else list(map(tuple, map(kwargs_of, nodes)))
    for column in at, lengths, names:
        if len(set(column)) > 1:
            return column
    if not at[0]:
        calls.inputs.append(functions)
    calls.shape.extend((kind, at[0] or None, lengths[0]))
    for argument in zip(*arguments):
        if (differs := _differs(argument, common, own, calls)) is not None:
            return differs
    for name in names[0]:
        calls.shape.append(name)
        values = [kwargs[name] for kwargs in map(kwargs_of, nodes)]
        if (differs := _differs(values, common, own, calls)) is not None:
            return differs
    return None


def _leaves(
    values: Sequence[Any], nodes: Sequence[Any], common: Set[int], calls: Calls
) -> Sequence[Any] | None:
    """The same for what nothing is nested in."""
    at = list(map(id, values))
    if common.isdisjoint(at):
        calls.shape.append(None)
        calls.inputs.append(nodes)
    elif len(set(at)) > 1:
        return [each if each in common else None for each in at]
    else:
        calls.shape.append(at[0])
    return None


def template_of_call(task: Task, common: Set[int], own: Set[int]) -> Task:
    """The template over ``x0``, ``x1``, ... of a task.

    Examples
    --------
    >>> table = [1, 2]
    >>> task = Task("y", zip, TaskRef("x"), table, 3)
    >>> template_of_call(task, {id(table)}, set()).args
    (TaskRef('x0'), [1, 2], TaskRef('x1'))
    """
    made: Task = _template(task, common, own, [])
    return made


def _template(node: Any, common: Set[int], own: Set[int], names: list[str]) -> Any:
    nested = isinstance(node, NestedContainer)
    if nested or type(node) is Task:
        first = len(names)
        func = node.func
        args: tuple[Any, ...] = ()
        if id(func) in own and not nested:
            func, args = operator.call, (_input(names),)
        args += tuple([_template(arg, common, own, names) for arg in node.args])
        if nested:
            return make_container(node, args, frozenset(names[first:]))
        kwargs = {name: _template(arg, common, own, names) for name, arg in node.kwargs.items()}
        return make_task(None, func, args, kwargs, frozenset(names[first:]))
    value = literal(node)
    return value if id(value) in common else _input(names)


def _input(names: list[str]) -> TaskRef:
    names.append(f"x{len(names)}")
    return TaskRef(names[-1])


def inputs_of_call(inputs: Sequence[Any]) -> tuple[Task]:
    """The arguments with which the template is called.

    Examples
    --------
    >>> inputs_of_call([TaskRef("x"), 3])[0].kwargs
    {'x0': TaskRef('x'), 'x1': 3}
    """
    named = {f"x{i}": value for i, value in enumerate(inputs)}
    return (make_task(None, dict, (), named, needs_of(inputs)),)
