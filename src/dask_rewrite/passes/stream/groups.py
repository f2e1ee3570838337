"""Reductions over the same blocks, which are worked through together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from dask._task_spec import DataNode
from dask.typing import Key
from toolz import groupby

from dask_rewrite.graph.graph import producers_first
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.stream.trees import Tree, levels

#: Reductions that are worked through together, at most.
MOST_TREES = 12


def group_trees(trees: Sequence[Tree], site: Site, users: Mapping[Key, int]) -> list[list[Tree]]:
    """The trees, those together that share a block at each step and do not wait for one another."""
    alike: dict[Any, list[Tree]] = groupby(attrgetter("form"), trees)
    if all(len(found) == 1 for found in alike.values()):
        return [[tree] for tree in trees]
    nodes = site.graph.nodes
    roots = frozenset([tree.root for tree in trees])
    level = levels(nodes, list(producers_first(list(nodes), nodes)), roots)
    return [group for found in alike.values() for group in _linked(found, level, site, users)]


def _linked(
    trees: Sequence[Tree], level: Mapping[Key, int], site: Site, users: Mapping[Key, int]
) -> list[list[Tree]]:
    """Groups of trees of one form; each tree shares a block with one before it at every step."""
    first_with: dict[Any, list[Tree]] = {}
    of: dict[Key, list[Tree]] = {}
    groups: list[list[Tree]] = []
    for tree in trees:
        group = None
        shared = _shared(tree, 0, site, users)
        for key in sorted(shared, key=str):
            other = next(iter(first_with.get(key, ())), None)
            if other is None or level[other.root] != level[tree.root]:
                continue
            if len(of[other.root]) < MOST_TREES and _all_shared(tree, other, site, users):
                group = of[other.root]
                break
        if group is None:
            group = []
            groups.append(group)
        group.append(tree)
        of[tree.root] = group
        for key in shared:
            first_with.setdefault(key, []).append(tree)
    return groups


def _all_shared(one: Tree, other: Tree, site: Site, users: Mapping[Key, int]) -> bool:
    if not site.same_annotations(one.root, other.root):
        return False
    return all(
        not _shared(one, step, site, users).isdisjoint(_shared(other, step, site, users))
        for step in range(len(one.leaves))
    )


def _shared(tree: Tree, step: int, site: Site, users: Mapping[Key, int]) -> set[Key]:
    """What a step of a reduction shares with others, but not with all other steps."""
    nodes, leaves = site.graph.nodes, tree.leaves
    here = nodes.get(leaves[step])
    found = {leaves[step]}
    if here is not None:
        found |= here._dependencies
        if len(leaves) > 2:
            far = nodes.get(leaves[step - 1 if step else -1])
            further = nodes.get(leaves[step - 2])
            if far is not None and further is not None:
                found -= far._dependencies & further._dependencies
    return {key for key in found if users[key] > 1 and type(nodes.get(key)) is not DataNode}
