"""Calls that give their first argument, or a view of it."""

from __future__ import annotations

import numpy as np
from dask._task_spec import Task, TaskRef
from toolz import identity

from dask_rewrite.analysis.knowledge import known_call
from dask_rewrite.analysis.knowledge.loading import LOADING
from dask_rewrite.analysis.knowledge.movement import MOVEMENT
from dask_rewrite.analysis.memory.stores import is_in

#: Functions whose result is their first argument, or a view of it, where they are not known to copy.
_VIEWING = frozenset([*(func for func, known in MOVEMENT.items() if not known.fresh), identity])


def shows_first(task: Task) -> bool:
    """Whether a task gives its first argument, or a view of it."""
    views = is_in(task.func, _VIEWING) or is_in(task.func, LOADING)
    found = known_call(task.func, task.args, task.kwargs) if views else None
    if found is None or found.fresh is True:
        return False
    picks = (list, np.ndarray, TaskRef, Task)  # what is computed may be positions as well
    index = [each for arg in task.args[1:] for each in (arg if type(arg) is tuple else (arg,))]
    return not any(type(each) in picks for each in index)
