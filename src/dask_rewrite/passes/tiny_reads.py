"""Which tasks read little, or make little out of nothing, and how many of these one task may take in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Any

from dask._task_spec import DataNode, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.analysis.facts import UNKNOWN
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.align_reads.reads import calls_on
from dask_rewrite.passes.site import Site

#: Reads of a layer that are looked at.
_BLOCKS = 8
#: Bytes that one task may read, one read after the other.
MOST_BYTES = 2**20
#: Tasks that read, for each thread, of which there are never fewer.
PER_THREAD = 4


def tiny_reads(graph: Graph, site: Site, max_bytes: int, max_reads: int) -> tuple[set[Key], int]:
    """Tasks that wait for nothing, or for a file of which they read little, for the one task that uses them.

    Parameters
    ----------
    graph : Graph
        The graph.
    site : Site
        The same, and what is known of it.
    max_bytes : int
        What counts as little.
    max_reads : int
        How many of these one task may take in at most.

    Returns
    -------
    set of Key
        The tasks.
    int
        How many of these one task may take in: reads that are made one after the other leave enough tasks
        for all threads.
    """
    if graph.origin.shared:  # others may load the same blocks
        return set(), 0
    users, nodes = site.context.users(graph), graph.nodes
    files = {key for key, node in nodes.items() if type(node) is DataNode}
    groups: defaultdict[Any, list[Key]] = defaultdict(list)
    for key, node in nodes.items():
        if type(node) is Task and type(key) is tuple and users[key] == 1 and node._dependencies <= files:
            groups[key[0], id(node.func)].append(key)
    found: set[Key] = set()
    largest = 1
    for keys in groups.values():
        nbytes = _bytes_of(keys[:: len(keys) // _BLOCKS | 1], site)
        if nbytes is not None and nbytes <= max_bytes:
            found.update(keys)
            largest = max(largest, nbytes)
    found.difference_update(graph.outputs)
    tasks = PER_THREAD * site.context.machine.threads
    together = min(max_reads, MOST_BYTES // largest, len(found) // tasks)
    return (found, together) if together > 1 else (set(), 0)


def _bytes_of(keys: Sequence[Key], site: Site) -> int | None:
    """The most bytes that one of these tasks reads or makes; None where that is not known of all."""
    most = 0
    for key in keys:
        task: Any = site.graph.nodes[key]
        size = estimate(site.facts, key)
        if size is None or site.facts.value(key) is UNKNOWN or site.effects.unknown(task):
            return None
        most = max(most, size.nbytes)
        for dep in task._dependencies:
            source: Any = site.graph.nodes[dep]
            calls = list(calls_on(task, dep))
            read = [_bytes_read(source.value, index) for _, index in calls]
            if not read or None in read:
                return None
            most = max(most, sum(filter(None, read)))
    return most


def _bytes_read(source: Any, index: Any) -> int | None:
    itemsize = getattr(getattr(source, "dtype", None), "itemsize", None)
    if type(index) is not tuple or itemsize is None:
        return None
    if any(type(part) is not slice or {type(part.start), type(part.stop)} != {int} for part in index):
        return None
    return int(prod([max(0, part.stop - part.start) for part in index]) * itemsize)
