"""What a task's result is: how many bytes, whose memory, what was read and written for it."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, Task, _identity_cast
from dask.array import chunk
from dask.graph_manipulation import chunks
from dask.typing import Key

from dask_rewrite.analysis.facts import UNKNOWN, Fact, Facts
from dask_rewrite.analysis.knowledge.loading import LOADING
from dask_rewrite.analysis.knowledge.selecting import ends_in_topk
from dask_rewrite.analysis.knowledge.stored import decoded, taken
from dask_rewrite.analysis.memory.arguments import guessed
from dask_rewrite.analysis.memory.calls import calls_of, gathered, put_together, reaches_out
from dask_rewrite.analysis.memory.shown import shows_first
from dask_rewrite.analysis.memory.sizes import SMALL, nbytes_of, nbytes_of_fact, without_counts
from dask_rewrite.analysis.memory.stores import gives_nothing, is_in, is_store
from dask_rewrite.analysis.memory.taken import Taken, most_inside, taken_by, target_of
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.gates import first_argument, ungated
from dask_rewrite.graph.held import unheld
from dask_rewrite.graph.names import is_finalize
from dask_rewrite.graph.nodes import literal
from dask_rewrite.graph.places import only_made, room_of, room_shown
from dask_rewrite.graph.templates import opened

#: Functions that wait for others and give their first argument, or add to it in place.
_PASSING = frozenset([chunks.bind, operator.iadd])
#: Functions that give what they are given, in a container.
_HOLDING = frozenset([tuple, list, dict])


class Result(NamedTuple):
    """What is known of a result.

    Parameters
    ----------
    nbytes : int or None
        Bytes; None if nobody knows.
    owned : int or None
        Bytes of memory that the task made and that stays as long as the result; None as above.
    view : Key or None
        The result that has the memory.
    read, written : int
        Bytes that came out of files, and that went into them.
    decoded : int
        Bytes of all stored chunks that hold a part of what was read.
    inside : int
        Of a result of unknown size, the most bytes that one of the steps before it in the same task gives.
    taken : Taken, optional
        Of such a result, what its last step takes; None if that is all that the task needs.
    """

    nbytes: int | None
    owned: int | None
    view: Key | None = None
    read: int = 0
    written: int = 0
    decoded: int = 0
    inside: int = 0
    taken: Taken | None = None


class Results:
    """Results of the tasks of one graph.

    Parameters
    ----------
    lookup : callable
        From a key to its node, or None.
    known : Facts or callable
        What is known already; or from the key of a block of which nothing is known to what is taken for
        granted of it, or None.
    at_most : callable, optional
        From the key of a block of unknown size to the most bytes that it may have, as far as that is said.

    Attributes
    ----------
    known : dict of Key to int or None
        Bytes of results as far as they were asked for; who knows some of them may put them in.

    Examples
    --------
    >>> import operator
    >>> from dask._task_spec import TaskRef
    >>> nodes = {"x": Task("x", np.zeros, 4), "y": Task("y", operator.getitem, TaskRef("x"), slice(2))}
    >>> Results(nodes.get, lambda key: None).of("y")
    Result(nbytes=16, owned=0, view='x', read=0, written=0, decoded=0, inside=0, taken=None)
    """

    def __init__(
        self,
        lookup: Callable[[Key], GraphNode | None],
        known: Facts | Callable[[Key], Any],
        at_most: Callable[[Key], int] = lambda key: 0,
    ) -> None:
        def plain(key: Key) -> GraphNode | None:
            node: GraphNode | None = only_made(unheld(lookup(key), lookup))
            return node

        self._given, self._lookup, self._at_most = lookup, plain, at_most
        self._facts = known if isinstance(known, Facts) else guessed(plain, known)
        self.known: dict[Key, int | None] = {}
        self._reaching = ByIdentity[bool]()

    def of(self, key: Key) -> Result:
        """What a task gives."""
        nbytes, owned, view = self.sizes(key)
        traffic = self.traffic(key)
        if nbytes is not None:
            return Result(nbytes, owned, view, *traffic)
        node = self._lookup(key)
        inside = max(self._at_most(key), most_inside(opened(node) or node, self._size_of))
        return Result(nbytes, owned, view, *traffic, inside, self.taken(key))

    def taken(self, key: Key) -> Taken | None:
        """What the last step of a task of unknown size takes."""
        return taken_by(self._lookup(key), self._size_of)

    def sizes(self, key: Key) -> tuple[int | None, int | None, Key | None]:
        """Bytes of a result, those that it owns, and the result that it is a view of."""
        node = self._lookup(key)
        if type(node) is DataNode:
            given = nbytes_of(node.value)
            return given, given, None
        nbytes = self._size(key)
        if node is None:
            return nbytes, nbytes, None
        if (room := room_shown(self._given(key), self._given)) is not None:
            return nbytes, 0, room
        if type(node) is Alias:
            return nbytes, 0, node.target
        return nbytes, *self._memory(key, node, nbytes)

    def value(self, key: Key) -> Any:
        """What stands for a block, None if nothing is known; see `Facts.value`."""
        found = self._facts.value(key)
        return None if found is UNKNOWN else found

    def _size(self, key: Key) -> int | None:
        """Bytes of a result: as known or declared, or as of what is passed on."""
        sizes, path = self.known, []
        while key not in sizes:
            path.append(key)
            sizes[key] = None
            node = self._lookup(key)
            if gives_nothing(node) or self._gathers_nothing(key, node):
                sizes[key] = SMALL
                break
            if (room := room_of(node)) is not None:
                sizes[key] = room.nbytes
                break
            if is_finalize(key) and (whole := room_shown(node, self._given)) is not None:
                key = whole
                continue
            nbytes = nbytes_of_fact(without_counts(ungated(node), self._facts.value(key)))
            if nbytes is None and type(node) is Task:
                inner = _passed_on(node)
                if (target := target_of(inner)) is not None:
                    key = target
                    continue
                if inner is not node:
                    nbytes = self._size_of(inner)
                elif is_in(node.func, _HOLDING) and not node.dependencies:
                    nbytes = nbytes_of(node.args)
                elif is_finalize(key):
                    nbytes = self._put_together(node)
            sizes[key] = nbytes
        found = sizes[key]
        for each in path:
            sizes[each] = found
        return sizes[path[0] if path else key]

    def _put_together(self, node: Task) -> int | None:
        """Bytes of what a task puts together."""
        if (listed := put_together(node)) is not None and (found := self._size_of(listed)) is not None:
            return found
        parts = [self._size_of(part) for part in gathered(node)]
        return None if None in parts else sum(part or 0 for part in parts)

    def _gathers_nothing(self, key: Key, node: GraphNode | None) -> bool:
        """Whether it is the result of what only stores."""
        if not is_finalize(key) or node is None or not node.dependencies:
            return False
        return all(gives_nothing(self._lookup(dep)) for dep in node.dependencies)

    def _size_of(self, node: Any) -> int | None:
        """Bytes of an expression."""
        if (target := target_of(node)) is not None:
            return self._size(target)
        return nbytes_of_fact(self._value(node)) if isinstance(node, GraphNode) else nbytes_of(node)

    def _memory(self, key: Key, node: Any, nbytes: int | None) -> tuple[int | None, Key | None]:
        """Bytes that a task has of its own, and whose memory it shares."""
        whole = node
        while True:
            if (target := target_of(node)) is not None:
                return 0, target
            if type(node) is not Task:
                return (0, None) if type(node) is DataNode and node is not whole else (nbytes, None)
            if type(node.func) is MethodType and (body := opened(node)) is not None:
                whole, node = body if node is whole else whole, body
                continue
            if node.func is _identity_cast and node.args:
                if any(target_of(arg) is None for arg in node.args):  # a list of what the task makes
                    return self._made(key, node) if node is whole else nbytes, None
                node = node.args[0]
                continue
            if is_in(node.func, _PASSING):
                node = first_argument(node)
                continue
            if ends_in_topk(node.func):
                return self._size_of(node.args[0]) or nbytes, None
            mine = not node.args or not shows_first(node) or self._is_part(node)
            mine = mine or (is_in(node.func, LOADING) and self._is_file(node.args[0]))
            size = nbytes if node is whole else self._size_of(node)
            if mine or self._is_copied(node, size):
                return size or nbytes, None
            node = node.args[0]

    def _made(self, key: Key, listed: Any) -> int:
        """Bytes of those elements of a list that the task makes."""
        values = self._facts.value(key)  # found already, element by element
        if type(values) is not list or len(values) != len(listed.args):
            values = map(self._value, listed.args)
        sizes = [
            nbytes_of_fact(without_counts(arg, value)) if isinstance(arg, GraphNode) else nbytes_of(arg)
            for arg, value in zip(listed.args, values)
            if target_of(arg) is None
        ]
        return sum([size or 0 for size in sizes])

    def _is_copied(self, task: Task, part: int | None) -> bool:
        """Whether a task copies, as dask does where it takes half of an array or less."""
        if task.func is not chunk.getitem:
            return task.func is copy.copy
        whole = None if part is None else self._size_of(task.args[0])
        return whole is not None and part is not None and whole >= 2 * part

    def _is_part(self, task: Task) -> bool:
        """Whether a task takes one of several results: it lets go of the others."""
        if len(task.args) > 1 and type(task.args[1]) in (tuple, slice):
            return False  # a part of an array
        return type(self._value(task.args[0])) in (tuple, list, dict)

    def _value(self, node: Any) -> Any:
        """What stands for the value of an expression."""
        if (target := target_of(node)) is not None:
            return self._facts.value(target)
        return self._facts.value_of_node(node) if isinstance(node, GraphNode) else node

    def _is_file(self, source: Any) -> bool:
        """Whether a getter reads from something else than an array in memory."""
        found = source.value if type(source) is DataNode else self._value(source)
        return type(found) is not Fact and not isinstance(found, np.ndarray)

    def reads(self, calls: Iterable[Task]) -> list[tuple[int | None, int | None]]:
        """Bytes that each getter among calls reads from a file, and those of the chunks that it decodes."""
        found = []
        for call in calls:
            if is_in(call.func, LOADING) and len(call.args) > 1 and self._is_file(call.args[0]):
                source, index = self._value(call.args[0]), literal(call.args[1])
                nbytes = taken(source, index)  # of an array-like, too, of which no result is known
                found.append((self._size_of(call) if nbytes is None else nbytes, decoded(source, index)))
        return found

    def calls(self, node: Any) -> list[Task]:
        """The calls in a task that may read or write; templates are looked at once."""
        return list(calls_of(node)) if reaches_out(node, self._reaching) else []

    def traffic(self, key: Key) -> tuple[int, int, int]:
        """Bytes that a task reads from files, writes into them, and decodes."""
        node = self._lookup(key)
        calls = self.calls(node)
        if not calls:
            return 0, 0, 0
        nbytes = self._size(key) or 0
        reads = [(part or nbytes, chunks) for part, chunks in self.reads(calls)]
        stores = [call.args[0] for call in calls if is_store(call) and call.args]
        sizes = [self._size_of(block) for block in stores]
        if None in sizes and gives_nothing(node):  # made in the task itself: as much as is said of it
            sizes = [nbytes_of_fact(self._facts.value(key))]
        whole = sum([part if chunks is None else chunks for part, chunks in reads])
        return sum([part for part, _ in reads]), sum([size or 0 for size in sizes]), whole


def _passed_on(node: Any) -> Any:
    """The first argument of calls that only pass it on; the node itself if there are none."""
    while type(node) is Task and is_in(node.func, _PASSING):
        node = first_argument(node)
    return node
