"""Gates: loads wait until the slabs before them are folded in.

The scheduler does not know that a load made early is held for long. A gate is a task without a result
that depends on all accumulators of one step; loads some steps ahead depend on it. Only what this
contraction alone needs is gated: anything else could need what the gate waits for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.graph.gates import gate, waiting
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.kinds import is_array
from dask_rewrite.graph.nodes import may_move, nameless, under
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.contract.cost_model import Plan
from dask_rewrite.passes.movement.moves import GETTER_IDS
from dask_rewrite.passes.site import Site


def private_blocks(
    graph: Graph, users: Mapping[Key, int], terms: Iterable[Sequence[Key]], stop: Collection[Key]
) -> dict[Key, int]:
    """What only these sums need, below their terms, with the number of the first term that needs it.

    Parameters
    ----------
    graph : Graph
        Before the rewrite.
    users : mapping
        How many tasks use each key.
    terms : iterable of sequences of Key
        The terms of each sum in order.
    stop : collection of Key
        Never private, nor is what only they need: other sums, which have gates of their own.
    """
    first: dict[Key, int] = {}
    for keys in terms:
        first.update((key, number) for number, key in enumerate(keys))
    own = set(first)
    stack = list(first)
    seen: dict[Key, int] = {}
    lowest: dict[Key, int] = {}
    outputs = frozenset(graph.outputs)
    nodes = graph.nodes
    while stack:
        key = stack.pop()
        number = first[key]
        for dep in nodes[key]._dependencies:
            if dep not in nodes or dep in outputs or dep in stop:
                continue
            lowest[dep] = min(lowest.get(dep, number), number)
            seen[dep] = seen.get(dep, 0) + 1
            if seen[dep] == users[dep]:  # the last of its users: all of them are ours
                first[dep] = lowest[dep]
                stack.append(dep)
    return {key: number for key, number in first.items() if key not in own}


def gate_points(
    nodes: Mapping[Key, GraphNode], private: Mapping[Key, int], travels: bool
) -> dict[Key, GraphNode]:
    """What starts the work on one slab and on no slab before it: mostly loads.

    Parameters
    ----------
    nodes : mapping
        The graph.
    private : mapping
        As `private_blocks` gives it.
    travels : bool
        The graph goes to other processes: arrays in it are loads like others.
    """
    points: dict[Key, GraphNode] = {}
    for key, number in private.items():
        node = nodes[key]
        if type(node) is Task and may_move(node.func):
            below = [nodes[dep] for dep in node._dependencies if private.get(dep) == number]
            if not any(type(each) is Task or (travels and is_array(each)) for each in below):
                points[key] = node
        elif travels and is_array(node):
            points[key] = node
    return points


def read_again(site: Site, points: Mapping[Key, GraphNode]) -> dict[Key, Task]:
    """For each gated task, itself with the loads in it that others need as well: each is then read twice.

    Only what reads an array or file, or is known to give the same whenever it runs, may be repeated.
    """
    nodes = site.graph.nodes
    found: dict[Key, Task] = {}
    for key, node in points.items():
        loads: dict[Key, Task | TaskRef] = {}
        for dep in node._dependencies:
            load = nodes.get(dep)
            if type(load) is Task and _may_repeat(load, site):
                if all(type(nodes.get(source)) is DataNode for source in load._dependencies):
                    loads[dep] = load
        if loads and type(node) is Task:
            found[key] = with_values(node, loads)
    return found


def _may_repeat(task: Task, site: Site) -> bool:
    if id(task.func) not in GETTER_IDS:
        return site.effects.pure(task)
    return not any(isinstance(arg, Task) for arg in task.args)


class Gates:
    """The gates of one contraction.

    Parameters
    ----------
    plan : Plan
        Where gates stand and who waits for them.
    name : str
        First part of their keys.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan = plan
        self.name = name
        self.used: set[int] = set()

    def before_load(self, term: int) -> int | None:
        """The step whose gate a load for this term waits for."""
        plan = self.plan
        step = term // (plan.width * plan.chains) - plan.look
        last = (step + 1) // plan.every * plan.every - 1
        return last if last >= 0 else None

    def ref(self, step: int) -> TaskRef:
        return TaskRef((self.name, step))

    def load(self, key: Key, node: Any, step: int, root: bool) -> Task:
        """The same load under another key, waiting for a gate; ``root``: it has no other inputs."""
        self.used.add(step)
        inner = nameless(node) if type(node) is Task else DataNode(None, node.value)
        return under(key, waiting(inner, [self.ref(step)]), root)

    def after(self, step: int, accumulators: Sequence[Key]) -> dict[Key, Task]:
        """The tasks of one gate."""
        key = (self.name, step)
        if self.plan.lockstep:
            return {key: gate(key, accumulators)}
        # each stays where it is, and is free as soon as it is noted
        notes: dict[Key, Key] = {(*key, i): each for i, each in enumerate(accumulators)}
        made = {note: gate(note, [each]) for note, each in notes.items()}
        return {**made, key: gate(key, list(notes))}
