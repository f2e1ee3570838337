"""Small slices that let go of the blocks that they are taken from."""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, ClassVar

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import chunk
from dask.array.core import finalize
from dask.typing import Key

from dask_rewrite.analysis.estimates import believed
from dask_rewrite.analysis.knowledge.selecting import is_topk
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.kinds import is_array
from dask_rewrite.graph.nodes import make_task, nameless
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.site import Site

#: Smaller blocks are held.
MIN_BYTES = 65_536
#: What is put around slices, by identity.
COPIES = frozenset([id(copy.copy), id(np.copy)])
#: All slices of a block together are at most one part in so many of it.
_PART = 2
#: Views of views that are followed to what has the memory.
_LOOK_DOWN = 8


@dataclass(frozen=True, slots=True)
class Detach:
    """``edge = x[-1:]`` → ``edge = copy(x[-1:])``, where the edges of a block are much smaller than it.

    A slice is a view, and keeps the whole block in memory until the last neighbour has had its edge: three
    rows of blocks of a ``map_overlap`` instead of two. A copy of a few elements costs next to nothing. Legal
    for any block; what is known to be a NumPy array is copied by NumPy in the same memory order, all else by
    ``copy.copy``.

    Parameters
    ----------
    min_bytes : int
        Smaller blocks are held.
    """

    name: ClassVar[str] = "detach"
    min_bytes: int = MIN_BYTES

    def run(self, graph: Graph, context: Context) -> Graph:
        site = Site(graph, context)
        made = shortened(site, self.min_bytes)
        slices: defaultdict[Key, list[Task]] = defaultdict(list)
        for task in context.calling(graph, GETITEMS):
            if type(task.args[0]) is TaskRef and takes_slice(task):
                slices[task.args[0].key].append(task)
        counts: dict[Any, int] = {}
        for block, tasks in slices.items():
            if not self._is_worth(block, tasks, site, counts):
                continue
            for task in tasks:
                if task.func is chunk.getitem:
                    continue  # which copies what is at most half of a block
                if not site.wanted(task.key) and context.remarks.allow(self.name, task.key):
                    made[task.key] = copied(task, block, site)
        if not made:
            return graph
        context.remarks.applied(self.name, None, f"slices that are copied: {len(made)}", len(made))
        return graph.with_nodes({**graph.nodes, **made})

    def _is_worth(self, block: Key, tasks: list[Task], site: Site, counts: dict[Any, int]) -> bool:
        """Whether a block is large, all slices of it are small, and it goes when they do not hold it."""
        fact = believed(site.facts, block)
        if fact is None or fact.nbytes < self.min_bytes or fact.scalar:
            return False
        elements = sum([_elements(fact.shape, task.args[1], counts) for task in tasks])
        return elements * _PART <= fact.size and _has_memory(block, site)


def _elements(shape: tuple[int, ...], index: tuple[slice | None, ...], counts: dict[Any, int]) -> int:
    """How many elements of a block are in a slice; blocks are sliced alike."""
    parts = [(part.start, part.stop, part.step) for part in index if part is not None]
    form = (shape, *parts)
    try:
        found = counts.get(form)
        if found is None:
            cut = [len(range(*slice(*part).indices(n))) for part, n in zip(parts, shape)]
            found = counts[form] = prod(cut) * prod(shape[len(cut) :])
    except TypeError:  # slices by something that is no number
        return prod(shape)
    return found


def shortened(site: Site, min_bytes: int) -> dict[Key, Task]:
    """``topk`` of blocks, copied: the end of a sorted copy of a block, all of which it would hold."""
    made: dict[Key, Task] = {}
    called = site.context.by_function(site.graph).values()
    for task in chain.from_iterable([tasks for tasks in called if is_topk(tasks[0].func)]):
        fact = site.facts.of(task.key)
        if fact is None or fact.nbytes > min_bytes or site.wanted(task.key):
            continue
        block = task.args[0]
        whole = believed(site.facts, block.key) if type(block) is TaskRef else site.facts.of_node(block)
        if (whole is None or whole.nbytes >= min_bytes) and site.context.remarks.allow(Detach.name, task.key):
            made[task.key] = _with(np.copy, task)
    return made


def takes_slice(task: Task) -> bool:
    """By slices and new axes only: such a part of an array is a view, and an array."""
    index = task.args[1] if len(task.args) == 2 else None
    return type(index) is tuple and all(part is None or type(part) is slice for part in index)


def copied(task: Task, block: Key, site: Site) -> Task:
    """A copy of a part of a block."""
    return _with(copy.copy if site.facts.of(block) is None else np.copy, task)


def _has_memory(block: Key, site: Site) -> bool:
    """Whether nobody asked for a block, and it is no view of what somebody asked for or of data in memory."""
    for _ in range(_LOOK_DOWN):
        if site.wanted(block) or any(_gathers(user, site) for user in site.consumers(block)):
            return False
        node = site.node(block)
        if type(node) is not Task:
            return False
        if site.effect(block) != "view":
            return True
        if any(is_array(site.node(dep)) for dep in node._dependencies):
            return False
        if len(node._dependencies) != 1:
            return True
        (block,) = node._dependencies
        if type(site.node(block)) is DataNode:  # a read of a file
            return True
    return False


def _gathers(user: Key, site: Site) -> bool:
    """Whether a task makes what somebody asked for of whole blocks."""
    if not site.wanted(user):
        return False
    return getattr(site.node(user), "func", None) is finalize or site.effect(user) == "view"


def _with(func: Any, task: Task) -> Task:
    return make_task(task.key, func, (nameless(task),), {}, task._dependencies, task._data_producer)
