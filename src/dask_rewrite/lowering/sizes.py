"""How many tasks layers stand for, counted without making them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dask._task_spec import Task
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.typing import Key

from dask_rewrite.graph.names import layer_name
from dask_rewrite.lowering.overlap import OverlapBlocks


class OverBudget(Exception):
    """Lowering would make more tasks, or take more time, than the options allow."""


def over_limit(limit: int) -> OverBudget:
    """More tasks than that."""
    return OverBudget(f"more than {limit:,} tasks (rewrite.lower-limit)")


def tasks_in(layer: Layer) -> int:
    """How many tasks a layer stands for. Only layers of unknown kinds are made for it.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((3000, 3000), chunks=1)
    >>> tasks_in(x.dask.layers[x.name])
    9000000
    """
    return OverlapBlocks(layer).tasks if OverlapBlocks.fits(layer) else len(layer)


def tasks_of(hlg: HighLevelGraph) -> int:
    """How many tasks all layers stand for."""
    return sum(map(tasks_in, hlg.layers.values()))


def surely_above(limit: int, hlg: HighLevelGraph, wanted: Mapping[str, int]) -> bool:
    """Whether more tasks than that remain whatever is fused and left out: blocks that are asked for stay.

    Parameters
    ----------
    limit : int
        Tasks that there may be.
    hlg : HighLevelGraph
        The raw graph.
    wanted : mapping of str to int
        Of each layer, how many of its blocks outputs are, or wait for. Only those of Blockwise layers
        count, which never are another task under a second name.
    """
    found = [(hlg.layers.get(name), count) for name, count in wanted.items()]
    return sum(min(count, len(layer)) for layer, count in found if type(layer) is Blockwise) > limit


def check_outputs(hlg: HighLevelGraph, outputs: Sequence[Key], limit: int) -> None:
    """Raise `OverBudget` at once if what outputs wait for is too much: all blocks of an array, say."""
    waiting = [task.dependencies for task in (_task(hlg, key) for key in outputs) if task is not None]
    if len(outputs) + sum(map(len, waiting)) > limit:
        wanted = Counter(map(layer_name, set(outputs).union(*waiting)))
        if surely_above(limit, hlg, wanted):
            raise over_limit(limit)


def _task(hlg: HighLevelGraph, key: Key) -> Task | None:
    layer = hlg.layers.get(layer_name(key))
    task = layer.mapping.get(key) if isinstance(layer, MaterializedLayer) else None
    return task if type(task) is Task else None
