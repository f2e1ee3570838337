"""Chunks that lie in two blocks are decoded once where that takes no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import dask_rewrite
from dask_rewrite.passes.align_reads import cost
from dask_rewrite.passes.align_reads.cost import cost_of, loses_time
from dask_rewrite.passes.align_reads.reads import File
from helpers import assert_same, switched_on

_HERE, _CHUNK = 2e-4, 1.2e-4


class FsspecStore(MemoryStore):
    """Stands for a store elsewhere: it is known by its name."""


def array(codec: Any = None, store: Any = None, chunks: tuple[int, int] = (100, 100)) -> Any:
    return zarr.create_array(
        MemoryStore() if store is None else store,
        shape=(2000, 2000),
        chunks=chunks,
        dtype="f8",
        compressors=codec,
    )


@pytest.mark.parametrize(
    ("codec", "byte"),
    [
        (None, 2e-10),
        (zarr.codecs.ZstdCodec(), 1e-9),
        (zarr.codecs.BloscCodec(), 1e-9),
        (zarr.codecs.GzipCodec(), 3e-9),
    ],
)
def test_what_compresses_chunks_counts(codec: Any, byte: float) -> None:
    assert cost_of(array(codec), 80_000) == (_HERE, _CHUNK, byte)


def test_what_is_far_takes_long() -> None:
    assert cost_of(array(store=FsspecStore()), 80_000).call > 10 * _HERE


@pytest.mark.parametrize(
    ("codec", "cache", "byte"),
    [("gzip", 2**20, 2e-10), ("gzip", 0, 3e-9), ("lzf", 0, 1e-9), (None, 0, 2e-10)],
)
def test_hdf5_keeps_chunks_that_neighbours_share(tmp_path: Path, codec: Any, cache: int, byte: float) -> None:
    with h5py.File(tmp_path / "x.h5", "w", rdcc_nbytes=cache) as file:
        made = file.create_dataset("x", (400, 400), "f8", chunks=(100, 100), compression=codec)
        assert cost_of(made, 80_000).byte == byte


@pytest.mark.parametrize(("saved", "added", "lost"), [(60, 900, True), (1200, 900, False), (0, 200, False)])
def test_more_reads_have_to_save_enough(saved: int, added: int, lost: bool) -> None:
    """Less than a twentieth of a second is not looked at."""
    assert loses_time(File("x", array(), (100, 100)), saved, added, 10_000_000) is lost


@pytest.mark.parametrize(
    ("codec", "reason"), [(None, "would take longer"), (zarr.codecs.GzipCodec(), "decoded chunks become")]
)
def test_plain_chunks_are_decoded_again(codec: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To copy blocks takes longer than a third more of chunks that nobody compressed."""
    monkeypatch.setattr(cost, "_LOST", 0.005)
    source = array(codec)
    data = np.arange(2000.0 * 2000).reshape(2000, 2000)
    source[:] = data
    made = da.from_array(source, chunks=(750, 750)).map_blocks(lambda block: block * 2, dtype="f8")
    remarks = dask_rewrite.explain(made).remarks
    assert any(reason in remark.reason for remark in remarks if remark.rule == "align-reads")
    with switched_on():
        assert_same(made.compute(scheduler="sync"), data * 2)
