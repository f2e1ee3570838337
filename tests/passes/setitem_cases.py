"""Graphs of assignments, written by hand."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from dask.array.slicing import setitem

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.setitem import Setitem
from dask_rewrite.remarks import Remarks


def diagonal(n: int, side: int = 4) -> da.Array:
    m = da.zeros((n, n), chunks=-(-n // side))
    for i in range(n):
        m[i, i] = i % 3 + 1
    return m


def graph_of(*nodes: Any, outputs: tuple[Any, ...] = (), **options: Any) -> Graph:
    return Graph({node.key: node for node in nodes}, outputs or (nodes[-1].key,), **options)


def assign(key: str, block: str, value: Any, indices: list[Any]) -> Task:
    return Task(key, setitem, TaskRef(block), value, indices)


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    return Setitem(**options).run(graph, Context(remarks)), remarks


ONE, TWO = DataNode(None, np.array(1.0)), DataNode(None, np.array(2.0))


BLOCK = DataNode("x", np.arange(6.0))
