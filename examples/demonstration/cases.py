"""The cases of the demonstration: computations as users write them, on real files.

A case is a function that gets the folder with the files and returns one collection, or several
that are computed together. Its docstring's first line is its title. A new pass adds its case here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import xarray as xr
import zarr
from dask.delayed import delayed

from distributed import Lock

Answer = Any
SIDE = 2000


@dataclass(frozen=True)
class Case:
    """What is computed, and what comes out where that is known beforehand."""

    name: str
    title: str
    build: Callable[[Path], Any]
    expected: Callable[[Path], Answer] | None
    loose: bool


CASES: dict[str, Case] = {}


def case(expected: Callable[[Path], Answer] | None = None, loose: bool = False) -> Callable[[Any], Any]:
    """Register a case; ``loose`` where floating point sums may be grouped differently."""

    def register(build: Callable[[Path], Any]) -> Callable[[Path], Any]:
        title = (build.__doc__ or "").strip().splitlines()[0]
        CASES[build.__name__] = Case(build.__name__, title, build, expected, loose)
        return build

    return register


def values() -> np.ndarray[Any, Any]:
    """What both files hold."""
    return np.arange(float(SIDE * SIDE)).reshape(SIDE, SIDE) % 1009


def make_files(folder: Path) -> None:
    """An HDF5 file and a Zarr store of 2000 x 2000 numbers, and a long HDF5 file, in chunks of 250 x 250."""
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=values(), chunks=(250, 250))
        long = file.create_dataset("long", shape=(1000, 12_000), chunks=(250, 250), dtype="f8")
        for start in range(0, 12_000, SIDE):
            long[:, start : start + SIDE] = values()[:1000]
    store = zarr.create_array(str(folder / "x.zarr"), shape=(SIDE, SIDE), chunks=(250, 250), dtype="f8")
    store[:] = values()


def hdf5(folder: Path) -> Any:
    return da.from_array(h5py.File(folder / "x.h5", "r")["x"], chunks=(250, 250))


@case()
def hdf5_columns(folder: Path) -> Any:
    """HDF5: centre and scale every column"""
    x = hdf5(folder)
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1)


@case()
def hdf5_part(folder: Path) -> Any:
    """HDF5: a part of a part of the file"""
    return (hdf5(folder)[100:1900][:, ::10] * 2 + 1)[:50]


@case(loose=True)
def hdf5_gram(folder: Path) -> Any:
    """HDF5: tensordot of half the file with itself"""
    x = hdf5(folder)[:, :1000]
    return da.tensordot(x, x, axes=((1,), (1,)))


class Hdf5Target:
    """A dataset of an HDF5 file that any process can write to, one after the other."""

    def __init__(self, path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
        self.path = path
        with h5py.File(path, "w") as file:
            file.create_dataset("y", shape=shape, chunks=chunks, dtype="f8")

    def __setitem__(self, where: Any, block: Any) -> None:
        with h5py.File(self.path, "r+") as file:
            file["y"][where] = block


def _product(folder: Path) -> Answer:
    """Of a long file that holds the same columns several times: whole numbers, so that no order matters."""
    rows = values()[:1000]
    return 12_000 // SIDE * (rows @ rows.T)


@case(expected=_product)
def hdf5_product(folder: Path) -> Any:
    """HDF5 to HDF5: x.dot(x.T), x of 96 MB in 192 chunks"""
    x = da.from_array(h5py.File(folder / "x.h5", "r")["long"], chunks=(250, 250))
    y = x.dot(x.T)
    target = Hdf5Target(folder / "y.h5", y.shape, y.chunksize)
    return da.store(y, target, lock=Lock("y.h5"), compute=False)


@case()
def zarr_transpose(folder: Path) -> Any:
    """Zarr: x + x.T, seen through a window"""
    x = da.from_zarr(str(folder / "x.zarr"))
    return (x + x.T)[300:700, 300:700]


@case(expected=lambda folder: values() * 2 + 1)
def zarr_to_zarr(folder: Path) -> Any:
    """Zarr to Zarr: x * 2 + 1"""
    x = da.from_zarr(str(folder / "x.zarr"))
    target = zarr.create_array(
        str(folder / "y.zarr"), shape=x.shape, chunks=(250, 250), dtype="f8", overwrite=True
    )
    return da.store(x * 2 + 1, target, lock=False, compute=False)


@case(expected=lambda folder: np.full((20, 20), 4.0))
def one_tile(folder: Path) -> Any:
    """one tile of a mosaic of 250 x 250 blocks"""
    x = da.ones((5000, 5000), chunks=20)
    return (x + x.T + x[::-1] + x[:, ::-1])[:20, :20]


@case(expected=lambda folder: np.full((3, 4, 4), 3.0))
def window(folder: Path) -> Any:
    """xarray: a window of an array of 19,200 chunks"""
    hours = da.arange(4800.0, chunks=1)[:, None, None] + da.zeros((1, 8, 8), chunks=(1, 4, 4))
    field = xr.DataArray(hours, dims=("time", "y", "x"), coords={"time": np.arange(4800)})
    change = field - field.shift(time=1)
    return (change * 2 + 1).isel(time=slice(10, 13), y=slice(0, 4), x=slice(0, 4))


def _leapfrog(steps: int) -> tuple[Any, Any]:
    a, p = da.linspace(0, 1, 4, chunks=1), np.linspace(0, 1, 4)
    b, q = a + 1, p + 1
    for _ in range(steps):
        a, b = b, (a + b) * 0.5
        p, q = q, (p + q) * 0.5
    return b, q


@case(expected=lambda folder: _leapfrog(220)[1])
def leapfrog_220(folder: Path) -> Any:
    """a, b = b, (a + b) / 2, 220 steps"""
    return _leapfrog(220)[0]


@case(expected=lambda folder: _leapfrog(1000)[1])
def leapfrog_1000(folder: Path) -> Any:
    """a, b = b, (a + b) / 2, 1000 steps"""
    return _leapfrog(1000)[0]


def _half(x: Any) -> Any:
    return x * 0.5 + 1


def _loop(turns: int) -> tuple[Any, Any]:
    x, y = da.from_array(np.arange(10.0), chunks=10), np.arange(10.0)
    for _ in range(turns):
        x, y = da.from_delayed(delayed(_half)(x), shape=(10,), dtype=float), _half(y)
    return x, y


@case(expected=lambda folder: _loop(150)[1])
def delayed_150(folder: Path) -> Any:
    """array to delayed and back, 150 turns"""
    return _loop(150)[0]


@case(expected=lambda folder: _loop(1000)[1])
def delayed_1000(folder: Path) -> Any:
    """array to delayed and back, 1000 turns"""
    return _loop(1000)[0]


@case(expected=lambda folder: np.arange(4000) * 2001)
def adds(folder: Path) -> Any:
    """total = total + x, 2000 steps"""
    x = da.arange(4000, chunks=1000)
    total = x
    for _ in range(2000):
        total = total + x
    return total


@case(expected=lambda folder: np.full(360, 360.0))
def constants(folder: Path) -> Any:
    """ones in 120 x 120 blocks, summed along an axis"""
    return da.ones((360, 360), chunks=3).sum(axis=0)


@case(expected=lambda folder: np.diag(np.arange(600.0)))
def diagonal(folder: Path) -> Any:
    """m[i, i] = i, 600 times"""
    m = da.zeros((600, 600), chunks=150)
    for i in range(600):
        m[i, i] = i
    return m


def _system() -> tuple[Any, Any]:
    values = np.arange(400.0 * 400).reshape(400, 400) % 17 + 500 * np.eye(400)
    return values, np.arange(400.0 * 20).reshape(400, 20)


@case(expected=lambda folder: np.linalg.solve(*_system()), loose=True)
def solve(folder: Path) -> Any:
    """da.linalg.solve, 20 x 20 blocks"""
    a, b = _system()
    return da.linalg.solve(da.from_array(a, chunks=20), da.from_array(b, chunks=20))


@case(expected=lambda folder: np.full((250, 250), sum(range(60))))
def wide_sum(folder: Path) -> Any:
    """delayed(sum) of 60 arrays"""
    return delayed(sum)([delayed(np.full)((250, 250), i) for i in range(60)])


@case(expected=lambda folder: np.float64(2 * 900))
def many_blocks(folder: Path) -> Any:
    """(x + 1).sum() over 30 x 30 blocks"""
    return (da.ones((30, 30), chunks=1) + 1).sum()


@case(expected=lambda folder: np.float64(2 * 12_100))
def far_more_blocks(folder: Path) -> Any:
    """(x + 1).sum() over 110 x 110 blocks"""
    return (da.ones((110, 110), chunks=1) + 1).sum()


def _flaky(block: Any, folder: str, block_info: Any = None) -> Any:
    """Fail at the first try for each block; a file remembers, whichever worker tries."""
    where = "-".join(map(str, block_info[None]["chunk-location"]))
    mark = Path(folder) / f"tried-{where}"
    if not mark.exists():
        mark.touch()
        raise OSError("not there yet")
    return block + 1


@case(expected=lambda folder: np.full((8, 8), 3.0))
def retries(folder: Path) -> Any:
    """annotate(retries=1), each block fails once"""
    for mark in folder.glob("tried-*"):
        mark.unlink()
    x = da.ones((8, 8), chunks=4)
    with dask.annotate(retries=1):
        y = x.map_blocks(_flaky, folder=str(folder), dtype=float, meta=np.empty((0, 0)))
    return y + 1


@case(expected=lambda folder: (np.arange(40), 5, np.arange(40) + 1))
def mixed_order(folder: Path) -> Any:
    """dask.compute(arr, delayed(5), arr + 1)"""
    x = da.arange(40, chunks=10)
    return x, delayed(5), x + 1


class _Table:
    """A model of 240 kB, with a buffer that it writes to."""

    def __init__(self) -> None:
        self.weights = np.arange(30_000.0)
        self.scratch = np.zeros(10)

    def predict(self, block: Any) -> Any:
        self.scratch[:] = block + self.weights[2]
        return self.scratch.copy()


@case(expected=lambda folder: np.arange(10_000.0) + 2)
def heavy_model(folder: Path) -> Any:
    """the method of a model of 240 kB, on 1000 blocks"""
    return da.arange(10_000.0, chunks=10).map_blocks(_Table().predict, dtype=float, meta=np.empty(0))


def _bordered(image: Any, times: int) -> Any:
    for _ in range(times):
        rows, columns = image.shape
        side, top = da.zeros((rows, 4), chunks=64), da.zeros((4, columns + 8), chunks=64)
        image = da.concatenate([side, image, side], axis=1)
        image = da.concatenate([top, image, top], axis=0)
    return image


@case(expected=lambda folder: np.pad(values()[:256, :256], 24).sum(axis=0))
def borders(folder: Path) -> Any:
    """6 borders of zeros round 256 x 256, then .sum(axis=0)"""
    return _bordered(da.from_array(values()[:256, :256], chunks=64), 6).sum(axis=0)


@case(expected=lambda folder: values()[:500] + 1)
def round_trips(folder: Path) -> Any:
    """HDF5: rechunk to columns and back, 10 times"""
    x = hdf5(folder)[:500] + 1
    for _ in range(10):
        x = x.rechunk((500, 125)).rechunk((125, 2000))
    return x


def _smooth(block: Any) -> Any:
    rows = block[:-2] + block[1:-1] + block[2:]
    return np.pad(rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:], 1) / 9


def _smoothed(image: Any, times: int) -> Any:
    for _ in range(times):
        image = _smooth(np.pad(image, 1, "symmetric"))[1:-1, 1:-1]
    return image


@case(expected=lambda folder: _smoothed(values()[:300, :300], 30))
def halos(folder: Path) -> Any:
    """30 steps of a mean over neighbours, 3 x 3 blocks"""
    x = da.from_array(values()[:300, :300], chunks=100)
    for _ in range(30):
        x = x.map_overlap(_smooth, depth=1, boundary="reflect")
    return x
