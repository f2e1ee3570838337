"""What would go wrong, or weigh much, when a graph is sent: ``preflight(x)``.

It looks at the graph as the program built it, culled to what is asked for, because its layers still have the
names that the user knows. Nothing is computed. Everything is pickled, but nothing is kept of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from dask._task_spec import Alias, GraphNode, Task, TaskRef, convert_legacy_task
from dask.typing import Key
from dask.utils import funcname, key_split

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.culprit import Culprit, culprit, parts
from dask_rewrite.graph.nesting import NESTING_LIMIT, check_depth, nesting
from dask_rewrite.graph.pickling import by_reference, pickled_size, size_if_pickled
from dask_rewrite.tools.expressions import collections_in
from dask_rewrite.tools.preflight_report import Payload, PreflightReport, Problem, Shape

__all__ = ["PreflightReport", "preflight"]

#: Tasks of one layer whose failure is traced to its cause; the others of that layer are only counted.
_TRACED = 10
#: Containers of more elements count as one payload, smaller ones are looked into.
_SMALL = 32
#: Payloads under this size are not worth a line.
_WORTH = 1024

_ATOMS = (type(None), bool, int, float, complex, slice, range, type, type(...), TaskRef, Alias)
_CONTAINERS = (list, tuple, set, frozenset, dict)


def preflight(*collections: Any) -> PreflightReport:
    """Find out, before computing, what cannot be sent to a cluster and what is heavy.

    Parameters
    ----------
    *collections : dask collections
        Arrays, delayed objects, bags, dataframes, xarray objects.

    Returns
    -------
    PreflightReport
        Shows itself as text and in a notebook. ``problems`` lists what does not pickle with the layer, task,
        function and variable at fault; ``payloads`` the objects that weigh most, and in how many tasks;
        ``deepest`` and ``widest`` the most nested task and the one with the most inputs.

    Examples
    --------
    >>> import threading
    >>> import dask
    >>> import dask_rewrite
    >>> lock = threading.Lock()
    >>> @dask.delayed(pure=False)
    ... def guarded(x):
    ...     with lock:
    ...         return x
    >>> report = dask_rewrite.preflight(guarded(1))
    >>> report.problems[0].path[-1], report.problems[0].kind
    ("global variable 'lock' of function guarded", '_thread.lock')
    """
    survey = _Survey()
    for layer, tasks in layers_of(collections):
        survey.add(layer, tasks)
    return survey.report()


class _Survey:
    def __init__(self) -> None:
        self._tasks = 0
        self._sizes: dict[str, int | None] = {}
        self._problems: dict[tuple[str, str, tuple[str, ...]], Problem] = {}
        self._whole = ByIdentity[int | None]()
        self._carried: dict[int, Payload] = {}
        self._deepest = Shape(0)
        self._widest = Shape(0)

    def add(self, layer: str, tasks: Mapping[Key, Any]) -> None:
        self._tasks += len(tasks)
        for key, task in tasks.items():
            self._measure(layer, key, task)
            self._weigh(layer, key, task)
        # All at once first, as they are sent: what they share is then pickled once.
        size = self._sizes[layer] = size_if_pickled(list(tasks.values()))
        if size is None:
            self._trace(layer, tasks)

    def report(self) -> PreflightReport:
        payloads = []
        for payload in self._carried.values():
            payload.nbytes = _weight(payload.value)
            if payload.nbytes is not None and payload.nbytes >= _WORTH:
                payloads.append(payload)
        payloads.sort(key=lambda payload: -payload.total)
        return PreflightReport(
            tasks=self._tasks,
            layers=self._sizes,
            problems=list(self._problems.values()),
            payloads=payloads,
            deepest=self._deepest,
            widest=self._widest,
        )

    def _measure(self, layer: str, key: Key, task: Any) -> None:
        if not isinstance(task, GraphNode):
            return
        if not check_depth(task, self._deepest.size):
            self._deepest = Shape(nesting(task), key, layer)
        if len(task.dependencies) > self._widest.size:
            self._widest = Shape(len(task.dependencies), key, layer)

    def _weigh(self, layer: str, key: Key, task: Any) -> None:
        for label, value in _payloads(task):
            if id(value) not in self._carried:  # where it is kept alive
                payload = Payload(value, type(value).__name__, label, _function(task), layer, key)
                self._carried[id(value)] = payload
            self._carried[id(value)].tasks += 1

    def _trace(self, layer: str, tasks: Mapping[Key, Any]) -> None:
        traced = 0
        last: Problem | None = None
        for key, task in tasks.items():
            if self._is_whole(task):
                continue
            if last is not None and traced >= _TRACED:
                last.tasks += 1
                continue
            traced += 1
            found = _too_deep(task) or culprit(task)
            if found is None:
                continue
            name = _function(task)
            place = (layer, name, found.path)
            if place not in self._problems:
                self._problems[place] = Problem(layer, key, name, found.path, found.kind, found.error)
            last = self._problems[place]
            last.tasks += 1
        if last is None:
            error = "its tasks can be pickled one by one, but not together"
            self._problems[layer, "", ()] = Problem(layer, None, "", (), "layer", error, len(tasks))

    def _is_whole(self, task: Any) -> bool:
        """Whether a task can be pickled; a part that many tasks carry is tried once."""
        if not isinstance(task, Task):
            return size_if_pickled(task) is not None
        return all(self._whole.of(part, size_if_pickled) is not None for _, part in parts(task))


def layers_of(collections: tuple[Any, ...]) -> Iterator[tuple[str, Mapping[Key, Any]]]:
    """The layers of collections that are needed, under the names that the user knows, and their tasks."""
    from dask.core import flatten
    from dask.highlevelgraph import HighLevelGraph

    found = collections_in(collections, "preflight")
    graphs = [collection.__dask_graph__() for collection in found]
    keys = {key for collection in found for key in flatten(collection.__dask_keys__())}
    layers: dict[str, dict[Key, Any]] = {}
    if all(isinstance(graph, HighLevelGraph) for graph in graphs):
        whole = HighLevelGraph.merge(*graphs)
        for name, layer in whole.cull(keys).layers.items():
            # Dask marks the names of culled layers; the user knows them without.
            layers[name if name in whole.layers else name.rpartition("-")[0]] = dict(layer)
    else:
        for key, task in HighLevelGraph.merge(*graphs).items():
            layers.setdefault(key_split(key), {})[key] = task
    known = {key for layer in layers.values() for key in layer}
    nodes = {key: _node(key, task, known) for layer in layers.values() for key, task in layer.items()}
    needed = _reachable(nodes, keys)
    for name, members in layers.items():
        if tasks := {key: nodes[key] for key in members if key in needed}:
            yield name, tasks
    for i, collection in enumerate(found):
        function, extra = collection.__dask_postcompute__()
        key = ("finalize", i)
        yield f"finalize of {type(collection).__name__} {i}", {key: Task(key, function, *extra)}


def _node(key: Key, task: Any, known: set[Key]) -> Any:
    try:
        return convert_legacy_task(key, task, known)
    except RecursionError:
        return task


def _reachable(nodes: Mapping[Key, Any], keys: set[Key]) -> set[Key]:
    """Culling, as dask does it, leaves tasks that nobody needs."""
    from dask.core import keys_in_tasks

    needed: set[Key] = set()
    stack = [key for key in keys if key in nodes]
    while stack:
        key = stack.pop()
        if key not in needed:
            needed.add(key)
            node = nodes[key]
            found = node.dependencies if isinstance(node, GraphNode) else keys_in_tasks(nodes, [node])
            stack += [dependency for dependency in found if dependency in nodes]
    return needed


def _payloads(task: Any) -> Iterator[tuple[str, Any]]:
    """The objects that a task carries, looking through nested tasks, wrappers and small containers."""
    stack = [("", task)]
    seen = set()
    while stack:
        label, value = stack.pop()
        kind = type(value)
        if kind in _ATOMS or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (GraphNode, partial)) or kind is MethodType:
            stack += parts(value)
        elif kind is FunctionType:
            if not by_reference(value):
                stack += parts(value)
        elif kind in _CONTAINERS and len(value) <= _SMALL:
            stack += [(label or name, part) for name, part in parts(value)]
        elif kind in (str, bytes, bytearray) and len(value) < _WORTH:
            continue
        elif not isinstance(value, type) and kind.__name__ not in _CODE:
            yield label, value


_CODE = frozenset(
    {"builtin_function_or_method", "module", "ufunc", "wrapper_descriptor", "method_descriptor"}
)


def _weight(value: Any) -> int | None:
    """Bytes that sending a value costs; those of an array without touching its memory."""
    if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray" and not value.dtype.hasobject:
        return int(value.nbytes)
    return size_if_pickled(value)


def _too_deep(task: Any) -> Culprit | None:
    if check_depth(task, NESTING_LIMIT):
        return None
    try:
        pickled_size(task)
    except Exception as error:
        if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
            return Culprit((), type(task).__name__, f"nested {nesting(task):,} deep: more than pickle stands")
    return None


def _function(task: Any) -> str:
    func = getattr(task, "func", None)
    return funcname(func) if func is not None else ""
