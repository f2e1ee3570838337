"""Where demand begins: blocks of which parts are taken, if less work is worth what it takes to plan it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask._task_spec import DataNode, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.analysis.knowledge.loading import LOADING_IDS, file_of
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import layer_name
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.moves import SELECTING
from dask_rewrite.passes.demand.takes import Takes

#: The functions that take a part of a block, by identity.
SELECTING_IDS = frozenset(map(id, SELECTING))
#: Blocks of a layer that are looked at, if it has more than twice as many.
_BLOCKS = 8


def sliced(graph: Graph, context: Context, takes: Takes) -> dict[Key, list[Task]]:
    """The blocks of the graph that parts are taken from, and the tasks that do nothing else."""
    nodes = graph.nodes
    found: defaultdict[Key | None, list[Task]] = defaultdict(list)
    for task in context.calling(graph, SELECTING_IDS):
        found[takes.source(task)].append(task)
    return {key: each for key, each in found.items() if type(key) is tuple and type(nodes.get(key)) is Task}


def among(
    blocks: Mapping[Key, Sequence[Task]], nodes: Mapping[Key, Any], holds: Callable[[Key], bool]
) -> list[Key]:
    """The blocks of which something holds; layers in which it holds of no block of some are passed over."""
    layers: defaultdict[Any, list[Key]] = defaultdict(list)
    for key in blocks:
        layers[layer_name(key), id(nodes[key].func)].append(key)
    found: list[Key] = []
    for keys in layers.values():
        if len(keys) > 2 * _BLOCKS and not any(map(holds, _some(keys))):
            continue
        found += filter(holds, keys)
    return found


def is_worth_it(nodes: Mapping[Key, Any], facts: Facts, min_bytes: int) -> bool:
    """Whether some blocks are large, or come from files, as far as the first and the last of a layer tell."""
    ends = [{layer_name(key): key for key in keys} for keys in (nodes, reversed(list(nodes)))]
    return any(_is_large(nodes[key], facts, min_bytes) for each in ends for key in each.values())


def _is_large(node: Any, facts: Facts, min_bytes: int) -> bool:
    if type(node) is DataNode:
        return file_of(node.value) is not None
    if type(node) is Task and id(node.func) in LOADING_IDS and file_of(node.args[0]) is not None:
        return True
    size = estimate(facts, node.key)
    return size is None or size.nbytes >= min_bytes


def _some(keys: Sequence[Key]) -> Sequence[Key]:
    """Some of many: not each in the same row or column."""
    return keys if len(keys) <= 2 * _BLOCKS else keys[:: len(keys) // _BLOCKS | 1]
