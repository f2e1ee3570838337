"""Tasks in about the order in which a scheduler runs them, without what finding its very order costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dask._task_spec import GraphNode
from dask.typing import Key


def depth_first(nodes: Mapping[Key, GraphNode], outputs: Iterable[Key]) -> Iterator[Key]:
    """All that an output needs, then the output, then the next.

    Examples
    --------
    >>> from dask._task_spec import DataNode, Task, TaskRef
    >>> nodes = {"y": Task("y", abs, TaskRef("b")), "a": DataNode("a", 1), "b": DataNode("b", 2)}
    >>> list(depth_first(nodes, ["y", "a"]))
    ['b', 'y', 'a']
    """
    place = {key: i for i, key in enumerate(nodes)}
    done: set[Key] = set()
    stack = sorted(outputs, key=place.__getitem__, reverse=True)
    while stack:
        key = stack[-1]
        missing = [] if key in done else [dep for dep in nodes[key]._dependencies if dep not in done]
        if missing:
            stack += sorted(missing, key=place.__getitem__, reverse=True)
            continue
        stack.pop()
        if key not in done:
            done.add(key)
            yield key
