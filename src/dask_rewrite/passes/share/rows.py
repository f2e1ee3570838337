"""Rows of a block that are sliced and picked, too.

``xarray`` takes an anomaly of groups from slices of days, and the means of groups from days that dask's
shuffle picks by lists of one position: every day would be held twice, once as a copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.analysis.facts import Facts
from dask_rewrite.graph.graph import Graph, Nodes
from dask_rewrite.graph.nodes import literal
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand.boxes import Box, Shape
from dask_rewrite.passes.demand.takes import PICK, Takes
from dask_rewrite.passes.demand.windows import box_of
from dask_rewrite.passes.movement.moves import GETITEMS
from dask_rewrite.passes.share.bulk_effects import Behaviour, maybe_written


def picked_too(graph: Graph, facts: Facts, context: Context) -> dict[Key, Key]:
    """From tasks that slice a row to tasks that pick the same one, and nobody may write into either.

    The one that is picked stands for both: it is a copy, and holds no block. Only rows of arrays of
    NumPy's count, and only along the first axis: in C order they lie in memory alike.
    """
    picks = context.calling(graph, {id(PICK)})
    nodes, outputs, takes = graph.nodes, frozenset(graph.outputs), Takes(graph.nodes)
    parts: dict[Key | None, list[Task]] = {}
    for task in context.calling(graph, GETITEMS) if picks else ():
        parts.setdefault(takes.source(task), []).append(task)
    sliced: dict[Key, dict[Box, Key]] = {}
    found: dict[Key, tuple[Key, Key]] = {}  # the task that picks, and the block
    for task in picks if parts else ():
        block = takes.source(task)
        fact = None if block is None or block not in parts else facts.of(block)
        box = None if fact is None or fact.scalar else _picked(task, nodes, fact.shape)
        if block is None or fact is None or box is None:
            continue
        if block not in sliced:
            sliced[block] = _slices(parts[block], fact.shape)
        other = sliced[block].get(box)
        if other is not None and other not in found and _may_merge(graph, outputs, task.key, other):
            found[other] = task.key, block
    if not found:
        return {}
    consumers = context.consumers(graph)
    keys = {key for other, both in found.items() for key in (other, *both)}
    written = maybe_written(keys, nodes, consumers, outputs, Behaviour(nodes))
    return {key: both[0] for key, both in found.items() if written.isdisjoint((key, *both))}


def _picked(task: Task, nodes: Nodes, shape: Shape) -> Box | None:
    """The one row that a task picks, if it lies together; None for anything else."""
    pair = literal(nodes.get(task.args[1].key))
    if type(pair) is not tuple or len(pair) != 2 or type(pair[1]) is not tuple or not pair[1]:
        return None
    rows, *rest = pair[1]
    if type(rows) is not np.ndarray or rows.shape != (1,) or rows.dtype.kind not in "iu" or rows[0] < 0:
        return None
    row = int(rows[0])
    return box_of((slice(row, row + 1), *rest), shape)


def _slices(parts: Iterable[Any], shape: Shape) -> dict[Box, Key]:
    """The tasks among those that take a part of a block that slice it."""
    found: dict[Box, Key] = {}
    for task in parts:
        box = box_of(literal(task.args[1]), shape)
        if box is not None:
            found.setdefault(box, task.key)
    return found


def _may_merge(graph: Graph, outputs: frozenset[Key], one: Key, other: Key) -> bool:
    """Both are inner tasks that are scheduled alike."""
    notes, nodes = graph.annotations, graph.nodes
    return (
        outputs.isdisjoint((one, other))
        and notes.get(one) == notes.get(other)
        and nodes[one].data_producer == nodes[other].data_producer
    )
