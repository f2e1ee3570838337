"""Whether blocks are held for neighbours: what is asked before a graph is ordered in several ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from dask._task_spec import DataNode, Task
from dask.typing import Key
from toolz import groupby

from dask_rewrite.analysis.effects import gives_view
from dask_rewrite.analysis.estimates import likely_bytes
from dask_rewrite.graph.kinds import is_array
from dask_rewrite.graph.names import is_finalize, kind_name, layer_name
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.waiting import Waiting

#: A task that needs one part in so many of all that is made is not done soon after its first block is there.
_PART = 4
#: What is left of a block weighs one part in so many of it: a partial result.
_PARTIAL = 8


def may_take_turns(site: Site, least: int, more: float) -> bool:
    """Whether many blocks may be there at one time for their neighbours' sake, in some order but not in all.

    Parameters
    ----------
    site : Site
        The graph, and what is known of it: one block of each layer is looked at.
    least : int
        Bytes of the blocks of one kind (arrays of one name) that are held like that.
    more : float
        So many times what is asked for has to be made: no order holds less than that in the end.
    """
    layers = groupby(layer_name, site.graph.nodes)
    much = [found for found in _shared(site, layers) if sum([nbytes for _, nbytes in found]) >= least]
    if not much:
        return False
    made = [keys for name, keys in layers.items() if not is_finalize(name)]
    total = sum([likely_bytes(site.facts, _middle(keys)) * len(keys) for keys in made])
    if total < more * sum([likely_bytes(site.facts, key) for key in site.graph.outputs]):
        return False
    blocks = _Blocks(site)
    held = ([nbytes for key, nbytes in found if blocks.may_stay(key)] for found in much)
    return any(sum(sizes) >= least for sizes in held)


def _shared(site: Site, layers: Mapping[Any, Sequence[Key]]) -> Iterable[list[tuple[Key, int]]]:
    """Blocks with several users by their kind: one of each layer, and the bytes of all of these."""
    users = site.context.users(site.graph)
    kinds: defaultdict[str, list[tuple[Key, int]]] = defaultdict(list)
    for keys in layers.values():
        shared = [key for key in keys if users[key] > 1]
        if (
            shared
            and type(site.node(key := _middle(shared))) is Task
            and (nbytes := likely_bytes(site.facts, key))
        ):
            kinds[kind_name(key)].append((key, nbytes * len(shared)))  # perhaps of a layer for each file
    return kinds.values()


def _middle(keys: Sequence[Key]) -> Key:
    """One block of a layer: at the edges there are smaller ones."""
    return keys[len(keys) // 2]


class _Blocks:
    """Which blocks may stay for others, though nobody waits for long."""

    def __init__(self, site: Site) -> None:
        self._site, self._nodes, self._waiting = site, site.graph.nodes, Waiting(site, _PART)
        self._looks = len(self._nodes)  # as many tasks are looked at, all blocks taken together

    def may_stay(self, key: Key) -> bool:
        """Whether a block is made, and may be there until its neighbours are, depending on the order."""
        if any(is_array(self._site.node(dep)) for dep in self._nodes[key]._dependencies):
            return False  # a part of what is in memory anyway
        users = self._site.consumers(key)
        if any(map(self._waiting.needs_much, users)) or all(self._lets_go(user, key) for user in users):
            return False
        if any(self._is_last(user, users) for user in reversed(users)):
            return False
        return not self._wait_alike(key, users)

    def _lets_go(self, user: Key, block: Key) -> bool:
        """Whether a task needs nothing but a block, and leaves little of it."""
        node = self._nodes[user]
        if len(node._dependencies) > 1 or gives_view(node):
            return False
        facts = self._site.facts
        return 0 < likely_bytes(facts, user) * _PARTIAL <= likely_bytes(facts, block)

    def _is_last(self, last: Key, users: Sequence[Key]) -> bool:
        """Whether a user waits for all others, as in ``x - x.mean(axis=0)``, for whom a block stays."""
        self._looks -= len(users)
        if self._looks < 0:
            return False
        others = {*users} - {last}
        for deps in self._below(last, frozenset()):
            others.difference_update(deps)
            if not others:
                return True
        return False

    def _wait_alike(self, block: Key, users: Sequence[Key]) -> bool:
        """Whether all that becomes of a block waits for the same others of its kind, as in a rechunk.

        Then none can go before all of these are there.
        """
        kind, found = kind_name(block), set[frozenset[Key]]()
        seen, stack = {*users}, [*users]
        while stack and len(found) < 2 and self._looks > 0:
            here = stack.pop()
            self._looks -= 1
            needs = self._nodes[here]._dependencies
            if sum([type(self._site.node(dep)) is not DataNode for dep in needs]) > 1:
                found.add(self._waits_for(here, kind))
                continue
            new = [user for user in self._site.consumers(here) if user not in seen]
            seen.update(new)
            stack += new
        return self._looks > 0 and len(found) == 1 and len(found.pop()) > 1

    def _waits_for(self, key: Key, kind: str) -> frozenset[Key]:
        """The blocks of a kind that a task waits for, the first ones on each way down."""
        found: set[Key] = set()
        for deps in self._below(key, found):
            found.update([dep for dep in deps if kind_name(dep) == kind])
        return frozenset(found)

    def _below(self, key: Key, ends: Set[Key]) -> Iterator[list[Key]]:
        """What a task needs, then what each of these needs but for the ends, as far as may be looked at."""
        seen, stack = {key}, [key]
        while stack and self._looks > 0:
            self._looks -= 1
            deps = [dep for dep in self._nodes[stack.pop()]._dependencies if dep in self._nodes]
            yield deps
            stack += [dep for dep in deps if dep not in seen and dep not in ends]
            seen.update(deps)
