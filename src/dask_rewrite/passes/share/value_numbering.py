"""Which tasks compute the same: equal numbers for equal tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import repeat
from types import MethodType
from typing import Any, cast

import numpy as np
from dask._task_spec import DataNode, Task
from dask.typing import Key

from dask_rewrite.analysis.facts import Fact, Facts
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Consumers, Graph
from dask_rewrite.graph.nodes import producer_of
from dask_rewrite.passes.share.array_keys import sketch
from dask_rewrite.passes.share.bulk_effects import Behaviour, users_of
from dask_rewrite.passes.share.tokens import Identity

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
    looked at once: tasks that compute the same are equally high, if constants count as leaves. Outputs
    that no task uses are not looked at, since nothing may stand for them.

    Parameters
    ----------
    graph : Graph
        The graph, which must not change.
    facts : Facts
        What is known of its blocks.
    constants : bool
        Whether blocks of one constant are the same whoever made them.
    consumers : callable
        From the graph to the tasks that use each key.

    Attributes
    ----------
    classes : list of Same
        The tasks that have a number.
    behaviour : Behaviour
        What the tasks do to their arguments.
    """

    def __init__(
        self, graph: Graph, facts: Facts, constants: bool, consumers: Callable[[Graph], Consumers]
    ) -> None:
        self.classes: list[Same] = []
        self.behaviour = Behaviour(graph.nodes)
        self._nodes = graph.nodes
        self._find_consumers = partial(consumers, graph)
        self._outputs = frozenset(graph.outputs)
        self._annotations = graph.annotations
        self._marks = ByIdentity[str]()
        self._facts = facts
        self._find_constants = constants
        self._numbers: dict[Key, Same] = {}
        self._identity = Identity(self._numbers)
        self._seen: dict[Hashable, int] = {}
        self._constants: dict[int, Same | None] = {}
        self._known: dict[Hashable, Same] = {}
        self._heights: dict[Key, int] = {}
        self._frontier: list[Key] = []

    @cached_property
    def consumers(self) -> Consumers:
        """The tasks that use each key."""
        return self._find_consumers()

    def run(self, leaves: Sequence[Key]) -> None:
        """Number all that can be numbered, from the leaves up."""
        if not self._outputs.isdisjoint(leaves):
            leaves = [key for key in leaves if key not in self._ends]
        self._leaves(leaves)
        if self._frontier:
            self._spread()
            self._heights = dict.fromkeys(leaves, 0)
            for same in self.classes:
                if same.constant is not None:
                    self._heights.update(dict.fromkeys(same.members, 0))
            self._rest()

    @cached_property
    def _ends(self) -> set[Key]:
        return {key for key in self._outputs if key not in self.consumers}

    def _leaves(self, keys: Sequence[Key]) -> None:
        nodes = self._nodes
        data = [node for key in keys if type(node := nodes[key]) is DataNode]
        marks = [sketch(node.value) for node in data]
        times = Counter(marks)
        groups: dict[Hashable, list[Key]] = {}
        if len(times) < len(data):
            for node, mark in zip(data, marks):
                if times[mark] > 1:
                    groups.setdefault(mark, []).append(node.key)
        for same in groups.values():
            self._compare(same)
        for node, mark in zip(data, marks):  # one value of which many blocks are made, as by padding
            if times[mark] == 1 and type(node.value) is np.ndarray and not node.value.ndim:
                self._extend(self._class(("alone", node.key), None), [node.key])
        if len(data) < len(keys):
            self._calls([node for key in keys if type(node := nodes[key]) is Task])

    def _calls(self, tasks: Sequence[Task]) -> None:
        """Number tasks that use no others."""
        nodes, takes_unknown = self._nodes, self.behaviour.takes_unknown
        groups: dict[Hashable, list[Key]] = {}
        for task in tasks:
            if type(task.key) is str and _is_delayed(task.key):
                continue
            func = task.func
            owner = func.__self__ if type(func) is MethodType else func
            groups.setdefault((id(owner), len(task.args)), []).append(task.key)
        for group in groups.values():
            if not self.behaviour.may_be_pure(cast(Task, nodes[group[0]]).func):
                continue
            group = [key for key in group if not takes_unknown(cast(Task, nodes[key]))]
            if not group:
                continue
            fact = self._facts.of(group[0]) if self._find_constants else None
            constants = fact is not None and fact.fill is not None
            if len(group) > 1 or constants:
                self._compare(group, constants)

    def _spread(self) -> None:
        """Find what is made of constants alone, and may be a constant itself."""
        nodes, ends = self._nodes, self._ends
        missing: dict[Key, int] = {}
        wave = [key for same in self.classes if same.constant is not None for key in same.members]
        while wave:
            uses = list(users_of(wave, self.consumers))
            times = Counter(uses)
            ready = []
            for user in reversed(dict.fromkeys(reversed(uses))):  # in the order in which they are complete
                node = nodes[user]
                left = missing[user] = missing.get(user, len(node._dependencies)) - times[user]
                if (
                    not left
                    and type(node) is Task
                    and not (user in ends or (type(user) is str and _is_delayed(user)))
                ):
                    ready.append(user)
            tokens = self._tokens(ready)
            first: dict[int, Key] = {}
            for token, user in zip(tokens, ready):
                first.setdefault(token, user)
            made = {
                token: self._constant(token, first[token], pure)
                for token, pure in zip(first, self._pure(list(first.values())))
            }
            added: dict[Same, list[Key]] = {}
            wave = []
            for user, token in zip(ready, tokens):
                if (same := made[token]) is not None:
                    added.setdefault(same, []).append(user)
                    wave.append(user)
            for same, members in added.items():
                self._extend(same, members)

    def _rest(self) -> None:
        """Number what uses tasks that have a number, from the bottom up."""
        nodes, numbers, heights, ends = self._nodes, self._numbers, self._heights, self._ends
        waiting: dict[int, list[Key]] = {}
        seen: set[Key] = set()
        levels: list[int] = []
        while self._frontier or levels:
            for user in dict.fromkeys(users_of(self._frontier, self.consumers)):
                if user in seen or user in numbers or type(nodes[user]) is not Task:
                    continue
                seen.add(user)
                if user in ends or (type(user) is str and _is_delayed(user)):
                    continue
                try:
                    height = heights[user] = 1 + max(map(heights.__getitem__, nodes[user]._dependencies))
                except KeyError:
                    height = self._height(user)
                if height not in waiting:
                    waiting[height] = []
                    heappush(levels, height)
                waiting[height].append(user)
            self._frontier = []
            if levels:
                self._level(waiting.pop(heappop(levels)))

    def _level(self, keys: Iterable[Key]) -> None:
        nodes, number_of = self._nodes, self._numbers.get
        groups: dict[Hashable, list[Key]] = {}
        for key in keys:
            deps = nodes[key]._dependencies
            groups.setdefault(frozenset(map(number_of, deps, deps)), []).append(key)
        self._compare([key for group in groups.values() if len(group) > 1 for key in group])

    def _compare(self, keys: list[Key], constants: bool = False) -> None:
        found: dict[int, list[Key]] = {}
        for key, token in zip(keys, self._tokens(keys)):
            found.setdefault(token, []).append(key)
        if not constants:
            found = {token: members for token, members in found.items() if len(members) > 1}
        first = [members[0] for members in found.values()]
        for token, key, pure in zip(found, first, self._pure(first)):
            same = self._constant(token, key, pure) if constants else None
            if same is None and pure and len(found[token]) > 1:
                same = self._class(token, None)
            if same is not None:
                self._extend(same, found[token])

    # -- heights -------------------------------------------------------------------------------

    def _height(self, key: Key) -> int:
        """Tasks on the longest path down to leaves and constants, whose heights must be known."""
        heights, nodes = self._heights, self._nodes
        stack = [key]
        while stack:
            here = stack[-1]
            if here not in heights:
                node = nodes.get(here)
                deps = node._dependencies if node is not None else ()
                try:
                    heights[here] = 1 + max(map(heights.__getitem__, deps), default=-1)
                except KeyError:
                    stack.extend([dep for dep in deps if dep not in heights])
                    continue
            stack.pop()
        return heights[key]

    # -- tokens and classes --------------------------------------------------------------------

    def _tokens(self, keys: Sequence[Key]) -> list[int]:
        """Equal where tasks compute the same, as far as what they use has a number."""
        if not keys:
            return []
        nodes = [self._nodes[key] for key in keys]
        tokens = self._identity.many(nodes)
        producers = list(map(producer_of, nodes)) if type(nodes[0]) is Task else []
        if self._annotations or True in producers:
            tokens = list(zip(tokens, map(self._mark, keys), producers or repeat(False)))
        known = self._seen  # large tokens are hashed once
        found = [known.setdefault(token, len(known)) for token in tokens]
        self.behaviour.tokens.update(zip(keys, found))
        return found

    def _mark(self, key: Key) -> str:
        annotations = self._annotations.get(key)
        if not annotations:
            return ""
        return self._marks.of(annotations, _text)

    def _pure(self, keys: Sequence[Key]) -> list[bool]:
        return [pure for _, pure in self.behaviour.of(keys)]

    def _constant(self, token: int, key: Key, pure: bool) -> Same | None:
        """The class of tasks that make a constant, None for others."""
        if token not in self._constants:
            fact = self._facts.of(key) if pure else None
            constant = fact is not None and fact.fill is not None
            mark = (fact, self._mark(key), self._nodes[key].data_producer)
            self._constants[token] = self._class(mark, fact) if constant else None
        return self._constants[token]

    def _class(self, mark: Hashable, constant: Fact | None) -> Same:
        same = self._known.get(mark)
        if same is None:
            same = self._known[mark] = Same([], constant)
            self.classes.append(same)
        return same

    def _extend(self, same: Same, members: list[Key]) -> None:
        self._facts.same((same.members or members)[0], members)
        same.members.extend(members)
        self._numbers.update(dict.fromkeys(members, same))
        self._frontier.extend(members)


def _text(annotations: dict[str, Any]) -> str:
    return repr(sorted(annotations.items(), key=str))


def _is_delayed(key: str) -> bool:
    """Delayed work stays what it is: its users say themselves whether it is pure."""
    return not key.startswith(OURS)
