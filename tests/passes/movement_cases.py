"""Graphs of tasks that move data, written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.array import chunk
from dask.array.core import concatenate3
from dask.local import get_sync

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement import Movement
from dask_rewrite.remarks import Remarks
from helpers import (
    assert_same,
)

X = np.arange(24.0).reshape(4, 6)


def graph_of(*nodes: Any, outputs: tuple[Any, ...] = (), **options: Any) -> Graph:
    return Graph({node.key: node for node in nodes}, outputs or (nodes[-1].key,), **options)


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    return Movement(**options).run(graph, Context(remarks)), remarks


def same_values(before: Graph, after: Graph) -> None:
    """Both graphs compute the same; sources are copied, since some tasks write into them."""
    for key in before.outputs:
        assert_same(get_sync(dict(after.nodes), key), get_sync(dict(before.nodes), key))


def cut(key: Any, source: Any, *index: Any, func: Any = chunk.getitem) -> Task:
    return Task(key, func, TaskRef(source), tuple(index))


def join(key: Any, *rows: Any) -> Task:
    lists = [List(*[part if isinstance(part, Task) else TaskRef(part) for part in row]) for row in rows]
    return Task(key, concatenate3, List(*lists))


def data(key: str, value: np.ndarray = X) -> DataNode:
    return DataNode(key, value)


def whatever(block: np.ndarray) -> np.ndarray:
    """A function of which nothing is known."""
    return block + 1


def scribble(block: np.ndarray) -> np.ndarray:
    """A function that writes into its argument."""
    block += 1
    return block
