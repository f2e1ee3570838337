"""What a scheduler holds lives as long as any part of a graph that needs it."""

from __future__ import annotations

from typing import Any

import dask.array as da
from dask._task_spec import TaskRef
from dask.highlevelgraph import HighLevelGraph

import dask_rewrite


class Future(TaskRef):
    """Stands for what a scheduler holds, as a client's does."""


def persisted(blocks: int) -> da.Array:
    graph: dict[Any, Any] = {("x", i): Future(("x", i)) for i in range(blocks)}
    return da.Array(HighLevelGraph.from_collections("x", graph), "x", ((2,) * blocks,), dtype="f8")


def test_futures_of_two_rewrites_are_both_held() -> None:
    """Layers of one name would overwrite each other where the graphs are merged."""
    x = persisted(3)
    some, others = dask_rewrite.optimize(x[:2] + 1), dask_rewrite.optimize(x[2:4] + 1)
    assert {("x", 0), ("x", 1)} <= set((some + others).dask)
    assert ("x", 2) not in (some + others).dask


def test_futures_that_are_wanted_too_are_needed_by_the_layers_that_use_them() -> None:
    x = persisted(2)
    same, more = dask_rewrite.optimize(x, x * 2)
    assert set(same.dask.layers["x"]) == {("x", 0), ("x", 1)}
    culled = more.dask.cull({(more.name, 1)})
    assert ("x", 1) in culled
    assert ("x", 0) not in culled
