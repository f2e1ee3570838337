"""Whether blocks are held for neighbours: what is asked before a graph is ordered in several ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dask._task_spec import Task
from dask.typing import Key
from dask.utils import key_split
from toolz import groupby

from dask_rewrite.analysis.effects import gives_view
from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.graph.kinds import is_array
from dask_rewrite.graph.names import is_finalize, layer_name
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
    sizes = {name: 0 if is_finalize(name) else _nbytes(site, _middle(keys)) for name, keys in layers.items()}
    made = sum([sizes[name] * len(keys) for name, keys in layers.items()])
    if made < more * sum([_nbytes(site, key) for key in site.graph.outputs]):
        return False
    waiting = Waiting(site, _PART)
    held = ([nbytes for key, nbytes in found if _is_held(site, key, waiting)] for found in much)
    return any(sum(sizes) >= least for sizes in held)


def _shared(site: Site, layers: Mapping[Any, Sequence[Key]]) -> Iterable[list[tuple[Key, int]]]:
    """Blocks with several users by their kind: one of each layer, and the bytes of all of these."""
    users = site.context.users(site.graph)
    kinds: defaultdict[str, list[tuple[Key, int]]] = defaultdict(list)
    for name, keys in layers.items():
        shared = [key for key in keys if users.get(key, 0) > 1]
        if shared and type(site.node(key := _middle(shared))) is Task and (nbytes := _nbytes(site, key)):
            kinds[key_split(name)].append((key, nbytes * len(shared)))
    return kinds.values()


def _middle(keys: Sequence[Key]) -> Key:
    """One block of a layer: at the edges there are smaller ones."""
    return keys[len(keys) // 2]


def _is_held(site: Site, key: Key, waiting: Waiting) -> bool:
    """Whether a block is made and may stay until its neighbours are there, though nobody waits for long."""
    if any(is_array(site.node(dep)) for dep in getattr(site.node(key), "_dependencies", ())):
        return False  # a part of what is in memory anyway
    users = site.consumers(key)
    if any(map(waiting.needs_much, users)) or all(_lets_go(site, user, key) for user in users):
        return False
    return not _has_last(site, users)


def _lets_go(site: Site, user: Key, block: Key) -> bool:
    """Whether a task needs nothing but a block, and leaves little of it."""
    node = site.graph.nodes[user]
    if len(node._dependencies) > 1 or gives_view(node):
        return False
    return 0 < _nbytes(site, user) * _PARTIAL <= _nbytes(site, block)


def _has_last(site: Site, users: Sequence[Key]) -> bool:
    """Whether one user waits for all others, as in ``x - x.mean(axis=0)``: until then a block has to stay."""
    nodes = site.graph.nodes
    for last in reversed(users):
        others, seen, stack = {*users} - {last}, {last}, [last]
        while stack and others:
            deps = [dep for dep in nodes[stack.pop()]._dependencies if dep in nodes and dep not in seen]
            seen.update(deps)
            others.difference_update(deps)
            stack += deps
        if not others:
            return True
    return False


def _nbytes(site: Site, key: Key) -> int:
    block = estimate(site.facts, key)
    return 0 if block is None else block.nbytes
