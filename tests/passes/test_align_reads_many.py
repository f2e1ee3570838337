"""Of many files each is looked at for itself: what the others need is not counted again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

from dask_rewrite.pipeline.run import Trace, rewrite_tasks
from helpers import assert_linear, assert_same, assert_same_as_stock, stock, switched_on


def files(count: int) -> list[Any]:
    """Arrays of 40 x 40 in chunks of 10 x 10, in blocks that cut these."""
    values = np.arange(1600.0).reshape(40, 40)
    return [
        da.from_array(zarr.array(values + i, chunks=(10, 10)), chunks=15, name=f"file-{i:03d}")
        for i in range(count)
    ]


PROGRAMS: dict[str, Callable[[int], Any]] = {
    "borders move": lambda n: da.stack(files(n)).mean(axis=0),
    "all in one sum": lambda n: da.stack(files(n)).sum(split_every=100_000),
    "borders are seen": lambda n: da.concatenate(files(n)) + 1,
    "one task needs all": lambda n: da.concatenate(files(n)).rechunk((-1, 15)).map_blocks(np.sin),
    "added up": lambda n: sum(files(n)),
}


@pytest.mark.once
@pytest.mark.parametrize("name", PROGRAMS)
def test_linear(name: str) -> None:
    with dask.config.set({"rewrite.passes": ["cull", "fuse-blockwise", "lower", "align-reads"]}):
        assert_linear(PROGRAMS[name], (32, 64))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_stock(name: str) -> None:
    assert_same_as_stock(PROGRAMS[name](3))


def test_tasks_that_read_two_files_are_rewritten_for_both() -> None:
    one, other, third = files(3)
    made = [da.where(one > other, third, one).sum(), (one - other.mean(axis=0)) * third, other.T]
    graph = rewrite_tasks(da.stack(made[1:]).dask, da.stack(made[1:]).__dask_keys__())
    assert graph is not None
    assert len({str(key[0]) for key in graph.nodes if "aligned" in str(key)}) >= 2
    assert_same_as_stock(*made)


def test_annotations_and_names_stay_with_the_tasks_of_each_file() -> None:
    passes = ["cull", "fuse-blockwise", "lower", "align-reads"]
    parts = []
    for priority, file in enumerate(files(3)):
        with dask.annotate(priority=priority):
            parts.append((file * 2).sum(axis=0))
    made = da.stack(parts)
    with dask.config.set({"rewrite.passes": passes[:-1]}):
        before = rewrite_tasks(made.dask, made.__dask_keys__())
    with dask.config.set({"rewrite.passes": passes}):
        after = rewrite_tasks(made.dask, made.__dask_keys__())
    assert before is not None
    assert after is not None
    there = [after.annotations.get(key) for key in after.nodes if "aligned" not in str(key)]
    assert there == [before.annotations.get(key) for key in before.nodes]  # each where it stood
    assert after.nodes.keys() >= after.annotations.keys()
    assert len(after.origin.elementwise) > len(before.origin.elementwise)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """What opens so many netCDF files, of which xarray keeps two."""
    xr = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    opened: list[Any] = []

    def opening(count: int, **chunks: int) -> Any:
        paths = [tmp_path / f"{i}.nc" for i in range(count)]
        for i, path in enumerate(paths):
            values = np.arange(1600.0).reshape(40, 40) + i
            encoding = {"v": {"chunksizes": (20, 40)}}
            xr.Dataset({"v": (("y", "x"), values)}).to_netcdf(path, engine="netcdf4", encoding=encoding)
        many = xr.open_mfdataset(paths, engine="netcdf4", combine="nested", concat_dim="y", chunks=chunks)
        opened.append(many)
        return many.v

    with xr.set_options(file_cache_maxsize=2):
        yield opening
        for each in opened:
            each.close()


def remarks(made: Any) -> list[tuple[str, str]]:
    trace = Trace()
    rewrite_tasks(made.dask, made.__dask_keys__(), trace=trace)
    return [(r.kind, r.reason) for r in trace.remarks if r.rule == "align-reads"]


@pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")
def test_files_that_xarray_has_closed_are_told_of(closed: Callable[..., Any]) -> None:
    made = closed(5, y=10, x=20) + 1
    *applied, last = remarks(made.data)
    assert [kind for kind, _ in applied] == ["applied"] * 2
    assert last[0] == "missed"
    assert last[1].startswith("3 files that xarray has closed")
    assert "file_cache_maxsize" in last[1]
    with stock():
        expected = made.compute(scheduler="sync")
    with switched_on():
        assert_same(made.compute(scheduler="sync").values, expected.values)


@pytest.mark.parametrize("chunks", [{}, {"y": 20, "x": 40}])
def test_closed_files_that_are_read_well_are_not_told_of(chunks: Any, closed: Callable[..., Any]) -> None:
    assert remarks((closed(5, **chunks) + 1).data) == []
