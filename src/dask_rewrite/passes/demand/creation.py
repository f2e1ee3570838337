"""Functions that make blocks out of nothing: a box of the result is a smaller one of the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.array import chunk

from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.passes.demand.boxes import Box, length, lengths, step_of
from dask_rewrite.passes.demand.calls import Call, Narrowed, Part, Rule


def _arange(call: Call, box: Box) -> Narrowed | None:
    """``chunk.arange``: counted in integers; steps of floats would be rounded differently."""
    start, stop, step, _length, *rest = call.args
    if not {type(start), type(stop), type(step)} <= {int, np.int64}:
        return None
    ((low, high, *_),) = box
    every = step * step_of(box[0])
    args = [start + low * step, start + high * step, every, length(box[0]), *rest]
    return Narrowed(box, args)


def _created(call: Call, box: Box) -> Narrowed | None:
    """Constants, whose shape is the first argument or a keyword."""
    if "shape" in call.kwargs:
        return Narrowed(box, call.args, {**call.kwargs, "shape": lengths(box)})
    return Narrowed(box, [lengths(box), *call.args[1:]]) if call.args else None


def _filled_like(call: Call, box: Box) -> Narrowed | None:
    """``np.ones_like`` and so on."""
    block = call.args[0]
    if "shape" in call.kwargs:
        return None
    return Narrowed(box, [Part(block, box), *call.args[1:]])


TABLE: dict[Any, Rule] = {
    of_dask(chunk, "arange"): _arange,
    **dict.fromkeys((np.zeros, np.ones, np.full), _created),
    **dict.fromkeys((np.zeros_like, np.ones_like, np.full_like), _filled_like),
}
