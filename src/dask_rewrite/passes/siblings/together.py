"""Goes through a graph, and puts small tasks over the same blocks together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import ceil
from typing import Any

from dask._task_spec import DataNode, Task
from dask.typing import Key
from toolz import groupby

from dask_rewrite.analysis.estimates import estimate, likely_bytes
from dask_rewrite.analysis.knowledge.selecting import is_topk
from dask_rewrite.graph.batches import one_of
from dask_rewrite.graph.graph import Nodes, depths_of
from dask_rewrite.graph.names import compound, fingerprint, layer_name, mark
from dask_rewrite.graph.nesting import Depths, depth_of, survey
from dask_rewrite.graph.nodes import cast_to, nameless, needs_of
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.siblings.light import (
    FEWEST,
    LEAST,
    TINY,
    Group,
    Weighed,
    fitting,
    is_light,
    light,
    matters,
    small,
)
from dask_rewrite.passes.siblings.slices import LARGE, Slices, is_block, takes_part
from dask_rewrite.passes.site import Site

#: Tasks for each thread, at least: what one task does does not run side by side.
_TASKS = 4
#: Bytes of all results of one task, where these are not light; tasks that follow one another, as one.
_TOGETHER, _STEPS = 1_048_576, 4
#: Nesting of tasks that go together; blocks that they wait for.
_DEEP, _MOST_INPUTS = 20, 8


class Together:
    """Goes through a graph from the sources up, and puts siblings together.

    Parameters
    ----------
    site : Site
        The graph.
    busy : set of keys
        The blocks that several tasks wait for.
    limit : int
        Bytes of a result that is not light.
    most : int
        Tasks that one task may stand for.
    """

    def __init__(self, site: Site, busy: set[Key], limit: int, most: int) -> None:
        self.nodes: dict[Key, Any] = dict(site.graph.nodes)
        self.made: dict[Key, Nodes] = {}
        self.gone: set[Key] = set()
        self._site, self._busy, self._limit, self._most = site, busy, limit, most
        self._slices = Slices(site, self.nodes)
        self._new: dict[Key, Key] = {}  # which task gives the result of one that is gone, and how
        self._instead: dict[Key, Any] = {}
        self._waits: dict[Key, int] = {}  # for how many results a task waits, values aside
        self._templates = Depths()

    def has_siblings(self) -> bool:
        """Some small tasks, other than slices, wait for the same; or some take slices."""
        alike: dict[frozenset[Key], Group] = {}
        for key, node in self.nodes.items():
            if type(node) is Task and not self._busy.isdisjoint(node._dependencies):
                if takes_part(node) or self._slices.picks(node):
                    return True
                alike.setdefault(node._dependencies, []).append((key, []))
        groups = [(needs, group) for needs, group in alike.items() if len(group) >= FEWEST]
        return any(any(self._siblings(group, needs, *self._weigh(needs))) for needs, group in groups)

    def run(self) -> None:
        depths = depths_of(self._site.graph.nodes)
        self._take_in_slices(depths)
        levels: dict[int, list[Key]] = groupby(depths.__getitem__, depths)
        for depth in sorted(levels):
            groups: dict[frozenset[Key], Group] = {}
            for key in levels[depth]:
                if key not in self.gone and (found := self._needs(self.nodes[key])) is not None:
                    groups.setdefault(found[0], []).append((key, found[1]))
            groups = {needs: group for needs, group in groups.items() if matters(group)}
            weights = {needs: self._weigh(needs) for needs in groups}
            self._join([self._siblings(group, needs, *weights[needs]) for needs, group in groups.items()])
            alone = [group for needs, group in groups.items() if weights[needs][1]]
            slices = {key: parts for key, parts in chain.from_iterable(alone) if parts}
            for key in levels[depth]:
                if key not in self.gone and (self._instead or key in slices):
                    self.nodes[key] = self._filled(key, self._fitting(key, slices.get(key, ())))

    def _take_in_slices(self, depths: dict[Key, int]) -> None:
        """What takes slices of one block, and what follows until that is light beside it, is one task."""
        found: dict[Key, list[Key]] = {}
        for key, node in self.nodes.items():
            if self._slices.goes_along(node):
                found.setdefault(self._site.consumers(key)[0], []).append(key)
        for user, slices in found.items():
            steps = self._until_light(user, self._slices.block_of(slices[0]))
            if steps and self._site.context.remarks.allow("siblings", user):
                task = self._filled(user, slices)
                for before, step in pairwise(steps):
                    task = with_values(self.nodes[step], {before: task})
                    self.gone.add(before)
                self.nodes[steps[-1]] = task
                depths[steps[-1]] = depths[slices[0]]

    def _until_light(self, key: Key, block: Key) -> list[Key]:
        """A task and those that follow, each waiting for the last alone, until one is light; or nothing."""
        facts, nodes = self._site.facts, self._site.graph.nodes
        whole, steps = estimate(facts, block), [key]
        while whole is not None and len(steps) <= _STEPS and self._is_free(steps[-1]):
            given = estimate(facts, steps[-1])
            if given is not None and is_light(given.nbytes, whole.nbytes):
                return steps
            users = self._site.consumers(steps[-1])
            if len(users) != 1 or type(nodes[users[0]]) is not Task:
                break
            needed = survey(nodes[users[0]], self._templates)[1]
            if [each for each in needed if type(nodes.get(each)) is not DataNode] != steps[-1:]:
                break
            steps.append(users[0])
        return []

    def _needs(self, node: Any) -> tuple[frozenset[Key], list[Key]] | None:
        """The blocks that a task needs, and which slices of them it uses; None if it has to stay."""
        deps, new = node._dependencies, self._new
        if type(node) is not Task or type(node.key) is not tuple or not deps:
            return None
        if node._data_producer:
            return None
        if new.keys().isdisjoint(deps) and self._slices.is_edge(node):
            return deps, []
        if self._slices.stays(node):
            return None
        if not new.keys().isdisjoint(deps):
            deps = frozenset([new.get(dep, dep) for dep in deps])
        if len(deps) > _MOST_INPUTS and self._slices.are_of_more(deps, _MOST_INPUTS):
            return None
        slices = self._slices.taken_in(deps)
        if slices:
            deps = deps.difference(slices).union(map(self._slices.block_of, slices))
        deps = frozenset([dep for dep in deps if is_block(self.nodes.get(dep))])
        if len(deps) > _MOST_INPUTS or self._busy.isdisjoint(deps):
            return None
        return deps, slices

    def _is_free(self, key: Key) -> bool:
        """Whether a task may become part of another."""
        site, node = self._site, self.nodes[key]
        if type(node) is not Task or type(key) is not tuple or site.wanted(key) or key in site.bare:
            return False
        if takes_part(node):
            return True
        if not site.context.may_move(node.func):
            return False
        # a call of what nobody knows may take an hour; `topk` would hold its block as long as all others
        free = site.effect(key) != "unknown" and not is_topk(node.func)
        return free and depth_of(node, self._templates) <= _DEEP

    def _weigh(self, needs: frozenset[Key]) -> tuple[int, bool]:
        """Bytes of the largest of all blocks that tasks need, -1 if nobody knows; and whether it is alone.

        It is if no block is large, or if the others weigh little beside it, so that only they travel.
        """
        sizes = [estimate(self._site.facts, block) for block in needs & self._site.graph.nodes.keys()]
        largest = max([-1 if size is None else size.nbytes for size in sizes], default=0)
        if largest <= LARGE:
            return largest, largest >= 0
        total = sum([largest if size is None else size.nbytes for size in sizes])
        return largest, is_light(total - largest, largest)

    def _siblings(
        self, group: Group, needs: frozenset[Key], largest: int, alone: bool
    ) -> tuple[Group, Weighed | None]:
        """Those of a group that may go together: enough small ones, or those that are light."""
        if len(group) < (FEWEST if largest > TINY else LEAST) or largest < 0:
            return [], None
        free = [each for each in group if self._is_free(each[0])]
        few = small(free, largest, self._limit, self._site, self.nodes) if alone else []
        if few and largest <= LARGE:
            return few, None
        return few, light(free, needs, largest, self._site) if largest > TINY else None

    def _join(self, found: Sequence[tuple[Group, Weighed | None]]) -> None:
        """Put the tasks of one level together."""
        groups = [group for group, _ in found if group]
        side_by_side = max(1, _TASKS * self._site.context.machine.threads)
        most = min(self._most, sum(map(len, groups)) // side_by_side)
        parts = [part for group in groups for part in self._parts(group, most)]
        allow = self._site.context.remarks.allow
        few = fitting([weighed for _, weighed in found if weighed is not None], side_by_side)
        few = [group for group in few if len(group) <= self._most and allow("siblings", group[0][0])]
        parts += map(self._with_steps, few)
        if not parts:
            return
        token = self._site.graph.origin.token
        token = fingerprint([token, *[key for part in parts for key, _ in part], *map(len, parts)])
        names: dict[str, str] = {}
        for number, part in enumerate(parts):
            layer = str(layer_name(part[0][0]))
            if layer not in names:
                names[layer] = mark(compound(["siblings"], layer), token)
            self._write(part, (names[layer], number))

    def _parts(self, group: Group, most: int) -> Iterator[Group]:
        """A group in parts of about the same length."""
        if most < LEAST or not self._site.context.remarks.allow("siblings", group[0][0]):
            return
        sizes = [estimate(self._site.facts, key) for key, _ in group]
        total = sum([size.nbytes for size in sizes if size is not None])
        fits = _TOGETHER * len(group) // max(1, total)
        count = ceil(len(group) / max(1, min(most, fits)))
        if len(group) >= LEAST * count:
            group = self._with_steps(group)
            for i in range(count):
                if part := group[i * len(group) // count : (i + 1) * len(group) // count]:
                    yield part

    def _with_steps(self, part: Group) -> Group:
        """A group with steps that need some of its results alone in place of these: less waits for others."""
        members = dict(part)
        stack = list(members)
        place = {key: at for at, key in enumerate(stack)}
        missing: dict[Key, int] = {}  # how many results of the group a step still waits for
        while stack:
            key = stack.pop()
            if not self._site.used_once(key):
                continue
            (step,) = self._site.consumers(key)
            missing[step] = missing.get(step, self._waits_for(step)) - 1
            if not missing[step] and (needed := self._combined(step, members)):
                values = {dep: self.nodes[dep] for dep in needed}
                self.nodes[step] = with_values(self.nodes[step], values)
                self.gone.update(needed)
                members[step] = list(chain.from_iterable([members.pop(dep) for dep in needed]))
                place[step] = min([place[dep] for dep in needed])
                stack.append(step)
        return sorted(members.items(), key=lambda each: place[each[0]])

    def _waits_for(self, step: Key) -> int:
        if step not in self._waits:  # the last task of all may wait for each of the groups
            needs = self.nodes[step]._dependencies
            self._waits[step] = sum([type(self.nodes.get(dep)) is not DataNode for dep in needs])
        return self._waits[step]

    def _combined(self, step: Key, members: Mapping[Key, Any]) -> list[Key]:
        """The results that a task makes no larger one of; none if it needs others too, or others these."""
        node, site, depths = self.nodes[step], self._site, self._templates
        if step in self.gone or not self._is_free(step) or site.effect(step) != "fresh":
            return []
        needed = [dep for dep in survey(node, depths)[1] if type(self.nodes.get(dep)) is not DataNode]
        if len(needed) < FEWEST or len(set(needed)) < len(needed):
            return []
        if not all(dep in members and site.used_once(dep) for dep in needed):
            return []
        if 1 + depth_of(node, depths) + max([depth_of(self.nodes[dep], depths) for dep in needed]) > _DEEP:
            return []
        given, largest = estimate(site.facts, step), max([likely_bytes(site.facts, key) for key in needed])
        return needed if given is not None and given.nbytes <= largest else []

    def _fitting(self, key: Key, slices: Sequence[Key]) -> Sequence[Key]:
        """The slices that become part of a task that stays: if they are all of one block."""
        node, context = self.nodes[key], self._site.context
        if not slices or type(key) is not tuple:
            return ()
        if len(self._slices.sliced(node).union(map(self._slices.block_of, slices))) > 1:
            return ()  # one block would be held until the other is there
        if depth_of(node, self._templates) > _DEEP or not context.may_move(node.func):
            return ()
        return slices if context.remarks.allow("siblings", key) else ()

    def _filled(self, key: Key, slices: Sequence[Key]) -> Any:
        """A task with some slices in it, and with the new places of what it uses."""
        node, instead = self.nodes[key], self._instead
        values = {dep: instead[dep] for dep in node._dependencies if dep in instead}
        values.update([(each, self.nodes[each]) for each in slices])
        self.gone.update(slices)
        return with_values(node, values) if values else node

    def _write(self, part: Group, new: Key) -> None:
        results: list[Task] = []
        for key, slices in part:
            node = self._filled(key, slices)
            self._new[key] = new
            self._instead[key] = one_of(new, len(results))
            results.append(nameless(self._slices.copied(node) if takes_part(node) else node))
            self.gone.add(key)
        self.nodes[new] = cast_to(list, new, tuple(results), needs_of(results))
        self._site.facts.tell_list(new, [key for key, _ in part])
        self.made[part[0][0]] = {new: self.nodes[new]}
        self._busy.add(new)
