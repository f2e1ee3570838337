"""The order in which tasks are looked at: producers before consumers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dask.typing import Key


def producers_first(keys: set[Key], nodes: Mapping[Key, Any]) -> Iterator[Key]:
    """The keys in an order in which each follows those that it uses; the same in every process.

    Graphs are written consumers first, so that most come the right way round when read backwards.
    """
    waiting = set(keys)
    late = []
    for key in reversed(list(nodes)):
        if key in keys:
            if nodes[key]._dependencies.isdisjoint(waiting):
                waiting.discard(key)
                yield key
            else:
                late.append(key)
    place = {key: i for i, key in enumerate(late)}
    for start in late:
        stack = [start]
        opened: set[Key] = set()
        while stack:
            key = stack[-1]
            before = [dep for dep in nodes[key]._dependencies if dep in waiting and dep not in opened]
            if before and key not in opened and key in waiting:
                opened.add(key)
                before.sort(key=place.__getitem__)
                stack.extend(before)
                continue
            stack.pop()
            if key in waiting:
                waiting.discard(key)
                yield key
