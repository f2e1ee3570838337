"""What the tests of facts share."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import dask
import numpy as np
from dask.core import flatten

from dask_rewrite.analysis.facts import Facts
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.pipeline.run import rewrite_tasks

NUMBERS = ("f8", "f4", "f2", "i8", "i4", "i1", "u1", "?", "c16", ">f8", "g")


#: How the graphs are lowered: as they are by default, and task by task.
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain": {"rewrite.passes": ["cull", "lower"]},
    "fused": {"rewrite.passes": ["cull", "fuse-blockwise", "lower", "fuse-chains"]},
}


class Run:
    """The blocks of a graph, under all of its keys, and what is known of them."""

    def __init__(self, *collections: Any) -> None:
        dsk = collections[0].__dask_graph__()
        if len(collections) > 1:
            dsk = dask.highlevelgraph.HighLevelGraph.merge(*[c.__dask_graph__() for c in collections])
        keys = [key for c in collections for key in flatten(c.__dask_keys__())]
        graph = rewrite_tasks(dsk, keys)
        assert graph is not None
        self.nodes = graph.nodes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.blocks = dict(zip(self.nodes, dask.get(self.nodes, list(self.nodes)), strict=True))
        self.facts = Facts(self.nodes.get)

    def check(self) -> Counter[str]:
        """Hold every fact against its block; returns how many blocks have one."""
        found: Counter[str] = Counter()
        for key, node in self.nodes.items():
            block, fact = self.blocks[key], self.facts.of(key)
            if fact is None:
                found["unknown"] += isinstance(block, (np.ndarray, np.generic))
            else:
                check(fact, block, node)
                found["known"] += 1
                found["filled"] += fact.fill is not None
        return found


def check(fact: Fact, block: Any, of: Any = "") -> None:
    told = f"{fact}, but it is {type(block).__name__} {block!r:.200} of {of!r:.200}"
    if fact.scalar:
        assert isinstance(block, np.generic), told
    else:
        assert type(block) is np.ndarray, told
    assert block.shape == fact.shape, told
    assert block.dtype == fact.dtype, told
    assert fact.nbytes == block.nbytes
    if fact.fill is not None:
        assert fact.fill.dtype == fact.dtype, told
        filled = np.full(block.shape, fact.fill, fact.dtype)
        assert np.asarray(block).tobytes() == filled.tobytes(), told


def made(program: Callable[..., Any], *args: Any) -> list[Any]:
    """The arrays of a program; none if it does not take the dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = program(*args)
    return list(result) if isinstance(result, (tuple, list)) else [result]
