"""Blocks as collections declare them: for estimates, where nothing is known of what makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask.typing import Key

from dask_rewrite.analysis.declared import Declared
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.graph.names import unmarked


def declared_blocks(hlg: Any) -> Callable[[Key], Fact | None]:
    """From the key of a block, renamed by a rewrite or not, to the shape and dtype that its array states.

    These are estimates: collections may state what is not so. Only a HighLevelGraph has such statements.
    Of what a mask picks (``x[x > 0]``) dask states the whole, which is the most that it can be.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((5, 3), chunks=(2, 3), dtype="f4").map_blocks(abs)
    >>> declared = declared_blocks(x.dask)
    >>> declared((x.name, 2, 0)).shape, declared("something else")
    ((1, 3), None)
    """
    if not hasattr(hlg, "layers"):
        return lambda key: None
    stated = Declared(hlg, {}, {})

    def declared(key: Key) -> Fact | None:
        if type(key) is not tuple or not key:
            return None
        name: Any = key[0]
        if name not in hlg.layers and isinstance(name, str):
            name = unmarked(name)
        return stated.belief((name, *key[1:]))

    return declared
