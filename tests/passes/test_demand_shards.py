"""Parts of shards are only read where that asks the store no more often, or for much less."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import dask
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


def asked_for(stored: Any, blocks: int, program: Any, **config: Any) -> list[tuple[int, int]]:
    """Requests and bytes: of dask, without align-reads, and with it; all give the same."""
    found, answers = [], []
    ways: list[tuple[Any, list[str]]]
    ways = [(nullcontext, []), (dask_rewrite.enable, ["align-reads"]), (dask_rewrite.enable, [])]
    for way, disabled in ways:
        Counting.asked = Counting.nbytes = 0
        with way(), dask.config.set({"rewrite.disable": disabled, **config}):
            made = program(da.from_array(stored, chunks=blocks))
            answers.append(dask.compute(*made, scheduler="threads", num_workers=2))
        found.append((Counting.asked, Counting.nbytes))
    for answer in answers[1:]:
        for mine, other in zip(answer, answers[0]):
            np.testing.assert_allclose(mine, other, rtol=1e-12)
    return found


def image(shape: tuple[int, int], inner: int, shard: int) -> Any:
    layout: dict[str, Any] = {"shape": shape, "chunks": (inner, inner), "shards": (shard, shard)}
    stored = zarr.create_array(Counting(), **layout, dtype="u2", compressors=None)
    stored[:] = np.arange(np.prod(shape)).reshape(shape) % 65_521 + 1
    return stored


def add_one(block: Any) -> Any:
    return block + 1


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "far, one of many blocks": lambda x: (x[929:1325, 443:554].mean(), x[127:175, 88:124].mean()),
    "far, reduced along an axis": lambda x: (
        x[100:400, 50:300].astype("f4").mean(),
        x[900:1000, 1000:1200].max(axis=0),
    ),
    "in one row of shards": lambda x: (x[449:561, 1159:1256].max(axis=0), x[1343:1407, 469:751].max(axis=0)),
    "two corners of one shard": lambda x: (x[10:100, 10:100].map_blocks(add_one), x[300:440, 290:440].sum()),
    "overlapping": lambda x: (
        x[100:400, 50:300].map_blocks(add_one),
        x[250:700, 200:450].map_blocks(add_one),
        x[600:620, 800:830].max(),
    ),
}


@pytest.mark.parametrize("blocks", [64, 150])
@pytest.mark.parametrize("name", WINDOWS)
def test_what_lies_between_windows_is_not_asked_for(name: str, blocks: int) -> None:
    """All of a shard between two windows of it was read chunk by chunk: 158 requests instead of 46."""
    *others, (asked, nbytes) = asked_for(image((1500, 1300), 64, 512), blocks, WINDOWS[name])
    assert 0 < asked <= min(other for other, _ in others)
    assert nbytes <= min(other for _, other in others)


def test_a_whole_shard_is_read_where_that_saves_requests() -> None:
    """Corners of a shard of 2 MB that lie far from each other: one request for less than a MB each."""
    corners = [slice(0, 300), slice(800, 1024)]
    stored = image((2048, 1024), 128, 1024)
    *others, (asked, nbytes) = asked_for(stored, 128, lambda x: [x[a, a].mean() for a in corners])
    for before, less in others:
        assert asked < before
        assert nbytes - less < (before - asked) * REQUEST


@pytest.mark.parametrize("blocks", [40, 60, 130])
@pytest.mark.parametrize("room", [1, 80_000, 10_000_000])
def test_windows_share_what_the_memory_has_room_for(blocks: int, room: int) -> None:
    """Units that are cut where blocks end look one shard up more than once, and share less of it."""
    stored = image((400, 360), 20, 120)

    def program(x: Any) -> Any:
        return x[30:310, 15:330].map_blocks(add_one), x[200:390, 100:180].map_blocks(add_one), x[7:19, 3:9]

    config = {"rewrite.options": {"align-reads": {"max-held": room}}}
    *others, (asked, nbytes) = asked_for(stored, blocks, program, **config)
    for before, less in others:
        assert asked <= before
        assert nbytes - less <= (before - asked) * REQUEST
