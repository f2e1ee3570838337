"""Writing the calls of a plan as one task again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dask._task_spec import List, Task, TaskRef
from dask.array import chunk
from dask.typing import Key

from dask_rewrite.graph.nodes import NO_KWARGS, list_of
from dask_rewrite.graph.program import operation
from dask_rewrite.passes.demand.boxes import Box, index_of, inside, lengths, shape_of, size, whole
from dask_rewrite.passes.demand.calls import Narrowed, Part, call_of
from dask_rewrite.passes.demand.plans import Plan
from dask_rewrite.passes.steps import Step, assembled


def written(
    plan: Plan, key: Key, places: Mapping[Key, tuple[Key, Box]], room: Callable[[Key], float]
) -> Task:
    """The task, for blocks that are narrowed.

    Parameters
    ----------
    plan : Plan
        What is needed of its blocks.
    key : Key
        Its new key.
    places : mapping
        The new key of each block that is narrowed, and the box of it that stands there.
    room : callable
        How many times a slice of this block that was a copy may be what is left of it, as a view.
    """
    writer = _Writer(plan, places, room)
    steps = [(step, writer.call(step)) for step in plan.steps if step in plan.boxes]
    return assembled(key, steps, plan.node.data_producer)


def _is_all(index: Any, box: Box) -> bool:
    """Whether an index takes all of what lies in a box."""
    plain = type(index) is tuple and all(type(item) is slice for item in index)
    return plain and index == index_of(whole(lengths(box)))


class _Writer:
    def __init__(
        self, plan: Plan, places: Mapping[Key, tuple[Key, Box]], room: Callable[[Key], float]
    ) -> None:
        self._plan = plan
        self._places = places
        self._room = room

    def call(self, step: Step) -> Task:
        """The call of a step, over references to steps and to new keys."""
        made = self._plan.made.get(step)
        task = step.task
        if made is None:
            return task
        args = [self._argument(arg) for arg in made.args]
        func: Any = task.func
        kwargs: Any = task.kwargs
        if made.func is not None or made.kwargs is not None:
            call = call_of(step, self._plan.values)
            assert call is not None
            func, kwargs = made.func or call.func, made.kwargs if made.kwargs is not None else call.kwargs
        else:
            args = args[len(args) - len(task.args) :]
        new = operation(func, args, kwargs or NO_KWARGS)
        if func is chunk.getitem or func is operator.getitem:
            new = self._composed(func, made) or new
        if func is chunk.getitem and self._loses_copy(step, made):
            new = operation(np.array, (new,), {"order": "C"})
        return new

    def _composed(self, func: Any, made: Narrowed) -> Task | None:
        """A slice of all that is left of a slice is that slice."""
        part, taken = made.args
        if type(part.of) is not TaskRef or type(self._plan.values.get(part.of.key)) is dict:
            return None
        ref, index, _ = self._found(part)
        return operation(func, (ref, index)) if index is not None and _is_all(taken, part.box) else None

    def _loses_copy(self, step: Step, made: Narrowed) -> bool:
        """Dask's own slice copies what is at most half of a block, in C order; of less it may be a view.

        Sums follow the order of the memory, and somebody may write into what is a copy.
        """
        part = made.args[0]
        name = part.of.key
        before, after = shape_of(self._plan.values.get(name)), shape_of(step.value)
        if before is None or after is None or size(whole(before)) < 2 * size(whole(after)):
            return False
        _, index, there = self._found(part)
        copied = there if index is not None and _is_all(made.args[1], part.box) else part.box
        room = 0 if type(name) is Step else self._room(name)
        if room <= 1 and any(type(item) is slice and (item.step or 1) < 0 for item in made.args[1]):
            room = 0  # not even a view of all of it lies as the copy did
        return room * size(made.box) < size(there) and size(copied) < 2 * size(made.box)

    def _found(self, part: Part) -> tuple[Any, tuple[slice, ...] | None, Box]:
        """The reference for a part, the index to take it with, and the box that stands there."""
        name = part.of.key
        if type(name) is Step:
            box = self._plan.boxes[name]
            ref = part.of
            value = name.value
        else:
            new = self._places.get(name)
            ref, box = (part.of, None) if new is None else (TaskRef(new[0]), new[1])
            value = self._plan.values.get(name)
        if box is None:
            shape = shape_of(value)
            assert shape is not None
            box = whole(shape)
        return ref, inside(part.box, box), box

    def _argument(self, arg: Any) -> Any:
        if type(arg) is List:
            return list_of([self._argument(each) for each in arg.args])
        if type(arg) is not Part:
            return arg
        if type(arg.of) is np.ndarray:
            index = inside(arg.box, whole(arg.of.shape))
            return arg.of if index is None else arg.of[index]
        ref, index, _ = self._found(arg)
        if index is None:
            return ref
        value = self._plan.values.get(arg.of.key)
        if type(value) is not dict:
            return operation(operator.getitem, (ref, index))
        each = {name: operation(operator.getitem, (ref, name)) for name in value}
        return operation(dict, (), {k: operation(operator.getitem, (v, index)) for k, v in each.items()})
