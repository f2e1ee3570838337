"""Products summed over a long axis: accumulated slab by slab, with bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import is_acyclic
from dask_rewrite.passes.base import Missed
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.contract.cost_model import make_plan, plan_alone, shown
from dask_rewrite.passes.contract.gates import gate_points, private_blocks, read_again
from dask_rewrite.passes.contract.groups import Group, group_trees, most_bytes
from dask_rewrite.passes.contract.rewrite import Accumulation, Rewrite
from dask_rewrite.passes.contract.terms import Term, open_term
from dask_rewrite.passes.contract.trees import Tree, find_trees
from dask_rewrite.passes.site import Site
from dask_rewrite.scheduler import Machine

#: Products for which `min_bytes` is enough.
_PRODUCTS = 256
#: Terms that dask adds up in one task as well.
_TOGETHER = 4


@dataclass(frozen=True, slots=True)
class Contract:
    """``sum([a0 @ b0, a1 @ b1, ...])`` → ``... (a1 @ b1) + ((a0 @ b0) + 0)``, one slab after the other.

    The blocks of ``x @ x.T`` are each used by many blocks of the result. The scheduler finishes one of
    these after the other, and meanwhile holds nearly all of ``x``. Accumulated, all blocks of the result
    advance together: one task per block and slab adds a product to what came before, products are never
    kept, and gates let loads run only a few slabs ahead.

    Legal where all terms are NumPy arrays of one shape and of a dtype that the sum has anyway: exactly for
    integers, up to rounding for floating-point numbers (``reassociate``).

    Parameters
    ----------
    min_bytes : int
        Contractions of which dask would hold less are left alone; as much for each 256 products, since a
        task takes the scheduler about a kilobyte.
    """

    name: ClassVar[str] = "contract"
    min_bytes: int = 262_144
    reassociate: bool = True

    def run(self, graph: Graph, context: Context) -> Graph:
        remarks = context.remarks
        site = Site(graph, context)
        found: list[Tree] = []
        for each in find_trees(site):
            if isinstance(each, Tree):
                found.append(each)
            else:
                remarks.missed(self.name, each[0], each[1].reason)
        if not found:
            return graph
        running = context.machine
        most = most_bytes(found, running, site)
        if most is not None and most < self._least(sum(len(tree.leaves) for tree in found)):
            remarks.missed(self.name, found[0].root, f"{shown(most)} are not worth it")
            return graph
        trees: list[Tree] = []
        terms: list[list[Term]] = []
        for tree in found:
            opened = [open_term(key, tree.reducer, site) for key in tree.leaves]
            usable = [term for term in opened if term is not None and term.multiplies]
            if len(usable) < len(opened):
                remarks.missed(self.name, tree.root, "a term must stay a task of its own")
                continue
            trees.append(tree)
            terms.append(usable)
        if not trees:
            return graph
        return self._contracted(graph, group_trees(trees, terms, site), site, running, context)

    def _least(self, products: int) -> int:
        """Bytes that have to be at stake for so many products."""
        return self.min_bytes * max(products, _PRODUCTS) // _PRODUCTS

    def _contracted(
        self, graph: Graph, groups: list[Group], site: Site, running: Machine, context: Context
    ) -> Graph:
        remarks = context.remarks
        limit = memory_limit(running, context.options)
        users = context.users(graph)
        stop = frozenset(tree.root for group in groups for tree in group.trees)
        alone = sum(tree.alone for group in groups for tree in group.trees)
        shared = Counter(block for group in groups for block in group.blocks()) if len(groups) > 1 else {}
        work: list[Accumulation] = []
        for group in groups:
            mine = alone if group.trees[0].alone else 0
            found = self._planned(group, site, users, stop, running, limit, mine)
            key = group.trees[0].root
            if isinstance(found, Accumulation) and not found.plan.look and _goes_its_own_way(group, shared):
                found = Missed("other sums take the same blocks in another order")
            if isinstance(found, Missed):
                remarks.missed(self.name, key, found.reason)
            elif remarks.allow(self.name, key):
                work.append(found)
        if not work:
            return graph
        made = _applied(site, work, users, gated=not graph.origin.shared)
        if any(each.plan.look for each in work) and not is_acyclic(made.nodes):
            remarks.missed(self.name, None, "some sums wait for others: gates would close a cycle")
            # what these would hold was forecast with gates
            work = [each for each in work if not each.plan.look]
            made = _applied(site, work, users, gated=False) if work else graph
        for each in work:
            remarks.applied(self.name, each.root, str(each))
        context.leftovers = context.leftovers or any(each.again for each in work)
        return made

    def _planned(
        self,
        group: Group,
        site: Site,
        users: Mapping[Key, int],
        stop: frozenset[Key],
        running: Machine,
        limit: int,
        alone: int,
    ) -> Accumulation | Missed:
        reason = group.check(site, self.reassociate)
        if reason is not None:
            return Missed(reason)
        nodes = site.graph.nodes
        private = private_blocks(site.graph, users, [tree.leaves for tree in group.trees], stop)
        points = gate_points(nodes, private, running.workers > 1 and not alone)
        sizes = group.sizes(site, private, points)
        if isinstance(sizes, Missed):
            return sizes
        may_load = not site.graph.origin.shared
        if alone:
            chains = plan_alone(replace(sizes, sums=alone), running)
            if isinstance(chains, Missed):
                return chains
            if chains.before < self.min_bytes or not group.take_loads(site, points):
                return Missed("no block is needed by two of these sums")
            return Accumulation(group, chains, {}, private, {})
        if (before := sizes.before(running)) < self._least(sum(map(len, group.terms))):
            return Missed(f"{shown(before)} are not worth it")
        if may_load and sizes.done_at_once:
            return Missed("each slab gives few small sums: the pass stream makes one task of it")
        plan = make_plan(sizes, running, limit)
        again: dict[Key, Task] = {}
        held = sizes.nbytes if isinstance(plan, Missed) else plan.peak
        if held > limit and sizes.below and may_load:  # better read twice than hold too much
            again = read_again(site, points)
            other = make_plan(replace(sizes, below=()), running, limit) if again else plan
            if not isinstance(other, Missed) and other.look and other.peak < held:
                plan = other
            else:
                again = {}
        return plan if isinstance(plan, Missed) else Accumulation(group, plan, points, private, again)


def _goes_its_own_way(group: Group, shared: Mapping[Key, int]) -> bool:
    """Whether other sums take most of the blocks: without gates, each would hold them for the other."""
    if not shared or len(group.terms[0]) <= _TOGETHER:
        return False
    blocks = group.blocks()
    return 2 * sum(shared[block] > 1 for block in blocks) >= len(blocks)


def _applied(site: Site, work: list[Accumulation], users: Mapping[Key, int], gated: bool) -> Graph:
    rewrite = Rewrite(site.graph, users, site.facts)
    for each in work:
        each.apply(rewrite, gated)
    return rewrite.result()


def memory_limit(running: Machine, options: Options) -> int:
    """Bytes that blocks of a contraction may hold: the least that is configured, or half of what there is."""
    limits = (options.contraction["memory-limit"], options.memory_limit)
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else running.memory // 2 or 2**62
