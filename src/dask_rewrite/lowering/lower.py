"""From layers to tasks: one demand-driven traversal from the output keys.

Handing out a reference is what demands a task, so nothing is made that no output needs. Layers are
visited consumers first: when a Blockwise cluster comes up, all that will be asked of it is known, and
its tasks are made column by column. All other layers lie in one flat dict, since a key's name does
not tell its layer, and are converted key by key from a queue. Aliases are followed when the reference
is handed out. Wrong layer dependencies cost work, never a wrong graph: any block can still be made
when it is asked for late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any

from dask._task_spec import Alias, DataNode, Task
from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key

from dask_rewrite.analysis.declared import Declared
from dask_rewrite.graph.annotations import Annotations, evaluate
from dask_rewrite.graph.graph import Graph, Nodes, Origin
from dask_rewrite.graph.kinds import is_future
from dask_rewrite.graph.nodes import keeps_name, renamed
from dask_rewrite.lowering.aggregates import Row, aggregates, runs
from dask_rewrite.lowering.blockwise import Coords
from dask_rewrite.lowering.columns import Columns
from dask_rewrite.lowering.fold_chains import fold_chains
from dask_rewrite.lowering.fused_tasks import Recipe
from dask_rewrite.lowering.fusion import REFUSAL, Cluster, find_clusters
from dask_rewrite.lowering.key_names import mark_layers, name_clusters
from dask_rewrite.lowering.layer_order import layer_order
from dask_rewrite.lowering.overlap import nest_edges
from dask_rewrite.lowering.references import References
from dask_rewrite.lowering.resolve import TooDeep
from dask_rewrite.lowering.sizes import OverBudget, check_size, over_limit
from dask_rewrite.lowering.unnest import unnest
from dask_rewrite.remarks import Remarks

#: Tasks that are made before time and number are looked at again.
_BATCH = 1024


class Lowering:
    """One lowering of one graph; :meth:`run` does it.

    Parameters
    ----------
    hlg : HighLevelGraph
        The raw graph.
    outputs : sequence of Key
        Flat and unique keys that must be there at the end.
    remarks : Remarks
        Collects what was done.
    fuse : bool
        Whether Blockwise layers are fused.
    fold : bool
        Whether long chains of one operation become folds; see :mod:`dask_rewrite.lowering.fold_chains`.
    max_inputs, max_loads : int
        Bounds for fusion; see :func:`dask_rewrite.lowering.fusion.find_clusters`.
    annotated : bool
        Whether annotations are kept.
    max_tasks, max_seconds : int, float
        Raise `OverBudget` beyond so many tasks, or after so long.
    shared : bool
        Whether others whom nobody knows may hold the same blocks; see `dask_rewrite.graph.graph.Graph`.
    salt : str
        Goes into the names of inner tasks, so that other options give other names.
    assume : bool
        Whether passes may rely on what collections declare.
    small : int
        Bytes of blocks whose edges go into the tasks that join them with their neighbours (`map_overlap`).
    """

    def __init__(
        self,
        hlg: HighLevelGraph,
        outputs: Sequence[Key],
        remarks: Remarks,
        *,
        fuse: bool = True,
        fold: bool = True,
        max_inputs: int = 16,
        max_loads: int = 8,
        annotated: bool = True,
        max_tasks: int = 2**62,
        max_seconds: float = float("inf"),
        shared: bool = False,
        salt: str = "",
        assume: bool = True,
        small: int = 0,
    ) -> None:
        self.references = References(hlg, outputs, annotated, shared)
        self.columns = Columns(self.references)
        self.remarks, self.max_tasks = remarks, max_tasks
        self.fuse, self.fold, self.max_inputs, self.max_loads = fuse, fold, max_inputs, max_loads
        self.deadline = perf_counter() + max_seconds
        self.salt, self.assume, self.small = salt, assume, small
        self.nodes: Nodes = {}
        self.annotations: dict[Key, dict[str, Any]] = {}
        self.held: dict[Key, Any] = {}  # futures that stand in the graph as values
        self.twice = False  # a block was made from its layer and from another's copy of it

    def run(self) -> Graph:
        """Lower the graph.

        Returns
        -------
        Graph
            With resolved aliases, fused Blockwise clusters, and only what the outputs need.

        Raises
        ------
        OverBudget
            If it gets too large or takes too long.
        """
        refs = self.references
        order, users = layer_order(refs.hlg, refs.outputs)
        refs.read_layers(order)
        check_size(refs, self.max_tasks)
        refs.token, refs.names = mark_layers(refs, order, users, self.salt)
        self.declared = Declared(refs.hlg, refs.names, refs.blocks_of, self.assume)
        clusters = self._clusters(order, users)
        if not refs.shared:
            name_clusters(refs, clusters.values(), users)
        if self.small and self.fuse and not refs.shared and self.remarks.unlimited:
            nest_edges(refs.lazy.values(), refs.plans, refs.hlg, self.small)
        fused = sum(len(c.members) - 1 for c in clusters.values())
        if fused:
            self.remarks.applied("fuse-blockwise", None, f"layers into their consumers: {fused}", fused)
        for key in refs.outputs:
            refs.demand(key)
        self._drain()
        for name in order:
            if name in clusters:
                self._make(clusters[name], list(refs.blocks[name]))
            elif name in refs.asked:
                refs.open(name)
            self._drain()
        self._make_late_blocks()
        self._settle_outputs()
        return Graph(
            self.nodes,
            tuple(refs.outputs),
            self.annotations,
            held=self.held,
            external={*refs.external, *self.held},
            origin=Origin(
                token=refs.token,
                shared=refs.shared,
                elementwise=frozenset(chain(refs.plans, map(refs.names.__getitem__, refs.plans))),
                names={new: name for name, new in refs.names.items() if new != name},
                kept=refs.kept,
                aliased=refs.aliased,
            ),
        )

    def _clusters(self, order: list[str], users: dict[str, list[str]]) -> dict[str, Cluster]:
        refs = self.references
        refused: set[str] = set()
        find = partial(
            find_clusters,
            order,
            refs.plans,
            users,
            refs.output_names,
            max_inputs=self.max_inputs,
            max_loads=self.max_loads,
            annotated=refs.annotated,
            fuse=self.fuse,
        )
        clusters = find(refused=refused)
        if self.fold and refused:
            names = [name for name in order if name in refused]
            dropped = fold_chains(names, refs.plans, users, refs.output_names, self.remarks)
            if dropped:
                refused.clear()
                clusters = find(refused=refused, skip=dropped)
        for name in order:
            if name in refused:
                self.remarks.missed("fuse-blockwise", name, REFUSAL)
        return clusters

    def _drain(self) -> None:
        """Convert what was asked for, in the order of asking: consumers before their producers."""
        refs, nodes, queue = self.references, self.nodes, self.references.queue
        before, elsewhere, done = len(nodes), 0, 0
        while done < len(queue):  # which grows while it is worked off
            batch = queue[done : done + _BATCH]
            done += len(batch)
            for func, rows in runs(batch):
                made = (
                    aggregates(func, rows, refs) if func is not None and not refs.flat_annotations else None
                )
                if made is None:
                    elsewhere += self._convert(rows)
                else:
                    nodes.update(zip([new for _, new, _ in rows], made))
            self._check_budget()
        if len(nodes) != before + len(queue) - elsewhere:
            self.twice = True
        queue.clear()

    def _convert(self, rows: Sequence[Row]) -> int:
        """Convert values one by one; how many of them are no nodes of this graph."""
        refs, nodes, annotations = self.references, self.nodes, self.references.flat_annotations
        convert = self.columns.converter.node
        elsewhere = 0
        for key, new, value in rows:
            if type(value) is not Task and is_future(value):
                self.held[new] = value
                elsewhere += 1
                continue
            try:
                node = convert(value, new)
            except TooDeep:
                node = unnest(value, new, refs)
                self.remarks.applied("unnest", key, "nested deeper than the limit")
            if type(node) is Alias and node.target == new:
                elsewhere += 1
            else:
                nodes[new] = node
            if annotations and key in annotations:
                self._annotate(new, key, annotations[key])
        return elsewhere

    def _annotate(self, new: Key, original: Key, annotations: Annotations) -> None:
        if isinstance(self.nodes.get(new), DataNode):  # callables expect the keys of blocks
            annotations = {name: value for name, value in annotations.items() if not callable(value)}
        if found := evaluate(annotations, original):
            self.annotations[new] = found

    def _check_budget(self, more: int = 0) -> None:
        if len(self.nodes) + more > self.max_tasks:
            raise over_limit(self.max_tasks)
        if perf_counter() > self.deadline:
            raise OverBudget("lowering took longer than rewrite.lower-seconds")

    def _make_late_blocks(self) -> None:
        """Blocks that were asked for after their turn, or of layers fused away."""
        refs = self.references
        again = True
        while again:
            again = False
            for name, table in refs.blocks.items():
                late = [c for c, ref in table.items() if ref.key not in self.nodes]
                if late:
                    plan = refs.plans[name]
                    cluster = Cluster(plan, plan.annotations if refs.annotated else None)
                    cluster.members[name] = tuple(range(len(plan.numblocks)))
                    self._make(cluster, late)
                    again = True
            for name in list(refs.asked):
                refs.open(name)
                again = True
            self._drain()

    def _settle_outputs(self) -> None:
        """An output that only names another task takes that task over, if nobody else uses it."""
        nodes = self.nodes
        found = [(key, nodes.get(key)) for key in self.references.outputs]
        aliases = [(key, node.target) for key, node in found if type(node) is Alias]
        if not aliases or self.references.shared:  # others may hold the task under its own name
            return
        users = Counter(chain.from_iterable(node._dependencies for node in nodes.values()))
        for key, target in aliases:
            node = nodes.get(target)
            if (
                node is None
                or users[target] != 1
                or target in self.references.output_keys
                or keeps_name(node)
            ):
                continue
            nodes[key] = renamed(node, key)
            del nodes[target]
            if target in self.annotations:
                self.annotations[key] = self.annotations.pop(target)

    def _make(self, cluster: Cluster, wanted: list[Coords]) -> None:
        """The tasks for the wanted blocks of a cluster's root."""
        if not wanted:
            return
        self._check_budget(len(wanted))
        name = cluster.root
        table = self.references.blocks[name]
        recipe = Recipe(cluster, self.references.plans)
        columns = [self.columns.column(arg, wanted) for arg in recipe.inputs]
        keys = [table[coords].key for coords in wanted]
        self.twice = self.twice or not self.nodes.keys().isdisjoint(keys)
        self.nodes.update(zip(keys, recipe.tasks(keys, columns)))
        if not self.references.shared and self.references.names.get(name) == name:
            self.references.kept.extend(keys)
        if cluster.annotations:
            for coords, key in zip(wanted, keys):
                self._annotate(key, (name, *coords), cluster.annotations)
