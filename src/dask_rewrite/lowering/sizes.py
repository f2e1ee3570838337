"""How many tasks layers stand for, counted without making them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

from dask._task_spec import Alias, Task
from dask.highlevelgraph import HighLevelGraph, Layer
from dask.typing import Key

from dask_rewrite.graph.names import layer_name
from dask_rewrite.lowering.blockwise import Plan
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


def surely_above(limit: int, flat: Mapping[Key, Any], blocks: Container[str], outputs: Iterable[Key]) -> bool:
    """Whether more tasks than that remain whatever is fused: each block that another layer asks for stays.

    A walk from the outputs that ends where Blockwise layers begin, or with the limit.

    Parameters
    ----------
    limit : int
        Tasks that there may be.
    flat : mapping of Key to object
        Tasks that are there already.
    blocks : container of str
        Names of Blockwise layers.
    outputs : iterable of Key
        What is wanted.
    """
    count, seen = 0, set(outputs)
    level = seen
    while level:
        below: set[Key] = set()
        for key in level:
            value = flat.get(key)
            if layer_name(key) in blocks:
                count += 1
            elif type(value) is Task:
                count += 1
                below |= value.dependencies
            elif type(value) is Alias:  # counted under its target's name
                below.add(value.target)
            elif type(value) is tuple and value and callable(value[0]):
                count += 1
                below.update(_keys_in(value))
            if count > limit:
                return True
        level = below - seen
        seen |= level
    return False


def _keys_in(task: tuple[Any, ...]) -> list[Key]:
    """What may be keys in a legacy task; those that are none do not matter."""
    found: list[Key] = []
    stack: list[Any] = [task]
    while stack:
        value = stack.pop()
        if type(value) is list:
            stack.extend(value)
        elif type(value) is str or (type(value) is tuple and value and type(value[0]) is str):
            with suppress(TypeError):
                hash(value)
                found.append(value)
        elif type(value) is tuple and value and callable(value[0]):
            stack.extend(value[1:])
    return found


def check_size(
    flat: Mapping[Key, Any], plans: Mapping[str, Plan], outputs: Sequence[Key], limit: int
) -> None:
    """Raise `OverBudget` at once where what the outputs need is too much."""
    if len(flat) + sum(prod(plan.numblocks) for plan in plans.values()) <= limit:
        return
    if surely_above(limit, flat, plans, outputs):
        raise over_limit(limit)
