"""Which blocks are known to lie in memory in C order.

Sums over several axes follow the order of the memory, so that a rewrite which changes it would change the
last bits of floats.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.array import chunk, random, reductions
from dask.array.core import concatenate3, concatenate_shaped
from dask.typing import Key

from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.in_place import IN_PLACE
from dask_rewrite.analysis.knowledge.loading import Source, source_of
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.names import is_finalize
from dask_rewrite.graph.templates import calls_frame, frame_of
from dask_rewrite.passes.movement.moves import GETITEMS, GETTER_IDS, JOINS
from dask_rewrite.passes.movement.pieces import Piece
from dask_rewrite.passes.site import Site

_RANDOM = [of_dask(random, name) for name in ("_apply_random_func", "_apply_random")]
#: These give arrays of their own in C order.
MAKERS = frozenset(
    map(id, (concatenate3, concatenate_shaped, np.zeros, np.ones, np.full, np.empty, *_RANDOM))
)
#: These give results in the order of their arguments.
_KEEPERS = frozenset(
    map(
        id,
        (
            *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
            *(operator.pow, operator.neg, operator.pos, operator.abs, operator.invert),
            *(operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge),
            *(operator.and_, operator.or_, operator.xor),
            *(*IN_PLACE, np.concatenate, np.pad, chunk.astype),
        ),
    )
)
#: These add up, or compare, the elements of a block along axes.
_SUMS = frozenset(
    map(
        id,
        (
            *(np.sum, np.nansum, np.prod, np.nanprod, np.max, np.min, np.any, np.all),
            *(reductions.mean_chunk, reductions.moment_chunk, reductions.numel),
            *(of_dask(reductions, "chunk_max"), of_dask(reductions, "chunk_min")),
        ),
    )
)
#: Blocks are looked at this far down.
_DEPTH = 6


class Memory(NamedTuple):
    """Where the result of a task lies, as it was built."""

    base: Key | None  # the block whose memory it shows; None: memory of its own, in C order
    shown: Piece | None  # where in the base


#: Memory of its own.
OWN = Memory(None, None)


class Order:
    """Remembers which blocks are known to be in C order.

    Parameters
    ----------
    site : Site
        The graph that they stand in.
    reassociate : bool
        Sums may add in another order, so that they do not count as seeing it.
    """

    def __init__(self, site: Site, reassociate: bool = False) -> None:
        self._site = site
        self._reassociate = reassociate
        self._known: dict[Key, bool] = {}
        self._unseen: dict[Key, bool] = {}
        self._bodies = ByIdentity[bool]()

    def is_c(self, key: Key, depth: int = _DEPTH) -> bool:
        """Whether the block is a NumPy array known to be C contiguous."""
        found = self._known.get(key)
        if found is None:
            node = self._site.node(key)
            found = node is not None and self._is_c(key, node, depth)
            if found or depth == _DEPTH:
                self._known[key] = found
        return found

    def _is_c(self, key: Key, node: GraphNode, depth: int) -> bool:
        if type(node) is DataNode:
            value = node.value
            return type(value) is np.ndarray and bool(value.flags.c_contiguous)
        if type(node) is not Task or not depth or self._site.facts.of(key) is None:
            return False
        func = node.func
        if id(func) in MAKERS:
            return True
        if type(func) is partial and not node.dependencies:
            return self._is_creation(func)
        if func is chunk.getitem:
            return self._copies(key, node)
        if self._reads(node):
            return True
        if self.keeps(node):
            return all(self.is_c(dep, depth - 1) for dep in node.dependencies)
        return self._keeps_reads(node, depth)

    def _reads(self, node: Task) -> bool:
        """Whether a task reads a file in C order."""
        if id(node.func) not in GETTER_IDS:
            return False
        source = self._site.facts.value(node.args[0].key) if type(node.args[0]) is TaskRef else None
        return type(source) is Source and source.in_order

    def _keeps_reads(self, node: Task, depth: int) -> bool:
        """Whether functions that keep the order are called on reads in C order, and on blocks in C order."""
        if type(node.func) is not np.ufunc and id(node.func) not in _KEEPERS:
            return False
        for arg in (*node.args, *node.kwargs.values()):
            if type(arg) is TaskRef:
                found = self.is_c(arg.key, depth - 1)
            elif type(arg) is Task:
                found = self._reads(arg) or self._keeps_reads(arg, depth)
            else:
                found = lies_in_order(arg)
            if not found:
                return False
        return "order" not in node.kwargs

    def keeps(self, node: Any) -> bool:
        """All functions in a task give results in the order of their arguments, whatever gaps these have."""
        if not isinstance(node, Task):
            return lies_in_order(node)
        func = node.func
        if calls_frame(func):
            frame = frame_of(node)
            if frame is None or not all(map(self.keeps, frame.inputs.values())):
                return False
            return all(self._bodies.of(body, self.keeps) for body in frame.bodies)
        if type(func) is np.ufunc or id(func) in _KEEPERS or func is dict:
            return "order" not in node.kwargs and all(map(self.keeps, (*node.args, *node.kwargs.values())))
        return False

    def is_unseen(self, key: Key) -> bool:
        """Nobody can tell how axes lie in it: what is worked out or taken of it is joined or asked for."""
        return self._site.holds_above(key, self._unseen, self._passed_on)

    def _passed_on(self, key: Key) -> list[Key] | None:
        """Who works something out of a block, or takes a part of it; None if there are others."""
        nodes = self._site.graph.nodes
        users = [u for u in self._site.consumers(key) if not (calls(nodes[u], JOINS) or is_finalize(u))]
        if self._reassociate:
            users = [user for user in users if not sums_up(nodes[user])]
        passing = all(calls(nodes[user], GETITEMS) or self.keeps(nodes[user]) for user in users)
        return users if passing else None

    def has_unseen_gaps(self, key: Key) -> bool:
        """Nobody who uses the block can tell which gaps it has."""
        nodes = map(self._site.graph.nodes.__getitem__, self._site.consumers(key))
        return all(calls(node, JOINS) or self.keeps(node) for node in nodes)

    def _is_creation(self, func: Any) -> bool:
        inner = func.args[0] if func.args and callable(func.args[0]) else func.func
        name = getattr(inner, "__module__", "") or ""
        return name.split(".")[0] == "numpy" and "order" not in func.keywords

    def _copies(self, key: Key, node: Task) -> bool:
        """Whether ``chunk.getitem`` copies: what is at most half of its source."""
        ref = node.args[0] if node.args else None
        whole = self._site.facts.of(ref.key) if type(ref) is TaskRef else None
        part = self._site.facts.of(key)
        return whole is not None and part is not None and whole.size >= 2 * part.size


def sums_up(node: Any) -> bool:
    """Whether all that a task can see of how its block lies is the order in which it adds.

    What it gives has at most one axis with more than one element.
    """
    if type(node) is not Task or type(node.key) is not tuple or len(node.args) != 1:
        return False
    func, axis = node.func, node.kwargs.get("axis")
    while type(func) is partial and not func.args:
        func = func.func
    axes = axis if type(axis) is tuple else (axis,)
    left = len(node.key) - 1 - len(axes)
    return type(node.args[0]) is TaskRef and None not in axes and left <= 1 and id(func) in _SUMS


def calls(node: GraphNode | None, functions: frozenset[int]) -> bool:
    """Whether a task calls one of these functions, given by identity."""
    return id(getattr(node, "func", None)) in functions


def lies_in_order(value: Any) -> bool:
    """Whether a value in a task lies in C order, gaps or not, is a file that is read so, or is neither.

    Examples
    --------
    >>> lies_in_order(np.zeros((2, 3))), lies_in_order(np.zeros((2, 3)).T), lies_in_order(1.5)
    (True, False, True)
    """
    if type(value) is DataNode:
        value = value.value
    if isinstance(value, np.ndarray):
        steps = [step for step, n in zip(value.strides, value.shape) if n > 1]
        in_order = steps == sorted(steps, reverse=True) and min(steps, default=1) > 0
        return in_order and type(value) is np.ndarray
    known = source_of(value)
    return not isinstance(value, GraphNode) and (type(known) is not Source or known.in_order)


def gaps(piece: Piece, shape: Sequence[int]) -> frozenset[int] | None:
    """The axes of a view that do not follow on from the one before in memory; None if they are turned.

    Sums of two views over the same axes add in the same order if these are the same.

    Examples
    --------
    >>> from dask_rewrite.passes.movement.mosaic import cut, whole
    >>> (view,) = cut(whole("x", (4, 6)), (slice(1, 3), slice(None))).pieces
    >>> gaps(view, (4, 6))
    frozenset()
    >>> (view,) = cut(whole("x", (4, 6)), (slice(None), slice(1, 3))).pieces
    >>> gaps(view, (4, 6))
    frozenset({1})
    """
    found = set()
    seen = -1
    broken = False
    for (_, step, along), size in zip(piece.axes, shape):
        count = piece.shape[along] if along >= 0 else 1
        if count > 1:
            if step != 1 or along < seen:
                return None
            if seen >= 0 and (broken or count < size):
                found.add(along)
            seen, broken = along, False
        elif size > 1:
            broken = True
    return frozenset(found)


def is_exact(value: np.generic) -> bool:
    """Sums of many of this value are the same in any order."""
    if value.dtype.kind not in "fc":
        return True
    return bool(value == 0) or not bool(np.isfinite(value))
