"""Tasks of an earlier rewrite that gave keys to what they carry: whose blocks they make.

While dask builds a graph it optimizes what stands in the arguments of `histogram` and the like by itself,
and puts the result into the graph. A load whose heavy constants were hoisted there waits for their keys, so
that it must not go under the name of its block: a scheduler that has the block under way, from a task that
waits for nothing, would mix up the two. It is named after these keys instead, see
`dask_rewrite.pipeline.final_names`, and recognized by that: it gives what the block gives, and carries its
constants itself again. Otherwise the block would be loaded twice.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.graph.held import is_held, unheld
from dask_rewrite.graph.names import MARK, carrying
from dask_rewrite.graph.nodes import under


def before_hoisting(key: Any, task: Any, flat: Mapping[Key, Any]) -> Task | None:
    """The task as it was, under the key of the block that it makes; None for any other.

    Parameters
    ----------
    key : Key
        Under which the task stands.
    task : object
        What stands there; it waits for values alone.
    flat : mapping
        The graph around it.

    Examples
    --------
    >>> from dask._task_spec import DataNode, TaskRef
    >>> from dask_rewrite.graph.held import Held
    >>> held = {"hoist-1": DataNode("hoist-1", Held(abs))}
    >>> task = Task("y", operator.call, Task(None, operator.call, TaskRef("hoist-1")), -1)
    >>> before_hoisting((f"load-r{carrying(held)}", 0), task, held)
    <Task ('load', 0) abs(-1)>
    >>> before_hoisting(("load-r00c0ffee", 0), task, held) is None
    True
    """
    if type(task) is not Task or task.func is not operator.call or type(key[0]) is not str:
        return None
    name, _, token = key[0].rpartition(MARK)
    held = [dep for dep in task._dependencies if is_held(flat.get(dep))]
    if not held or token != carrying(held):
        return None
    before = unheld(task, flat.get)
    return None if before is task else under((name, *key[1:]), before, before.data_producer)
