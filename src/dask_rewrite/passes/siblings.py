"""Small tasks over the same blocks, as one task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import Any, ClassVar, TypeAlias

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.array import _shuffle
from dask.typing import Key
from toolz import groupby

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.graph.batches import one_of
from dask_rewrite.graph.graph import Graph, Nodes, depths_of
from dask_rewrite.graph.names import compound, fingerprint, layer_name, mark
from dask_rewrite.graph.nesting import Depths, depth_of, survey
from dask_rewrite.graph.nodes import cast_to, nameless, needs_of
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.detach import is_topk
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.site import Site

#: Fewer tasks over the same blocks stay as they are.
_LEAST = 4
#: Tasks for each thread, at least: what one task does does not run side by side.
_TASKS = 4
#: Bytes of the blocks that are worked on, each, and of all results of one task.
_BLOCK, _TOGETHER = 4_194_304, 1_048_576
#: All slices of a block together are at least one part in so many of it, or it is not held for them.
_PART = 2
#: Nesting of tasks that go together; blocks that they wait for.
_DEEP, MOST_INPUTS = 20, 8

#: What dask's `take` and `shuffle` pick rows by.
_PICKED = of_dask(_shuffle, "_getitem")

#: Tasks that go together: their keys, and the slices that become part of each.
Group: TypeAlias = list[tuple[Key, list[Key]]]


@dataclass(frozen=True, slots=True)
class Siblings:
    """``f(x[0:1]), f(x[1:2]), ...`` → ``y = [f(x[0:1]), f(x[1:2]), ...]``, and ``y[k]`` for who uses them.

    What is done day by day, or row by row, makes many small tasks on each block. They go together where they
    wait for the same blocks, so that none waits longer than before, and so do the tasks that wait for their
    results. A small slice that only one of them uses is taken in the task itself where all of them together
    need half of the block.

    Parameters
    ----------
    max_bytes : int
        Bytes of a result, for all workers that may be sent it.
    max_tasks : int
        Tasks that one task may stand for.
    """

    name: ClassVar[str] = "siblings"
    max_bytes: int = 65_536
    max_tasks: int = 128

    def run(self, graph: Graph, context: Context) -> Graph:
        if graph.annotations or graph.origin.shared:
            return graph
        users = context.users(graph)
        busy = {key for key, count in users.items() if count >= _LEAST}
        busy = {key for key in busy if key in graph.nodes and _is_block(graph.nodes[key])}
        if not busy:
            return graph
        together = _Together(self, Site(graph, context), busy)
        if not together.has_siblings():
            return graph
        together.run()
        if not together.gone:
            return graph
        gone = together.gone
        context.remarks.applied(self.name, None, f"small tasks with others: {len(gone)}", len(gone))
        nodes: Nodes = {}
        for key in graph.nodes:  # each new task where the first of its members stood
            nodes.update(together.made.get(key, ()))
            if key not in gone:
                nodes[key] = together.nodes[key]
        return graph.with_nodes(nodes)


def takes_part(node: Any) -> bool:
    """A part of one block, and nothing else."""
    return (
        type(node) is Task
        and type(node.key) is tuple
        and id(node.func) in GETITEMS
        and len(node._dependencies) == 1
        and type(node.args[0]) is TaskRef
    )


def _is_block(node: Any) -> bool:
    """A result, or a block of an array in memory; no list of positions, and nothing that a task carries."""
    return type(node) is not DataNode or (type(node.key) is tuple and type(node.value) is np.ndarray)


def _matters(group: Group) -> bool:
    """Enough tasks to go together, or slices that could become part of one."""
    return len(group) >= _LEAST or any(slices for _, slices in group)


class _Together:
    """Goes through a graph from the sources up, and puts siblings together."""

    def __init__(self, bounds: Siblings, site: Site, busy: set[Key]) -> None:
        self.nodes: dict[Key, Any] = dict(site.graph.nodes)
        self.made: dict[Key, Nodes] = {}
        self.gone: set[Key] = set()
        self._site, self._busy = site, busy
        self._users = site.context.users(site.graph)
        self._bytes = bounds.max_bytes // site.context.machine.workers
        self._most = bounds.max_tasks
        self._used_up: dict[Key, bool] = {}
        self._counted: dict[Key, int] = {}
        self._again: dict[Key, set[Key]] = {}  # by task what stands in it more than once
        self._new: dict[Key, Key] = {}  # which task gives the result of one that is gone, and how
        self._instead: dict[Key, Any] = {}
        self._templates = Depths()

    def has_siblings(self) -> bool:
        """Some small tasks, other than slices, wait for the same; or some take slices."""
        alike: dict[frozenset[Key], list[Key]] = {}
        for key, node in self.nodes.items():
            if type(node) is Task and not self._busy.isdisjoint(node._dependencies):
                if takes_part(node) or node.func is _PICKED:
                    return True
                alike.setdefault(node._dependencies, []).append(key)
        return any(len(keys) >= _LEAST and any(map(self._may_join, keys)) for keys in alike.values())

    def run(self) -> None:
        depths = depths_of(self._site.graph.nodes)
        levels: dict[int, list[Key]] = groupby(depths.__getitem__, depths)
        for depth in sorted(levels):
            groups: dict[frozenset[Key], Group] = {}
            for key in levels[depth]:
                if (found := self._needs(self.nodes[key])) is not None:
                    groups.setdefault(found[0], []).append((key, found[1]))
            small = [group for needs, group in groups.items() if _matters(group) and self._is_worth(needs)]
            self._join([[each for each in group if self._may_join(each[0])] for group in small])
            slices = {key: parts for key, parts in chain.from_iterable(small) if parts}
            for key in levels[depth]:
                if key not in self.gone and (self._instead or key in slices):
                    self.nodes[key] = self._filled(key, self._fitting(key, slices.get(key, ())))

    def _needs(self, node: Any) -> tuple[frozenset[Key], list[Key]] | None:
        """The blocks that a task needs, and which slices of them it uses; None if it has to stay."""
        deps, new = node._dependencies, self._new
        if type(node) is not Task or type(node.key) is not tuple or not deps:
            return None
        if node._data_producer or takes_part(node) or self._goes_along(node):
            return None
        if not new.keys().isdisjoint(deps):
            deps = frozenset([new.get(dep, dep) for dep in deps])
        slices = [dep for dep in deps if self._is_slice(dep) and self._is_used_up(self._block_of(dep))]
        if slices:
            deps = deps.difference(slices).union(map(self._block_of, slices))
        deps = frozenset([dep for dep in deps if _is_block(self.nodes.get(dep))])
        if len(deps) > MOST_INPUTS or self._busy.isdisjoint(deps):
            return None
        return deps, slices

    def _is_slice(self, key: Key) -> bool:
        """A slice that one task uses, or rows by their numbers."""
        node = self.nodes.get(key)
        if self._users.get(key) != 1 or self._site.wanted(key):
            return False
        return (takes_part(node) or self._picks(node)) and not self._has_to_be_one(key)

    def _has_to_be_one(self, key: Key) -> bool:
        """The task that uses a block refers to it more than once, and may write into it."""
        (user,) = self._site.consumers(key)
        if user not in self._again:
            used = Counter(survey(self._site.graph.nodes[user], self._templates)[1])
            self._again[user] = {each for each, times in used.items() if times > 1}
        return key in self._again[user] and not self._site.read_only(key)

    def _picks(self, node: Any) -> bool:
        """Rows of one block, by numbers that stand in the graph."""
        if type(node) is not Task or type(node.key) is not tuple or node.func is not _PICKED:
            return False
        others = [type(self.nodes.get(dep)) is DataNode for dep in node._dependencies]
        return type(node.args[0]) is TaskRef and others.count(False) == 1

    def _goes_along(self, node: Any) -> bool:
        """Rows that will be picked in the task that uses them, which needs no other block."""
        if not self._picks(node) or not self._is_slice(node.key):
            return False
        (user,) = self._site.consumers(node.key)
        return self._is_used_up(self._block_of(node.key)) and self._blocks(user) == 1

    def _blocks(self, key: Key) -> int:
        """How many blocks a task needs, slices counted as what they are of."""
        if key not in self._counted:
            nodes = self._site.graph.nodes
            deps = [dep for dep in nodes[key]._dependencies if type(nodes.get(dep)) is not DataNode]
            self._counted[key] = len({self._block_of(dep) if self._is_slice(dep) else dep for dep in deps})
        return self._counted[key]

    def _block_of(self, key: Key) -> Key:
        """What a slice is of."""
        block: Key = self.nodes[key].args[0].key
        return block

    def _may_join(self, key: Key) -> bool:
        site, node = self._site, self.nodes[key]
        if type(key) is not tuple or site.wanted(key) or key in site.bare:
            return False
        size = estimate(site.facts, key)
        if size is None or size.nbytes > self._bytes or not site.context.may_move(node.func):
            return False
        # a call of what nobody knows may take an hour; `topk` would hold its block as long as all others
        free = site.effect(key) != "unknown" and not is_topk(node.func)
        return free and depth_of(node, self._templates) <= _DEEP

    def _is_worth(self, needs: frozenset[Key]) -> bool:
        """Whether all blocks that tasks need are small; what is made here is."""
        for block in needs & self._site.graph.nodes.keys():
            size = estimate(self._site.facts, block)
            if size is None or size.nbytes > _BLOCK:
                return False
        return True

    def _is_used_up(self, block: Key) -> bool:
        """Whether slices take so much of a block that it is held until the last of them is used."""
        if block not in self._used_up:
            facts = self._site.facts
            sizes = [estimate(facts, user) for user in self._site.consumers(block) if self._is_slice(user)]
            taken = sum([size.nbytes for size in sizes if size is not None])
            whole = estimate(facts, block)
            self._used_up[block] = whole is not None and taken * _PART >= whole.nbytes
        return self._used_up[block]

    def _join(self, groups: Sequence[Group]) -> None:
        """Put the tasks of one level together."""
        groups = [group for group in groups if len(group) >= max(2, _LEAST)]
        tasks = sum(map(len, groups))
        most = min(self._most, tasks // max(1, _TASKS * self._site.context.machine.threads))
        parts = [part for group in groups for part in self._parts(group, most)]
        if not parts:
            return
        token = self._site.graph.origin.token
        token = fingerprint([token, *[key for part in parts for key, _ in part], *map(len, parts)])
        for number, part in enumerate(parts):
            self._write(part, number, token)

    def _parts(self, group: Group, most: int) -> Iterator[Group]:
        """A group in parts of about the same length."""
        if most < _LEAST or not self._site.context.remarks.allow(Siblings.name, group[0][0]):
            return
        sizes = [estimate(self._site.facts, key) for key, _ in group]
        total = sum([size.nbytes for size in sizes if size is not None])
        fits = _TOGETHER * len(group) // max(1, total)
        count = ceil(len(group) / max(1, min(most, fits)))
        if len(group) >= _LEAST * count:
            for i in range(count):
                yield group[i * len(group) // count : (i + 1) * len(group) // count]

    def _fitting(self, key: Key, slices: Sequence[Key]) -> Sequence[Key]:
        """The slices that become part of a task that stays: if they are all of one block."""
        if not slices or type(key) is not tuple or len(set(map(self._block_of, slices))) > 1:
            return ()
        node, context = self.nodes[key], self._site.context
        if depth_of(node, self._templates) > _DEEP or not context.may_move(node.func):
            return ()
        return slices if context.remarks.allow(Siblings.name, key) else ()

    def _filled(self, key: Key, slices: Sequence[Key]) -> Any:
        """A task with some slices in it, and with the new places of what it uses."""
        node, instead = self.nodes[key], self._instead
        values = {dep: instead[dep] for dep in node._dependencies if dep in instead}
        values.update([(each, self.nodes[each]) for each in slices])
        self.gone.update(slices)
        return with_values(node, values) if values else node

    def _write(self, part: Group, number: int, token: str) -> None:
        first = part[0][0]
        new: Key = (mark(compound(["siblings"], str(layer_name(first))), token), number)
        results: list[Task] = []
        for key, slices in part:
            node = self._filled(key, slices)
            self._new[key] = new
            self._instead[key] = one_of(new, len(results))
            results.append(nameless(node))
            self.gone.add(key)
        self.nodes[new] = cast_to(list, new, tuple(results), needs_of(results))
        self.made[first] = {new: self.nodes[new]}
        self._busy.add(new)
