"""From layers to tasks: one demand-driven traversal from the output keys.

Handing out a reference is what demands a task, so nothing is made that no output needs. Layers are
visited consumers first: when a Blockwise cluster comes up, all that will be asked of it is known, and
its tasks are made column by column. All other layers lie in one flat dict, since a key's name does
not tell its layer, and are converted key by key from a stack. Aliases are followed when the reference
is handed out. Wrong layer dependencies cost work, never a wrong graph: any block can still be made
when it is asked for late.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from time import perf_counter
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef, parse_input
from dask.array.core import concatenate_axes
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.layers import ArrayBlockIdDep, ArrayChunkShapeDep, ArraySliceDep
from dask.typing import Key

from dask_rewrite.annotations import Annotations, described, evaluate
from dask_rewrite.clusters import Cluster, find_clusters
from dask_rewrite.convert import Converter, TooDeep
from dask_rewrite.emit import Column, Recipe
from dask_rewrite.graph import Graph, Nodes
from dask_rewrite.layers import Arg, Coords, Plan
from dask_rewrite.names import fingerprint, layer_name, mark
from dask_rewrite.nodes import NO_DEPS, NO_KWARGS, Deps, make_task, renamed
from dask_rewrite.overlap import OverlapBlocks
from dask_rewrite.remarks import Remarks
from dask_rewrite.unnest import unnest


class OverBudget(Exception):
    """Lowering would make more tasks, or take more time, than the options allow."""


_MISSING = object()

#: Their values are tuples of slices or numbers: nothing to look into.
_PLAIN_DEPS = (ArraySliceDep, ArrayChunkShapeDep, ArrayBlockIdDep)


def layer_order(hlg: HighLevelGraph, outputs: Collection[Key]) -> tuple[list[str], dict[str, list[str]]]:
    """Layers that the outputs need, consumers before producers, and the users of each."""
    layers, dependencies = hlg.layers, hlg.dependencies
    names = dict.fromkeys(layer_name(key) for key in outputs)
    starts: list[Any] = [n for n in names if n in layers] if all(n in layers for n in names) else list(layers)
    users: dict[str, list[str]] = {name: [] for name in starts}
    stack = list(starts)
    while stack:
        name = stack.pop()
        for dep in sorted(dependencies.get(name, ()), key=str):
            if dep in layers:
                if dep not in users:
                    users[dep] = []
                    stack.append(dep)
                users[dep].append(name)
    waiting = {name: len(using) for name, using in users.items()}
    ready = [name for name, count in waiting.items() if not count]
    order = []
    while ready:
        name = ready.pop()
        order.append(name)
        for dep in sorted(dependencies.get(name, ()), key=str):
            if dep in waiting:
                waiting[dep] -= 1
                if not waiting[dep]:
                    ready.append(dep)
    if len(order) < len(waiting):  # a cycle of layers (not of tasks) is possible in hand-made graphs
        order += [name for name, count in waiting.items() if count]
    return order, users


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
    max_inputs, max_loads : int
        Bounds for fusion; see :func:`dask_rewrite.clusters.find_clusters`.
    annotated : bool
        Whether annotations are kept.
    max_tasks : int
        Raise `OverBudget` beyond so many tasks.
    max_seconds : float
        Raise `OverBudget` after so long.
    salt : str
        Goes into the names of inner tasks, so that other options give other names.
    """

    def __init__(
        self,
        hlg: HighLevelGraph,
        outputs: Sequence[Key],
        remarks: Remarks,
        *,
        fuse: bool = True,
        max_inputs: int = 16,
        max_loads: int = 8,
        annotated: bool = True,
        max_tasks: int = 2**62,
        max_seconds: float = float("inf"),
        salt: str = "",
    ) -> None:
        self.hlg = hlg
        self.outputs = outputs
        self.remarks = remarks
        self.fuse = fuse
        self.max_inputs, self.max_loads = max_inputs, max_loads
        self.annotated = annotated
        self.max_tasks = max_tasks
        self.deadline = perf_counter() + max_seconds
        self.salt = salt
        self.nodes: Nodes = {}
        self.annotations: dict[Key, dict[str, Any]] = {}
        self.held: dict[Key, Any] = {}  # futures that stand in the graph as values
        self.flat: dict[Key, Any] = {}
        self.plans: dict[str, Plan] = {}
        self.lazy: dict[str, Any] = {}  # other layers that are not materialized
        self.blocks: dict[str, dict[Coords, TaskRef]] = {}  # references handed out, per Blockwise layer
        self.asked: dict[str, list[Key]] = {}  # keys asked of lazy layers
        self.refs: dict[Any, TaskRef] = {}
        self.queue: list[tuple[Key, Key]] = []  # flat tasks to convert: original and new key
        self.flat_annotations: dict[Key, Annotations] = {}
        self.rest_loaded = False
        self.external: set[Key] = set()
        self.shuffling = "distributed.shuffle" in sys.modules
        self.converter = Converter(self)

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
        order, users = layer_order(self.hlg, self.outputs)
        self._read_layers(order)
        self.output_names = set(map(layer_name, self.outputs))
        self.output_keys = set(self.outputs)
        self._name_layers(order, users)
        clusters = find_clusters(
            order,
            self.plans,
            users,
            self.output_names,
            max_inputs=self.max_inputs,
            max_loads=self.max_loads,
            annotated=self.annotated,
            fuse=self.fuse,
            remarks=self.remarks,
        )
        fused = sum(len(c.members) - 1 for c in clusters.values())
        if fused:
            self.remarks.applied("fuse-blockwise", None, f"layers into their consumers: {fused}", fused)
        for key in self.outputs:
            self._demand_output(key)
        self._drain()
        for name in order:
            if name in clusters:
                self._make_blocks(clusters[name])
            elif name in self.lazy:
                self._open(name)
            self._drain()
        self._make_late_blocks()
        self._settle_outputs()
        elementwise = frozenset(self.names.get(name, name) for name in self.plans)
        return Graph(
            self.nodes,
            tuple(self.outputs),
            self.annotations,
            elementwise,
            True,
            self.held,
            {*self.external, *self.held},
        )

    # -- reading -------------------------------------------------------------------------------

    def _read_layers(self, order: Iterable[str]) -> None:
        for name in order:
            self._read_layer(name, self.hlg.layers[name])

    def _read_layer(self, name: str, layer: Layer) -> None:
        if type(layer) is Blockwise:
            self.plans[layer.output] = Plan(layer)
            self.blocks[layer.output] = {}
            return
        mapping: Any
        if isinstance(layer, MaterializedLayer):
            mapping = layer.mapping
        elif OverlapBlocks.fits(layer):
            self.lazy[name] = OverlapBlocks(layer)  # type: ignore[arg-type]
            return
        elif layer.is_materialized():
            mapping = dict(layer)
        else:
            self.lazy[name] = layer
            return
        self.flat.update(mapping)
        if layer.annotations and self.annotated:
            self.flat_annotations.update(dict.fromkeys(mapping, layer.annotations))

    def _name_layers(self, order: Sequence[str], users: Mapping[str, Sequence[str]]) -> None:
        """Decide which names get the mark of this rewrite: those of inner blocks.

        A layer of one text key (delayed work) is marked only if something below it is: people
        watch those by name.
        """
        final = {n for n in self.output_names if isinstance(n, str) and n in self.output_keys}
        parts: list[object] = [self.salt]
        for name in sorted(map(str, order)):
            if name not in final:
                parts.append(name)
                annotations = self.hlg.layers[name].annotations if name in self.hlg.layers else None
                if annotations and self.annotated:
                    parts.append(described(annotations))
        parts.append(sorted(str(n) for n in self.output_names - final))
        parts.append(sorted(str(n) for n in users if any(user in final for user in users[n])))
        parts.append(self._partial_outputs())
        self.token = fingerprint(parts)
        self.names: dict[Any, str] = {}
        touched: set[str] = set()
        for name in reversed(order):
            layer = self.hlg.layers[name]
            below = any(dep in touched for dep in self.hlg.dependencies.get(name, ()))
            if name in self.plans or below or name not in self.flat:
                touched.add(name)
            if name in self.plans and name not in self.output_names:
                self.names[name] = mark(name, self.token)
            elif below and isinstance(name, str) and name in self.flat and name not in self.output_keys:
                if isinstance(layer, MaterializedLayer) and not isinstance(self.flat[name], DataNode):
                    self.names[name] = mark(name, self.token)

    def _partial_outputs(self) -> object:
        """The output blocks, if they are only some of their layers'."""
        blocks = [key for key in self.outputs if type(key) is tuple]
        layers = self.hlg.layers
        whole = sum(len(layers[n]) for n in self.output_names if n in self.plans or self._is_plain(n))
        return "" if len(blocks) == whole else sorted(map(str, blocks))

    def _is_plain(self, name: Any) -> bool:
        return isinstance(self.hlg.layers.get(name), MaterializedLayer)

    # -- references ----------------------------------------------------------------------------

    def knows(self, key: Any) -> bool:
        """Whether something in the graph has this key."""
        if key in self.flat:
            return True
        if type(key) is not tuple or not key:
            return False
        name = key[0]
        table = self.blocks.get(name)
        if table is None:
            return name in self.lazy
        coords = key[1:]
        if coords in table:
            return True
        numblocks = self.plans[name].numblocks
        return len(coords) == len(numblocks) and all(
            isinstance(c, int) and 0 <= c < n for c, n in zip(coords, numblocks)
        )

    def ref(self, key: Key) -> TaskRef:
        """The reference to a key, aliases followed; asking for it demands the task."""
        ref = self.refs.get(key)
        if ref is not None:
            return ref
        flat, refs = self.flat, self.refs
        path: dict[Key, None] = {}  # an ordered set: chains of aliases can be long
        while True:
            value = flat.get(key, _MISSING)
            if value is _MISSING:
                ref = self._block_ref(key)
                break
            target = None if type(value) is Task else self._alias_target(key, value)
            if target is None or target in path:
                ref = self._flat_ref(key, value)
                break
            path[key] = None
            key = target
            if (known := refs.get(key)) is not None:
                ref = known
                break
        for alias in path:
            refs[alias] = ref
        return ref

    def _alias_target(self, key: Key, value: Any) -> Key | None:
        kind = type(value)
        if kind is Alias:
            target = value.target
        elif kind is TaskRef:
            target = value.key
        elif (kind is tuple and value and not callable(value[0])) or kind is str:
            try:
                if not self.knows(value):
                    return None
            except TypeError:
                return None
            target = value
        else:
            return None
        if target == key or not self.knows(target):
            return None
        return target  # type: ignore[no-any-return]

    def _flat_ref(self, key: Key, value: Any) -> TaskRef:
        if type(key) is not tuple:
            new: Any = self.names.get(key, key)
        elif key in self.output_keys or not key or (self.shuffling and _keeps_name(value)):
            new = key
        else:
            name = self.names.get(key[0])
            new = (self._marked(key[0]) if name is None else name, *key[1:])
        ref = self.refs[key] = TaskRef(new)
        self.queue.append((key, new))
        return ref

    def _marked(self, name: Any) -> Any:
        plain = type(name) is not str or name in self.output_names
        new = self.names[name] = name if plain else mark(name, self.token)
        return new

    def _block_ref(self, key: Key) -> TaskRef:
        if type(key) is tuple and key:
            name: Any = key[0]
            table = self.blocks.get(name)
            if table is not None:
                return self.block(name, key[1:], table)  # type: ignore[arg-type]
            if name in self.lazy:
                return self._lazy_ref(key)
        if not self.rest_loaded:  # a dependency that the layers did not declare
            self.rest_loaded = True
            for name, layer in self.hlg.layers.items():
                if name not in self.lazy and name not in self.plans:
                    self._read_layer(name, layer)
            return self.ref(key)
        self.external.add(key)  # not in the graph: a future's key
        ref = self.refs[key] = TaskRef(key)
        return ref

    def block(self, name: str, coords: Coords, table: dict[Coords, TaskRef]) -> TaskRef:
        """The reference to one block of a Blockwise layer."""
        ref = table.get(coords)
        if ref is None:
            ref = table[coords] = TaskRef((self.names.get(name, name), *coords))
        return ref

    def _lazy_ref(self, key: tuple[Any, ...]) -> TaskRef:
        layer = self.lazy[key[0]]
        if isinstance(layer, OverlapBlocks):
            self.flat.update(layer.values(key))
            return self.ref(key)
        self.asked.setdefault(key[0], []).append(key)
        ref = self.refs[key] = TaskRef(key)
        return ref

    # -- making tasks --------------------------------------------------------------------------

    def _demand_output(self, key: Key) -> None:
        value = self.flat.get(key, _MISSING)
        if value is _MISSING:
            self._block_ref(key)
        else:
            self.refs[key] = TaskRef(key)
            self.queue.append((key, key))

    def _drain(self) -> None:
        """Convert what was asked for, in the order of asking: consumers before their producers."""
        queue, flat, nodes, convert = self.queue, self.flat, self.nodes, self.converter.node
        annotations = self.flat_annotations
        ticks = 0
        for key, new in queue:  # grows while it is worked off
            value = flat[key]
            if type(value) is not TaskRef and isinstance(value, TaskRef):  # a future
                self.held[new] = value
                continue
            try:
                node = convert(value, key, new)
            except TooDeep:
                node = unnest(value, new, self)
                self.remarks.applied("unnest", key, "nested deeper than the limit")
            if type(node) is not Alias or node.target != new:
                nodes[new] = node
            if annotations and key in annotations:
                self._annotate(new, key, annotations[key])
            ticks += 1
            if not ticks & 1023:
                self._check_budget()
        queue.clear()

    def _annotate(self, new: Key, original: Key, annotations: Annotations) -> None:
        if found := evaluate(annotations, original):
            self.annotations[new] = found

    def _check_budget(self, more: int = 0) -> None:
        if len(self.nodes) + more > self.max_tasks or perf_counter() > self.deadline:
            raise OverBudget

    def _open(self, name: str) -> None:
        keys = self.asked.pop(name, None)
        layer = self.lazy[name]
        if not keys or isinstance(layer, OverlapBlocks):
            return
        culled, _ = layer.cull(set(keys), set())
        self.flat.update(culled)
        if layer.annotations and self.annotated:
            self.flat_annotations.update(dict.fromkeys(culled, layer.annotations))
        for key in keys:
            self.queue.append((key, key))

    def _make_late_blocks(self) -> None:
        """Blocks that were asked for after their turn, or of layers fused away."""
        again = True
        while again:
            again = False
            for name, table in self.blocks.items():
                late = [c for c, ref in table.items() if ref.key not in self.nodes]
                if late:
                    plan = self.plans[name]
                    cluster = Cluster(plan, plan.annotations if self.annotated else None)
                    cluster.members[name] = tuple(range(len(plan.numblocks)))
                    self._make(cluster, late)
                    again = True
            for name in list(self.asked):
                self._open(name)
                again = True
            self._drain()

    def _settle_outputs(self) -> None:
        """An output that only names another task takes that task over, if nobody else uses it."""
        nodes = self.nodes
        aliases = [key for key in self.outputs if type(nodes.get(key)) is Alias]
        if not aliases:
            return
        users = Counter(chain.from_iterable(node._dependencies for node in nodes.values()))
        for key in aliases:
            target = nodes[key].target  # type: ignore[attr-defined]
            node = nodes.get(target)
            if node is None or users[target] != 1 or target in self.output_keys or _keeps_name(node):
                continue
            nodes[key] = renamed(node, key)
            del nodes[target]
            if target in self.annotations:
                self.annotations[key] = self.annotations.pop(target)

    def _make_blocks(self, cluster: Cluster) -> None:
        if wanted := list(self.blocks[cluster.root]):
            self._make(cluster, wanted)

    def _make(self, cluster: Cluster, wanted: list[Coords]) -> None:
        self._check_budget(len(wanted))
        name = cluster.root
        table = self.blocks[name]
        recipe = Recipe(cluster, self.plans)
        columns = [self._column(arg, wanted) for arg in recipe.inputs]
        keys = [table[coords].key for coords in wanted]
        self.nodes.update(zip(keys, recipe.tasks(keys, columns)))
        if cluster.annotations:
            for coords, key in zip(wanted, keys):
                self._annotate(key, (name, *coords), cluster.annotations)

    def _column(self, arg: Arg, wanted: Sequence[Coords]) -> Column:
        if arg.kind == "node":
            node = self._constant(arg.value)
            deps = _dependencies(node)
            return Column([node] * len(wanted), [deps] * len(wanted) if deps else None)
        where = arg.coord_map
        if all(i == p for i, p in enumerate(where)) and wanted and len(where) == len(wanted[0]):
            coords = wanted
        else:
            coords = [tuple([0 if p == -1 else c[p] if type(p) is int else p for p in where]) for c in wanted]  # type: ignore[misc]
        if arg.kind == "io":
            return self._io_column(arg.value, coords)
        if arg.kind == "blocks":
            nodes = [self._nested(arg.value, (), c, arg.axes) for c in coords]
            return Column(nodes, [_dependencies(node) for node in nodes])
        table = self.blocks.get(arg.value)
        if table is None:
            ref = self.ref
            refs = [ref((arg.value, *c)) for c in coords]
        else:
            block, name = self.block, arg.value
            refs = [table.get(c) or block(name, c, table) for c in coords]
        return Column(refs, [frozenset((r.key,)) for r in refs])

    def _constant(self, value: Any) -> Any:
        if type(value) is TaskRef:
            return self.ref(value.key)
        if isinstance(value, TaskRef):  # a future
            self.external.add(value.key)
            return value
        return self.converter.resolve(value, 1) if isinstance(value, GraphNode) else value

    def _io_column(self, dep: Any, coords: Sequence[Any]) -> Column:
        get = dep.get
        values = [get(c, c) for c in coords]
        if type(dep) in _PLAIN_DEPS:
            return Column(values, None)
        parsed = [parse_input(value) for value in values]
        if not any(isinstance(value, (GraphNode, TaskRef)) for value in parsed):
            return Column(values, None)
        resolved = [self._constant(value) for value in parsed]
        return Column(resolved, [_dependencies(value) for value in resolved])

    def _nested(self, name: str, done: Coords, coords: Sequence[Any], axes: Sequence[int]) -> Task | TaskRef:
        """Lists of blocks along contracted axes, as dask nests them, concatenated if asked."""
        at = len(done)
        if at == len(coords):
            table = self.blocks.get(name)
            return self.ref((name, *done)) if table is None else self.block(name, done, table)
        if not isinstance(coords[at], list):
            return self._nested(name, (*done, coords[at]), coords, axes)
        made = List(*[self._nested(name, (*done, i), coords, ()) for i in coords[at]])
        if axes:
            return make_task(None, concatenate_axes, (made, list(axes)), NO_KWARGS, made._dependencies)
        return made


def _dependencies(value: Any) -> Deps:
    if isinstance(value, TaskRef):
        return frozenset((value.key,))
    return value._dependencies if isinstance(value, GraphNode) else NO_DEPS


def _keeps_name(value: Any) -> bool:
    """Tasks of a running shuffle are known to its workers by name."""
    if type(value) is Task:
        return getattr(value.func, "__module__", "")[:19] == "distributed.shuffle"
    return isinstance(value, Task) and value.block_fusion
