"""Layers of task nodes."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Set
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.base import clone_key
from dask.highlevelgraph import MaterializedLayer
from dask.typing import Key
from toolz import identity

from dask_rewrite.graph.gates import waiting
from dask_rewrite.graph.nodes import renamed, under
from dask_rewrite.graph.program import operation
from dask_rewrite.hook.notes import complain
from dask_rewrite.hook.wire import Packed


class TaskLayer(MaterializedLayer):
    """A layer of task nodes that can be cloned and bound; dask's own knows tuples only.

    Pickled it becomes dask's own layer, with its tasks written down as columns. Distributed tries
    several ways to pickle; the third time in a row it may well be that some of them cannot be sent.
    """

    #: How often pickling has begun, and whether it came to an end the last time.
    begun, done = 0, True
    #: The tasks as columns, from one try to the next.
    packed: Packed | None = None

    def clone(self, keys: Set[Key], seed: Hashable, bind_to: Key | None = None) -> tuple[TaskLayer, bool]:
        """The layer under new keys; tasks without dependencies among ``keys`` wait for ``bind_to``."""
        made: dict[Key, Any] = {}
        bound = False
        for key, node in self.mapping.items():
            if key not in keys:
                made[key] = node
                continue
            key = clone_key(key, seed)
            subs = {dep: clone_key(dep, seed) for dep in node.dependencies if dep in keys}
            if subs or bind_to is None:
                made[key] = renamed(node.substitute(subs), key)
            else:
                inner = node if isinstance(node, Task) else operation(identity, (node,))
                made[key] = under(key, waiting(inner, [TaskRef(bind_to)]), node.data_producer)
                bound = True
        return TaskLayer(made, annotations=self.annotations), bound

    def __reduce__(self) -> Any:
        self.begun += 1
        if self.begun > 2 and not self.done:
            complain(self.mapping)
        self.done = False
        packed = self.packed if _tries_again() else None
        packed = self.packed = packed or Packed(self.mapping)
        return MaterializedLayer, (packed, self.annotations), _Done(self)


def _tries_again() -> bool:
    """Whether distributed goes on to another way to pickle; before a new try, tasks may have changed."""
    failed = sys.exc_info()[2]
    return failed is not None and failed.tb_frame.f_globals.get("__name__") == "distributed.protocol.pickle"


class _Done:
    """Pickled after all that a layer has, and unpickled as no attributes."""

    def __init__(self, layer: TaskLayer) -> None:
        self.layer = layer

    def __reduce__(self) -> Any:
        self.layer.done, self.layer.packed = True, None
        return dict, ()
