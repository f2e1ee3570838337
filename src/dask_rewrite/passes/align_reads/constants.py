"""Constants of the shape of a block, made of one element: they are broadcast to blocks of any shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dask._task_spec import Task, TaskRef

from dask_rewrite.analysis.facts import Facts
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.graph.nodes import NO_KWARGS
from dask_rewrite.graph.program import operation
from dask_rewrite.passes.steps import Step, references_of, step_of


def constant_of(value: Any, facts: Facts) -> Task | None:
    """The call of a step that makes a block out of one value and a shape, for one element.

    xarray fills in zeros of the shape of each block for what is missing.

    Parameters
    ----------
    value : Step or object
        A step of a task, or an argument of one, which may refer to another.
    facts : Facts
        What is known of functions.
    """
    step = step_of(value) if type(value) is TaskRef else value
    if type(step) is not Step or type(known := step.value) is not Fact:
        return None
    if known.fill is None or {1}.issuperset(known.shape):
        return None
    task, one = step.task, (1,) * len(known.shape)
    if task._dependencies or not task.args or type(task.args[0]) is not tuple or task.args[0] != known.shape:
        return None
    made = operation(task.func, (one, *task.args[1:]), task.kwargs or NO_KWARGS)
    return made if facts.within(made, {}) == replace(known, shape=one) else None


def are_broadcast(steps: Sequence[Step], broadcast: Counter[Any], facts: Facts) -> bool:
    """All that constants of the shape of a block are there for is to be broadcast with a block, so often."""
    uses = Counter[Any]([ref.key for step in steps for ref in references_of(step.task)])
    return all(uses[step] == broadcast[step] for step in steps if constant_of(step, facts) is not None)
