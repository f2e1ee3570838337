"""Where demand begins: blocks of which parts are taken, if less work is worth what it takes to plan it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import file_of
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import layer_name
from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.moves import SELECTING_IDS
from dask_rewrite.passes.demand.takes import Takes

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


def is_worth_it(graph: Graph, context: Context, min_bytes: int) -> bool:
    """Whether there are large blocks, as far as arrays say, or some that come from files."""
    if context.declared is None or context.declared.most_bytes >= min_bytes:
        return True
    return any(map(_holds_file, {layer_name(key): node for key, node in graph.nodes.items()}.values()))


def _holds_file(node: Any) -> bool:
    """Whether a node is a file, or a task that has one in it."""
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Task):
            stack += [*here.args, *here.kwargs.values(), getattr(here.func, "__self__", None)]
        elif file_of(literal(here)) is not None:
            return True
    return False


def _some(keys: Sequence[Key]) -> Sequence[Key]:
    """Some of many: not each in the same row or column."""
    return keys if len(keys) <= 2 * _BLOCKS else keys[:: len(keys) // _BLOCKS | 1]
