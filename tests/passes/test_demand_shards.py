"""Parts of shards are only read where that asks the store no more often, or for much less."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

import dask_rewrite
from dask_rewrite.analysis.knowledge.loading import Source
from dask_rewrite.analysis.knowledge.shards import REQUEST, asks_more


class Counting(MemoryStore):
    """Counts what is asked for of chunks, and the bytes of it."""

    asked = nbytes = 0

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        found = await super().get(key, prototype, byte_range)
        if "c/" in key:
            Counting.asked += 1
            Counting.nbytes += 0 if found is None else len(found)
        return found


def counted(build: Callable[[], Any], optimized: bool) -> tuple[Any, int, int]:
    Counting.asked = Counting.nbytes = 0
    with dask_rewrite.enable() if optimized else nullcontext():
        answer = np.asarray(build().compute(scheduler="sync"))
    return answer, Counting.asked, Counting.nbytes


def both(shape: tuple[int, ...], inner: tuple[int, ...], shards: tuple[int, ...], program: Any) -> Any:
    data = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    layout: dict[str, Any] = {"shape": shape, "dtype": "f8", "chunks": inner, "shards": shards}
    stored = zarr.create_array(Counting(), **layout, compressors=None)
    stored[:] = data  # at once: Zarr 3.0 loses parts of shards that are written one by one
    assert np.array_equal(stored[:], data)
    results = [counted(lambda: program(da.from_array(stored, chunks=shards)), on) for on in (False, True)]
    assert np.array_equal(results[0][0], results[1][0])
    return results


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x + 1)[:, 3],
        lambda x: (x - x.mean(axis=0))[:, 3],
        lambda x: (x + 1)[:, 5:12].sum(),
        lambda x: da.gradient(x, axis=0)[:5, :5],
        lambda x: da.diff(x, axis=1)[:5, :15],
        lambda x: x.map_overlap(np.sin, depth=1)[:5, :5],
    ],
)
def test_small_shards_are_asked_for_no_more_often_than_by_dask(program: Any) -> None:
    (_, before, _), (_, after, _) = both((90, 100), (10, 10), (40, 40), program)
    assert 0 < after <= before


def test_of_large_shards_only_what_is_needed_comes() -> None:
    shape, inner = (1600, 1600), (200, 400)
    (_, before, whole), (_, after, part) = both(shape, inner, (800, 800), lambda x: (x + 1)[:3, 7])
    assert (before, after) == (1, 2)
    assert part < whole / 5


def test_as_xarray_opens_them() -> None:
    store, data = Counting(), xr.DataArray(np.arange(8000.0).reshape(80, 100), dims=("y", "x"), name="v")
    layout = {"chunks": (10, 10), "shards": (40, 50)}
    data.to_dataset().to_zarr(store, encoding={"v": layout}, zarr_format=3, consolidated=False)
    with xr.open_zarr(store, chunks={"y": 40, "x": 50}, consolidated=False) as opened:
        (_, before, _), (answer, after, _) = (
            counted(lambda: (opened.v + 1)[:, 3], on) for on in (False, True)
        )
    assert np.array_equal(answer, data[:, 3] + 1)
    assert 0 < after <= before


#: Shards of 4 x 4 chunks; whoever leaves out a chunk saves what one request costs.
SHARDS = Source((8, 8), np.dtype(f"V{REQUEST}"), chunks=(4, 4), inner=(1, 1))
SHARD = ((0, 4), (0, 4))


@pytest.mark.parametrize(
    ("after", "more"),
    [
        (SHARD, False),  # one request
        (((0, 4), (0, 1)), False),  # five requests, which save 12 chunks
        (((0, 4), (0, 2)), False),  # nine, which save eight
        (((0, 4), (0, 3)), True),  # thirteen, which save four
        (((2, 3), (3, 4)), False),
        (((2, 2), (3, 4)), False),
    ],
)
def test_requests_weigh_as_much_as_bytes(after: Any, more: bool) -> None:
    assert asks_more(SHARDS, [SHARD], [after]) is more


def test_who_reads_parts_anyway_may_read_fewer() -> None:
    assert not asks_more(SHARDS, [((0, 3), (0, 8))], [((0, 3), (0, 3))])


def test_two_whole_shards_are_not_asked_for_as_one_part_of_both() -> None:
    assert asks_more(SHARDS, [SHARD, ((4, 8), (0, 4))], [((0, 7), (0, 4))])
    assert not asks_more(SHARDS, [SHARD, ((4, 8), (0, 4))], [((0, 8), (0, 4))])


def test_chunks_without_shards_are_one_request_each() -> None:
    assert not asks_more(SHARDS._replace(inner=None), [SHARD], [((0, 4), (0, 3))])
