"""How many tasks of a layer may go into one, by what they take, do and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from dask._task_spec import DataNode, List, Task
from dask.typing import Key

from dask_rewrite.analysis.estimates import beliefs_of, estimate
from dask_rewrite.analysis.facts import UNKNOWN
from dask_rewrite.analysis.memory.sizes import nbytes_of_fact
from dask_rewrite.passes.detach import COPIES
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.site import Site

#: Tasks of a layer that go into one at most where all is known to be small.
MOST = 64
#: Bytes that one task may give.
MOST_BYTES = 2**20
#: Tasks of a layer that are left for each thread, in both cases, and tasks of unknown work at least.
PER_THREAD, PER_THREAD_UNKNOWN, LEAST_UNKNOWN = 4, 16, 1024
#: Tasks of a layer that are looked at.
_BLOCKS = 8
#: Parts that are together no more than one in so many bytes of a block are results, not pieces of it.
_PIECES = 8


class Weights:
    """Looks at some of the tasks of each layer.

    Parameters
    ----------
    site : Site
        The graph, and what is known of it.
    max_bytes : int
        Largest block, in bytes, that counts as small.
    max_unknown : int
        Tasks of which nobody knows what they do that go into one at most.
    """

    def __init__(self, site: Site, max_bytes: int, max_unknown: int) -> None:
        self._site = site
        self._max_bytes = max_bytes
        self._max_unknown = max_unknown

    def together(self, *layers: Sequence[Key]) -> int:
        """How many tasks of these layers may go into one.

        Of a few tasks nothing is asked: what is known of the top of a tree takes a look at all of it.
        """
        keys = list(chain.from_iterable(layers))
        if len(keys) < MOST:
            return 1
        sample = {*keys[:: len(keys) // _BLOCKS | 1], *[layer[0] for layer in layers]}
        nodes = self._site.graph.nodes
        sizes = [size for key in sample if (size := self.nbytes(key)) is not None]
        if len(sizes) < len(sample):
            return 1
        largest = max(sizes)
        shared = frozenset.intersection(*[nodes[key]._dependencies for key in sample])
        taken = {dep for key in sample for dep in nodes[key]._dependencies - shared}
        if largest > self._max_bytes or not all(map(self._is_small, taken)):
            return 1
        threads = self._site.context.machine.threads
        if all(self._is_light(nodes[key]) for key in sample):
            most, left = MOST, PER_THREAD * threads
        else:
            most, left = self._max_unknown, max(LEAST_UNKNOWN, PER_THREAD_UNKNOWN * threads)
        return min(most, MOST_BYTES // max(1, largest), len(keys) // max(1, left))

    def nbytes(self, key: Key) -> int | None:
        """Bytes of a block."""
        size = estimate(self._site.facts, key)
        return None if size is None else size.nbytes

    def axes(self, blocks: Mapping[tuple[int, ...], Key]) -> list[bool]:
        """Along which axes neighbours may go together, of blocks by their places.

        Pieces of a large block wait for all that go into one task with them. Where tasks take such pieces,
        those of one block go together, and those of different blocks do not.
        """
        places = list(blocks)
        rank = len(places[0])
        found = [False] * rank
        for place in places[:: len(places) // _BLOCKS | 1]:
            sources = self._cut(blocks[place])
            if not sources:
                return [True] * rank
            for axis in range(rank):
                for step in (-1, 1):
                    other = blocks.get((*place[:axis], place[axis] + step, *place[axis + 1 :]))
                    if not found[axis] and other is not None:
                        found[axis] = not sources.isdisjoint(self._cut(other))
        return found

    def _cut(self, key: Key) -> set[Key]:
        """The large blocks of which a task takes pieces: parts that together are much of such a block."""
        site = self._site
        found: set[Key] = set()
        for dep in site.graph.nodes[key]._dependencies:
            node = site.node(dep)
            for source in node._dependencies if node is not None else ():
                if type(site.node(source)) is DataNode or source in found:
                    continue
                piece, whole = estimate(site.facts, dep), estimate(site.facts, source)
                if piece is None or whole is None or whole.nbytes <= self._max_bytes:
                    continue
                if _PIECES * piece.nbytes * len(site.consumers(source)) > whole.nbytes or (
                    _is_edge(node) and self._goes_on(source, whole.nbytes)
                ):
                    found.add(source)
        return found

    def _goes_on(self, key: Key, nbytes: int) -> bool:
        """Whether something as large is made of a block, which may wait for what is made of its edges."""
        return any((self.nbytes(user) or 0) * _PIECES > nbytes for user in self._site.consumers(key))

    def _is_small(self, key: Key) -> bool:
        if type(self._site.node(key)) is DataNode:
            return True
        size = self.nbytes(key)
        return size is not None and size <= self._max_bytes

    def _is_light(self, node: Any) -> bool:
        """Whether all functions in a task are known, and nothing that it computes on the way is large."""
        facts = beliefs_of(self._site.facts)
        if self._site.effects.unknown(node):
            return False
        stack = [node]
        while stack:
            here = stack.pop()
            if type(here) is Task:
                value = facts.value_of_node(here)
                if value is not UNKNOWN and (nbytes_of_fact(value) or 0) > self._max_bytes:
                    return False
                stack += here.args
            elif type(here) is List:
                stack += here.args
        return True


def _is_edge(node: Any) -> bool:
    """A slice of a block, or a copy of one."""
    if id(getattr(node, "func", None)) in COPIES:
        node = node.args[0]
    return id(getattr(node, "func", None)) in GETITEMS
