"""Which tasks are small work: all that they take is small, and what they give."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from dask._task_spec import DataNode, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.graph.names import layer_name
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.regrid.write import JOIN
from dask_rewrite.passes.site import Site

#: Tasks of a layer that are looked at, if it has more than twice as many.
_BLOCKS = 8
#: Steps of a reduction of as many blocks as one task waits for: each takes four.
_STEPS = 2
#: A step of a reduction is small if it takes in this part of what counts as small for one block.
REDUCES = 4
#: What is held anyway may be so many times as large: a block that comes up again.
COPY = 16
#: Longer tuples are not looked into.
MOST_PARTS = 16


class SmallWork(dict[Key, bool]):
    """Which blocks are known to be small; found out when first asked."""

    def __init__(self, site: Site, max_bytes: int) -> None:
        super().__init__()
        self._nodes, self._facts, self._max_bytes = site.graph.nodes, site.facts, max_bytes
        self._used_once, self._consumers, self._effect = site.used_once, site.consumers, site.effect
        self._nbytes: dict[Key, int] = {}
        self._made_of: dict[Key, Key | None] = {}  # by small block the one that is not, if it is one
        self.slices: set[Key] = set()  # small slices of large blocks
        self.copies: set[Key] = set()  # large blocks that are put together
        self.held: set[Key] = set()  # small work on blocks that are held for what comes after it

    def __missing__(self, key: Key) -> bool:
        size = estimate(self._facts, key)
        if size is not None:
            small = size.nbytes <= self._max_bytes
            self._nbytes[key] = size.nbytes
        else:
            node = self._nodes.get(key)
            small = type(node) is DataNode and _is_short(node.value, self._max_bytes)
        self[key] = small
        return small

    def work(self, key: Key) -> bool:
        """All that a task takes is small, and what it gives."""
        node: Any = self._nodes[key]
        deps = node._dependencies
        if not self[key]:
            if str(layer_name(key)).startswith(JOIN) and self._is_copy(key, deps):
                self.copies.add(key)
            return key in self.copies
        if not all(map(self.__getitem__, deps)):
            if len(deps) > 1:
                return False
            if id(node.func) in GETITEMS and type(node.args[0]) is TaskRef:
                self.slices.add(key)
                return True
            if self._comes_up_again(key, *deps):
                self.held.add(key)
            return key in self.held
        return not (len(deps) > 1 and self._reduces(key, deps))

    def _is_copy(self, key: Key, deps: Collection[Key]) -> bool:
        """What regrid puts together of blocks that others hold as well, or that are no larger than it."""
        own = [dep for dep in deps if self._used_once(dep)]
        for each in (key, *own):
            self[each]  # which finds out its size
        nbytes = self._nbytes
        return key in nbytes and sum([nbytes.get(dep, nbytes[key] + 1) for dep in own]) <= nbytes[key]

    def _comes_up_again(self, key: Key, block: Key) -> bool:
        """A block that is not large is taken, with the end of the reduction that this begins, by one task."""
        most, here = COPY * self._max_bytes, key
        if self._nbytes.get(block, most + 1) > most:
            return False
        for _ in range(_STEPS + 1):
            if not self._used_once(here):
                return False
            (here,) = self._consumers(here)
            if block in self._nodes[here]._dependencies:
                return self._effect(here) != "unknown"
            if not self.work(here):
                return False
        return False

    def _reduces(self, key: Key, deps: Collection[Key]) -> bool:
        """A task takes twice what it gives, or more: what it takes in should not wait for anything else.

        Wide steps also lead dask's order astray where two reductions share blocks: it then finishes one of
        them, and holds all that they share. So more is taken where blocks are not shared.
        Steps several of whose parts are made of one block wait for less where they are made with it.
        """
        taken = sum([self._nbytes.get(dep, 0) for dep in deps])
        if taken <= self._max_bytes // REDUCES or taken < 2 * self._nbytes.get(key, 0):
            return False
        if taken > self._max_bytes or not all(map(self._used_once, self._below(deps))):
            return True
        blocks = [block for dep in deps if (block := self._block(dep)) is not None and not self[block]]
        return len(set(blocks)) < len(blocks)

    def _block(self, key: Key) -> Key | None:
        """The one block that is not small, or the one source, of which a task is made; None if of more."""
        nodes, found = self._nodes, self._made_of
        stack = [key]
        while stack:
            here = stack[-1]
            if here in found:
                stack.pop()
                continue
            below = nodes[here]._dependencies if here in nodes and self[here] else ()
            needed = [dep for dep in below if type(nodes.get(dep)) is not DataNode]
            if new := [dep for dep in needed if dep not in found]:
                stack.extend(new)
                continue
            blocks = {found[dep] for dep in needed} or {here}
            found[stack.pop()] = blocks.pop() if len(blocks) == 1 else None
        return found[key]

    def _below(self, keys: Collection[Key]) -> Iterator[Key]:
        """What these tasks wait for."""
        return chain.from_iterable([node._dependencies for key in keys if (node := self._nodes.get(key))])

    def among(self, keys: Sequence[Key]) -> Sequence[Key]:
        """Which of the tasks of one layer and function are small work; some are asked, if they agree."""
        if len(keys) > 2 * _BLOCKS:
            step = len(keys) // _BLOCKS | 1  # odd: every other block may be of another size
            sample = keys[::step]
            found = set(map(self.work, sample))
            if len(found) == 1 and len({key in self.slices for key in sample}) == 1:
                if sample[0] in self.copies:
                    self.copies.update(keys)
                if sample[0] in self.slices:
                    self.slices.update(keys)
                return keys if found.pop() else ()
        return [key for key in keys if self.work(key)]


def _is_short(value: Any, max_bytes: int) -> bool:
    """Whether a value is an index into blocks, and a short one."""
    if type(value) is tuple:
        return len(value) < MOST_PARTS and all(_is_short(part, max_bytes) for part in value)
    if type(value) is np.ndarray:
        return value.nbytes <= max_bytes
    return type(value) in (int, slice, type(None))
