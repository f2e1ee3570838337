"""What is summed up of blocks, and by what such partial results are put together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from dask.array import core, reductions

from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.analysis.knowledge.blocks import axes_of
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.passes.demand.calls import Call

JOIN, _MEAN, _MOMENT = [
    of_dask(place, name)
    for place, name in ((core, "_concatenate2"), (reductions, "mean_chunk"), (reductions, "moment_chunk"))
]

#: What is summed up of a block, by the function that does it; other borders change it but in rounding.
CHUNKS: dict[Any, str] = {
    **dict.fromkeys((np.sum, np.nansum), "sum"),
    **dict.fromkeys((np.prod, np.nanprod), "product"),
    **dict.fromkeys((np.max, of_dask(reductions, "chunk_max")), "maximum"),
    **dict.fromkeys((np.min, of_dask(reductions, "chunk_min")), "minimum"),
    of_dask(reductions, "_nanmax_skip"): "nanmax",
    of_dask(reductions, "_nanmin_skip"): "nanmin",
    np.any: "any",
    np.all: "all",
    _MEAN: "mean",
    _MOMENT: "moment",
}
#: What such partial results are put together by, some of them or all.
SOME: dict[Any, str] = {
    **{func: kind for func, kind in CHUNKS.items() if func not in (np.nansum, np.nanprod, _MEAN, _MOMENT)},
    of_dask(reductions, "mean_combine"): "mean",
    of_dask(reductions, "moment_combine"): "moment",
}
ALL = {of_dask(reductions, "mean_agg"): "mean", of_dask(reductions, "moment_agg"): "moment"}
#: Of complex numbers, some of which are nan, these give the first one.
_EXTREMES = frozenset(("maximum", "minimum", "nanmax", "nanmin"))
#: What means and moments may call in place of a sum and a count.
_CALLED = {
    "mean": frozenset((np.sum, np.nansum, reductions.numel, of_dask(reductions, "nannumel"))),
    "moment": frozenset((np.sum, np.nansum, reductions.numel, of_dask(reductions, "nannumel"))),
}
#: What dask gives them besides.
_OPTIONS = frozenset(("axis", "keepdims", "dtype", "sum", "numel", "order", "ddof", "implicit_complex_dtype"))


class Visible(Exception):
    """Somebody sees the borders."""


def kind_of(kind: str, call: Call, dtypes: Collection[str] = ()) -> Any:
    """What has to be the same for a block and for those that are put together.

    Raises
    ------
    Visible
        If blocks are not summed up, or are numbers of a kind of which something of each block is seen: the
        first of some complex nans, or distances from the mean of a block without their signs.
    """
    if "c" in dtypes and (kind in _EXTREMES or call.kwargs.get("order", 2) > 2):
        raise Visible
    if kind not in _CALLED:
        return kind
    given = call.kwargs
    if not _CALLED[kind].issuperset([given[name] for name in ("sum", "numel") if name in given]):
        raise Visible
    return kind, np.dtype(given.get("dtype", "f8")).kind, given.get("order", 2)


def along(call: Call, ndim: int) -> tuple[int, ...]:
    """The axes of a reduction.

    Raises
    ------
    Visible
        If it is called in another way than dask's own.
    """
    if len(call.args) != 1 or not _OPTIONS.issuperset(call.kwargs) or call.kwargs.get("axis") is None:
        raise Visible
    return tuple(sorted(axes_of(call.kwargs["axis"], ndim)))


def keeps(made: Any, values: Sequence[Any]) -> bool:
    """What is summed up is not cut off block by block: floats to integers, or integers that are too large."""
    if type(made) is not Fact or any(type(value) is not Fact for value in values):
        return True  # means and moments, of one dtype
    return all(value.dtype == made.dtype for value in values)
