"""Reductions take each slab in when it is there: siblings together, and one slab after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dask_rewrite.analysis.estimates import believed, estimate
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.stream.groups import Light, group_trees, largest_taken
from dask_rewrite.passes.stream.replacing import Replacing, Step, leaf_steps
from dask_rewrite.passes.stream.slabs import Slabs
from dask_rewrite.passes.stream.trees import Tree, associates, find_trees, keeps_digits, same_function
from dask_rewrite.scheduler import Machine

#: Tasks for each thread, at least, where more is done in each: what one task does does not run side by side.
_TASKS = 4
#: Chains for each thread where nobody has said how many threads there are: there may be more of them.
_UNSAID = 2
#: Blocks that a reduction takes in are so many times larger than its partial results, or these weigh.
_SMALLER = 8
#: Blocks of fewer bytes are nothing to hold, and their small steps become part of others.
_BLOCK = 65_536


@dataclass(frozen=True, slots=True)
class Stream:
    """``sum(u[k] * v[k])``, ``sum(v[k] * w[k])`` → for each ``k`` one task that adds to both sums.

    Several reductions over the same blocks, such as a mean and a standard deviation, are trees that share
    their leaves. Dask finishes one after the other where it happens to, and then holds all that they share.
    And a tree over blocks as large as its result holds some at each of its levels. In chains, of which there
    are as many as threads, each thread holds what came before, and nothing else. Where partial results are
    small, trees stay, and become one: what all of them need of a block is one task.

    The same functions are called on the same blocks. Trees are taken together where they have one form, share
    a block at each step, and none waits for another; chains regroup (``reassociate``), for dask's own
    functions only.

    Parameters
    ----------
    min_bytes : int
        A single reduction to a smaller result keeps its tree, and so does one that takes in no more.
    """

    name: ClassVar[str] = "stream"
    min_bytes: int = 16_384
    reassociate: bool = True

    def run(self, graph: Graph, context: Context) -> Graph:
        if graph.origin.shared:  # what loads stays a task of its own
            return graph
        site = Site(graph, context)
        trees = [tree for tree in find_trees(site) if len(tree.leaves) > 2 and self._is_worth(tree, site)]
        if not trees:
            return graph
        users = context.users(graph)
        groups = group_trees(trees, site, users, light := Light(site))
        slabs, replacing = Slabs(site, users), Replacing(site)
        for group in groups:
            large = self._is_large(group, site)
            if not large and len(group) == 1:
                continue
            found = self._planned(group, len(groups), large, site, slabs, light)
            if found is None or not context.remarks.allow(self.name, group[0].root):
                continue
            how, steps, chains = found
            if chains:
                replacing.chains(group, _sequences(group, steps, chains, site))
            else:
                replacing.trees(group, steps)
            text = f"{len(group)} reductions in {len(steps)} steps: {how}"
            context.remarks.applied(self.name, group[0].root, text)
        return replacing.result()

    def _is_worth(self, tree: Tree, site: Site) -> bool:
        """Whether all that a reduction takes in is more than what counts as small."""
        return largest_taken(tree.leaves[0], site) * len(tree.leaves) >= self.min_bytes

    def _planned(
        self, group: Sequence[Tree], groups: int, large: bool, site: Site, slabs: Slabs, light: Light
    ) -> tuple[str, list[Step], int] | None:
        """What to do: its name, the steps, and the chains that they are cut into."""
        machine = site.context.machine
        steps = leaf_steps(group, slabs, light)
        if steps is None:
            return None
        if large and (chains := self._chains(group, groups, site, machine)):
            return f"{chains} chains", steps, chains
        enough = len(steps) * groups >= _TASKS * machine.threads
        if len(group) > 1 and enough and self._is_small(group, site, _BLOCK):
            return "one tree", steps, 0
        return None

    def _is_large(self, group: Sequence[Tree], site: Site) -> bool:
        """Whether partial results weigh as much as what they are made of, or nearly."""
        size = estimate(site.facts, group[0].root)
        least = self.min_bytes if len(group) == 1 else 0
        return size is not None and size.nbytes >= least and not self._is_small(group, site)

    def _is_small(self, group: Sequence[Tree], site: Site, least: int = 0) -> bool:
        """Whether partial results weigh little beside the block that all of them share."""
        result = estimate(site.facts, group[0].root)
        block = largest_taken(group[0].leaves[0], site)
        if result is None or block <= least:
            return False
        return result.nbytes * len(group) * _SMALLER <= block

    def _chains(self, group: Sequence[Tree], groups: int, site: Site, machine: Machine) -> int:
        """How many chains each reduction may be cut into; 0 if none."""
        if not self.reassociate or machine.workers > 1:
            return 0
        threads = machine.threads if machine.configured else _UNSAID * machine.threads
        chains = max(1, math.ceil(threads / groups))
        if len(group[0].leaves) < _TASKS * chains:
            return 0
        for tree in group:
            tasks: list[Any] = [site.node(key) for key in tree.inner]
            if not tasks or not associates(tasks[-1].func):
                return 0
            if not all(same_function(task.func, tasks[-1].func) for task in tasks):
                return 0
            fact = believed(site.facts, tree.root)
            if fact is None or not keeps_digits(tasks[-1].func, fact.dtype):
                return 0
        return chains


def _sequences(group: Sequence[Tree], steps: list[Step], chains: int, site: Site) -> list[list[Step]]:
    """The steps of each chain: in turn where they are known to be numbers, else side by side, in order."""
    if all(site.facts.of(leaf) is not None for tree in group for leaf in tree.leaves[:1]):
        return [steps[chain::chains] for chain in range(chains)]
    length = math.ceil(len(steps) / chains)
    return [steps[start : start + length] for start in range(0, len(steps), length)]
