"""Where a task stands: what a rule may ask about its surroundings, and what it may put there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeAlias

from dask._task_spec import GraphNode, Task
from dask.typing import Key

from dask_rewrite.analysis.effects import Effect, Effects
from dask_rewrite.graph.graph import Graph, consumers_of, depths_of
from dask_rewrite.passes.context import Context

#: New nodes under their keys, one of them under the key of the task that was asked about.
Replacement: TypeAlias = Mapping[Key, GraphNode]
_NOBODY: list[Key] = []


class Site:
    """Where a task stands: what a rule may ask about its surroundings.

    Parameters
    ----------
    graph : Graph
        The graph as it is now.
    context : Context
        What is shared by all passes.
    """

    def __init__(self, graph: Graph, context: Context) -> None:
        self.graph = graph
        self.context = context
        self._outputs = frozenset(graph.outputs)
        self.changed = False
        self.replaced: set[Key] = set()
        self.facts = context.facts(self.node, self)
        self.effects = Effects()
        self._read_only: dict[Key, bool] = {}
        self._effects: dict[Key, tuple[GraphNode, Effect]] = {}

    @cached_property
    def _users(self) -> Mapping[Key, int]:
        return self.context.users(self.graph)

    @cached_property
    def _own_users(self) -> dict[Key, int]:
        """The users as they change with what is replaced."""
        self._users = own = dict(self._users)
        return own

    @cached_property
    def _consumers(self) -> dict[Key, list[Key]]:
        return consumers_of(self.graph.nodes) if self.changed else self.context.consumers(self.graph)

    @cached_property
    def _depths(self) -> dict[Key, int]:
        return depths_of(self.graph.nodes)

    def node(self, key: Key) -> GraphNode | None:
        """The node under a key, or None for what lies outside the graph."""
        return self.graph.nodes.get(key)

    @cached_property
    def bare(self) -> frozenset[Key]:
        """Keys that something else than a task refers to: they must stay keys."""
        others = [node._dependencies for node in self.graph.nodes.values() if type(node) is not Task]
        return frozenset().union(*others)

    def used_once(self, key: Key) -> bool:
        """Exactly one task uses it and nobody asked for it."""
        return self._users.get(key) == 1 and key not in self._outputs

    def is_shared(self, key: Key) -> bool:
        """A task makes it, and it is there for more than one other task."""
        return type(self.node(key)) is Task and not self.used_once(key)

    def wanted(self, key: Key) -> bool:
        """Somebody asked for it."""
        return key in self._outputs

    def depth(self, key: Key) -> int:
        """Tasks on the longest path down from a key, as it was when this was first asked."""
        return self._depths.get(key, 0)

    def consumers(self, key: Key) -> list[Key]:
        """The tasks that use a key."""
        nodes = self.graph.nodes
        found = self._consumers.get(key, _NOBODY)
        if not self.changed:
            return found
        return [user for user in found if user in nodes and key in nodes[user]._dependencies]

    def effect(self, key: Key) -> Effect:
        """What a task does to its arguments."""
        node = self.graph.nodes[key]
        found = self._effects.get(key)
        if found is None or found[0] is not node:
            found = self._effects[key] = (node, self.effects.of(node))
        return found[1]

    def read_only(self, key: Key) -> bool:
        """Everyone who gets this block, or a view of it, is known not to write into it.

        Outputs count as writers, since they belong to the user. What lies below a block that is read
        only may stand in for it, and then its users are read only too: answers stay true.
        """
        return self.holds_above(key, self._read_only, self._views)

    def _views(self, key: Key) -> list[Key] | None:
        """The users that give a view of a block; None if somebody may write into it."""
        if key in self._outputs:
            return None
        views = []
        for user in self.consumers(key):
            effect = self.effect(user)
            if effect == "unknown":
                return None
            if effect == "view":
                views.append(user)
        return views

    def holds_above(
        self, key: Key, known: dict[Key, bool], passed_on: Callable[[Key], list[Key] | None]
    ) -> bool:
        """Whether something holds of a block and of all blocks that it is passed on to.

        Parameters
        ----------
        key : Key
            The block.
        known : dict
            Answers that were found; filled in.
        passed_on : callable
            From a key to the users of which the same has to hold; None if it does not hold here.
        """
        path = [key]
        opened: set[Key] = set()
        while path:
            here = path[-1]
            if here in known:
                path.pop()
                continue
            users = passed_on(here)
            if users is not None and here not in opened:
                opened.add(here)
                if left := [user for user in users if user not in known]:
                    path.extend(left)
                    continue
            known[here] = users is not None and all(known.get(user, False) for user in users)
        return known[key]

    def same_annotations(self, one: Key, other: Key) -> bool:
        """Both tasks carry the same annotations, or none."""
        annotations = self.graph.annotations
        return not annotations or annotations.get(one) == annotations.get(other)

    def replace(self, key: Key, nodes: Replacement) -> None:
        """Put replacement nodes in; what nobody uses any more goes."""
        users = self._own_users
        if not self.changed:  # graphs are not changed in place: copy at the first rewrite
            if "_consumers" in self.__dict__:
                self._consumers = {dep: list(found) for dep, found in self._consumers.items()}
            self.graph = self.graph.with_nodes(dict(self.graph.nodes))
            self.changed = True
        self.replaced.add(key)
        old = self.graph.nodes[key]
        if (annotated := self.graph.annotations.get(key)) is not None:
            for new in nodes.keys() - self.graph.nodes.keys():  # they do a part of its work
                self.graph.annotations[new] = annotated
        for key_, node in nodes.items():
            here = self.graph.nodes.get(key_)
            for dep in node.dependencies:
                users[dep] = users.get(dep, 0) + 1
                if "_consumers" in self.__dict__ and (here is None or dep not in here.dependencies):
                    self._consumers.setdefault(dep, []).append(key_)
        self.graph.nodes.update(nodes)
        unused = list(old.dependencies)
        while unused:
            dep = unused.pop()
            users[dep] -= 1
            if not users[dep] and dep not in self._outputs and dep in self.graph.nodes:
                unused.extend(self.graph.nodes.pop(dep).dependencies)
                self.graph.annotations.pop(dep, None)
