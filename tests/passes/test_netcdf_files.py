"""NetCDF files behind xarray are read as sparingly as other files, counted where they are read."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_rewrite.analysis.knowledge.loading import Source, source_of
from dask_rewrite.analysis.knowledge.stored import stored_chunks
from helpers import assert_same, stock, switched_on, tasks_of

xr = pytest.importorskip("xarray")

SHAPE, STORED = (8, 64, 64), (1, 16, 16)
NAMES = ("time", "y", "x")
#: Backends of xarray: where they read, and the package that they need.
BACKENDS = {
    "netcdf4": ("xarray.backends.netCDF4_", "NetCDF4ArrayWrapper", "netCDF4"),
    "h5netcdf": ("xarray.backends.h5netcdf_", "H5NetCDFArrayWrapper", "h5netcdf"),
    "scipy": ("xarray.backends.scipy_", "ScipyArrayWrapper", "scipy"),
}
SEVERAL = ["several files"]

pytestmark = pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")


def dataset() -> Any:
    values = np.arange(float(np.prod(SHAPE))).reshape(SHAPE) % 8191 / 7
    values[::3, ::7] = np.nan
    counts = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)
    made = {"f": values, "i": counts, "masked": values, "scaled": np.round(values[::-1])}
    made["small"] = (values % 7).astype("f4")
    return xr.Dataset({name: (NAMES, each) for name, each in made.items()})


def encoding(stored: bool) -> dict[str, Any]:
    found: dict[str, Any] = {name: {"chunksizes": STORED} if stored else {} for name in dataset()}
    found["masked"].update(_FillValue=-999.0)
    found["scaled"].update(dtype="i2", scale_factor=0.5, add_offset=3.0, _FillValue=-1)
    found["small"].update(dtype="i2", scale_factor=np.float32(0.5), _FillValue=-1)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """What opens the dataset by a backend; ``several files`` are one for every two steps of time."""
    folder: Path = tmp_path_factory.mktemp("files")
    opened: dict[str, Any] = {}

    def opening(backend: str) -> Any:
        several = backend in SEVERAL
        engine = "h5netcdf" if several else backend
        pytest.importorskip(BACKENDS[engine][2])
        if backend not in opened:
            chunks = {"time": 4, "y": 24, "x": 24}
            stored = encoding(backend != "scipy")
            paths = [folder / f"{backend}{i}.nc" for i in range(4 if several else 1)]
            for i, path in enumerate(paths):
                part = dataset().isel(time=slice(2 * i, 2 * i + 2)) if several else dataset()
                part.to_netcdf(path, engine=engine, encoding=stored)
            opened[backend] = xr.open_mfdataset(
                paths, engine=engine, combine="nested", concat_dim="time", chunks=chunks
            )
        return opened[backend]

    yield opening
    for each in opened.values():
        each.close()


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many elements each read of a file gave."""
    sizes: list[int] = []

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def getitem(self: Any, key: Any) -> Any:
            found = original(self, key)
            sizes.append(int(np.size(found)))
            return found

        return getitem

    for module, name, package in BACKENDS.values():
        if importlib.util.find_spec(package) is not None:
            wrapper = getattr(importlib.import_module(module), name)
            monkeypatch.setattr(wrapper, "_getitem", counted(wrapper._getitem))
    return sizes


#: Programs, and the most elements that they need.
PROGRAMS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "sum": (lambda v: v.sum(), 8 * 64 * 64),
    "mean over time": (lambda v: v.mean("time"), 8 * 64 * 64),
    "a point": (lambda v: v[:, 10, 10] + 1, 8),
    "a point of anomalies": (lambda v: ((v - 3) * v.mean("time") / 2)[:, 10, 10], 8),
    "a rechunk": (lambda v: v.chunk({"time": 8, "y": 32, "x": 32}) * 2, 8 * 64 * 64),
    "a reversed part": (lambda v: v.isel(y=slice(40, 20, -1), x=3) * 2, 8 * 20),
    "another part": (lambda v: (v.isel(y=slice(4, 60)) * 2)[1:3, 1:5, 7:40], 2 * 4 * 33),
}


@pytest.mark.parametrize("variable", ["f", "i", "masked", "scaled", "small"])
@pytest.mark.parametrize("backend", [*BACKENDS, *SEVERAL])
def test_only_what_is_needed_is_read(
    backend: str, variable: str, files: Callable[[str], Any], reading: list[int]
) -> None:
    for make, wanted in PROGRAMS.values():
        made = make(files(backend)[variable])
        reading.clear()
        with stock():
            expected = made.compute(scheduler="sync")
        before = sum(reading)
        reading.clear()
        with switched_on(num_workers=2):
            actual = made.compute(scheduler="sync")
        assert_same(actual.values, expected.values)
        assert sum(reading) <= wanted <= before


def adapter_of(v: Any) -> Any:
    found = [getattr(node, "value", node) for node in v.data.dask.values()]
    return next(each for each in found if type(each).__name__ == "ImplicitToExplicitIndexingAdapter")


@pytest.mark.parametrize("backend", ["netcdf4", "h5netcdf"])
def test_stored_chunks_are_known(backend: str, files: Callable[[str], Any]) -> None:
    found = files(backend)
    for name in found:
        assert stored_chunks(adapter_of(found[name])) == STORED, name


@pytest.mark.parametrize("backend", ["netcdf4", "h5netcdf"])
def test_stored_chunks_are_decoded_once(backend: str, files: Callable[[str], Any]) -> None:
    """Blocks of 24 cut through chunks of 16: each chunk is read by one task."""
    v = files(backend)["f"].chunk({"time": 4, "y": 24, "x": 24})
    y = v.chunk({"time": 4, "y": 64, "x": 64}) + 1
    with dask.config.set(scheduler="threads", num_workers=1):
        assert len(tasks_of(y.data)) <= 2 + 1


def test_part_of_a_file_is_not_aligned(files: Callable[[str], Any], tmp_path: Path) -> None:
    """Positions in what was cut out of a file are not those in the file."""
    path = tmp_path / "x.nc"
    pytest.importorskip("h5netcdf")
    dataset().to_netcdf(path, engine="h5netcdf", encoding=encoding(True))
    with xr.open_dataset(path, engine="h5netcdf", chunks=None, cache=False) as opened:
        v = opened["scaled"].isel(y=slice(3, None, 2), time=4).chunk({"y": 8, "x": 8})
        source = adapter_of(v)
        assert type(source_of(source)) is Source
        assert stored_chunks(source) is None
        y = (v * 2 + v.mean("x"))[3:7, 5]
        with stock():
            expected = y.compute()
        with switched_on():
            assert_same(y.compute().values, expected.values)


def test_what_is_not_numbers_is_left_alone(tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf")
    times = np.arange(12).astype("M8[D]").astype("M8[ns]")
    made = xr.Dataset({"t": ("x", times), "s": ("x", np.array(list("abcdefghijkl"), dtype=object))})
    made.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "x.nc", engine="h5netcdf", chunks={"x": 5}) as opened:
        for name in ("t", "s"):
            source = adapter_of(opened[name])
            assert source_of(source) is source
            with stock():
                expected = opened[name][3:8].compute()
            with switched_on():
                assert_same(opened[name][3:8].compute().values, expected.values)


def test_lists_of_numbers_are_no_numbers(tmp_path: Path) -> None:
    """A variable of lists says that it is one of integers."""
    netcdf4 = pytest.importorskip("netCDF4")
    with netcdf4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 4)
        lists = file.createVariable("v", file.createVLType(np.int32, "lists"), ("x",))
        for i in range(4):
            lists[i] = np.arange(i + 1, dtype="i4")
    with xr.open_dataset(tmp_path / "x.nc", engine="netcdf4", chunks={"x": 2}) as opened:
        source = adapter_of(opened["v"])
        assert source_of(source) is source


def test_files_that_are_closed_are_not_opened(tmp_path: Path) -> None:
    """Thousands of files are not all open; to look at one must not cost opening it again."""
    pytest.importorskip("h5netcdf")
    dataset().to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding=encoding(True))
    opened = xr.open_dataset(tmp_path / "x.nc", engine="h5netcdf", chunks={"y": 16})
    source = adapter_of(opened["f"])
    assert type(source_of(source)) is Source
    opened.close()
    assert source_of(source) is source
    y = da.add(opened["f"].data, 1)[2:3, :5, :5]
    with stock():
        expected = y.compute()
    opened.close()
    with switched_on():
        assert_same(y.compute(), expected)
    opened.close()


def test_files_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts tell the passes; axes were measured when files were opened, which takes long."""
    dimensions = pytest.importorskip("h5netcdf.dimensions")
    wrapper = importlib.import_module(BACKENDS["h5netcdf"][0]).H5NetCDFArrayWrapper
    paths = [tmp_path / f"{i}.nc" for i in range(5)]
    for i, path in enumerate(paths):
        dataset()[["f"]].assign_coords(time=np.arange(8) + 8 * i).to_netcdf(path, engine="h5netcdf")
    with switched_on(), xr.open_mfdataset(paths, engine="h5netcdf") as opened:
        wanted = (opened.f.data[1:] - opened.f.data[:-1]).mean(axis=0)
        looks: list[str] = []

        def counted(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda self, **how: looks.append(kind) or original(self, **how)

        monkeypatch.setattr(wrapper, "get_array", counted("file", wrapper.get_array))
        size = dimensions.Dimension.size.fget
        monkeypatch.setattr(dimensions.Dimension, "size", property(counted("axis", size)))
        with dask.config.set({"rewrite.verify": "end"}):  # what is checked at each step is looked up anew
            dask.base.collections_to_expr((wanted,)).optimize()
    assert looks == ["file"] * len(paths)
