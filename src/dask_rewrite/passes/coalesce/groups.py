"""Which tasks may go into batches together: blocks of one array, or of several small ones of one kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import toolz
from dask._task_spec import Task
from dask.utils import key_split

from dask_rewrite.graph.graph import Graph, depths_of
from dask_rewrite.graph.nodes import func_of
from dask_rewrite.passes.coalesce.weights import MOST, Weights
from dask_rewrite.passes.context import Context

#: How dask marks what a cumulative sum carries from one row of blocks to the next.
CARRIED = "extra"

#: Blocks of one layer that are equally deep in the graph, none of which can wait for another.
_Level: TypeAlias = list[Any]


class Group(NamedTuple):
    """Blocks of which neighbours may go into one task.

    Parameters
    ----------
    levels : list of lists of Key
        The blocks, by layer.
    most : int
        How many may go into one.
    """

    levels: list[_Level]
    most: int


def groups(graph: Graph, context: Context, weights: Weights) -> Iterator[Group]:
    """Large layers by themselves, and then small ones with others of their kind and depth.

    Programs that go through groups one by one, such as the months of a series, make thousands of layers of
    a few blocks each.
    """
    layers = _layers(graph, context)
    depths = depths_of(graph.nodes) if layers else {}
    alike: defaultdict[Any, list[_Level]] = defaultdict(list)
    for keys in layers:
        most = weights.together(keys)
        for depth, level in toolz.groupby(depths.__getitem__, keys).items():
            if most < 2:
                alike[key_split(level[0][0]), len(place_of(level[0])), depth].append(level)
            elif len(level) > 1:
                yield Group([level], most)
    for small in alike.values():
        if len(small) > 1 and sum(map(len, small)) >= MOST:
            for levels in toolz.groupby(lambda level: weights.nbytes(level[0]), small).values():
                if len(levels) > 1 and (most := weights.together(*levels)) > 1:
                    yield Group(levels, most)


def place_of(key: Any) -> tuple[int, ...]:
    """Where a block stands among those of its kind.

    >>> place_of(("cumsum-1", "extra", 0, 2))
    (0, 2)
    """
    place: tuple[int, ...] = key[2:] if key[1] == CARRIED else key[1:]
    return place


def _layers(graph: Graph, context: Context) -> list[_Level]:
    """The blocks of each array that may be made together, and what is carried from one to the next."""
    nodes: Any = graph.nodes
    layers: defaultdict[Any, list[Any]] = defaultdict(list)
    tasks = [key for key, node in nodes.items() if type(node) is Task]
    for key in [key for key in tasks if type(key) is tuple and len(key) > 1]:
        layers[key[0], key[1] == CARRIED].append(key)
    aside = {*graph.outputs, *graph.annotations}
    aside.update(*[node._dependencies for node in nodes.values() if type(node) is not Task])
    found = []
    for (name, _), keys in layers.items():
        if not aside.isdisjoint(keys):
            keys = [key for key in keys if key not in aside]
        functions = {id(func): func for func in map(func_of, map(nodes.__getitem__, keys))}
        if type(name) is str and _is_grid(keys) and all(map(context.may_move, functions.values())):
            found.append(sorted(keys))
    return found


def _is_grid(keys: Sequence[tuple[Any, ...]]) -> bool:
    """Whether keys are those of blocks."""
    if not keys or len(set(map(len, keys))) > 1:
        return False
    return set(map(type, chain.from_iterable(map(place_of, keys)))) == {int}
