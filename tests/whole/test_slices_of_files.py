"""Slices after pipelines read no more of files than they need, and no more than other optimizers read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from helpers import assert_same, stock, switched_on

pytest.importorskip("h5netcdf")
pytest.importorskip("xarray")
pytest.importorskip("zarr")

import xarray as xr
from benchmarks import slices

pytestmark = pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slices.Files]:
    made = slices.Files(tmp_path_factory.mktemp("files"))
    yield made
    made.close()


@pytest.mark.parametrize("source", slices.SOURCES)
@pytest.mark.parametrize("name", slices.ROWS)
def test_only_what_is_needed_is_decoded(name: str, source: str, files: slices.Files) -> None:
    _, wanted = slices.ROWS[name]
    with stock():
        before, expected = files.decoded(source, name, da)
    with switched_on(num_workers=2):
        after, found = files.decoded(source, name, da)
    assert_same(found, expected)
    assert after <= wanted <= before


@pytest.mark.once
def test_no_more_than_the_rival_decodes() -> None:
    """What another optimizer needs for the right answers, in a process of its own, where it is installed."""
    pytest.importorskip("dask_array")
    other = slices.rival()
    assert other.keys() == slices.ROWS.keys()
    found = {(name, *each) for name, row in other.items() for each in row.items() if each[1] >= 0}
    assert len(found) > 80
    assert not {(name, source) for name, source, count in found if count < slices.ROWS[name][1]}


@pytest.mark.parametrize(("length", "reason"), [(420, "would take longer"), (90, "decoded chunks become")])
def test_chunks_of_netcdf_are_decoded_again_where_more_reads_take_longer(
    length: int, reason: str, tmp_path: Path
) -> None:
    """xarray takes a millisecond for each read of a netCDF file."""
    data = np.arange(length**2, dtype="f4").reshape(length, length)
    path = tmp_path / "fine.nc"
    encoding = {"v": {"chunksizes": (14, 14), "zlib": True}}
    xr.Dataset({"v": (("y", "x"), data)}).to_netcdf(path, engine="h5netcdf", encoding=encoding)
    with xr.open_dataset(path, engine="h5netcdf", cache=False, chunks={"y": 30, "x": 30}) as opened:
        made = opened.v + 1
        remarks = dask_rewrite.explain(made).remarks
        assert any(reason in remark.reason for remark in remarks if remark.rule == "align-reads")
        with dask_rewrite.enable():
            np.testing.assert_array_equal(made.compute(scheduler="sync").values, data + 1)
