"""Slices that become part of the tasks that use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate, likely_bytes
from dask_rewrite.graph.nesting import Depths, survey
from dask_rewrite.passes.demand.takes import PICK
from dask_rewrite.passes.detach import copied, takes_slice
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.site import Site

#: All slices of a block together are at least one part in so many of it, or it is not held for them.
_PART = 2
#: All but one part in so many of a large block is taken: slices of half of it would let go of the rest.
_ALL_BUT = 8
#: Bytes of a block that is large.
LARGE = 4_194_304
#: Slices of blocks that fewer tasks use stay as they are.
_USERS = 4


def takes_part(node: Any) -> bool:
    """A part of one block, and nothing else."""
    return (
        type(node) is Task
        and type(node.key) is tuple
        and id(node.func) in GETITEMS
        and len(node._dependencies) == 1
        and type(node.args[0]) is TaskRef
    )


def is_block(node: Any) -> bool:
    """A result, or a block of an array in memory; no list of positions, and nothing that a task carries."""
    return type(node) is not DataNode or (type(node.key) is tuple and type(node.value) is np.ndarray)


class Slices:
    """The slices of a graph, as it is while tasks are put together.

    Parameters
    ----------
    site : Site
        The graph as it was.
    nodes : mapping
        The nodes as they are by now.
    """

    def __init__(self, site: Site, nodes: Mapping[Key, Any]) -> None:
        self._site, self._nodes = site, nodes
        self._users = site.context.users(site.graph)
        self._much: dict[Key, bool] = {}  # by block whether slices take much of it
        self._alone: dict[Key, bool] = {}  # by task whether it needs one block, slices counted as such
        self._along: dict[Key, bool] = {}
        self._again: dict[Key, set[Key]] = {}  # by task what stands in it more than once
        self._templates = Depths()

    def taken_in(self, needs: Iterable[Key]) -> list[Key]:
        """The slices that may become part of a task that needs them."""
        found = [dep for dep in needs if self._is_slice(dep) and self._is_used_up(self.block_of(dep))]
        return [dep for dep in found if not self._has_to_be_one(dep)] if found else found

    def block_of(self, key: Key) -> Key:
        """What a slice is of."""
        block: Key = self._nodes[key].args[0].key
        return block

    def sliced(self, node: Task) -> set[Key]:
        """The blocks that a task needs slices of, and of which much is taken."""
        blocks = [self.block_of(dep) for dep in node._dependencies if takes_part(self._nodes.get(dep))]
        return set(filter(self._takes_much, blocks))

    def is_edge(self, node: Task) -> bool:
        """A part of a block, which is not taken in by the task that uses it."""
        return takes_part(node) and takes_slice(node) and not self.goes_along(node)

    def copied(self, node: Task) -> Task:
        """A copy of an edge: in a list, a view would hold the block for whoever needs another one."""
        return copied(node, self.block_of(node.key), self._site)

    def stays(self, node: Task) -> bool:
        """A slice that is nobody's sibling: of a block, or rows picked where they are used."""
        return takes_part(node) or self.goes_along(node)

    def picks(self, node: Any) -> bool:
        """Rows of one block, by numbers that stand in the graph."""
        if type(node) is not Task or type(node.key) is not tuple or node.func is not PICK:
            return False
        others = [type(self._nodes.get(dep)) is DataNode for dep in node._dependencies]
        return type(node.args[0]) is TaskRef and others.count(False) == 1

    def _is_slice(self, key: Key) -> bool:
        """A slice that one task uses, or rows by their numbers."""
        if self._users.get(key) != 1 or self._site.wanted(key):
            return False
        node = self._nodes.get(key)
        return takes_part(node) or self.picks(node)

    def _has_to_be_one(self, key: Key) -> bool:
        """The task that uses a block refers to it more than once, and may write into it."""
        (user,) = self._site.consumers(key)
        if user not in self._again:
            used = Counter(survey(self._site.graph.nodes[user], self._templates)[1])
            self._again[user] = {each for each, times in used.items() if times > 1}
        return key in self._again[user] and not self._site.read_only(key)

    def goes_along(self, node: Any) -> bool:
        """A slice that becomes part of the task that uses it, which needs no other block."""
        if type(node) is not Task or self._users.get(node.key) != 1:
            return False
        found = self._along.get(node.key)
        if found is None:
            found = self._along[node.key] = self._stands_in_user(node.key)
        return found

    def _stands_in_user(self, key: Key) -> bool:
        if not self._is_slice(key):
            return False
        (user,) = self._site.consumers(key)
        if user not in self._alone:
            self._alone[user] = self._needs_one(user)
        return self._alone[user] and self._is_used_up(self.block_of(key)) and not self._has_to_be_one(key)

    def _needs_one(self, key: Key) -> bool:
        """Whether a task needs one block, slices counted as what they are of; most show soon that not."""
        nodes = self._site.graph.nodes
        blocks: set[Key] = set()
        for dep in nodes[key]._dependencies:
            if type(nodes.get(dep)) is not DataNode:
                blocks.add(self.block_of(dep) if self._is_slice(dep) else dep)
                if len(blocks) > 1:
                    return False
        return len(blocks) == 1

    def are_of_more(self, needs: Iterable[Key], most: int) -> bool:
        """Whether what a task needs is of more blocks than that, however many slices it takes in."""
        blocks: set[Key] = set()
        for dep in needs:
            node = self._nodes.get(dep)
            if is_block(node):
                blocks.add(self.block_of(dep) if takes_part(node) or self.picks(node) else dep)
                if len(blocks) > most:
                    return True
        return False

    def _is_used_up(self, block: Key) -> bool:
        """Whether slices take so much of a block that it is held until the last of them is used."""
        return self._users[block] >= _USERS and self._takes_much(block)

    def _takes_much(self, block: Key) -> bool:
        if block not in self._much:
            whole = estimate(self._site.facts, block)
            self._much[block] = whole is not None and self._taken_of(block, whole.nbytes)
        return self._much[block]

    def _taken_of(self, block: Key, whole: int) -> bool:
        """Whether slices are so large a part; no more of them are looked at than it takes."""
        taken = 0
        for user in filter(self._is_slice, self._site.consumers(block)):
            taken += likely_bytes(self._site.facts, user)
            if (whole - taken) * _ALL_BUT <= whole if whole > LARGE else taken * _PART >= whole:
                return True
        return not whole
