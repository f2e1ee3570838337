"""What the layers of a graph say of their blocks, as dask writes it down."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dask.blockwise import Blockwise
from dask.highlevelgraph import Layer, MaterializedLayer
from toolz import functoolz

#: What is said of NumPy's arrays; older versions of dask say nothing.
NUMPYS = ("numpy.ndarray", None)
_ARRAY = "dask.array.core.Array"


def is_unknown(sizes: tuple[Any, ...]) -> bool:
    """Whether chunk sizes along an axis are not known."""
    return bool(sum(sizes) != sum(sizes))  # nan


def said_of(layer: Layer | None) -> Mapping[str, Any] | None:
    """The chunks, dtype and type of an array's blocks, None if a layer is not of an array."""
    said = getattr(layer, "collection_annotations", None)
    if not said or said.get("type") != _ARRAY or "chunks" not in said or said.get("dtype") is None:
        return None
    found: Mapping[str, Any] = said
    return found


def reduced_axes(layer: Layer) -> frozenset[int]:
    """The axes along which each block of a layer is reduced to one element."""
    if not isinstance(layer, Blockwise):
        return frozenset()
    options = _options(layer.task)
    if options.get("keepdims") is not True:
        return frozenset()
    axis = options.get("axis")
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = len(layer.output_indices)
    return frozenset([a % ndim for a in axes if isinstance(a, int)]) if ndim else frozenset()


def keeps_axes(layer: Layer) -> bool:
    """Whether a layer is a later stage of a reduction that keeps its axes.

    Dask declares one element along each, and corrects that afterwards where there are more (``topk``).
    """
    if not isinstance(layer, MaterializedLayer) or not layer.mapping:
        return False
    return _options(next(iter(layer.mapping.values()))).get("keepdims") is True


def _options(task: Any) -> dict[str, Any]:
    """The keywords of a call, those of the task first and then those of partials."""
    found = dict(getattr(task, "kwargs", {}))
    func: Any = task[0] if type(task) is tuple and task else getattr(task, "func", None)
    if isinstance(func, functoolz.Compose):  # dask concatenates first, and then reduces
        func = func.funcs[-1]
    while isinstance(func, (partial, functoolz.curry)):  # users' callables are asked for no attributes
        found = {**func.keywords, **found}
        func = func.func
    return found
