"""Graphs that stay as they are: seen by their layers, before any task or key is made."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from dask._task_spec import TaskRef
from dask.array import Array
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Metrics
from dask_rewrite.hook.optimizer import most_tasks
from dask_rewrite.lowering.layer_order import layer_order
from dask_rewrite.lowering.references import References
from dask_rewrite.lowering.sizes import over_limit, probably_above, tasks_of
from dask_rewrite.pipeline.trace import Step, Trace
from dask_rewrite.tools.expressions import collections_in, expression_of
from dask_rewrite.tools.report import Report


def too_large(collections: Sequence[Any]) -> Report | None:
    """What is to be said of collections with more blocks than are ever rewritten; None for others.

    Examples
    --------
    >>> import dask.array as da
    >>> too_large([da.ones((9000, 9000), chunks=1) + 1]).form
    'stock'
    >>> too_large([da.ones(8, chunks=1) + 1]) is None
    True
    """
    started, limit = perf_counter(), most_tasks()
    found = collections_in(collections)
    if not Options.current().enabled or any(not hasattr(type(each), "__dask_layers__") for each in found):
        return None  # dask makes graphs of expressions in its own ways
    graphs = [each.__dask_graph__() for each in found]
    if not all(type(graph) is HighLevelGraph for graph in graphs):
        return None
    built = HighLevelGraph.merge(*graphs)
    if tasks_of(built) <= limit:
        return None
    arrays = {array.name: array for each in found for array in _arrays(each)}
    if sum(map(_outputs, arrays.values())) <= limit:
        outputs = list(dict.fromkeys(flatten([each.__dask_keys__() for each in found])))
        refs = References(built, outputs, annotated=False)
        refs.read_layers(layer_order(built, outputs)[0])
        if not probably_above(limit, refs):
            return None
    put_together = sum(not isinstance(each, Delayed) for each in found)  # by one more task for each
    size = Metrics(tasks_of(built) + put_together, 0, 0)
    trace = Trace(form="stock", seconds=perf_counter() - started)
    trace.steps.append(Step("lower", size, size, trace.seconds))
    trace.remarks.missed("lower", None, f"left to dask's own optimizer: {over_limit(limit)}")
    report = Report(trace)
    report.built, report.sent = built, _Unmade(found)
    return report


class _Unmade:
    """What dask sends, made when somebody asks for it."""

    def __init__(self, collections: Sequence[Any]) -> None:
        self.collections = collections

    def __dask_graph__(self) -> Any:
        return expression_of(self.collections).__dask_graph__()


def _arrays(collection: Any) -> list[Array]:
    """The arrays that a collection consists of, also those of xarray's objects."""
    kind: Any = type(collection)
    variables = [collection]
    if hasattr(kind, "variable"):
        variables = [collection.variable]
    elif hasattr(kind, "variables"):
        variables = list(collection.variables.values())
    data = [each if type(each) is Array else getattr(each, "_data", None) for each in variables]
    return [each for each in data if type(each) is Array]


def _outputs(array: Array) -> int:
    """How many tasks stay, at least, since they make the blocks of an array; futures are none."""
    layer = array.dask.layers.get(array.name)
    kinds = set(map(type, layer.mapping.values())) if isinstance(layer, MaterializedLayer) else set()
    return 0 if layer is None or any(issubclass(kind, TaskRef) for kind in kinds) else array.npartitions
