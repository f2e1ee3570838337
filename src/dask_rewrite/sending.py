"""Whether a graph goes out as tasks or as the layers that it was made from.

Layers are a few bytes a block, tasks a hundred or more; but layers are optimized by dask itself on the
scheduler, without what was rewritten here.
"""

from __future__ import annotations

import sys

from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_rewrite.graph import Graph

#: Below this many tasks the lowered form is always sent: a megabyte or less.
SMALL = 10_000
#: Rough bytes of a pickled task, and of a pickled symbolic layer.
TASK_BYTES, LAYER_BYTES = 100, 1_000


def layer_bytes(hlg: HighLevelGraph) -> int:
    """Roughly what the layers are when pickled."""
    total = 0
    for layer in hlg.layers.values():
        total += LAYER_BYTES
        if isinstance(layer, MaterializedLayer):
            total += len(layer.mapping) * TASK_BYTES
    return total


def most_tasks(hlg: HighLevelGraph, layers: int) -> int | None:
    """With how many tasks lowering may stop, since layers of so many bytes would go out; None: never.

    In this process the lowered form runs whatever its size, so that it is worth having.
    """
    if layers < SMALL * TASK_BYTES and _has_client() and not _multiplies(hlg):
        return 5 * SMALL
    return None


def better_as_layers(graph: Graph, layers: int) -> bool:
    """Whether layers of so many bytes are a good deal less to send, and nothing but bytes is lost."""
    return len(graph.nodes) > SMALL and layers < len(graph.nodes) * TASK_BYTES and not graph.bounds_memory


def _multiplies(hlg: HighLevelGraph) -> bool:
    """Whether there are products over blocks: sent as layers, they would fill the memory of the cluster."""
    from dask_rewrite.contraction.trees import PRODUCTS

    functions = [layer.task.func for layer in hlg.layers.values() if type(layer) is Blockwise]
    return any(func is product for func in functions for product in PRODUCTS)


def _has_client() -> bool:
    module = sys.modules.get("distributed.client")
    if module is None:
        return False
    try:
        return module._get_global_client() is not None
    except Exception:
        return False
