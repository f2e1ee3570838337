"""What tasks carry with them beside references and numbers, found with few steps of Python per task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any

from dask._task_spec import DataNode, GraphNode, Task
from dask.typing import Key

from dask_rewrite.graph.nodes import args_of, func_of, kwargs_of
from dask_rewrite.graph.templates import is_template
from dask_rewrite.passes.hoist.sizes import ATOMS, Scales

#: Blocks of one name have one form: of so many, the first and the last tell about the others.
SAMPLED = 16


class Carried:
    """The objects in the arguments of tasks and of the tasks nested in them, and their functions.

    Parameters
    ----------
    tasks : list of Task
        The tasks to look at.
    scales : Scales
        Knows which functions are sent as no more than a name.

    Attributes
    ----------
    objects : dict
        The objects by their identity, functions that are not sent by name included.
    templates : dict
        Bound methods of tasks by their identity: what many tasks call.
    inside : dict
        Objects in templates by their identity.
    light : set of int
        Identities of partial functions that hold nothing.

    Examples
    --------
    >>> table = {"a": "b"}
    >>> list(Carried([Task("x", print, 1, Task(None, dict, y=table))], Scales(1000)).objects.values())
    [{'a': 'b'}]
    """

    def __init__(self, tasks: list[Any], scales: Scales) -> None:
        self.objects: dict[int, Any] = {}
        self.templates: dict[int, Any] = {}
        self.inside: dict[int, Any] = {}
        self.light: set[int] = set()
        self._scales = scales
        self._levels: list[tuple[list[Any], list[Any]]] = []
        self._scan(tasks, self.objects, self._levels)
        seen: set[int] = set()
        while new := [t.__self__ for t in self.templates.values() if id(t.__self__) not in seen]:
            seen.update(map(id, new))
            self._scan(new, self.inside, [])

    def counts(self) -> Counter[int]:
        """How often each object is held or called by a task, by its identity; not counted in templates."""
        return Counter(map(id, chain.from_iterable(chain.from_iterable(self._levels))))

    def _scan(self, tasks: list[Any], objects: dict[int, Any], levels: list[Any]) -> None:
        while tasks:
            functions = list(map(func_of, tasks))
            arguments = list(chain.from_iterable(map(args_of, tasks)))
            arguments += chain.from_iterable(map(dict.values, filter(None, map(kwargs_of, tasks))))
            nested, others = self._sorted(arguments)
            levels.append((functions, others))
            self._add(functions, objects)
            if others:
                self._add(others, objects)
            if len(nested) > 4 * len(tasks):  # shared parts must not multiply from level to level
                nested = list(dict(zip(map(id, nested), nested)).values())
            tasks = nested

    def _add(self, values: list[Any], objects: dict[int, Any]) -> None:
        for at, value in dict(zip(map(id, values), values)).items():
            kind = type(value)
            if is_template(value):
                self.templates[at] = value
            elif kind in ATOMS:
                continue
            elif kind is FunctionType or isinstance(value, type):
                if not self._scales.is_named(value):
                    objects[at] = value
            elif kind is partial and self._is_light(value):
                self.light.add(at)
            else:
                objects[at] = value

    def _is_light(self, function: partial[Any]) -> bool:
        held = (*function.args, *function.keywords.values())
        inner = function.func
        return (
            _PLAIN.issuperset(map(type, held))
            and type(inner) is FunctionType
            and self._scales.is_named(inner)
        )

    def _sorted(self, arguments: list[Any]) -> tuple[list[Any], list[Any]]:
        """The tasks among the arguments, and the objects."""
        kinds = set(map(type, arguments)) - ATOMS
        if not kinds:
            return [], []
        tasks = {kind for kind in kinds if issubclass(kind, Task)}
        nested = [item for item in arguments if type(item) in tasks] if tasks else []
        kinds -= tasks
        others: list[Any] = []
        if DataNode in kinds:
            found = self._sorted([item.value for item in arguments if type(item) is DataNode])
            nested += found[0]
            others += found[1]
        if str in kinds:
            least = self._scales.min_bytes
            others += [item for item in arguments if type(item) is str and len(item) >= least]
        if tuple in kinds:
            tuples = [item for item in arguments if type(item) is tuple]
            long = self._scales.min_bytes // 10
            if max(map(len, tuples)) >= long:
                others += [item for item in tuples if len(item) >= long]
            if not _PLAIN.issuperset(map(type, chain.from_iterable(tuples))):
                short = [item for item in tuples if len(item) < long]
                others += [item for item in short if not _PLAIN.issuperset(map(type, item))]
        kinds = {kind for kind in kinds - {str, tuple} if not issubclass(kind, GraphNode)}
        if kinds:
            others += [item for item in arguments if type(item) in kinds]
        return nested, others


_PLAIN = ATOMS | {str}


def promising(nodes: Mapping[Key, GraphNode], scales: Scales, often: int) -> list[Task]:
    """The tasks that may hold something heavy together with others.

    Parameters
    ----------
    nodes : mapping of Key to GraphNode
        All tasks of a graph.
    scales : Scales
        Weighs samples.
    often : int
        Templates that are heavy by themselves, without heavy parts, count if more tasks call them.
    """
    names = [key[0] if type(key) is tuple and key else key for key in nodes]
    times = Counter(names)
    first = dict(zip(reversed(names), reversed(list(nodes.values()))))
    last = dict(zip(names, nodes.values()))
    dull = {
        name
        for name, count in times.items()
        if count >= SAMPLED and not _common_cores(first[name], last[name], scales, count > often)
    }
    if len(dull) == len(times):
        return []
    return [node for name, node in zip(names, nodes.values()) if type(node) is Task and name not in dull]


def _common_cores(one: Any, other: Any, scales: Scales, often: bool) -> bool:
    """Whether two tasks hold the same heavy object, or call the same heavy template."""
    if type(one) is not Task or type(other) is not Task:
        return type(one) is not type(other)
    cores: list[set[int]] = []
    for task in (one, other):
        carried = Carried([task], scales)
        if not (carried.objects or carried.inside or (often and carried.templates)):
            return False
        found = (*carried.objects.values(), *carried.templates.values())
        cores.append({id(core) for each in found for core in scales.weigh(each).cores})
        if not cores[0]:
            return False
    return not cores[0].isdisjoint(cores[1])
