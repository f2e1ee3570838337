"""Tasks that do nothing but take a part of one block: which part that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef
from dask.array import _shuffle
from dask.typing import Key

from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Nodes
from dask_rewrite.graph.nodes import literal
from dask_rewrite.graph.templates import calls_frame, frame_of
from dask_rewrite.passes.demand.boxes import Box, Range, Shape, shape_of
from dask_rewrite.passes.demand.moves import SELECTING_IDS
from dask_rewrite.passes.demand.rearranging import POINTS
from dask_rewrite.passes.demand.windows import spread, taken
from dask_rewrite.passes.movement.moves import GETITEMS

#: From a key to what is known of its block.
Values = Callable[[Key], Any]

#: What dask's `take` and `shuffle` pick rows by.
PICK = of_dask(_shuffle, "_getitem")


class Takes:
    """What tasks take that are plain slices or lists of positions of one block.

    Parameters
    ----------
    nodes : dict
        The graph. Dask's shuffles keep their lists in nodes of their own, each used by a row of blocks:
        such a list is looked at once.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._lists: dict[tuple[Key, Shape], Box | None] = {}
        self._templates = ByIdentity[bool]()

    def source(self, node: Any) -> Key | None:
        """The block that a task takes a part of; None for any other task."""
        if type(node) is not Task or not 2 <= len(node.args) <= 3:
            return None
        ref, index = node.args[:2]
        func = node.func
        if func is POINTS:
            return ref.key if type(ref) is TaskRef and type(literal(index)) in (list, tuple) else None
        if len(node.args) == 3:
            return None
        is_plain = id(func) in GETITEMS or (func is PICK and type(index) is TaskRef)
        return ref.key if is_plain and type(ref) is TaskRef else None

    def box(self, node: Any, shape: Shape) -> Box | None:
        """Which part of a block of this shape a task takes; None if that cannot be told."""
        index = node.args[1]
        if node.func is POINTS:
            return _around(literal(index), shape)
        if type(index) is TaskRef:
            name = index.key, shape
            if name not in self._lists:
                held: Any = self._nodes.get(index.key)
                pair: Any = held.value if type(held) is DataNode else None
                is_pair = type(pair) is tuple and len(pair) == 2
                self._lists[name] = taken(pair[1], shape) if is_pair else None
            return self._lists[name]
        return taken(literal(index), shape)

    def of(self, node: GraphNode, values: Values) -> tuple[Key, Box] | None:
        """The block that a task takes a part of, and the part, where both are known for certain."""
        source = self.source(node)
        shape = None if source is None else shape_of(values(source))
        if source is None or shape is None or type(values(node.key)) is not Fact:
            return None
        box = self.box(node, shape)
        return None if box is None else (source, box)

    def selects(self, node: Any) -> bool:
        """Whether something in a task takes a part of a block."""
        stack = [node]
        while stack:
            here = stack.pop()
            kind = type(here)
            if kind is not Task and kind is not List:
                continue
            if id(here.func) in SELECTING_IDS:
                return True
            frame = frame_of(here) if calls_frame(here.func) else None
            if frame is not None and any(self._templates.of(body, self.selects) for body in frame.bodies):
                return True
            stack += here.args
            if here.kwargs:
                stack += here.kwargs.values()
        return False


def _around(places: Sequence[Any], shape: Shape) -> Box | None:
    """The box of a block that holds the points at these positions."""
    box: list[Range] = []
    for each, n in zip(places, shape):
        picked = None if type(each) is slice else np.asarray(each)
        if picked is None:
            box.append((0, n))
        elif picked.size and picked.min() >= 0:
            box.append(spread(picked.astype(np.intp)))
        else:
            return None
    return tuple(box) if len(places) == len(shape) else None
