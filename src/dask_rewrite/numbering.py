"""Which tasks compute the same: equal numbers for equal tasks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from types import MethodType
from typing import Any

import numpy as np
from dask._task_spec import DataNode, Task
from dask.typing import Key

from dask_rewrite.facts import Fact
from dask_rewrite.identity import Identity
from dask_rewrite.knowledge import known
from dask_rewrite.rules import Site

#: How text keys begin that passes of this package make.
OURS = ("tree-sum-", "contract-", "movement-")


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """Tasks that compute the same; the fact that says so if they make the same constant."""

    members: list[Key]
    constant: Fact | None


class Numbering:
    """Numbers of tasks: equal for those that compute the same, absent for those that are the only one.

    Consumers of tasks that have a number are looked at in the order of their height, so that each is
    looked at once: tasks that compute the same are equally high, if constants count as leaves.

    Parameters
    ----------
    site : Site
        The graph, which must not change.
    constants : bool
        Whether blocks of one constant are the same whoever made them.

    Attributes
    ----------
    tokens : dict
        Of the tasks that were looked at: equal where the tasks are, but for the numbers of others.
    classes : list of Same
        The tasks that have a number.
    """

    def __init__(self, site: Site, constants: bool) -> None:
        self.site = site
        self.tokens: dict[Key, Hashable] = {}
        self.numbers: dict[Key, Same] = {}
        self.classes: list[Same] = []
        self._find_constants = constants
        self._identity = Identity(lambda key: self.numbers.get(key, key))
        self._pure: dict[Hashable, bool] = {}
        self._facts: dict[Hashable, Fact | None] = {}
        self._known: dict[Hashable, Same] = {}
        self._heights: dict[Key, int] = {}
        self._frontier: list[Key] = []
        self._annotations = site.graph.annotations

    def run(self, leaves: Iterable[Key]) -> None:
        """Number all that can be numbered, from the leaves up."""
        self._leaves(leaves)
        if self._frontier:
            self._spread()
            self._rest()

    def _leaves(self, keys: Iterable[Key]) -> None:
        nodes = self.site.graph.nodes
        groups: dict[Hashable, list[Key]] = {}
        for key in keys:
            node = nodes[key]
            if type(node) is Task:
                func = node.func
                owner = func.__self__ if type(func) is MethodType else func
                groups.setdefault((id(owner), len(node.args)), []).append(key)
            elif type(node) is DataNode:
                groups.setdefault(_sketch(node.value), []).append(key)
        for group in groups.values():
            node = nodes[group[0]]
            if isinstance(node, Task) and type(node.func) is not MethodType:
                found = known(node.func)
                if found is None or not found.pure:
                    continue
            fact = self.site.facts.of(group[0]) if self._find_constants else None
            constants = fact is not None and fact.fill is not None
            if len(group) > 1 or constants:
                self._compare(group, constants)

    def _spread(self) -> None:
        """Find what is made of constants alone, and may be a constant itself."""
        site = self.site
        missing: dict[Key, int] = {}
        queue = [key for same in self.classes if same.constant is not None for key in same.members]
        for key in queue:  # grows
            for user in site.consumers(key):
                node = site.graph.nodes[user]
                left = missing[user] = missing.get(user, len(node._dependencies)) - 1
                if not left and type(node) is Task and not _delayed(user) and user not in self.numbers:
                    token = self._token(user)
                    fact = self._fact(token, user)
                    if fact is not None and fact.fill is not None:
                        self._number(token, [user], fact)
                        queue.append(user)

    def _rest(self) -> None:
        """Number what uses tasks that have a number, from the bottom up."""
        nodes, numbers = self.site.graph.nodes, self.numbers
        waiting: dict[int, dict[Key, None]] = {}
        heights: list[int] = []
        while self._frontier or heights:
            for key in self._frontier:
                for user in self.site.consumers(key):
                    if user in numbers or type(nodes[user]) is not Task or _delayed(user):
                        continue
                    height = self._height(user)
                    if height not in waiting:
                        waiting[height] = {}
                        heappush(heights, height)
                    waiting[height][user] = None
            self._frontier = []
            if heights:
                self._level(waiting.pop(heappop(heights)))

    def _level(self, keys: Iterable[Key]) -> None:
        nodes, numbers = self.site.graph.nodes, self.numbers
        groups: dict[Hashable, list[Key]] = {}
        for key in keys:
            inputs = frozenset([numbers.get(dep, dep) for dep in nodes[key]._dependencies])
            groups.setdefault(inputs, []).append(key)
        for group in groups.values():
            if len(group) > 1:
                self._compare(group)

    def _compare(self, keys: Iterable[Key], constants: bool = False) -> None:
        found: dict[Hashable, list[Key]] = {}
        for key in keys:
            if not _delayed(key) or type(self.site.graph.nodes[key]) is DataNode:
                found.setdefault(self._token(key), []).append(key)
        for token, members in found.items():
            fact = self._fact(token, members[0]) if constants else None
            constant = fact is not None and fact.fill is not None
            if constant or (len(members) > 1 and self._is_pure(token, members[0])):
                self._number(token, members, fact if constant else None)

    def _height(self, key: Key) -> int:
        heights, nodes, numbers = self._heights, self.site.graph.nodes, self.numbers
        stack = [key]
        while stack:
            here = stack[-1]
            if here in heights:
                stack.pop()
                continue
            node = nodes.get(here)
            if node is None or ((same := numbers.get(here)) and same.constant is not None):
                heights[here] = 0
                stack.pop()
                continue
            missing = [dep for dep in node._dependencies if dep not in heights]
            if missing:
                stack.extend(missing)
                continue
            heights[here] = 1 + max([heights[dep] for dep in node._dependencies], default=-1)
            stack.pop()
        return heights[key]

    # -- tokens --------------------------------------------------------------------------------

    def _token(self, key: Key) -> Hashable:
        node = self.site.graph.nodes[key]
        token = self.tokens[key] = self._marked(key, self._identity.of(node))
        return token

    def _marked(self, key: Key, token: Hashable) -> Hashable:
        """With what else has to agree."""
        annotations = self._annotations.get(key) if self._annotations else None
        if annotations:
            token = (token, repr(sorted(annotations.items(), key=str)))
        return (token, self.site.graph.nodes[key].data_producer)

    def _is_pure(self, token: Hashable, key: Key) -> bool:
        pure = self._pure.get(token)
        if pure is None:
            pure = self._pure[token] = self.site.effects.pure(self.site.graph.nodes[key])
        return pure

    def _fact(self, token: Hashable, key: Key) -> Fact | None:
        """The fact of tasks that may be constants."""
        if not self._find_constants:
            return None
        if token not in self._facts:
            pure = type(self.site.graph.nodes[key]) is Task and self._is_pure(token, key)
            self._facts[token] = self.site.facts.of(key) if pure else None
        return self._facts[token]

    def _number(self, token: Hashable, members: list[Key], constant: Fact | None) -> None:
        if constant is not None:
            token = self._marked(members[0], constant)
        same = self._known.get(token)
        if same is None:
            same = self._known[token] = Same([], constant)
            self.classes.append(same)
        self.site.facts.same((same.members or members)[0], members)
        same.members.extend(members)
        self.numbers.update(dict.fromkeys(members, same))
        self._frontier.extend(members)


def _delayed(key: Key) -> bool:
    """Delayed work stays what it is: its users say themselves whether it is pure."""
    return type(key) is str and not key.startswith(OURS)


def _sketch(value: Any) -> Hashable:
    """Cheap to make, and equal for equal data."""
    if type(value) is not np.ndarray or value.dtype.hasobject:
        return (type(value),)
    ends = (value.flat[:2].tobytes(), value.flat[-2:].tobytes()) if value.size else ()
    return (value.dtype, value.shape, value.strides, ends)
