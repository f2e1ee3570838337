"""Putting a plan into the graph: chains for terms and partial sums, gated loads for loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.estimates import beliefs_of, believed
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.names import fingerprint, marked
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.contract.accumulate import Adding, accumulate, adding
from dask_rewrite.passes.contract.cost_model import Plan
from dask_rewrite.passes.contract.gates import Gates
from dask_rewrite.passes.contract.groups import Group
from dask_rewrite.passes.outline import Outliner

#: A new task and when it runs: after which step, and in which order there.
Timed: TypeAlias = tuple[tuple[int, int], Task]


@dataclass(slots=True)
class Accumulation:
    """A contraction and how to accumulate it.

    Parameters
    ----------
    group : Group
        The sums.
    plan : Plan
        How.
    points : dict of Key to GraphNode
        What can wait for a gate.
    private : dict of Key to int
        What only this contraction needs, with the first term that needs it.
    again : dict of Key to Task
        Those of the points that read anew what others read as well.
    """

    group: Group
    plan: Plan
    points: dict[Key, GraphNode]
    private: Mapping[Key, int]
    again: Mapping[Key, Task]

    @property
    def root(self) -> Key:
        """The key under which remarks speak of it."""
        return self.group.trees[0].root

    def __str__(self) -> str:
        text = f"{len(self.group.trees)} blocks, {len(self.group.terms[0])} terms each: {self.plan}"
        return f"{text}; {len(self.again)} blocks are read twice to keep the limit" if self.again else text

    def apply(self, rewrite: Rewrite, gated: bool) -> None:
        """Say what goes and what comes, with gates or without."""
        group, plan = self.group, self.plan
        members = [key for tree in group.trees for key in (tree.root, *tree.leaves)]
        how = [rewrite.graph.origin.token, repr(plan), str(gated), str(bool(self.again))]
        token = fingerprint(["contract", *how, *members])
        gates = Gates(plan, f"contract-gate-{token}") if gated and plan.look else None
        self._drop(rewrite)
        timed: list[Timed] = []
        names = self._gate_loads(rewrite, timed, gates, token) if gates else {}
        steps = plan.steps(len(group.terms[0]))
        wait = gates.ref if gates is not None and plan.lockstep else None
        adds = ByIdentity[Adding]()  # one function for all sums, so that their tasks stay alike
        accumulators: dict[int, list[Key]] = {}
        for number, (tree, terms) in enumerate(zip(group.trees, group.terms)):
            if names:
                terms = [term._replace(body=with_values(term.body, names)) for term in terms]
            root = rewrite.graph.nodes[tree.root]
            assert isinstance(root, Task)

            def name(chain: int, step: int, number: int = number) -> Key:
                return (f"contract-{token}", number, chain, step)

            when = {name(c, s): s for c, mine in enumerate(steps) for s in range(len(mine) - 1)}
            for key, step in when.items():
                accumulators.setdefault(step, []).append(key)
            own = adds.of(root.func, partial(adding, group))
            sums = accumulate(tree, root, terms, steps, name, own, plan.levels, wait)
            made = {key: rewrite.outliner.apart(node) or node for key, node in sums.items()}
            rewrite.annotate(made, tree.root)
            rewrite.believe(when, tree.leaves[0])
            timed.extend(((when.get(key, len(group.terms[0])), 0), node) for key, node in made.items())
        if gates is not None:
            for step in accumulators if plan.lockstep else sorted(gates.used):
                timed.extend(((step, 1), node) for node in gates.after(step, accumulators[step]).values())
        timed.sort(key=itemgetter(0))
        rewrite.put(self.root, [node for _, node in reversed(timed)])

    def _gate_loads(
        self, rewrite: Rewrite, timed: list[Timed], gates: Gates, token: str
    ) -> dict[Key, TaskRef]:
        """Put gated loads in place of loads, under marked names; returns the references to use instead."""
        nodes = rewrite.graph.nodes
        names: dict[Key, TaskRef] = {}
        steps: dict[Key, int] = {}
        for key in sorted(self.points, key=lambda key: (self.private[key], str(key))):
            step = gates.before_load(self.private[key])
            if step is not None:
                steps[key] = step
                names[key] = TaskRef(marked(key, token))
        for key, step in steps.items():
            node = self.again.get(key) or self.points[key]
            root = all(type(nodes.get(dep)) is DataNode for dep in node._dependencies)
            if not names.keys().isdisjoint(node._dependencies):  # it takes from an earlier slab as well
                node = with_values(node, names)
            new = names[key].key
            timed.append(((step, 2), gates.load(new, node, step, root)))
            rewrite.annotate([new], key)
            rewrite.gone.add(key)
        for key in self.private:  # what stands between a load and the products
            above = nodes[key]
            if key not in rewrite.gone and not names.keys().isdisjoint(above.dependencies):
                rewrite.instead[key] = with_values(above, names)
        return names

    def _drop(self, rewrite: Rewrite) -> None:
        """Terms and partial sums go, and views that only terms looked through."""
        looks: Counter[Key] = Counter()
        for tree, terms in zip(self.group.trees, self.group.terms):
            rewrite.gone.update((tree.root, *tree.inner, *tree.leaves))
            looks.update(view for term in terms for view in term.views)
        for view, count in looks.items():
            if view in self.private and count == rewrite.users[view]:
                rewrite.gone.add(view)


class Rewrite:
    """The changes that contractions make to a graph, put together at the end.

    Parameters
    ----------
    graph : Graph
        Before.
    users : mapping
        How many tasks use each key.
    facts : Facts
        What is known of the blocks.
    """

    def __init__(self, graph: Graph, users: Mapping[Key, int], facts: Facts) -> None:
        self.graph = graph
        self.users = users
        self._facts, self._beliefs = facts, beliefs_of(facts)
        self.outliner = Outliner()
        self.gone: set[Key] = set()
        self.instead: dict[Key, GraphNode] = {}
        self._annotations: dict[Key, dict[str, Any]] = {}
        self._made: dict[Key, list[Task]] = {}

    def annotate(self, keys: Iterable[Key], like: Key) -> None:
        """New tasks carry the annotations of an old one."""
        found = self.graph.annotations.get(like)
        if found is not None:
            self._annotations.update(dict.fromkeys(keys, found))

    def believe(self, keys: Iterable[Key], like: Key) -> None:
        """New tasks give what an old one gives: an estimate, which need not be made for each of them."""
        found = None if self._beliefs is self._facts else believed(self._facts, like)
        if found is not None and found.fill is None:
            for key in keys:
                self._beliefs.tell(key, found)

    def put(self, root: Key, made: list[Task]) -> None:
        """New tasks, consumers first, for the place of ``root`` in the graph."""
        self._made[root] = made

    def result(self) -> Graph:
        """The graph after all, consumers still before producers, which is quickly checked for cycles."""
        nodes: Nodes = {}
        for key, node in self.graph.nodes.items():
            if key in self._made:
                nodes.update((made.key, made) for made in self._made[key])
            elif key not in self.gone:
                nodes[key] = self.instead.get(key, node)
        annotations = {key: value for key, value in self.graph.annotations.items() if key in nodes}
        annotations.update(self._annotations)
        return replace(self.graph, nodes=nodes, annotations=annotations)
