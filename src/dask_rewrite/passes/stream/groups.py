"""Reductions over the same blocks, which are worked through together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

from dask._task_spec import DataNode
from dask.typing import Key
from toolz import groupby

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.graph.graph import producers_first
from dask_rewrite.graph.names import layer_name
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.stream.trees import Tree, levels

#: Reductions that are worked through together, at most.
MOST_TREES = 12
#: What is so many times smaller than a block is nothing to wait for: weights, coordinates. A mask is not.
_LIGHT = 12


class Light:
    """Which blocks are nothing to wait for: data of the graph, and what is light beside the largest block."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[tuple[Any, Any], bool] = {}

    def __call__(self, key: Key, leaf: Key) -> bool:
        """Asked of one block and one step, and answered for all of these layers."""
        if type(self._site.node(key)) is DataNode:
            return True
        names = layer_name(key), layer_name(leaf)
        if names not in self._known:
            size = estimate(self._site.facts, key)
            self._known[names] = size is not None and size.nbytes * _LIGHT <= largest_taken(leaf, self._site)
        return self._known[names]


def largest_taken(key: Key, site: Site) -> int:
    """Bytes of the largest block that a task takes; 0 if nobody knows."""
    node = site.node(key)
    sizes = [estimate(site.facts, dep) for dep in node._dependencies] if node is not None else []
    return max([size.nbytes for size in sizes if size is not None], default=0)


def group_trees(
    trees: Sequence[Tree], site: Site, users: Mapping[Key, int], light: Light
) -> list[list[Tree]]:
    """The trees, those together that share a block at each step and do not wait for one another."""
    alike: dict[Any, list[Tree]] = groupby(attrgetter("form"), trees)
    if all(len(found) == 1 for found in alike.values()):
        return [[tree] for tree in trees]
    shared = _Shared(trees, site, users, light)
    return [group for found in alike.values() for group in _linked(found, shared)]


def _linked(trees: Sequence[Tree], shared: _Shared) -> list[list[Tree]]:
    """Groups of trees of one form; each tree shares a block with one before it at every step."""
    first_with: dict[Any, list[Tree]] = {}
    of: dict[Key, list[Tree]] = {}
    groups: list[list[Tree]] = []
    for tree in trees:
        group = None
        here = shared.at(tree, 0)
        for key in sorted(here, key=str):
            other = next(iter(first_with.get(key, ())), None)
            if other is None or shared.level[other.root] != shared.level[tree.root]:
                continue
            if len(of[other.root]) < MOST_TREES and shared.all(tree, other):
                group = of[other.root]
                break
        if group is None:
            group = []
            groups.append(group)
        group.append(tree)
        of[tree.root] = group
        for key in here:
            first_with.setdefault(key, []).append(tree)
    return groups


class _Shared:
    """What the steps of reductions share."""

    def __init__(self, trees: Sequence[Tree], site: Site, users: Mapping[Key, int], light: Light) -> None:
        self._trees, self._site, self._users, self._light = trees, site, users, light

    @cached_property
    def level(self) -> Mapping[Key, int]:
        """On which level reductions stand; of most graphs nobody asks, as their reductions share nothing."""
        nodes, roots = self._site.graph.nodes, frozenset([tree.root for tree in self._trees])
        return levels(nodes, list(producers_first(list(nodes), nodes)), roots)

    def all(self, one: Tree, other: Tree) -> bool:
        """Whether two reductions share something at every step."""
        if not self._site.same_annotations(one.root, other.root):
            return False
        steps = range(len(one.leaves))
        return not any(self.at(one, step).isdisjoint(self.at(other, step)) for step in steps)

    def at(self, tree: Tree, step: int) -> set[Key]:
        """What a step shares with other reductions, but not with all other steps, and nothing light."""
        nodes, leaves, users = self._site.graph.nodes, tree.leaves, self._users
        leaf = leaves[step]
        here = nodes.get(leaf)
        found = {leaf}
        if here is not None:
            found |= here._dependencies
            if len(leaves) > 2:
                far = nodes.get(leaves[step - 1 if step else -1])
                further = nodes.get(leaves[step - 2])
                if far is not None and further is not None:
                    found -= far._dependencies & further._dependencies
        found = {key for key in found if users[key] > 1 and type(nodes.get(key)) is not DataNode}
        return {key for key in found if key == leaf or not self._light(key, leaf)}
