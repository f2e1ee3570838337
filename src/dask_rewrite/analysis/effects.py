"""Who may write into a block, and whose result is a view of one.

A rewrite that lets two keys stand for one buffer is legal only where nobody writes into it. A function
that we do not know may write into its arguments, so that its block must stay its own.
"""

from __future__ import annotations

from typing import Any, Literal

from dask._task_spec import Alias, DataNode, GraphNode, NestedContainer, Task

from dask_rewrite.analysis.knowledge import known_call
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.templates import calls_frame, frame_of
from dask_rewrite.graph.writes import written_block

Effect = Literal["fresh", "view", "unknown"]


def gives_view(node: Any) -> bool:
    """Whether the last call of a task gives something else than a block of its own: a view, a list, a dict.

    Examples
    --------
    >>> import operator
    >>> from dask._task_spec import TaskRef
    >>> gives_view(Task("y", operator.getitem, Task(None, sorted, TaskRef("x")), slice(2)))
    True
    """
    while type(node) is Task and (frame := frame_of(node)) is not None:
        node = frame.bodies[-1]
    if type(node) is not Task:
        return type(node) is Alias or isinstance(node, NestedContainer)
    info = known_call(node.func, node.args, node.kwargs)
    return (node.func is dict and not node.args) if info is None else info.fresh is not True


class Effects:
    """What tasks do to their arguments, remembered by template.

    Examples
    --------
    >>> import operator
    >>> from dask._task_spec import TaskRef
    >>> effects = Effects()
    >>> effects.of(Task("y", operator.getitem, TaskRef("x"), slice(2)))
    'view'
    >>> effects.of(Task("y", sorted, TaskRef("x")))
    'unknown'
    """

    def __init__(self) -> None:
        self._bodies = ByIdentity[tuple[Effect, bool]]()

    def of(self, node: GraphNode) -> Effect:
        """``fresh``: shares no memory with an argument; ``view``: may; ``unknown``: may write into it."""
        return self._look(node)[0]

    def unknown(self, node: Any) -> bool:
        """Whether it calls what nobody knows."""
        return self.of(node) == "unknown"

    def pure(self, node: GraphNode) -> bool:
        """Only functions known to be pure are called, however deep in the task."""
        return self.both(node)[1]

    def both(self, node: GraphNode) -> tuple[Effect, bool]:
        """The effect, and whether the task is pure."""
        effect, pure = self._look(node)
        return effect, pure and effect != "unknown"

    def _look(self, node: Any) -> tuple[Effect, bool]:
        if not isinstance(node, GraphNode) or type(node) is DataNode:
            return "fresh", True
        if type(node) is Alias:
            return "view", True
        if type(node) is Task:
            return self._task(node)
        if isinstance(node, NestedContainer):
            return self._all("view", True, node.args)
        return "unknown", False

    def _task(self, task: Task) -> tuple[Effect, bool]:
        func = task.func
        if calls_frame(func):
            return self._called(task)
        if func is dict and not task.args:
            return self._all("view", True, task.kwargs.values())
        info = known_call(func, task.args, task.kwargs)
        if info is None:
            # into an array of its own, as ``written`` says
            return ("unknown", False) if written_block(task) is None else ("fresh", True)
        values = (*task.args, *task.kwargs.values()) if task.kwargs else task.args
        return self._all("fresh" if info.fresh is True else "view", info.pure, values)

    def _all(self, effect: Effect, pure: bool, inside: Any) -> tuple[Effect, bool]:
        """The effect, unless something inside is unknown."""
        for value in inside:
            if isinstance(value, GraphNode):
                inner, also = self._look(value)
                if inner == "unknown":
                    return "unknown", False
                pure = pure and also
        return effect, pure

    def _called(self, task: Task) -> tuple[Effect, bool]:
        """Templates and programs: the last body decides what the result is."""
        frame = frame_of(task)
        if frame is None:
            return "unknown", False
        effect, pure = self._all("view", True, frame.inputs.values())
        for body in frame.bodies:
            if effect == "unknown":
                break
            effect, also = self.of_body(body)
            pure = pure and also
        return effect, pure

    def of_body(self, body: Any) -> tuple[Effect, bool]:
        """What a template or a step of a program does to what it is given, and whether it is pure."""
        return self._bodies.of(body, self._look) if isinstance(body, Task) else ("unknown", False)
