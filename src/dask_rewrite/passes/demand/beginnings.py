"""Where demand begins: blocks of which parts are taken, if less work is worth what it takes to plan it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask._task_spec import DataNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import LOADING_IDS, file_of
from dask_rewrite.analysis.knowledge.xarray_files import File
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import layer_name
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.moves import JOINING, SELECTING_IDS
from dask_rewrite.passes.demand.takes import Takes
from dask_rewrite.passes.demand.windows import taken

#: The functions of a part of whose result fewer blocks may be needed than of all.
_JOINING_IDS = frozenset(map(id, JOINING))
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


def is_worth_it(
    graph: Graph, context: Context, started: Mapping[Key, Sequence[Task]], min_bytes: int
) -> bool:
    """Whether there are large blocks, as far as arrays say, or less to read for less of them.

    Small blocks of files are worth it too where work lies between a read and what is taken of it: slices
    then go into the read, in one task.
    """
    if context.declared is None or context.declared.most_bytes >= min_bytes:
        return True
    nodes = graph.nodes
    last = {layer_name(key): node for key, node in nodes.items() if type(node) is not DataNode}
    files = {
        key: file for key, node in nodes.items() if type(node) is DataNode and (file := file_of(node.value))
    }
    reads: defaultdict[Any, list[Task]] = defaultdict(list)
    for task in context.calling(graph, LOADING_IDS):
        reads[layer_name(task.key)].append(task)
    found = {name: each for name, each in last.items() if _reads(each, files)}
    between = [key for key in started if id(nodes[key].func) not in SELECTING_IDS]  # type: ignore[attr-defined]
    if found and (between or context.calling(graph, _JOINING_IDS)):
        return True
    return any(
        name not in reads or not all(_decodes_one(task, files) for task in _some(reads[name]))
        for name in found
    )


def _reads(node: Any, files: Mapping[Key, Any]) -> bool:
    """Whether a task refers to a file, or has one in it."""
    if not files.keys().isdisjoint(node._dependencies):
        return True
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Task):
            stack += [*here.args, *here.kwargs.values(), getattr(here.func, "__self__", None)]
        elif file_of(here.value if type(here) is DataNode else here) is not None:
            return True
    return False


def _decodes_one(task: Task, files: Mapping[Key, File]) -> bool:
    """Whether a read lies in one stored chunk, which is decoded for any part of it."""
    source, index = task.args[:2]
    file = files.get(source.key) if type(source) is TaskRef else None
    if file is None or file.chunks is None or getattr(file.stored, "shards", None):
        return False
    box = taken(index.value if type(index) is DataNode else index, file.stored.shape)
    return box is not None and all(a // n == (b - 1) // n for (a, b), n in zip(box, file.chunks))


def _some(keys: Sequence[Any]) -> Sequence[Any]:
    """Some of many: not each in the same row or column."""
    return keys if len(keys) <= 2 * _BLOCKS else keys[:: len(keys) // _BLOCKS | 1]
