"""Programs as people write them give dask's answers, from data on disk."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import pytest

for needed in ("xarray", "zarr", "h5netcdf", "scipy"):
    pytest.importorskip(needed)

from benchmarks import as_written  # noqa: E402  # after what may be missing
from benchmarks.workloads.written_data import Data  # noqa: E402  # after what may be missing


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    with warnings.catch_warnings(), dask.config.set(scheduler="sync"):
        warnings.simplefilter("ignore")  # of the libraries that write the files
        return Data(tmp_path_factory.mktemp("written"), "tiny", images=24)


@pytest.mark.parametrize("name", sorted(as_written.PROGRAMS))
def test_the_same_answer(data: Data, name: str) -> None:
    answers: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stock's are the same
        for side in as_written.SIDES:
            with as_written.switched(side), dask.config.set({"rewrite.on-error": "raise"}):
                answers[side] = as_written.computed(as_written.PROGRAMS[name], data)[2]
    assert as_written.same(answers["stock"], answers["ours"]) in ("yes", "close")


def test_there_are_programs_of_all_kinds() -> None:
    assert len(as_written.PROGRAMS) >= 55


@pytest.mark.once
def test_the_table_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert as_written.main(["tiny", "one_place", "region_writes"]) == 0
    said = capsys.readouterr().out
    assert "one_place" in said
    assert "2 programs; answers that differ: none" in said
    assert "held: geometric mean" in said
