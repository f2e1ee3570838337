"""Putting a plan into the graph: chains for terms and partial sums, gated loads for loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.contraction.chains import accumulate
from dask_rewrite.contraction.gates import Gates
from dask_rewrite.contraction.groups import Group
from dask_rewrite.contraction.plan import Plan
from dask_rewrite.contraction.terms import substituted
from dask_rewrite.graph import Nodes
from dask_rewrite.names import fingerprint
from dask_rewrite.nodes import make_task

Annotations: TypeAlias = dict[Key, dict[str, Any]]


def _name(name: str, number: int, chain: int, step: int) -> Key:
    return (name, number, chain, step)


@dataclass(slots=True)
class Work:
    """A contraction and how to accumulate it.

    Parameters
    ----------
    group : Group
        The sums.
    plan : Plan
        How.
    points : dict of Key to Task
        What can wait for a gate.
    private : dict of Key to int
        What only this contraction needs, with the first term that needs it.
    """

    group: Group
    plan: Plan
    points: dict[Key, Task]
    private: Mapping[Key, int]

    @property
    def root(self) -> Key:
        """The key under which remarks speak of it."""
        return self.group.trees[0].root

    def __str__(self) -> str:
        return f"{len(self.group.trees)} blocks, {len(self.group.terms[0])} terms each: {self.plan}"

    def apply(self, nodes: Nodes, annotations: Annotations, users: Mapping[Key, int], gated: bool) -> None:
        """Rewrite ``nodes`` in place, with gates or without."""
        group, plan = self.group, self.plan
        members = [key for tree in group.trees for key in (tree.root, *tree.leaves)]
        token = fingerprint(["contract", repr(plan), str(gated), *members])
        gates = Gates(plan, f"contract-gate-{token}") if gated and plan.look else None
        self._drop(nodes, annotations, users)
        renamed = {}
        if gates is not None:
            renamed = self._gate_loads(nodes, gates, f"contract-load-{token}", annotations)
        steps = plan.steps(len(group.terms[0]))
        wait = gates.ref if gates is not None and plan.lockstep else None
        accumulators: dict[int, list[Key]] = {}
        for number, (tree, terms) in enumerate(zip(group.trees, group.terms)):
            if renamed:
                terms = [term._replace(body=substituted(term.body, renamed)) for term in terms]
            root = nodes[tree.root]
            name = partial(_name, f"contract-{token}", number)
            made = accumulate(tree, root, terms, steps, name, group.in_place, group.scalar, wait)  # type: ignore[arg-type]
            nodes.update(made)
            if tree.root in annotations:
                annotations.update(dict.fromkeys(made, annotations[tree.root]))
            for chain, mine in enumerate(steps):
                for step in range(len(mine) - 1):
                    accumulators.setdefault(step, []).append(name(chain, step))
        if gates is not None:
            for step in accumulators if plan.lockstep else sorted(gates.used):
                nodes.update(gates.after(step, accumulators[step]))

    def _gate_loads(
        self, nodes: Nodes, gates: Gates, name: str, annotations: Annotations
    ) -> dict[Key, TaskRef]:
        """Put gated loads in place of loads; returns the references to use instead."""
        renamed: dict[Key, TaskRef] = {}
        for key, node in self.points.items():
            step = gates.before_load(self.private[key])
            if step is None:
                continue
            new = (name, len(renamed))
            root = all(type(nodes.get(dep)) is DataNode for dep in node._dependencies)
            nodes[new] = gates.load(new, node, step, root)
            renamed[key] = TaskRef(new)
            del nodes[key]
            if key in annotations:
                annotations[new] = annotations.pop(key)
        for key in self.private:  # what stands between a load and the products
            above = nodes.get(key)
            if above is not None and not above.dependencies.isdisjoint(renamed):
                nodes[key] = renamed_in(above, renamed)
        return renamed

    def _drop(self, nodes: Nodes, annotations: Annotations, users: Mapping[Key, int]) -> None:
        """Terms and partial sums go, and views that only terms looked through."""
        looks: Counter[Key] = Counter()
        for tree, terms in zip(self.group.trees, self.group.terms):
            for key in (*tree.inner, *tree.leaves):
                del nodes[key]
                annotations.pop(key, None)
            looks.update(view for term in terms for view in term.views)
        for view, count in looks.items():
            if view in self.private and count == users[view]:
                del nodes[view]
                annotations.pop(view, None)


def renamed_in(node: GraphNode, renamed: Mapping[Key, TaskRef]) -> GraphNode:
    """The node with other names for what it depends on."""
    if type(node) is not Task:
        return node.substitute({key: ref.key for key, ref in renamed.items() if key in node.dependencies})
    made = substituted(node, renamed)
    return make_task(node.key, made.func, made.args, made.kwargs, made._dependencies, node._data_producer)
