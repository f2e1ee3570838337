"""Products: rows of one block and columns of another, and all of what is summed over."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from dask.array import einsumfuncs, routines

from dask_rewrite.analysis.knowledge.blocks import axes_of
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.passes.demand.boxes import Box, Shape
from dask_rewrite.passes.demand.calls import Call, Narrowed, Part, Rule, Unreadable


def _parts(call: Call, box: Box, shapes: Sequence[Shape], names: Sequence[Sequence[Any]], output: Any) -> Any:
    """The blocks of a product whose axes have names: an axis without a place in the output is summed over."""
    ranges = dict(zip(output, box, strict=True))
    return [
        Part(arg, tuple([_range(ranges, name, n) for name, n in zip(each, shape, strict=True)]))
        for arg, shape, each in zip(call.args, shapes, names)
    ]


def _range(ranges: Mapping[Any, tuple[int, int]], name: Any, n: int) -> tuple[int, int]:
    return (0, 1) if n == 1 else ranges.get(name, (0, n))


def _matmul(call: Call, box: Box, extra: int = 0) -> Narrowed | None:
    """``np.matmul``; dask's leaves an axis of length one for the one that it has summed over."""
    if len(call.args) != 2 or call.kwargs:
        return None
    one, other = shapes = [call.block(arg) for arg in call.args]
    if min(len(one), len(other)) < 1 + extra:
        return None
    batch = range(max(len(one), len(other)) - 2)
    left = (*batch[len(batch) + 2 - len(one) :], "row", "sum")[-len(one) :]
    right = (*batch[len(batch) + 2 - len(other) :], "sum", "column")[: len(other)]
    output = [*batch, *("row",) * ("row" in left), *("one",) * extra, *("column",) * ("column" in right)]
    return Narrowed(box, _parts(call, box, shapes, [left, right], output))


def _dot(call: Call, box: Box) -> Narrowed | None:
    """``np.dot``: as ``matmul`` where it has no more than two axes."""
    shapes = [call.block(arg) for arg in call.args[:2]]
    return _matmul(call, box) if max(map(len, shapes)) <= 2 and () not in shapes else None


def _tensordot(call: Call, box: Box, keeps: bool = False) -> Narrowed | None:
    """``np.tensordot``; dask's leaves an axis of length one for each that it has summed over."""
    shapes = [call.block(arg) for arg in call.args[:2]]
    axes = call.args[2] if len(call.args) > 2 else call.kwargs.get("axes", 2)
    if isinstance(axes, int):
        axes = range(len(shapes[0]) - axes, len(shapes[0])), range(axes)
    left, right = [axes_of(tuple(np.atleast_1d(each)), len(shape)) for each, shape in zip(axes, shapes)]
    names = count()
    summed = [("sum", i) for i in range(len(left))]
    first, second = [
        [summed[where.index(i)] if i in where else next(names) for i in range(len(shape))]
        for where, shape in zip((left, right), shapes)
    ]
    output: list[Any] = [name for name in (*first, *second) if type(name) is int]
    if keeps and not (call.kwargs.get("is_sparse") and len(left) == 1):
        for axis in sorted(left):
            output.insert(axis, "one")
    return Narrowed(box, [*_parts(call, box, shapes, [first, second], output), *call.args[2:]])


def _einsum(call: Call, box: Box) -> Narrowed:
    """``einsumfuncs.chunk_einsum``: an axis of length one at the end for each that it has summed over."""
    inputs, _, output = call.kwargs["subscripts"].replace(" ", "").partition("->")
    names = inputs.split(",")
    shapes = [call.block(arg) for arg in call.args]
    if "." in inputs or any(len(set(each)) < len(each) for each in names):
        raise Unreadable
    ranges = box[: len(output)]
    return Narrowed(box, _parts(call, ranges, shapes, names, output))


TABLE: dict[Any, Rule] = {
    **dict.fromkeys((np.matmul, operator.matmul), _matmul),
    np.dot: _dot,
    np.tensordot: _tensordot,
    of_dask(routines, "_matmul"): partial(_matmul, extra=1),
    of_dask(routines, "_tensordot"): partial(_tensordot, keeps=True),
    of_dask(einsumfuncs, "chunk_einsum"): _einsum,
}
