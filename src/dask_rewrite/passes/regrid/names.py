"""Which arrays are made of which, by the names of their blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import layer_name


def producers_first(graph: Graph) -> list[Any]:
    """Names, each after those that its blocks are made of; those in circles are left out.

    No block under such a name is made, in any number of steps, of another block under it.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> nodes = {key: Task(key, abs, TaskRef(of)) for key, of in ((("y", 0), ("x", 0)), (("z", 1), ("z", 0)))}
    >>> producers_first(Graph(nodes, (("y", 0),)))
    ['x', 'y']
    """
    # in the order of the graph: what a task depends on comes in another one in each process
    numbers = {name: number for number, name in enumerate(dict.fromkeys(map(layer_name, graph.nodes)))}
    below: dict[int, set[int]] = {}
    for key, node in graph.nodes.items():
        mine = below.setdefault(numbers[layer_name(key)], set())
        for dep in node._dependencies:
            mine.add(numbers.setdefault(layer_name(dep), len(numbers)))
    lists = {number: sorted(deps) for number, deps in below.items()}
    order = _postorder(list(lists), lists)
    above: dict[int, list[int]] = {}
    for number in order:
        for dep in lists.get(number, ()):
            above.setdefault(dep, []).append(number)
    circles = _in_circles(order, lists, above)
    names = list(numbers)
    return [names[number] for number in order if number not in circles]


def _postorder(starts: Sequence[int], below: Mapping[int, Sequence[int]]) -> list[int]:
    found: dict[int, None] = {}
    opened: set[int] = set()
    for start in starts:
        stack = [start]
        while stack:
            here = stack[-1]
            if here not in opened:
                opened.add(here)
                stack.extend([dep for dep in below.get(here, ()) if dep not in opened])
            else:
                stack.pop()
                found[here] = None
    return list(found)


def _in_circles(
    order: Sequence[int], below: Mapping[int, Sequence[int]], above: Mapping[int, Sequence[int]]
) -> set[int]:
    """What is made of itself: strongly connected components, as Kosaraju finds them."""
    circles = {number for number in order if number in below.get(number, ())}
    seen: set[int] = set()
    for start in reversed(order):
        if start in seen:
            continue
        group, stack = [], [start]
        seen.add(start)
        while stack:
            here = stack.pop()
            group.append(here)
            for user in above.get(here, ()):
                if user not in seen:
                    seen.add(user)
                    stack.append(user)
        if len(group) > 1:
            circles.update(group)
    return circles
