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
    seen: set[int] = set()
    order = [number for start in lists for number in _reached(start, lists, seen)]
    above: dict[int, list[int]] = {}
    for number in order:
        for dep in lists.get(number, ()):
            above.setdefault(dep, []).append(number)
    # what is made of itself: strongly connected components, as Kosaraju finds them
    circles = {number for number, deps in lists.items() if number in deps}
    seen.clear()
    for start in reversed(order):
        if len(group := _reached(start, above, seen)) > 1:
            circles.update(group)
    names = list(numbers)
    return [names[number] for number in order if number not in circles]


def _reached(start: int, ways: Mapping[int, Sequence[int]], seen: set[int]) -> list[int]:
    """All that is reached from here and was not seen before, each after what it leads to."""
    found: dict[int, None] = {}
    stack = [start] if start not in seen else []
    while stack:
        here = stack[-1]
        if here not in seen:
            seen.add(here)
            stack.extend([number for number in ways.get(here, ()) if number not in seen])
        else:
            found[stack.pop()] = None
    return list(found)
