"""The task-level graph that passes rewrite: dask's own nodes under their keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from dask._task_spec import GraphNode, Task
from dask.typing import Key

from dask_rewrite.graph.nodes import dependencies_of, func_of

Nodes = dict[Key, GraphNode]
Consumers = Mapping[Key, Sequence[Key]]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Size and shape of a graph.

    Parameters
    ----------
    tasks : int
        Number of nodes.
    depth : int
        Nodes on the longest path.
    max_fan_in : int
        Most dependencies of any one node.
    nbytes : int or None
        Bytes of the pickled graph, where they were asked for.
    """

    tasks: int
    depth: int
    max_fan_in: int
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What is declared of the raw graph that tasks came from, and under which names they came.

    Parameters
    ----------
    token : str
        Stands for the raw graph and what was asked of it; empty if unknown.
    shared : bool
        Others whom nobody knows may hold the same blocks: what loads stays a task of its own.
    elementwise : frozenset of str
        Names (``key[0]``) of the blocks that came from Blockwise layers.
    names : mapping
        Names of layers and text keys as they were, by the names that they have now.
    kept : sequence of Key
        Inner tasks that kept their names, since they depended on nothing.
    aliased : set of Key
        Blocks that something refers to by another name: dask does not look through aliases when it fuses.
    """

    token: str = ""
    shared: bool = False
    elementwise: frozenset[str] = frozenset()
    names: Mapping[Any, Any] = field(default_factory=dict)
    kept: Sequence[Key] = ()
    aliased: AbstractSet[Key] = frozenset()


@dataclass(slots=True)
class Graph:
    """Tasks under their keys, with the keys that somebody asked for.

    Parameters
    ----------
    nodes : dict of Key to GraphNode
        ``node.key`` equals the key that it stands under.
    outputs : tuple of Key
        Flat and unique; a pass never renames or drops one.
    annotations : dict of Key to dict
        Annotations of the tasks that have any, callables already evaluated.
    held : dict of Key to object
        Futures that stand in the graph as values: kept alive with it, under their keys.
    external : set of Key
        Keys that tasks refer to and that live elsewhere: those of futures.
    origin : Origin
        Where the graph came from.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef, DataNode
    >>> graph = Graph({"a": DataNode("a", 1), "b": Task("b", abs, TaskRef("a"))}, ("b",))
    >>> graph.metrics()
    Metrics(tasks=2, depth=2, max_fan_in=1, nbytes=None)
    """

    nodes: Nodes
    outputs: tuple[Key, ...]
    annotations: dict[Key, dict[str, Any]] = field(default_factory=dict)
    held: dict[Key, Any] = field(default_factory=dict)
    external: set[Key] = field(default_factory=set)
    origin: Origin = field(default_factory=Origin)

    def with_nodes(self, nodes: Nodes) -> Graph:
        """The same graph over other nodes, for passes that leave nothing unused behind."""
        annotations = self.annotations
        if annotations:
            annotations = {key: value for key, value in annotations.items() if key in nodes}
        return replace(self, nodes=nodes, annotations=annotations)

    def metrics(self) -> Metrics:
        """Size and shape, as :func:`metrics_of` measures them."""
        return metrics_of(self.nodes)


def count_users(nodes: Mapping[Key, GraphNode]) -> Counter[Key]:
    """How many tasks use each key; keys that nobody uses are absent, and looked up are zero.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> count_users({"y": Task("y", abs, TaskRef("x"))})["x"]
    1
    """
    return Counter(chain.from_iterable(map(dependencies_of, nodes.values())))


def by_function(nodes: Mapping[Key, GraphNode]) -> dict[int, list[Task]]:
    """The tasks that call each function, which are told apart by identity.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> by_function({"y": Task("y", abs, TaskRef("x"))})[id(abs)][0].key
    'y'
    """
    called: defaultdict[int, list[Task]] = defaultdict(list)
    tasks = [node for node in nodes.values() if type(node) is Task]
    for func, task in zip(map(id, map(func_of, tasks)), tasks):
        called[func].append(task)
    return dict(called)


def consumers_of(nodes: Mapping[Key, GraphNode]) -> dict[Key, list[Key]]:
    """The tasks that use each key.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> consumers_of({"y": Task("y", abs, TaskRef("x"))})["x"]
    ['y']
    """
    consumers: defaultdict[Key, list[Key]] = defaultdict(list)
    for key, node in nodes.items():
        for dep in node._dependencies:
            consumers[dep].append(key)
    consumers.default_factory = None  # from here on a dict like any other
    return consumers


def metrics_of(nodes: Mapping[Key, GraphNode]) -> Metrics:
    """Measure a graph in one pass without recursion.

    Examples
    --------
    >>> metrics_of({})
    Metrics(tasks=0, depth=0, max_fan_in=0, nbytes=None)
    """
    widest = max((len(node.dependencies) for node in nodes.values()), default=0)
    return Metrics(len(nodes), max(depths_of(nodes).values(), default=0), widest)


def depths_of(nodes: Mapping[Key, GraphNode]) -> dict[Key, int]:
    """For each node, how many nodes lie on the longest path down from it.

    Examples
    --------
    >>> from dask._task_spec import DataNode, Task, TaskRef
    >>> depths_of({"a": DataNode("a", 1), "b": Task("b", abs, TaskRef("a"))})
    {'a': 1, 'b': 2}
    """
    depth: dict[Key, int] = {}
    depth_of, done = depth.__getitem__, depth.keys()
    opened: set[Key] = set()  # a cycle ends here instead of looping for ever
    for start in reversed(list(nodes)):  # graphs are written consumers first
        needs = nodes[start]._dependencies
        if done >= needs:  # as nearly always
            depth[start] = 1 + max(map(depth_of, needs)) if needs else 1
            continue
        stack = [start]
        while stack:
            key = stack[-1]
            if key in depth:
                stack.pop()
                continue
            deps = nodes[key]._dependencies
            if not done >= deps:
                missing = [dep for dep in deps if dep not in depth and dep in nodes]
                if missing and key not in opened:
                    opened.add(key)
                    stack.extend(missing)
                    continue
                deps = deps.intersection(depth)
            depth[key] = 1 + max(map(depth_of, deps), default=0)
            stack.pop()
    return depth


def producers_first(keys: Sequence[Key], nodes: Mapping[Key, Any]) -> Iterator[Key]:
    """The keys in an order in which each follows those that it uses; the same in every process.

    Graphs are written consumers first, so that most keys that come in the order of the graph come the
    right way round when read backwards.
    """
    waiting = set(keys)
    late = []
    for key in reversed(keys):
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


def reachable(nodes: Mapping[Key, GraphNode], outputs: Iterable[Key]) -> set[Key]:
    """What outputs need of a graph, themselves included; loops do not keep each other.

    Examples
    --------
    >>> from dask._task_spec import DataNode, Task, TaskRef
    >>> nodes = {"x": DataNode("x", 1), "y": Task("y", abs, TaskRef("x")), "z": DataNode("z", 2)}
    >>> sorted(reachable(nodes, ["y"]))
    ['x', 'y']
    """
    found = {key for key in outputs if key in nodes}
    stack = list(found)
    while stack:
        new = {dep for dep in nodes[stack.pop()].dependencies if dep not in found and dep in nodes}
        found |= new
        stack.extend(new)
    return found


def without_users(nodes: Nodes, outputs: Iterable[Key]) -> Counter[Key]:
    """Take out, in place, what no output needs any more; how many tasks then use each key.

    Examples
    --------
    >>> from dask._task_spec import DataNode, Task, TaskRef
    >>> nodes = {"x": DataNode("x", 1), "y": Task("y", abs, TaskRef("x")), "z": DataNode("z", 2)}
    >>> without_users(nodes, ["z"]), list(nodes)
    (Counter(), ['z'])
    """
    users = count_users(nodes)
    wanted = set(outputs)
    unused = [key for key in nodes if key not in users and key not in wanted]
    while unused:
        node: GraphNode = nodes.pop(unused.pop())
        for dep in node._dependencies:
            left = users[dep] - 1
            if left:
                users[dep] = left
                continue
            del users[dep]
            if dep not in wanted and dep in nodes:
                unused.append(dep)
    return users
