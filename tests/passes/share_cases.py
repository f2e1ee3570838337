"""Graphs with equal work, written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask._task_spec import List, Task, TaskRef

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.share import Share
from dask_rewrite.remarks import Remarks


def graph_of(*nodes: Any, outputs: tuple[Any, ...] = (), **options: Any) -> Graph:
    return Graph({node.key: node for node in nodes}, outputs or (nodes[-1].key,), **options)


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    return Share(**options).run(graph, Context(remarks)), remarks


def key(name: str) -> tuple[str, int]:
    return (name, 0)


def full(name: str, value: Any, shape: Any = (2, 3), function: Any = np.full) -> Task:
    return Task(key(name), function, shape, value)


def gathered(*names: str) -> Task:
    """A task that reads blocks and does not write into them."""
    return Task(key("out"), np.concatenate, List(*[TaskRef(key(each)) for each in names]))


def left_over(graph: Graph) -> set[str]:
    return {name for name, _ in graph.nodes}


def add_one_in_place(block: np.ndarray) -> np.ndarray:
    block += 1
    return block
