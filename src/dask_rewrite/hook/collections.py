"""``optimize(*collections)``: the same collections over rewritten graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask._expr import Expr
from dask._task_spec import Alias
from dask.base import is_dask_collection
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key

from dask_rewrite.config import Options
from dask_rewrite.graph.names import layer_name
from dask_rewrite.hook.assemble import assemble
from dask_rewrite.hook.memory_limit import checkpoint, within_limit
from dask_rewrite.hook.notes import watch
from dask_rewrite.hook.parents import may_fuse_delayed
from dask_rewrite.lowering.layer_order import as_layers
from dask_rewrite.pipeline.run import rewrite_tasks

#: What to do with a list of collections.
_HOW = ": give what is in it as arguments, optimize(*...)"


def optimize_collections(collections: Sequence[Any]) -> Any:
    """Rewrite collections together.

    Parameters
    ----------
    collections : sequence of dask collections
        Those over HighLevelGraphs share one rewrite; those over expressions are optimized by dask
        first, and then each on its own.

    Returns
    -------
    collection or tuple of collections
        Of the same types and with the same keys; one if one was given.

    Raises
    ------
    TypeError
        If something is not a dask collection, or nothing was given.
    """
    if not collections:
        raise TypeError("optimize() expects at least one dask collection, or a graph and its keys")
    for value in collections:
        if not is_dask_collection(value):
            raise wrong("optimize", kind_of(value) + (_HOW if type(value) in (list, tuple) else ""))
    if not Options.current().enabled:
        return collections[0] if len(collections) == 1 else tuple(collections)
    plain = [c for c in collections if not _has_expression(c)]
    graph = _rewritten(plain, shared=len(plain) < len(collections)) if plain else None
    results = []
    for collection in collections:
        if _has_expression(collection):
            results.append(_optimize_expression(collection, alone=len(collections) == 1))
        elif graph is None:
            results.append(collection)
        else:
            results.append(_rebuilt(collection, graph))
    return results[0] if len(results) == 1 else tuple(results)


def wrong(asked: str, given: str) -> TypeError:
    """The error of a function that was given something else than dask collections."""
    kinds = "array, delayed, bag, dataframe, xarray object"
    return TypeError(f"{asked}() expects dask collections ({kinds}), got {given}")


def kind_of(value: Any) -> str:
    """What a value is that is no collection; of xarray, some objects are and some are not."""
    kind = type(value).__name__
    is_loaded = hasattr(type(value), "__dask_graph__")
    return f"a {kind} in memory, with no dask array in it" if is_loaded else kind


def _rebuilt(collection: Any, graph: HighLevelGraph) -> Any:
    """The same collection over another graph."""
    if isinstance(collection, Delayed) and collection.key not in graph.layers:
        # A block of an array: dask looks for a layer of its own name. The array may be there and have it.
        names = [*collection.__dask_layers__(), layer_name(collection.key)]
        layer = next(name for name in names if collection.key in graph.layers[name])
        return Delayed(collection.key, graph, collection._length, layer=layer)
    rebuild, state = collection.__dask_postpersist__()
    return rebuild(graph, *state)


def _has_expression(collection: Any) -> bool:
    return not isinstance(collection, Delayed) and isinstance(getattr(collection, "expr", None), Expr)


def _rewritten(collections: Sequence[Any], shared: bool) -> HighLevelGraph | None:
    """One graph with the layers of all collections, or None if it should stay as it is."""
    raw = HighLevelGraph.merge(
        *[as_layers(c.__dask_graph__(), f"graph-{i}") for i, c in enumerate(collections)]
    )
    layers: dict[str, list[Key]] = {}
    outputs: list[Key] = []
    for collection in collections:
        keys = list(flatten(collection.__dask_keys__()))
        outputs.extend(keys)
        names = list(collection.__dask_layers__()) if hasattr(collection, "__dask_layers__") else []
        for key in keys:
            name = layer_name(key)
            layers.setdefault(names[0] if names and name not in names else name, []).append(key)
        for name in names:
            layers.setdefault(name, [])
    text = any(isinstance(collection, Delayed) for collection in collections)
    fuse = not text or may_fuse_delayed()
    watch()
    start = None if shared else checkpoint()
    first = rewrite_tasks(raw, outputs, fuse_text_keys=fuse, shared=shared, checkpoint=start)
    graph = within_limit(raw, first, outputs, start)
    return None if graph is None else assemble(graph, layers)


def _optimize_expression(collection: Any, alone: bool) -> Any:
    """A dataframe or another collection over expressions: dask's own rewriting, then ours if it is alone.

    Beside others it stays as dask made it, with all the names of blocks that the others may hold too.
    """
    lowered = collection.expr.optimize()
    wanted = list(flatten(collection.__dask_keys__()))
    made = list(flatten(lowered.__dask_keys__()))
    dsk = dict(lowered.__dask_graph__())
    for key, target in zip(wanted, made, strict=True):
        if key != target:
            dsk[key] = Alias(key, target)
    graph = within_limit(dsk, rewrite_tasks(dsk, wanted) if alone else None, wanted)
    tasks = dsk if graph is None else {**graph.nodes, **graph.held}
    rebuild, state = collection.__dask_postpersist__()
    if (getattr(rebuild, "__module__", None) or "").startswith("dask.dataframe."):
        from dask.dataframe.dask_expr._collection import from_graph

        meta, divisions, prefix = state  # its own way takes every task for a partition
        return from_graph(tasks, meta, divisions, wanted, prefix)
    return rebuild(tasks, *state)
