"""What reductions take in at one step, as one task: blocks that nobody else needs, and partial results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dask._task_spec import DataNode, Task
from dask.typing import Key

from dask_rewrite.graph.nesting import Depths, depth_of
from dask_rewrite.passes.site import Site

#: Tasks of a slab that become one, blocks that a task may wait for to be one of them, and its nesting.
MOST_TASKS, MOST_INPUTS, MOST_DEPTH = 24, 8, 10


@dataclass(slots=True)
class Slab:
    """The tasks of one step.

    Parameters
    ----------
    members : list of Key
        What is computed in it, users first: partial results, and what only these need.
    needs : frozenset of Key
        What it takes from others.
    whole : bool
        All that it needs for itself alone is in it.
    """

    members: list[Key] = field(default_factory=list)
    needs: frozenset[Key] = frozenset()
    whole: bool = True


class Slabs:
    """Gathers slabs."""

    def __init__(self, site: Site, users: Mapping[Key, int]) -> None:
        self._site, self._users = site, users
        self._templates = Depths()

    def gather(self, gives: Sequence[Key]) -> Slab | None:
        """The slab that gives these partial results; None if one of them has to stay as it is."""
        nodes, users = self._site.graph.nodes, self._users
        like = gives[0]
        uses = Counter(gives)
        if not all(users[key] == count and self._joins(key, like) for key, count in uses.items()):
            return None
        slab = Slab(list(uses))
        waiting = list(uses)
        inside = set(waiting)
        needs: set[Key] = set()
        while waiting:
            for dep in nodes[waiting.pop()]._dependencies:
                uses[dep] += 1
                needs.add(dep)
                if uses[dep] < users[dep] or type(nodes.get(dep)) is DataNode:
                    continue
                full = len(inside) >= MOST_TASKS
                if full or not self._joins(dep, like) or len(nodes[dep]._dependencies) > MOST_INPUTS:
                    slab.whole = False
                    continue
                inside.add(dep)
                slab.members.append(dep)
                waiting.append(dep)
        slab.needs = frozenset(needs - inside)
        return slab

    def _joins(self, key: Key, like: Key) -> bool:
        """Whether a task may be computed together with another one."""
        site = self._site
        node = site.node(key)
        if type(node) is not Task or site.wanted(key):
            return False
        if type(key) is not tuple and not self._is_delayed(key):
            return False
        able = site.context.may_move(node.func)
        return able and site.same_annotations(key, like) and depth_of(node, self._templates) <= MOST_DEPTH

    def _is_delayed(self, key: Key) -> bool:
        """Whether it is a delayed value that may become part of a task, and no name that programs give."""
        if type(key) is not str or not self._site.context.fuse_text_keys:
            return False
        return not (key[:1] == "x" and key[1:].isdigit())
