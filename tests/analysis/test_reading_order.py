"""What is read from files lies in memory as it is said to."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.array.core import getter

from dask_rewrite.analysis.knowledge.loading import Source, source_of

h5py, xr, zarr = [pytest.importorskip(name) for name in ("h5py", "xarray", "zarr")]

VALUES = np.arange(6 * 7 * 8.0).reshape(6, 7, 8)
PARTS = [slice(None), slice(1, 4), slice(0, 6, 2), 3, slice(2, 3)]


def adapter_of(v: Any) -> Any:
    found = [getattr(node, "value", node) for node in v.data.dask.values()]
    return next(each for each in found if type(each).__name__ == "ImplicitToExplicitIndexingAdapter")


def reads_in_order(source: Any) -> bool:
    known = source_of(source)
    return type(known) is Source and known.in_order


def in_order(source: Any) -> bool:
    reads = [getter(source, index) for index in itertools.product(PARTS, repeat=3)]
    return all(each.flags.c_contiguous for each in reads)


@pytest.mark.parametrize("chunks", [None, (2, 3, 4), (6, 7, 8)])
def test_hdf5(chunks: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        x = file.create_dataset("x", data=VALUES, chunks=chunks)
        assert reads_in_order(x)
        assert in_order(x)


@pytest.mark.parametrize("chunks", [(2, 3, 4), (6, 7, 8)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.filterwarnings("ignore:The `order` keyword")  # of older versions, for older formats too
def test_zarr(chunks: Any, order: str) -> None:
    x = zarr.create(VALUES.shape, chunks=chunks, dtype="f8", order=order, zarr_format=2)
    x[...] = VALUES
    assert reads_in_order(x) is in_order(x) is (order == "C")


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf", "zarr"])
def test_xarray(engine: str, tmp_path: Path) -> None:
    pytest.importorskip({"netcdf4": "netCDF4"}.get(engine, engine))
    path = tmp_path / "x"
    names = ("a", "b", "c")
    made = xr.Dataset({"x": (names, VALUES), "s": (names, VALUES)})
    scaled = {"s": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    if engine == "zarr":
        made.to_zarr(path, encoding=scaled, consolidated=False)
        opened = xr.open_zarr(path, chunks={}, consolidated=False)
    else:
        made.to_netcdf(path, engine=engine, encoding=scaled)
        opened = xr.open_dataset(path, engine=engine, chunks={})
    with opened:
        for name in made:
            source = adapter_of(opened[name])
            assert reads_in_order(source)
            assert in_order(source)


def test_nothing_is_said_of_other_sources() -> None:
    assert not reads_in_order(VALUES)
    assert not reads_in_order([1, 2])
