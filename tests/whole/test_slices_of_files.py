"""Slices after pipelines read no more of files than they need, and no more than other optimizers read."""

from __future__ import annotations

from collections.abc import Iterator

import dask.array as da
import pytest

from helpers import assert_same, stock, switched_on

pytest.importorskip("h5netcdf")
pytest.importorskip("xarray")
pytest.importorskip("zarr")

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
