"""Check that a task graph is whole: the last thing done to every rewritten graph.

This runs on every rewrite, so it has to cost about a microsecond a task. Each property is first tested
for all tasks at once with operations that run in C (set inclusion, list equality, ``map`` over slots),
and a task is looked at on its own only to say what is wrong with it. Nothing here recurses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from dask._task_spec import GraphNode, NestedContainer, Task

from dask_rewrite.graph.nesting import NESTING_LIMIT, check_depth, nested_in, tasks_in
from dask_rewrite.graph.nodes import dependencies_of, key_of, needs_of
from dask_rewrite.graph.templates import is_template

if TYPE_CHECKING:
    from dask.typing import Key

    from dask_rewrite.graph.graph import Graph


class VerificationError(Exception):
    """A rewritten graph is not sound. ``key`` is the task or output that is at fault."""

    def __init__(self, message: str, key: Key | None = None) -> None:
        super().__init__(message)
        self.key = key


def verify(
    graph: Graph, *, external: Collection[Key] = (), limit: int | None = NESTING_LIMIT, thorough: bool = False
) -> None:
    """Raise :class:`VerificationError` unless ``graph`` can be given to a scheduler.

    Every node is a dask graph node under its own key, every output is present, every dependency is a
    node or one of the ``external`` keys (those of futures), no task depends on itself through others,
    and no task is nested deeper than ``limit``.

    Parameters
    ----------
    graph : Graph
        The graph to look at. It is not changed.
    external : collection of keys
        Keys that exist outside of this graph.
    limit : int or None
        How many tasks may be nested one inside the other; None: not looked at, which saves two thirds
        of the time.
    thorough : bool
        Also compare the dependencies that each task states with the references that it holds, and the
        names that templates and programs read with those they are given. This looks at every argument
        and takes several times as long.

    Examples
    --------
    >>> from dask._task_spec import Alias, DataNode
    >>> from dask_rewrite.graph.graph import Graph
    >>> verify(Graph({"a": DataNode("a", 1), "b": Alias("b", "a")}, ("b",), {}))
    >>> verify(Graph({"b": Alias("b", "a")}, ("b",), {}))
    Traceback (most recent call last):
        ...
    dask_rewrite.graph.verify.VerificationError: task 'b' depends on 'a', which is not in the graph
    """
    nodes = graph.nodes
    _check_nodes(nodes)
    _check_outputs(graph.outputs, nodes, external)
    _check_edges(nodes, external)
    if limit is not None:
        _check_nesting(nodes, limit)
    if thorough:
        for key, node in nodes.items():
            _check_references(key, node)


def is_acyclic(nodes: Mapping[Key, GraphNode]) -> bool:
    """Whether no node depends on itself through others. Keys that are not in ``nodes`` are ignored.

    >>> from dask._task_spec import Alias
    >>> is_acyclic({"a": Alias("a", "b"), "b": Alias("b", "c")})
    True
    >>> is_acyclic({"a": Alias("a", "b"), "b": Alias("b", "a")})
    False
    """
    known: set[Key] = set()
    late = _settle(nodes, known)
    known.update(set().union(*late.values()).difference(nodes))
    return _find_cycle(late, known) is None


def _check_nodes(nodes: Mapping[Key, GraphNode]) -> None:
    if foreign := {kind for kind in set(map(type, nodes.values())) if not issubclass(kind, GraphNode)}:
        key, node = next((key, node) for key, node in nodes.items() if type(node) in foreign)
        raise VerificationError(f"{key!r} holds a {type(node).__name__}, not a dask graph node", key)
    if list(map(key_of, nodes.values())) != list(nodes):
        key, node = next((key, node) for key, node in nodes.items() if node.key != key)
        raise VerificationError(f"task {key!r} believes that its key is {node.key!r}", key)


def _check_outputs(
    outputs: Collection[Key], nodes: Mapping[Key, GraphNode], external: Collection[Key]
) -> None:
    if len(set(outputs)) < len(outputs):
        key = next(key for key, times in Counter(outputs).items() if times > 1)
        raise VerificationError(f"output {key!r} is listed twice", key)
    if missing := set(outputs).difference(nodes, external):
        key = next(key for key in outputs if key in missing)
        raise VerificationError(f"output {key!r} is not in the graph", key)


def _check_edges(nodes: Mapping[Key, GraphNode], external: Collection[Key]) -> None:
    known = set(external)
    late = _settle(nodes, known)
    if not late:
        return
    if missing := set().union(*late.values()).difference(nodes, external):
        key = next(key for key, needs in late.items() if not missing.isdisjoint(needs))
        lost = min(missing.intersection(late[key]), key=str)
        raise VerificationError(f"task {key!r} depends on {lost!r}, which is not in the graph", key)
    if cycle := _find_cycle(late, known):
        shown = cycle if len(cycle) <= 8 else [*cycle[:4], "...", *cycle[-3:]]
        path = " -> ".join(part if part == "..." else repr(part) for part in [*shown, cycle[0]])
        raise VerificationError(f"task {cycle[0]!r} depends on itself: {path}", cycle[0])


def _check_nesting(nodes: Mapping[Key, GraphNode], limit: int) -> None:
    level = tasks_in(list(nodes.values()))
    for _ in range(limit):
        level = nested_in(level)
        if not level:
            return
    key = next(key for key, node in nodes.items() if not check_depth(node, limit))
    raise VerificationError(f"task {key!r} is nested more than {limit} deep", key)


def _check_references(key: Key, node: GraphNode) -> None:
    stack: list[Any] = [node]
    seen: set[int] = set()
    while stack:
        task = stack.pop()
        if id(task) in seen:
            continue
        seen.add(id(task))
        stack += nested_in(tasks_in([task]))
        if type(task) is not Task and not isinstance(task, NestedContainer):
            continue  # a class that may have its own idea of what it depends on
        if odd := needs_of(chain(task.args, task.kwargs.values())) ^ task.dependencies:
            raise VerificationError(
                f"task {key!r} states other dependencies than it holds: {_some(odd)}", key
            )
        _check_names(key, task)


def _check_names(key: Key, task: Task) -> None:
    """Templates and programs (``pipe(dict, S.__call__, ...)``) read no other names than they are given."""
    given = next(chain(task.args, task.kwargs.values()), None)
    if not isinstance(given, Task) or given.func is not dict or given.args:
        return
    names: Collection[Key] = given.kwargs.keys()
    for call in (task.func, *task.args[1:]):
        if is_template(call):
            owner = call.__self__
            if lost := owner.dependencies.difference(names):
                raise VerificationError(f"task {key!r} reads {_some(lost)} inside, which is not given", key)
            names = owner.kwargs.keys() if owner.func is dict else ()


def _some(keys: Iterable[Key]) -> str:
    shown = sorted(map(repr, keys))
    return ", ".join(shown[:3]) + (", ..." if len(shown) > 3 else "")


def _dependencies(nodes: Collection[GraphNode]) -> Iterable[frozenset[Key]]:
    """The dependencies of each node: from the slot if no class overrides it, as a property costs a call."""
    plain = GraphNode.dependencies
    if all(getattr(kind, "dependencies", None) is plain for kind in set(map(type, nodes))):
        return map(dependencies_of, nodes)
    return map(attrgetter("dependencies"), nodes)


def _settle(nodes: Mapping[Key, GraphNode], known: set[Key]) -> dict[Key, frozenset[Key]]:
    """Add to ``known`` what depends on known keys only, as far as a few sweeps get; return the others.

    A graph that is written down in the order of its dependencies, or just the other way around, is
    settled in one sweep or two, at a fraction of the price of walking it. That proves at once that nothing
    is missing and that nothing goes in a circle.
    """
    add = known.add
    late = {}
    for key, needs in zip(reversed(list(nodes)), reversed(list(_dependencies(nodes.values()))), strict=True):
        if needs <= known:  # graphs are written consumers first
            add(key)
        else:
            late[key] = needs
    before = 2 * len(late) + 1
    while late and 2 * len(late) < before:
        before = len(late)
        still_late = {}
        for key, needs in reversed(late.items()):
            if needs <= known:
                add(key)
            else:
                still_late[key] = needs
        late = still_late
    return late


def _find_cycle(late: Mapping[Key, frozenset[Key]], known: set[Key]) -> list[Key] | None:
    """Walk ``late`` depth first, adding to ``known`` what lies on no cycle; return the first cycle met.

    A key that is open and not known lies on the path from the root to the key at hand, because all that
    was pushed above a key is known before the key comes to the top again. To meet an open key that still
    waits for something is thus to have come around in a circle.
    """
    opened: dict[Key, None] = {}
    for root in late:
        stack = [root]
        while stack:
            key = stack[-1]
            if key in known:
                stack.pop()
                continue
            waiting = late[key] - known
            if not waiting:
                known.add(stack.pop())
            elif key in opened:
                path = [opened_key for opened_key in opened if opened_key not in known]
                return path[path.index(key) :]
            else:
                opened[key] = None
                stack.extend(waiting)
    return None
