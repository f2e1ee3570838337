"""The sides that are compared: stock dask, ours, and dask-array.

Every side starts from what a user's code built and ends at a plain dict of tasks.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import dask
import dask.array
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, Layer
from dask.utils import ensure_dict

from benchmarks.workloads.registry import Workload

Result = tuple[dict[Any, Any], list[Any]]


def available() -> list[str]:
    """The sides whose library is installed here."""
    modules = {"stock": "dask", "ours": "dask_rewrite", "dask-array": "dask_array"}
    return [side for side, module in modules.items() if importlib.util.find_spec(module)]


def namespace(side: str) -> ModuleType:
    """The array namespace of a side.

    Importing ``dask_array`` changes dask's own config and its dispatch of collections: never in a
    process that measures another side.
    """
    return importlib.import_module("dask_array" if side == "dask-array" else "dask.array")


def build(side: str, workload: Workload, n: int) -> tuple[Any, ...]:
    """What the user's code builds, always as a tuple of collections."""
    built = workload.build(namespace(side), n)
    return built if isinstance(built, tuple) else (built,)


def _fresh_layer(layer: Layer) -> Layer:
    """The layer as it was built: without the tasks that an earlier turn made and remembered."""
    twin = copy.copy(layer)
    for name in ("_cached_dict", "_cached_keys"):
        if name in twin.__dict__:
            if name == "_cached_keys":
                twin.__dict__[name] = None
            else:
                del twin.__dict__[name]
    return twin


def fresh(graph: Any) -> HighLevelGraph:
    """A copy of the graph that shares no cache with it."""
    layers = {name: _fresh_layer(layer) for name, layer in graph.layers.items()}
    return HighLevelGraph(layers, {name: set(found) for name, found in graph.dependencies.items()})


def keys_of(collections: tuple[Any, ...]) -> list[Any]:
    """All output keys, flat."""
    return list(flatten([collection.__dask_keys__() for collection in collections]))


def raw_tasks(collections: tuple[Any, ...]) -> int:
    """Tasks in the graph as the user's code built it."""
    layers: dict[str, int] = {}
    for collection in collections:
        layers.update({name: len(layer) for name, layer in collection.__dask_graph__().layers.items()})
    return sum(layers.values())


def _groups(collections: tuple[Any, ...]) -> list[tuple[Callable[..., Any], list[Any], list[Any]]]:
    """(optimizer, graph, keys) for each optimizer, as dask groups what is computed together."""
    grouped: dict[Any, list[Any]] = {}
    for collection in collections:
        grouped.setdefault(collection.__dask_optimize__, []).append(collection)
    return [
        (optimize, [c.__dask_graph__() for c in members], keys_of(tuple(members)))
        for optimize, members in grouped.items()
    ]


class Prepared:
    """A call that is timed; what is done before each turn and after it is not."""

    def __init__(self, prepare: Callable[[], Any], call: Callable[[Any], Any], on: str = "stock") -> None:
        #: the side that is switched on during the call
        self.on = on
        self.prepare, self.call = prepare, call
        self.ready: Any = None

    def reset(self) -> None:
        """Prepare a turn."""
        self.ready = self.prepare()

    def __call__(self) -> Any:
        ready, self.ready = self.ready, None
        return self.call(ready)


def _stock(workload: Workload, n: int, collections: tuple[Any, ...]) -> Prepared:
    def prepare() -> Any:
        return [
            (optimize, fresh(HighLevelGraph.merge(*graphs)), keys)
            for optimize, graphs, keys in _groups(collections)
        ]

    def call(ready: Any) -> Result:
        tasks: dict[Any, Any] = {}
        outputs: list[Any] = []
        for optimize, graph, keys in ready:
            tasks.update(ensure_dict(optimize(graph, keys)))
            outputs.extend(keys)
        return tasks, outputs

    return Prepared(prepare, call)


def _ours(workload: Workload, n: int, collections: tuple[Any, ...]) -> Prepared:
    import dask_rewrite

    groups = _groups(collections)
    outputs = [key for _, _, keys in groups for key in keys]

    def prepare() -> Any:
        return fresh(HighLevelGraph.merge(*(graph for _, graphs, _ in groups for graph in graphs)))

    def call(graph: Any) -> Result:
        return ensure_dict(dask_rewrite.optimize(graph, outputs)), outputs

    return Prepared(prepare, call)


def _dask_array(workload: Workload, n: int, collections: tuple[Any, ...]) -> Prepared:
    def call(built: Any) -> Result:
        optimized = tuple(one.optimize() for one in built)
        tasks: dict[Any, Any] = {}
        for one in optimized:
            tasks.update(one.__dask_graph__())
        return tasks, keys_of(optimized)

    return Prepared(lambda: build("dask-array", workload, n), call)


PREPARE = {"stock": _stock, "ours": _ours, "dask-array": _dask_array}


def switched_on(side: str) -> AbstractContextManager[Any]:
    """Make dask use a side's optimizer."""
    if side != "ours":
        return nullcontext()
    import dask_rewrite

    return dask_rewrite.enable()


def end_to_end(side: str, workload: Workload, n: int) -> Prepared:
    """Build and compute as a user does; only computing is timed."""

    def call(built: Any) -> Any:
        return dask.compute(*built, scheduler="sync")

    return Prepared(lambda: build(side, workload, n), call, side)


def warm_up(wanted: list[str]) -> None:
    """Let every side import what it imports at its first use."""
    for side in wanted:
        with switched_on(side):
            (namespace(side).ones(4, chunks=2) + 1).sum().compute(scheduler="sync")
