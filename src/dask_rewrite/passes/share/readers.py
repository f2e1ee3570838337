"""Blocks that everyone who gets them only reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain, repeat

from dask.typing import Key

from dask_rewrite.graph.graph import Consumers, Nodes
from dask_rewrite.passes.share.bulk_effects import Behaviour


def users_of(keys: Iterable[Key], consumers: Consumers) -> Iterable[Key]:
    """The tasks that use any of these keys, once for each key that they use."""
    return chain.from_iterable(map(consumers.get, keys, repeat(())))


def written(
    keys: Iterable[Key],
    nodes: Nodes,
    consumers: Consumers,
    outputs: Collection[Key],
    behaviour: Behaviour,
) -> set[Key]:
    """Blocks of which it is not known that nobody writes into them, or into a view of them.

    Outputs belong to the user, who may write into them; these are not among the answers unless they are
    used as well.

    Parameters
    ----------
    keys : iterable of Key
        The blocks to find out about; the answer may hold others.
    nodes, consumers
        The graph.
    outputs : collection of Key
        What is asked for.
    behaviour : Behaviour
        What the tasks do to their arguments.

    Examples
    --------
    >>> import operator
    >>> from dask._task_spec import Task, TaskRef
    >>> from dask_rewrite.graph.graph import consumers_of
    >>> nodes = {"y": Task("y", operator.getitem, TaskRef("x"), 0), "z": Task("z", sorted, TaskRef("y"))}
    >>> sorted(written(["x"], nodes, consumers_of(nodes), ["z"], Behaviour(nodes)))
    ['x', 'y']
    """
    views: set[Key] = set()
    writers: list[Key] = []
    seen: set[Key] = set()
    wave: Iterable[Key] = keys
    while new := [user for user in dict.fromkeys(users_of(wave, consumers)) if user not in seen]:
        seen.update(new)
        reading: list[Key] = []
        for user, (effect, _) in zip(new, behaviour.of(new)):
            if effect == "unknown":
                writers.append(user)
            elif effect == "view":
                views.add(user)
                (writers if user in outputs else reading).append(user)
        wave = reading
    found: set[Key] = set()
    while writers:
        for dep in nodes[writers.pop()]._dependencies:
            if dep not in found:
                found.add(dep)
                if dep in views:
                    writers.append(dep)
    return found
