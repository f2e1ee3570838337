"""Reading a Blockwise layer once, into a plan that can make any of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from numbers import Integral
from typing import Any, Literal, NamedTuple, TypeAlias

from dask._task_spec import GraphNode, Task, TaskRef
from dask.blockwise import Blockwise, blockwise_token
from dask.typing import Key

from dask_rewrite.graph.nodes import children, is_coroutine

Coords: TypeAlias = tuple[int, ...]
#: Per axis of an argument: a position in the output coordinates, -1 for block zero,
#: or a list of block numbers where the axis is contracted.
CoordMap: TypeAlias = tuple[int | list[int], ...]
_INTS = frozenset([int])


class Arg(NamedTuple):
    """One argument of a block function.

    ``kind`` is ``"literal"`` (the value itself), ``"node"`` (a reference or node that is the same
    for all blocks), ``"block"`` (a block of layer ``value``), ``"blocks"`` (nested lists of blocks
    along contracted axes) or ``"io"`` (looked up in the `BlockwiseDep` ``value``).
    """

    kind: Literal["literal", "node", "block", "blocks", "io"]
    value: Any
    coord_map: CoordMap = ()
    axes: tuple[int, ...] = ()  # contracted axes to concatenate along; empty: pass nested lists


class Plan:
    """A Blockwise layer, read once.

    Attributes
    ----------
    name : str
        Name of the layer and of its blocks.
    numblocks : tuple of int
        Blocks along each output axis.
    task : Task
        The layer's template, over tokens.
    args : dict of str to Arg
        What each token of the template stands for.
    simple : bool
        All tokens stand directly in the template's positional arguments, and nothing else
        in it depends on a key.
    inputs : list of str
        Layer names of the ``block`` and ``blocks`` arguments, in order, with repetition.
    fusable : bool
        False for templates that must stay tasks of their own (coroutines, folds).
    fold : callable or None
        The operation, where this is a fold over all arguments (see :mod:`dask_rewrite.lowering.fold_chains`).
    """

    def __init__(self, layer: Blockwise) -> None:
        self.name: str = layer.output
        self.task: Task = layer.task
        self.annotations: dict[str, Any] | None = dict(layer.annotations) if layer.annotations else None
        self.producer: bool = layer.task.data_producer
        dims = _block_counts(layer)
        position = {index: i for i, index in enumerate(layer.output_indices)}
        self.numblocks: Coords = tuple([dims[index] for index in layer.output_indices])
        used = layer.task.dependencies
        args: dict[str, Arg] = {}
        for i, (value, indices) in enumerate(layer.indices):
            token = blockwise_token(i)
            if token in used:  # dask lists delayed keyword arguments as indices without a use
                args[token] = _read_arg(layer, value, indices, position, dims)
        self.args = args
        self.inputs: list[str] = [arg.value for arg in args.values() if arg.kind in ("block", "blocks")]
        #: What the template itself refers to, beside its tokens: futures stay the objects that they are.
        self.others: dict[Key, TaskRef] = {}
        if used != args.keys():
            self.others = {key: TaskRef(key) for key in sorted(used - args.keys(), key=str)}
            self.others.update(_futures(layer.task))
        task = self.task
        tokens = {arg.key for arg in task.args if type(arg) is TaskRef}
        nested = [
            arg.dependencies for arg in (*task.args, *task.kwargs.values()) if isinstance(arg, GraphNode)
        ]
        self.simple: bool = (
            type(task) is Task and not self.others and args.keys() == tokens and not any(nested)
        )
        self.fusable: bool = type(task) is Task and not is_coroutine(task.func)
        self.fold: Callable[..., Any] | None = None

    def with_fold(self, task: Task, args: dict[str, Arg]) -> Plan:
        """The same blocks as a fold over many terms, which stays a task of its own."""
        plan = copy(self)
        plan.task, plan.args, plan.fold = task, args, task.args[0]
        plan.inputs = [arg.value for arg in args.values()]
        plan.simple = plan.fusable = False
        return plan

    @property
    def is_load(self) -> bool:
        """Nothing comes in but literals: the block is created or read."""
        return not self.inputs


def plain(coords: tuple[Any, ...]) -> Coords:
    """In Python's integers, as functions are told where their block lies: ``vindex`` writes NumPy's.

    Examples
    --------
    >>> import numpy as np
    >>> plain((np.int64(0), 1))
    (0, 1)
    """
    if _INTS.issuperset(map(type, coords)):
        return coords
    return tuple([int(i) if isinstance(i, Integral) else i for i in coords])


def _futures(task: Task) -> dict[Key, TaskRef]:
    found: dict[Key, TaskRef] = {}
    stack: list[Any] = [task]
    while stack:
        for arg in children(stack.pop()):
            if isinstance(arg, Task):
                stack.append(arg)
            elif isinstance(arg, TaskRef) and type(arg) is not TaskRef:
                found[arg.key] = arg
    return found


def _block_counts(layer: Blockwise) -> dict[str, int]:
    counts: dict[str, int] = {}
    numblocks: Mapping[Any, Any] = layer.numblocks
    for value, indices in layer.indices:
        if indices is None:
            continue
        for index, count in zip(indices, numblocks[value], strict=True):
            if type(count) is not int:
                return dict(layer.dims)  # dask's own way for the unusual
            known = counts.get(index, 1)
            if known == 1:
                counts[index] = count
            elif count not in (1, known):
                return dict(layer.dims)  # raises dask's own error
    new_axes: Mapping[Any, Any] = layer.new_axes
    for index, size in new_axes.items():
        counts[index] = len(size) if isinstance(size, tuple) else 1
    return counts


def _read_arg(
    layer: Blockwise,
    value: Any,
    indices: Sequence[str] | None,
    position: dict[str, int],
    dims: dict[str, int],
) -> Arg:
    if indices is None:
        return Arg("node" if isinstance(value, (GraphNode, TaskRef)) else "literal", value)
    numblocks = layer.numblocks[value]
    coord_map: list[int | list[int]] = []
    contracted = []
    for axis, (index, count) in enumerate(zip(indices, numblocks, strict=True)):
        if index in position:
            coord_map.append(-1 if count == 1 else position[index])
        else:
            contracted.append(axis)
            if count == 1:
                coord_map.append([0] * (1 if layer.concatenate else dims[index]))
            else:
                coord_map.append(list(range(dims[index])))
    where = tuple(coord_map)
    if value in layer.io_deps:
        return Arg("io", layer.io_deps[value], where)
    if contracted:
        return Arg("blocks", value, where, tuple(contracted) if layer.concatenate else ())
    return Arg("block", value, where)
