"""Sums that need the same blocks: one contraction, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.estimates import estimate
from dask_rewrite.analysis.facts import Fact, Facts
from dask_rewrite.passes.base import Missed
from dask_rewrite.passes.contract.cost_model import SMALLER, Block, Sizes
from dask_rewrite.passes.contract.terms import Term, with_loads
from dask_rewrite.passes.contract.trees import Tree
from dask_rewrite.passes.site import Site
from dask_rewrite.scheduler import Machine

#: Sums of these kinds of numbers are exact in any order, or up to rounding.
_EXACT, _ROUNDED = "iu", "fc"
_ITEM_SIZES = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8), "c": (8, 16)}


@dataclass(slots=True)
class Group:
    """Sums over equally many terms, linked by the blocks that they share.

    Parameters
    ----------
    trees : list of Tree
        The sums.
    terms : list of list of Term
        The terms of each.
    accumulator : int
        Bytes of the largest partial sum; filled in by `check`.
    in_place : bool
        A product may take the accumulator in: it has its dtype, and nobody else sees it.
    scalar : bool
        The sums have no axes left.
    loose : bool
        The type of some term is not known: the sum's own functions add up.
    """

    trees: list[Tree]
    terms: list[list[Term]]
    accumulator: int = 0
    in_place: bool = True
    scalar: bool = False
    loose: bool = False

    def blocks(self) -> frozenset[Key]:
        """What the terms take."""
        return frozenset().union(*[term.body._dependencies for terms in self.terms for term in terms])

    def check(self, site: Site, reassociate: bool) -> str | None:
        """Why these sums may not be regrouped, or None if they may."""
        reducer = self.trees[0].reducer
        kind, dtype = reducer.dtype.kind, reducer.dtype
        if dtype.itemsize not in _ITEM_SIZES.get(kind, ()) or not dtype.isnative:
            return f"sums of {dtype} are left as they are"
        if kind in _ROUNDED and not reassociate:
            return "rewrite.reassociate is off"
        looked_at: dict[Any, Fact | None] = {}
        for tree, terms in zip(self.trees, self.terms):
            shape = None
            for key, term in zip(tree.leaves, terms):
                known = site.facts.of(key) is not None
                fact = _fact(term.body, site.facts, looked_at) if known else None
                if fact is None or fact.scalar:
                    size = estimate(site.facts, key)
                    if size is None or not site.facts.assumes:
                        return "the terms are not known to be NumPy arrays"
                    self.accumulator = max(self.accumulator, size.size * dtype.itemsize)
                    self.loose = True
                    continue
                if shape is None:
                    shape = fact.shape
                if fact.shape != shape or any(
                    axis >= len(shape) or shape[axis] != 1 for axis in reducer.axis
                ):
                    return "the terms are not of one shape"
                if fact.dtype != dtype:
                    if (
                        fact.dtype.kind not in "biu"
                        or kind not in _EXACT
                        or not np.can_cast(fact.dtype, dtype)
                    ):
                        return f"terms of {fact.dtype} in sums of {dtype}"
                    self.in_place = False
                self.in_place = self.in_place and term.product
                self.accumulator = max(self.accumulator, fact.size * dtype.itemsize)
            self.scalar = self.scalar or len(shape or ()) == len(reducer.axis)
        return None

    def sizes(
        self, site: Site, private: Mapping[Key, int], points: Mapping[Key, GraphNode]
    ) -> Sizes | Missed:
        """What the cost model needs, or which fact is missing."""
        first: dict[Key, int] = {}
        last: dict[Key, int] = {}
        for terms in self.terms:
            for number, term in enumerate(terms):
                for dep in term.body._dependencies:
                    if dep not in first or number < first[dep]:
                        first[dep] = number
                    if dep not in last or number > last[dep]:
                        last[dep] = number
        blocks = []
        for key, begin in first.items():
            if type(site.node(key)) is DataNode and key not in points:
                continue  # in memory from the beginning to the end
            size = estimate(site.facts, key)
            if size is None:
                return Missed("nobody says how large the blocks are that it needs")
            blocks.append(Block(size.nbytes, begin, last[key], private.get(key) == begin))
        below = []
        for point, node in points.items():  # what a gated task takes from others is there already
            for dep in node._dependencies:
                found = None if type(site.node(dep)) is DataNode else estimate(site.facts, dep)
                if found is not None and dep not in first:
                    below.append(Block(found.nbytes, 0, last.get(point, private[point]), False))
        count, kept = len(self.terms[0]), self._kept(site)
        return Sizes(len(self.trees), count, self.accumulator, blocks, kept, below, self._loses_digits)

    def take_loads(self, site: Site, points: Mapping[Key, GraphNode]) -> bool:
        """Make the loads parts of the terms, if each is needed by one term and nobody else."""
        nodes = site.graph.nodes
        needed = {key for terms in self.terms for term in terms for key in term.body._dependencies}
        loads = {key for key in needed if type(nodes.get(key)) is not DataNode}
        if loads and site.graph.origin.shared:
            return False
        root = self.trees[0].root
        found: dict[Key, Task] = {}
        for key in loads:
            point = points.get(key)
            if type(point) is not Task or not site.used_once(key) or not site.same_annotations(key, root):
                return False
            if any(type(nodes.get(source)) is not DataNode for source in point._dependencies):
                return False
            found[key] = point
        if loads:
            self.terms = [[with_loads(term, found) for term in terms] for terms in self.terms]
        return True

    @property
    def _loses_digits(self) -> bool:
        """Sums in single precision: of its seven digits, a long chain would lose one or two."""
        dtype = self.trees[0].reducer.dtype
        return dtype.kind in _ROUNDED and dtype.itemsize <= (8 if dtype.kind == "c" else 4)

    def _kept(self, site: Site) -> bool:
        """Somebody wants the results as they are, or one task gathers them."""
        roots = [tree.root for tree in self.trees]
        if roots[0] in site.graph.outputs:
            return True
        nodes = site.graph.nodes
        return any(
            2 * len(nodes[user]._dependencies.intersection(roots)) >= len(roots) > 1
            for user in site.consumers(roots[0])
        )


def _fact(body: Task, facts: Facts, looked_at: dict[Any, Fact | None]) -> Fact | None:
    """The fact of a term: the same for terms of the same functions over blocks with the same facts."""
    like: list[Any] = [id(body.func), id(body.kwargs)]
    for arg in body.args:
        if type(arg) is Task and len(arg.args) == 1 and type(arg.args[0]) is TaskRef:  # a view
            like += [id(arg.func), id(arg.kwargs)]
            arg = arg.args[0]
        if type(arg) is not TaskRef:
            return facts.of_node(body)
        like.append(facts.of(arg.key))
    same = tuple(like)
    if same not in looked_at:
        looked_at[same] = facts.of_node(body)
    return looked_at[same]


def most_bytes(trees: Sequence[Tree], machine: Machine, site: Site) -> int | None:
    """Bytes that these sums need at most, before their terms are opened; None if nobody can tell."""
    nodes, facts = site.graph.nodes, site.facts
    total = 0
    for key in set().union(*[nodes[leaf]._dependencies for tree in trees for leaf in tree.leaves]):
        if type(nodes.get(key)) is not DataNode or machine.workers > 1:
            size = estimate(facts, key)
            if size is None:
                return None
            total += size.nbytes
    for tree in trees:
        size = estimate(facts, tree.leaves[0])
        if size is None:
            return None
        partial_sums = 1 + tree.alone * (machine.threads + len(tree.leaves))
        total += size.size * tree.reducer.dtype.itemsize * partial_sums
    return total


def group_trees(trees: Sequence[Tree], terms: Sequence[list[Term]], site: Site) -> list[Group]:
    """Group sums that share a block; sums that share none stand alone.

    Blocks that lie in memory link sums only where there are no others. Blocks that are small beside those
    that they are multiplied with, such as weights, link none: to go through all sums together would hold
    the large blocks of each, only to have the small ones once.
    """
    nodes = site.graph.nodes
    light = _light(terms, site)
    made = [
        any(type(nodes.get(dep)) is Task for term in mine for dep in term.body._dependencies)
        for mine in terms
    ]
    parent = list(range(len(trees)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    owner: dict[Any, int] = {}
    kinds: dict[Any, int] = {}
    for i, mine in enumerate(terms):
        kind = kinds.setdefault((len(mine), trees[i].reducer), len(kinds))
        for term in mine:
            for dep in term.body._dependencies - light:
                first = owner.setdefault((kind, dep), i)
                if first != i and (type(nodes.get(dep)) is Task or not (made[i] or made[first])):
                    parent[find(i)] = find(first)
    groups: dict[int, Group] = {}
    for i, tree in enumerate(trees):
        group = groups.setdefault(find(i), Group([], []))
        group.trees.append(tree)
        group.terms.append(terms[i])
    return list(groups.values())


def _light(terms: Sequence[Sequence[Term]], site: Site) -> set[Key]:
    """Blocks that are small beside the largest of each term that needs them."""
    found: set[Key] = set()
    heavy: set[Key] = set()
    needs = {term.body._dependencies for mine in terms for term in mine}
    sizes = {
        key: size.nbytes for key in set().union(*needs) if (size := estimate(site.facts, key)) is not None
    }
    for deps in needs:
        most = max([sizes.get(key, 0) for key in deps], default=0)
        small = {key for key in deps if key in sizes and SMALLER * sizes[key] <= most}
        found |= small
        heavy |= deps - small
    return found - heavy
