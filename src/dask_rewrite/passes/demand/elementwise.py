"""Functions that work element by element, and those that broadcast."""

from __future__ import annotations

import builtins
import functools
from functools import partial
from typing import Any

import numpy as np
from dask import utils
from dask._task_spec import List
from dask.array import core, reductions, routines
from toolz import identity

from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.elementwise import ELEMENTWISE
from dask_rewrite.passes.demand.boxes import Box, Shape, lengths
from dask_rewrite.passes.demand.calls import Call, Narrowed, Rule, Unreadable, everything, mapped


def _aligned(box: Box, shape: Shape) -> Box:
    """The box of an argument of this shape, which is broadcast: axes are counted from the last."""
    if len(shape) > len(box):
        raise Unreadable
    return tuple([(0, 1) if n == 1 else ends for n, ends in zip(shape, box[len(box) - len(shape) :])])


def elementwise(call: Call, box: Box) -> Narrowed:
    """Every argument that is a block, also in lists."""
    return Narrowed(box, [mapped(call, arg, partial(_aligned, box)) for arg in call.args])


def first_only(call: Call, box: Box) -> Narrowed:
    """The other arguments are looked into as a whole."""
    first, *rest = call.args
    return Narrowed(box, [mapped(call, first, partial(_aligned, box)), *[everything(call, a) for a in rest]])


def _isin(call: Call, box: Box) -> Narrowed:
    """``routines._isin_kernel``: axes of length one at the end, as many as what it looks through has."""
    first, *rest = call.args
    part = mapped(call, first, lambda shape: box[: len(shape)])
    return Narrowed(box, [part, *[everything(call, each) for each in rest]])


def _forwarded(call: Call, box: Box) -> Narrowed | None:
    """``core._enforce_dtype``: calls a function and converts what comes out."""
    func = call.kwargs["enforce_dtype_function"]
    while type(func) is partial and not func.args:
        func = func.func
    return elementwise(call, box) if TABLE.get(func) is elementwise else None


def _applied(call: Call, box: Box) -> Narrowed | None:
    """``utils.apply``: the function, a list of its arguments, and perhaps a dict of keywords."""
    func, args, *rest = call.args
    if type(args) is not List or TABLE.get(func) is not elementwise:
        return None
    return Narrowed(box, [func, mapped(call, args, partial(_aligned, box)), *rest])


def _broadcast_to(call: Call, box: Box) -> Narrowed | None:
    """``np.broadcast_to(array, shape)``."""
    array, *rest = call.args
    part = mapped(call, array, partial(_aligned, box))
    if len(rest) == 1:
        return Narrowed(box, [part, lengths(box)])
    if not rest and "shape" in call.kwargs:
        return Narrowed(box, [part], {**call.kwargs, "shape": lengths(box)})
    return None


#: Functions of the table that do something else with some of their arguments.
_OTHERS = (np.digitize, of_dask(routines, "_isin_kernel"))

TABLE: dict[Any, Rule] = {
    **{func: elementwise for func in ELEMENTWISE if func not in _OTHERS},
    builtins.sum: elementwise,
    functools.reduce: elementwise,
    identity: elementwise,
    np.copy: elementwise,
    of_dask(reductions, "_cumsum_merge"): elementwise,  # to the blocks of a scan, the end of those before
    of_dask(reductions, "_cumprod_merge"): elementwise,
    np.digitize: first_only,
    of_dask(routines, "_isin_kernel"): _isin,
    of_dask(routines, "_asarray_isnull"): elementwise,
    of_dask(core, "_enforce_dtype"): _forwarded,
    of_dask(utils, "apply"): _applied,
    np.broadcast_to: _broadcast_to,
}
