"""Hoisting in layers that stay symbolic, without making tasks of them.

A Blockwise layer is sent once, but each of its tasks gets the layer's constants when the scheduler makes
tasks of it. A template of the layer becomes the value of a key of its own, which the layer refers to as
it does to any other block that is the same for all.
"""

from __future__ import annotations

import operator

from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.blockwise import Blockwise, blockwise_token
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer

from dask_rewrite.config import Options
from dask_rewrite.held import Held
from dask_rewrite.layers import is_coroutine
from dask_rewrite.names import fingerprint
from dask_rewrite.passes.hoist import Hoist
from dask_rewrite.selection import select
from dask_rewrite.skeletons import inputs_of_call
from dask_rewrite.weights import Scales


def as_wanted(hlg: HighLevelGraph) -> HighLevelGraph:
    """The graph after :func:`hoisted_layers`, if that pass is on and does not fail."""
    options = Options.current()
    hoist = next((each for each in select(options).passes if type(each) is Hoist), None)
    if hoist is None or options.bisect_limit >= 0:
        return hlg
    try:
        return hoisted_layers(hlg, hoist)
    except Exception:
        if options.on_error == "raise":
            raise
        return hlg


def hoisted_layers(hlg: HighLevelGraph, hoist: Hoist) -> HighLevelGraph:
    """The graph with keys for what is heavy in its Blockwise layers; the same graph if nothing is.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> table = np.arange(20_000)
    >>> x = da.ones(100, chunks=1).map_blocks(lambda block: block + table[3], dtype=float)
    >>> hlg = hoisted_layers(x.dask, Hoist())
    >>> len(hlg.layers) - len(x.dask.layers)
    1
    """
    scales = Scales(hoist.min_bytes)
    layers: dict[str, Layer] = {}
    dependencies = dict(hlg.dependencies)
    for name, layer in hlg.layers.items():
        made = _hoisted(layer, scales, hoist) if type(layer) is Blockwise and len(layer) > 1 else None
        if made is None:
            layers[name] = layer
            continue
        layers[name], key, held = made
        layers[key] = MaterializedLayer({key: DataNode(key, held)})
        dependencies[name] = {*dependencies[name], key}
        dependencies[key] = set()
    return HighLevelGraph(layers, dependencies) if len(layers) > len(hlg.layers) else hlg


def _hoisted(layer: Blockwise, scales: Scales, hoist: Hoist) -> tuple[Blockwise, str, Held] | None:
    """The layer over a template that has a key of its own, that key, and its value."""
    task = layer.task
    if type(task) is not Task or is_coroutine(task.func):
        return None
    tokens = [blockwise_token(i) for i in range(len(layer.indices))]
    literals = {
        token: value
        for token, (value, index) in zip(tokens, layer.indices, strict=True)
        if index is None and not isinstance(value, (GraphNode, TaskRef))
    }
    if not any(scales.weigh(each).cores for each in (task, *literals.values())):
        return None
    names = {token: f"x{i}" for i, token in enumerate(t for t in tokens if t not in literals)}
    if not task.dependencies <= {*names, *literals}:
        return None  # it refers to futures or other keys by itself
    filled = {token: DataNode(token, value) for token, value in literals.items()}
    template = task.substitute({**names, **filled}, key=layer.output)
    function = template.__call__
    weight = scales.weigh(function)
    if not weight.movable or (len(layer) - 1) * scales.nbytes(weight) < hoist.min_saved:
        return None
    key = f"{hoist.name}-" + fingerprint([repr(hoist), "layer", layer.output])
    kept = [pair for token, pair in zip(tokens, layer.indices, strict=True) if token in names]
    now = [blockwise_token(i) for i in range(len(kept) + 1)]
    inputs = [TaskRef(token) for token in now[:-1]]
    call = Task(
        layer.output,
        operator.call,
        Task(None, operator.call, TaskRef(now[-1])),
        *inputs_of_call(inputs),
        _data_producer=task.data_producer
        or all(isinstance(value, str) and value in layer.io_deps for value, _ in kept),
    )
    made = Blockwise(
        layer.output,
        layer.output_indices,
        call,
        [*kept, (TaskRef(key), None)],
        layer.numblocks,
        concatenate=layer.concatenate,
        new_axes=layer.new_axes,
        output_blocks=layer.output_blocks,
        io_deps=layer.io_deps,
        annotations=layer.annotations,
    )
    made.collection_annotations = layer.collection_annotations
    return made, key, Held(function)
