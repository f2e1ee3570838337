"""How files are cut into chunks, and what is decoded of them to read a part."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from dask.array.slicing import replace_ellipsis

from dask_rewrite.analysis.knowledge.loading import Source, source_of


def stored_chunks(source: Any) -> tuple[int, ...] | None:
    """The shape of what a file decodes at once: its shards, or else its chunks; None if that is not known.

    Examples
    --------
    >>> import zarr
    >>> stored_chunks(zarr.zeros((6, 4), chunks=(3, 2)))
    (3, 2)
    >>> stored_chunks([1, 2, 3]) is None
    True
    """
    known = source_of(source)
    # what is put together lies in C order
    return _chunks(known) if type(known) is Source and known.in_order else None


def _chunks(known: Source) -> tuple[int, ...] | None:
    found = known.chunks
    if type(found) is not tuple or not all(type(n) is int and n > 0 for n in found):
        return None
    return found if len(found) == len(known.shape) and 0 not in known.shape else None


def decoded(source: Any, index: Any) -> int | None:
    """Bytes of all chunks that hold a part of what an index reads; None if a file does not tell.

    Examples
    --------
    >>> import zarr
    >>> decoded(zarr.zeros((6, 4), chunks=(3, 2), dtype="i4"), (slice(1, 5), 0))
    48
    """
    known = source_of(source)
    chunks = _chunks(known) if type(known) is Source else None
    if chunks is None:
        return None
    count = _count(index, known.shape, chunks)
    return None if count is None else prod(chunks) * count * (known.itemsize or known.dtype.itemsize)


def taken(source: Any, index: Any) -> int | None:
    """Bytes of what an index reads of anything that states its shape and dtype; None if that is not known.

    Of numbers that are stored as smaller ones, what is stored is counted.

    Examples
    --------
    >>> import zarr
    >>> taken(zarr.zeros((6, 4), chunks=(3, 2), dtype="i4"), (slice(1, 5), 0))
    16
    """
    known = source_of(source)
    shape, dtype = getattr(known, "shape", None), getattr(known, "dtype", None)
    if type(shape) is not tuple or not all(isinstance(n, (int, np.integer)) for n in shape):
        return None
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        return None
    count = _count(index, shape, (1,) * len(shape))
    packed = known.itemsize if type(known) is Source else None
    return None if count is None else count * (packed or dtype.itemsize)


def _count(index: Any, shape: tuple[int, ...], chunks: tuple[int, ...]) -> int | None:
    """How many chunks hold a part of what an index takes; None if it is of a kind that nobody knows."""
    items = tuple([item for item in (index if type(index) is tuple else (index,)) if item is not None])
    if len([item for item in items if item is not Ellipsis]) > len(chunks):
        return None
    if len([item for item in items if isinstance(item, (list, np.ndarray))]) > 1:
        return None  # of some libraries points, of others a grid
    items = replace_ellipsis(len(chunks), items)
    items += (slice(None),) * (len(chunks) - len(items))
    counts = [_touched(item, n, chunk) for item, n, chunk in zip(items, shape, chunks)]
    touched = [count for count in counts if count is not None]
    return prod(touched) if len(touched) == len(counts) else None


def _touched(item: Any, length: int, chunk: int) -> int | None:
    """How many chunks an index touches along one axis."""
    if isinstance(item, slice):
        places = range(*item.indices(length))
        if places and abs(places.step) <= chunk:
            return abs(places[-1] // chunk - places[0] // chunk) + 1
        return len(places)
    if isinstance(item, (list, np.ndarray)):
        picked = np.asarray(item)
        if picked.ndim != 1 or picked.dtype.kind not in "iu":  # a mask is as long as the axis
            return 0 if picked.size == 0 else None
        return len(np.unique(picked % length // chunk)) if length else 0
    return 1 if isinstance(item, (int, np.integer)) and not isinstance(item, bool) else None
