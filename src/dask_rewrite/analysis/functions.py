"""Functions and keywords of tasks, looked at once: whether anything comes of evaluating their calls."""

from __future__ import annotations

from collections.abc import Sequence, Set
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from dask._task_spec import GraphNode, List, Task, TaskRef, _identity_cast
from dask.utils import ndeepmap
from toolz import last, pipe

from dask_rewrite.analysis.fact_cache import number_of, signature
from dask_rewrite.analysis.knowledge import known
from dask_rewrite.analysis.knowledge.known import through_partials
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.templates import calls_frame


class Function(NamedTuple):
    """A function that tasks call."""

    is_known: bool  # it is worth looking below its tasks
    number: int | None  # None if it is not compared with others
    is_special: bool  # its tasks may be more than calls
    seed: int | None  # place of an argument that is compared by its type only


class Keywords(NamedTuple):
    """The keywords of a task."""

    has_blocks: bool
    signature: Any  # None if they are not compared with others


def function_of(func: Any) -> Function:
    """Look at a function."""
    inner, *_ = through_partials(func, (), {})
    is_frame = calls_frame(func)
    about = None if is_frame else known(inner)
    is_known = not _is_lost(func.__self__) if type(func) is MethodType else is_frame or about is not None
    is_special = is_frame or func is last or func is _identity_cast or func is ndeepmap
    is_known |= func is ndeepmap  # of batches
    try:
        number = number_of(func) if is_known and not is_frame else None
    except TypeError:  # an argument that cannot be compared
        number = None
    seed = about.seed if about is not None and inner is func else None
    return Function(is_known, number, is_special, seed)


def gives_nothing(task: Task, functions: ByIdentity[Function]) -> bool:
    """Whether no fact comes of a task: it calls what nothing is known of, or takes what that gives."""
    function = functions.of(task.func, function_of)
    if task.func is pipe and task.args:
        function = functions.of(task.args[-1], lambda _: _of_program(task.args[1:]))
    if function.is_special or not function.is_known:
        return not function.is_known
    calls = [task]
    while calls:
        args = calls.pop().args
        if _hands_unknown(args):
            return True
        if Task in map(type, args):
            for arg in args:
                if type(arg) is Task:
                    function = functions.of(arg.func, function_of)
                    if function.is_special:
                        continue
                    if not function.is_known:
                        return True
                    calls.append(arg)
    return False


def _hands_unknown(args: Sequence[Any]) -> bool:
    """Whether a function is handed to one of dask's, which calls it, of which nothing is known."""
    return bool(args) and type(args[0]) is FunctionType and known(args[0]) is None


def _of_program(calls: Sequence[Any]) -> Function:
    """What is known of what a program gives; its last step is its own."""
    bodies = [getattr(call, "__self__", None) for call in calls]
    lost: frozenset[Any] = frozenset()
    for body in bodies[:-1]:
        values = body.kwargs if type(body) is Task and body.func is dict else {}
        lost = frozenset([name for name, value in values.items() if _is_lost(value, lost)])
    return Function(not _is_lost(bodies[-1], lost), None, True, None)


def _is_lost(body: Any, lost: Set[Any] = frozenset()) -> bool:
    """Whether what an expression gives is unknown whatever its inputs are: one look for a whole layer."""
    if type(body) is TaskRef:
        return body.key in lost
    if type(body) is Task:
        func = body.func
        if calls_frame(func) or func is last:
            return False
        func, *_ = through_partials(func, (), {})
        if func is not _identity_cast and (known(func) is None or _hands_unknown(body.args)):
            return True
    elif type(body) is not List:
        return False
    return any(_is_lost(arg, lost) for arg in body.args)


def keywords_of(kwargs: dict[str, Any]) -> Keywords:
    """Look at keywords."""
    has_blocks = any(isinstance(arg, (GraphNode, TaskRef)) for arg in kwargs.values())
    try:
        signed = None if has_blocks else signature(kwargs)
    except TypeError:  # an argument that cannot be compared
        signed = None
    return Keywords(has_blocks, signed)
