"""Blocks as collections declare them: for estimates, where nothing is known of what makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dask.typing import Key

from dask_rewrite.analysis.fact_cache import intern
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.graph.names import unmarked


def declared_blocks(hlg: Any) -> Callable[[Key], Fact | None]:
    """From the key of a block, renamed by a rewrite or not, to the shape and dtype that its array states.

    These are estimates: collections may state what is not so. Only a HighLevelGraph has such statements.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((5, 3), chunks=(2, 3), dtype="f4").map_blocks(abs)
    >>> declared = declared_blocks(x.dask)
    >>> declared((x.name, 2, 0)).shape, declared("something else")
    ((1, 3), None)
    """
    arrays: dict[Any, tuple[Any, Any] | None] = {}
    layers: Any = getattr(hlg, "layers", {})

    def declared(key: Key) -> Fact | None:
        if type(key) is not tuple or not key:
            return None
        name = key[0]
        if name not in arrays:
            layer = layers.get(name) or (layers.get(unmarked(name)) if isinstance(name, str) else None)
            arrays[name] = _array(getattr(layer, "collection_annotations", None))
        found = arrays[name]
        if found is None or len(found[0]) != len(key) - 1:
            return None
        try:
            shape = tuple([int(axis[i]) for axis, i in zip(found[0], key[1:])])
        except (
            IndexError,
            TypeError,
            ValueError,
        ):  # it only looks like a block's key, or has unknown lengths
            return None
        fact: Fact = intern(Fact(shape, found[1]))
        return fact

    return declared


def _array(stated: Any) -> tuple[Any, Any] | None:
    """Chunks and dtype, as an array left them with its layer."""
    if not stated or stated.get("type") != "dask.array.core.Array":
        return None
    try:
        return stated["chunks"], np.dtype(stated["dtype"])
    except (KeyError, TypeError):
        return None
