"""Copies: for each later phase in which a block is used, what makes it, under a key of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.gates import gate, waiting
from dask_rewrite.graph.names import fingerprint, marked
from dask_rewrite.graph.nesting import Depths, survey
from dask_rewrite.graph.nodes import nameless, renamed, under
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.reread.phases import Phases, below
from dask_rewrite.passes.reread.repeatable import Again
from dask_rewrite.passes.site import Site

#: Nesting that tasks may reach.
_DEEPEST = 16


class Copies:
    """Puts copies of blocks into a graph, where later phases use them.

    Parameters
    ----------
    site : Site
        The graph.
    phases : Phases
        Who uses which block when.
    repeatable : mapping of Key to Again
        What may be made again.
    first : mapping of Key to int
        The phase in which each of the blocks that may be made again is used first.
    name : str
        First part of the keys of gates.
    """

    def __init__(
        self, site: Site, phases: Phases, repeatable: Mapping[Key, Again], first: Mapping[Key, int], name: str
    ) -> None:
        self._first, self._name = first, name
        self._gates: dict[tuple[Key, ...], Key] = {}
        self._site, self._phases, self._repeatable = site, phases, repeatable
        self.nodes: dict[Key, Any] = dict(site.graph.nodes)
        self.annotations = dict(site.graph.annotations)
        self._templates = Depths()

    def put(self, phase: int, blocks: Sequence[Key]) -> None:
        """One copy of each of these blocks, producers first, for all that uses them in a phase."""
        before, nodes = self._site.graph.nodes, self.nodes
        token = fingerprint([self._site.graph.origin.token, "reread", str(phase)])
        keys = {block: marked(block, token) for block in blocks}
        refs = {block: TaskRef(key) for block, key in keys.items()}
        users: dict[Key, list[Key]] = {block: [] for block in blocks}
        for block, key in keys.items():
            nodes[key] = renamed(with_values(before[block], refs), key)
            for dep in before[block]._dependencies & refs.keys():
                users[dep].append(key)
            if block in self.annotations:
                self.annotations[key] = self.annotations[block]
        for block in blocks:
            for user in self._users(block, phase):
                nodes[user] = with_values(nodes[user], {block: refs[block]})
                users[block].append(user)
        for block, key in keys.items():
            self._settle(block, key, users[block], phase, keys)

    def _settle(
        self, block: Key, key: Key, users: Sequence[Key], phase: int, keys: Mapping[Key, Key]
    ) -> None:
        """A copy goes into its only user, or waits for what its users wait for."""
        nodes = self.nodes
        copy: Task = nodes[key]
        if len(users) == 1 and fits(
            users[0], key, nodes, self.annotations, self._site.context, self._templates
        ):
            user = with_values(nodes[users[0]], {key: copy})
            nodes[users[0]] = under(users[0], user, user._data_producer or copy._data_producer)
            del nodes[key]
            self.annotations.pop(key, None)
            self._site.context.regrouped.add(users[0])
        elif copy._dependencies.isdisjoint(keys.values()) and (late := self._gate(block, phase)) is not None:
            nodes[key] = under(key, waiting(nameless(copy), [TaskRef(late)]), True)

    def _users(self, block: Key, phase: int) -> list[Key]:
        """Who uses a block in a phase, without copies that are made for it."""
        first = [key for key in self._site.consumers(block) if self._first.get(key) == phase]
        return [*self._phases.uses.get(block, {}).get(phase, ()), *first]

    def _gate(self, block: Key, phase: int) -> Key | None:
        """What waits for all that the users of a block in a phase wait for beside the block.

        Levels never fall along a path, and what reads in a phase comes after what opens it: no gate can close
        a cycle, however many there are.
        """
        phases, nodes, repeatable = self._phases, self._site.graph.nodes, self._repeatable
        gates: set[Key] = set()
        stack = [block]
        while stack:  # uses of what is made of it are uses, too
            here = stack.pop()
            for user in phases.uses.get(here, {}).get(phase, ()):
                late = below(user, nodes, repeatable)
                gates.update([key for key in late if phases.opens(key, phase)])
            stack += [user for user in self._site.consumers(here) if user in repeatable]
        waits = tuple(sorted([key for key in gates if phases.waits(key, block, repeatable)], key=str))
        if len(waits) < 2:
            return next(iter(waits), None)
        if waits not in self._gates:
            token = fingerprint([self._site.graph.origin.token, self._name])
            self._gates[waits] = key = (f"{self._name}-gate-{token}", len(self._gates))
            self.nodes[key] = gate(key, waits)
        return self._gates[waits]


def fits(
    user: Key,
    key: Key,
    nodes: Mapping[Key, Any],
    annotations: Mapping[Key, Any],
    context: Context,
    templates: Depths,
) -> bool:
    """Whether a block may be made in the task that uses it, which is its only user."""
    task = nodes[user]
    if type(task) is not Task or not context.may_move(task.func):
        return False
    if type(user) is str and not context.fuse_text_keys:
        return False
    if annotations.get(user) != annotations.get(key):
        return False
    depth, references, levels = survey(task, templates)
    if Counter(references)[key] != 1:  # it would be made twice
        return False
    below = survey(nodes[key], templates)[0]
    return max(depth, levels[references.index(key)] + 1 + below) <= _DEEPEST
