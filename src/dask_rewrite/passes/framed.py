"""For fuse-chains: a chain as nested tasks, in which what calls unknown functions is done before the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from dask._task_spec import GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.graph.nodes import nameless
from dask_rewrite.graph.program import shape_of
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.graph.templates import called_by_keyword


class Framed(dict[Any, Any]):
    """Templates that are called once what they use is there; tasks that do the same share one."""

    def __init__(self) -> None:
        self._effects = Effects()

    def nested(self, chain: Sequence[Key], tasks: Sequence[GraphNode], after: Set[Key]) -> Any:
        """The tasks of a chain (consumer first) as one.

        Parameters
        ----------
        chain : sequence of Key
            The keys; the last of them may be several sources of the one before.
        tasks : sequence of GraphNode
            The tasks.
        after : set of Key
            Consumers whose producers are done before anything else is. So are producers that call what
            nobody knows: a ``StopIteration`` would be lost among the arguments of a call.
        """
        own = dict(zip(chain, tasks))
        values: dict[Key, Any] = {}
        before: Mapping[Key, Any] = {}
        for key, task in zip(reversed(chain), reversed(tasks)):
            inside = task._dependencies & values.keys()
            if inside and (key in after or any(self._effects.unknown(own[dep]) for dep in inside)):
                done = {dep: self._called(values[dep], before) for dep in inside}
                before = {dep: nameless(it) if type(it) is Task else it for dep, it in done.items()}
                values = {}
            values[key] = with_values(task, values)
        return self._called(values[chain[0]], before)

    def _called(self, task: Any, before: Mapping[Key, Any]) -> Any:
        """A task over keys of the graph and what is done before it."""
        if not before:
            return task
        shape, used = shape_of(task)
        names = {dep: f"x{i}" for i, dep in enumerate(dict.fromkeys(used))}
        alike = (shape, *map(names.__getitem__, used))
        call = self.get(alike)
        if call is None:
            refs = {dep: TaskRef(name) for dep, name in names.items()}
            call = self[alike] = nameless(with_values(task, refs)).__call__
        return called_by_keyword(call, {name: before.get(dep, TaskRef(dep)) for dep, name in names.items()})
