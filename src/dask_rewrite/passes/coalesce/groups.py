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
    for name, keys in layers.items():
        most = weights.together(keys)
        for depth, level in toolz.groupby(depths.__getitem__, keys).items():
            if most < 2:
                alike[key_split(name), len(level[0]), depth].append(level)
            elif len(level) > 1:
                yield Group([level], most)
    for small in alike.values():
        if len(small) > 1 and sum(map(len, small)) >= MOST:
            for levels in toolz.groupby(lambda level: weights.nbytes(level[0]), small).values():
                if len(levels) > 1 and (most := weights.together(*levels)) > 1:
                    yield Group(levels, most)


def _layers(graph: Graph, context: Context) -> dict[str, list[Any]]:
    """The blocks of each array that may be made together."""
    nodes: Any = graph.nodes
    layers: defaultdict[str, list[Any]] = defaultdict(list)
    tasks = [key for key, node in nodes.items() if type(node) is Task]
    for key in [key for key in tasks if type(key) is tuple and len(key) > 1]:
        layers[key[0]].append(key)
    aside = {*graph.outputs, *graph.annotations}
    aside.update(*[node._dependencies for node in nodes.values() if type(node) is not Task])
    for name, keys in [*layers.items()]:
        if not aside.isdisjoint(keys):
            layers[name] = keys = [key for key in keys if key not in aside]
        functions = {id(func): func for func in map(func_of, map(nodes.__getitem__, keys))}
        if type(name) is not str or not _is_grid(keys) or not all(map(context.may_move, functions.values())):
            del layers[name]
        else:
            keys.sort()
    return layers


def _is_grid(keys: Sequence[tuple[Any, ...]]) -> bool:
    """Whether keys are those of blocks."""
    if not keys or len(set(map(len, keys))) > 1:
        return False
    _, *axes = zip(*keys)
    return set(map(type, chain.from_iterable(axes))) == {int}
