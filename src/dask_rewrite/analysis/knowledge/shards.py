"""Shards: each chunk inside of one is a request of its own, unless all of the shard is read at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeAlias

from dask_rewrite.analysis.knowledge.loading import Source

#: Bytes that come in the time that one more request to a store takes (10 to 20 ms on 50 to 100 MB/s).
REQUEST = 2**20

_Box: TypeAlias = Sequence[Sequence[int]]


def asks_more(source: Source, before: Iterable[_Box], after: Iterable[_Box]) -> bool:
    """Whether other reads ask the store more often, for too little less.

    Zarr reads a shard at once where all of it is wanted, and else its index and each chunk inside.

    Parameters
    ----------
    source : Source
        What is read.
    before, after : iterable of boxes
        From where to where along each axis, for each read.

    Examples
    --------
    >>> import numpy as np
    >>> shards = Source((80, 80), np.dtype("f8"), chunks=(40, 40), inner=(10, 10))
    >>> column, shard, corner = ((0, 40), (3, 4)), ((0, 40), (0, 40)), ((0, 10), (0, 10))
    >>> asks_more(shards, [shard], [column]), asks_more(shards, [column], [corner])
    (True, False)
    """
    if source.inner is None or source.chunks is None:
        return False
    old, old_bytes = _cost(before, source.chunks, source.inner)
    new, new_bytes = _cost(after, source.chunks, source.inner)
    return new > old and (old_bytes - new_bytes) * source.dtype.itemsize < (new - old) * REQUEST


def weight(source: Source, box: _Box, looked_up: bool = False) -> int:
    """What a read takes of a store of shards: its bytes, and `REQUEST` for each request.

    Parameters
    ----------
    source : Source
        What is read.
    box : box
        From where to where along each axis.
    looked_up : bool
        Somebody asks for each of the shards in any case, which does not count.

    Examples
    --------
    >>> import numpy as np
    >>> shards = Source((80, 80), np.dtype("u1"), chunks=(40, 40), inner=(10, 10))
    >>> column = ((0, 40), (3, 4))
    >>> [divmod(weight(shards, column, known), REQUEST) for known in (False, True)]
    [(5, 400), (4, 400)]
    """
    assert source.chunks is not None
    assert source.inner is not None
    opened, parts, elements = _asked(box, source.chunks, source.inner)
    return (parts if looked_up else opened + parts) * REQUEST + elements * source.dtype.itemsize


def _cost(boxes: Iterable[_Box], shards: Sequence[int], chunks: Sequence[int]) -> tuple[int, int]:
    """Requests to the store, and the elements that come."""
    found = [_asked(box, shards, chunks) for box in boxes]
    return sum([opened + parts for opened, parts, _ in found]), sum([elements for *_, elements in found])


def _asked(box: _Box, shards: Sequence[int], chunks: Sequence[int]) -> tuple[int, int, int]:
    """How many shards are asked for, or for their index; chunks that come by themselves; all elements."""
    if any(low >= high for low, high in box):
        return 0, 0, 0
    inside = [shard // chunk for shard, chunk in zip(shards, chunks)]
    ends = [(low // chunk, -(-high // chunk)) for (low, high), chunk in zip(box, chunks)]
    touched = prod([last - first for first, last in ends])
    opened = prod([(last - 1) // n - first // n + 1 for (first, last), n in zip(ends, inside)])
    whole = prod([max(0, last // n + -first // n) for (first, last), n in zip(ends, inside)])
    return opened, touched - whole * prod(inside), touched * prod(chunks)
