"""What stands under which key, and the references that are handed out to it.

A reference follows aliases to their end and carries the new name of what it refers to. Asking for one
demands the task: blocks of Blockwise layers are noted per layer, keys of all other layers queued.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from operator import contains
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.typing import Key

from dask_rewrite.graph.annotations import Annotations
from dask_rewrite.graph.kinds import is_call, is_future, name_in
from dask_rewrite.graph.names import layer_name, mark
from dask_rewrite.graph.nodes import keeps_name
from dask_rewrite.lowering.blockwise import Coords, Plan, plain
from dask_rewrite.lowering.copies import COPIES, without_copies
from dask_rewrite.lowering.hoisted import before_hoisting
from dask_rewrite.lowering.overlap import OverlapBlocks

_MISSING = object()
#: Loads wait for few values: an array, a lock.
_FEW = 4
_NOT_DATA = (GraphNode, TaskRef, tuple, list, dict, set, str)
#: Types of what is nothing at all, or may be the name of another task.
_MAY_NAME = frozenset([object, Alias, TaskRef, tuple, str])


def _is_value(value: Any) -> bool:
    return type(value) is DataNode or not isinstance(value, _NOT_DATA)


class References:
    """The raw graph, read once, and all references into it.

    Parameters
    ----------
    hlg : HighLevelGraph
        The raw graph.
    outputs : sequence of Key
        Keys that keep their names.
    annotated : bool
        Whether annotations count.
    shared : bool
        Whether all blocks keep their names, for whoever holds them too.
    """

    def __init__(
        self, hlg: HighLevelGraph, outputs: Sequence[Key], annotated: bool, shared: bool = False
    ) -> None:
        self.hlg, self.outputs = hlg, outputs
        self.annotated, self.shared = annotated, shared
        self.output_keys = set(outputs)
        self.output_names = set(map(layer_name, outputs))
        self.flat: dict[Key, Any] = {}  # all that is not Blockwise
        self.plans: dict[str, Plan] = {}
        self.lazy: dict[str, Any] = {}  # other layers that are not materialized
        self.blocks: dict[str, dict[Coords, TaskRef]] = {}  # references handed out, per Blockwise layer
        self.asked: dict[str, list[Key]] = {}  # keys asked of lazy layers
        self.refs: dict[Any, TaskRef] = {}
        self.queue: list[tuple[Key, Key, Any]] = []  # to convert: original and new key, and value
        self.flat_annotations: dict[Key, Annotations] = {}
        self.external: set[Key] = set()  # keys of futures
        self.names: dict[Any, str] = {}
        self.blocks_of: dict[Key, tuple[Any, ...]] = {}  # blocks that only name a delayed value, by its key
        self.kept: list[Key] = []  # inner tasks under their own names, since they depend on nothing
        self.aliased: set[Key] = set()  # new keys of what goes by a second name
        self.token = ""
        self.order: list[str] = []  # of layers, as they were read
        self._rest_read = False
        self._shuffling = "distributed.shuffle" in sys.modules

    def read_layers(self, order: Iterable[str]) -> None:
        """Read the layers that the outputs need; where several hold one key, that counts which dask takes."""
        self.order += order
        place = {name: -i for i, name in enumerate(self.hlg._toposort_layers())}  # dask culls consumers first
        for name in sorted(self.order, key=lambda name: place.get(name, 0)):
            self._read_layer(name, self.hlg.layers[name])

    def _read_layer(self, name: str, layer: Layer) -> None:
        if type(layer) is Blockwise:
            self.plans[layer.output] = Plan(layer)
            self.blocks[layer.output] = {}
            return
        if not layer.is_materialized():
            self.lazy[name] = OverlapBlocks(layer) if OverlapBlocks.fits(layer) else layer
            return
        mapping: Any = layer.mapping if isinstance(layer, MaterializedLayer) else dict(layer)
        mapping = without_copies(name, mapping, self.flat, self.hlg.layers)
        self.flat.update(mapping)
        if layer.annotations and self.annotated:
            self.flat_annotations.update(dict.fromkeys(mapping, layer.annotations))

    # -- references ----------------------------------------------------------------------------

    def find(self, key: Any) -> TaskRef | None:
        """The reference to a key, or None if nothing in the graph has it.

        Raises
        ------
        TypeError
            If the value cannot be hashed, and so is no key.
        """
        ref = self.refs.get(key)
        if ref is not None:
            return ref
        if type(key) is tuple and key:
            name = key[0]
            if (table := self.blocks.get(name)) is not None:
                coords = key[1:]
                ref = table.get(coords)
                if ref is None and self._is_block(name, coords):
                    ref = self.block(name, plain(coords), table)
                return ref
            if name in self.lazy:
                return self.ref(key)
        return self.new_ref(key) if key in self.flat else None

    def knows(self, key: Any) -> bool:
        """Whether something in the graph has this key; asks for nothing."""
        if key in self.flat:
            return True
        if type(key) is not tuple or not key:
            return False
        name = key[0]
        return self._is_block(name, key[1:]) if name in self.blocks else name in self.lazy

    def _is_block(self, name: str, coords: tuple[Any, ...]) -> bool:
        numblocks = self.plans[name].numblocks
        if len(coords) != len(numblocks):
            return False
        # What equals a number is one: 0.0 and numpy's integers too.
        return all(map(contains, map(range, numblocks), coords))

    def ref(self, key: Key) -> TaskRef:
        """The reference to a key, aliases followed; asking for it demands the task."""
        return self.refs.get(key) or self.new_ref(key)

    def new_ref(self, key: Key) -> TaskRef:
        """The reference to a key that nothing asked for before."""
        value = self.flat.get(key, _MISSING)
        if type(value) in COPIES and self._is_block_of_ours(key):
            return self._block_ref(key)
        if type(value) not in _MAY_NAME or is_call(value):
            return self._flat_ref(key, value)
        flat, refs = self.flat, self.refs
        path: list[Key] = []  # chains of aliases can be long
        for _ in range(len(flat) + 1):
            if value is _MISSING:
                ref = self._block_ref(key)
                break
            target = value.target if type(value) is Alias else name_in(value)
            try:
                below = flat.get(target, _MISSING)
                if below is value or (below is _MISSING and not self.knows(target)):
                    target = None  # itself, or nothing
            except TypeError:  # not hashable, and so no key
                target = None
            if target is None:
                ref = self._flat_ref(key, value)
                break
            path.append(key)
            key, value = target, below
            if (known := refs.get(key)) is not None:
                ref = known
                break
        else:  # they go round in a circle
            ref = self._flat_ref(key, value)
        if path:
            refs.update(dict.fromkeys(path, ref))
            self.aliased.add(ref.key)
            if type(key) is not tuple and type(path[-1]) is tuple:
                self.blocks_of[ref.key] = path[-1]
        return ref

    def _is_block_of_ours(self, key: Any) -> bool:
        """Whether a Blockwise layer makes it: what other layers hold under its key are copies."""
        return type(key) is tuple and bool(key) and key[0] in self.blocks and self._is_block(key[0], key[1:])

    def _flat_ref(self, key: Key, value: Any) -> TaskRef:
        if type(value) is not Task and is_future(value) and key not in self.output_keys:
            new: Any = self._name_of_future(key, value.key)
        elif type(key) is not tuple:
            new = self.names.get(key, key)
        elif not key or (key[0] in self.output_names and key in self.output_keys):
            new = key
        elif self.needs_only_data(value) if type(value) is Task else _is_value(value):
            if (before := before_hoisting(key, value, self.flat)) is not None:
                if not self.knows(before.key):
                    self.flat[before.key] = before
                    if key in self.flat_annotations:
                        self.flat_annotations[before.key] = self.flat_annotations[key]
                ref = self.refs[key] = self.ref(before.key)
                return ref
            new = key
            self.kept.append(key)
        else:
            name = self.names.get(key[0]) or self._marked(key[0], value)
            new = key if name == key[0] else (name, *key[1:])
        ref = self.refs[key] = TaskRef(new)
        self.queue.append((key, new, value))
        return ref

    def _name_of_future(self, key: Key, own: Key) -> Key:
        """A scheduler holds it already: under another name it would be one more task for each block."""
        if own != key and self.knows(own):
            return key
        if type(own) is not tuple and type(key) is tuple:
            self.blocks_of[own] = key
        return own

    def needs_only_data(self, node: GraphNode) -> bool:
        """Whether nothing must be computed before a task can run."""
        deps = node._dependencies
        few = len(deps) <= _FEW and tuple not in map(type, deps)  # as blocks are named
        return few and all(map(self.is_data, deps))

    def is_data(self, key: Key) -> bool:
        """Whether a key holds a value, which stands in the graph under its own name."""
        value = self.flat.get(key, _MISSING)
        return type(key) is str and key not in self.names and value is not _MISSING and _is_value(value)

    def holds_values(self, name: str) -> bool:
        """Whether the blocks of a layer are probably values that stand in the graph: the first one is."""
        layer = self.hlg.layers[name]
        first = next(iter(layer.mapping.values()), None) if isinstance(layer, MaterializedLayer) else None
        return first is not None and _is_value(first)

    def _marked(self, name: Any, value: Any = None) -> Any:
        """The new name of blocks, decided when the first of them is met."""
        plain = self.shared or type(name) is not str or (self._shuffling and keeps_name(value))
        return self.names.setdefault(name, name if plain else mark(name, self.token))

    def _block_ref(self, key: Key) -> TaskRef:
        if type(key) is tuple and key:
            parts: Any = key
            name = parts[0]
            if (table := self.blocks.get(name)) is not None:
                return table.get(parts[1:]) or self.block(name, plain(parts[1:]), table)
            if name in self.lazy:
                return self._lazy_ref(key)
        if not self._rest_read:  # a dependency that the layers did not declare
            self._rest_read = True
            for name, layer in self.hlg.layers.items():
                if name not in self.lazy and name not in self.plans:
                    self._read_layer(name, layer)
            return self.ref(key)
        self.external.add(key)  # not in the graph: a future's key
        return self.refs.setdefault(key, TaskRef(key))

    def block(self, name: str, coords: Coords, table: dict[Coords, TaskRef]) -> TaskRef:
        """The reference to one block of a Blockwise layer."""
        ref = table.get(coords)
        if ref is None:
            key: Any = (name, *coords)
            if name not in self.output_names or key not in self.output_keys:
                new = self.names.get(name) or self._marked(name)
                key = key if new == name else (new, *coords)
            ref = table[coords] = TaskRef(key)
        return ref

    def _lazy_ref(self, key: tuple[Any, ...]) -> TaskRef:
        layer = self.lazy[key[0]]
        if isinstance(layer, OverlapBlocks):
            made = layer.values(key)
            if layer.nests:  # whole blocks are asked for before edges of others are
                self.ref((layer.source, *key[1:]))
            self.flat.update(made)
            if layer.annotations and self.annotated:
                self.flat_annotations.update(dict.fromkeys(made, layer.annotations))
            return self.ref(key)
        self.asked.setdefault(key[0], []).append(key)
        return self.refs.setdefault(key, TaskRef(key))

    def demand(self, key: Key) -> None:
        """Ask for an output, which is made under its own key even if it only names another."""
        if key in self.flat and not (type(self.flat[key]) in COPIES and self._is_block_of_ours(key)):
            self.refs[key] = TaskRef(key)
            self.queue.append((key, key, self.flat[key]))
        else:
            self._block_ref(key)

    def open(self, name: str) -> None:
        """Materialize what was asked of a lazy layer."""
        keys = self.asked.pop(name, None)
        if not keys:
            return
        layer = self.lazy[name]
        culled, _ = layer.cull(set(keys), set())
        self.flat.update(culled)
        if layer.annotations and self.annotated:
            self.flat_annotations.update(dict.fromkeys(culled, layer.annotations))
        self.queue.extend((key, key, self.flat[key]) for key in keys)
