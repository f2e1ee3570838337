"""Copies of blocks that other layers hold under the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask._task_spec import Alias, Task
from dask.highlevelgraph import Layer, MaterializedLayer
from dask.typing import Key

from dask_rewrite.graph.names import layer_name

#: Types of other layers' copies of blocks, in which more may be fused than in the blocks.
COPIES = frozenset([Task, Alias])


def without_copies(
    name: str, mapping: dict[Key, Any], read: Mapping[Key, Any], layers: Mapping[str, Layer]
) -> dict[Key, Any]:
    """What a layer holds, but for copies of blocks that were read from layers of their own names.

    A delayed call of an array holds the whole graph of that array, and what loads a block may be fused in
    it there. Dask optimizes delayed work apart from arrays, and leaves these copies out.

    Parameters
    ----------
    name : str
        The layer's name.
    mapping : dict
        What it holds.
    read : mapping
        What was read of other layers.
    layers : mapping of str to Layer
        All layers of the graph.
    """
    if read.keys().isdisjoint(mapping):
        return mapping
    return {key: value for key, value in mapping.items() if not _is_copy(key, value, name, read, layers)}


def _is_copy(key: Key, value: Any, name: str, read: Mapping[Key, Any], layers: Mapping[str, Layer]) -> bool:
    if type(value) not in COPIES or key not in read:
        return False
    own = layer_name(key)
    layer = layers.get(own) if own != name else None
    return isinstance(layer, MaterializedLayer) and layer.mapping.get(key) is read[key]
