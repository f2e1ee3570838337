"""Arrays of the same values from many kinds of sources, and programs over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from dask import delayed

#: Blocks along each axis.
GRID = (8, 8)


def step(block: Any) -> Any:
    """A function of the user's."""
    return block * 2 + 1


def part(path: str, i: int, j: int, size: int) -> np.ndarray:
    """A block in memory of its own, as readers give it."""
    values = np.load(path, mmap_mode="r")
    return np.array(values[i * size : (i + 1) * size, j * size : (j + 1) * size])


def from_delayed(path: str, shape: tuple[int, int], size: int) -> da.Array:
    make = delayed(part, pure=True)
    rows, columns = [range(n // size) for n in shape]
    grid = [
        [da.from_delayed(make(path, i, j, size), (size, size), dtype=float) for j in columns] for i in rows
    ]
    return da.block(grid)


def loaded(path: str, shape: tuple[int, int], size: int) -> da.Array:
    def load(block_info: Any = None) -> np.ndarray:
        i, j = block_info[None]["chunk-location"]
        return part(path, i, j, size)

    chunks = tuple([(size,) * (n // size) for n in shape])
    return da.map_blocks(load, chunks=chunks, dtype=float, meta=np.empty((0, 0)))


def sources(folder: Path, size: int, grid: tuple[int, int] = GRID) -> dict[str, Callable[[], da.Array]]:
    """Arrays of so many square blocks along each axis, by what their blocks come from."""
    import h5py
    import xarray as xr
    import zarr

    shape = (grid[0] * size, grid[1] * size)
    values = np.random.default_rng(0).integers(0, 50, shape).astype(float)
    path = str(folder / "x.npy")
    np.save(path, values)
    stored = zarr.create_array(store=str(folder / "x.zarr"), shape=shape, chunks=(size, size), dtype="f8")
    stored[...] = values
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(size, size))
    made = xr.Dataset({"x": (("a", "b"), values)})
    encoding = {"x": {"chunks": (size, size)}}
    made.to_zarr(folder / "labelled.zarr", consolidated=False, zarr_format=3, encoding=encoding)
    made.to_netcdf(folder / "labelled.nc", engine="scipy")
    opened = h5py.File(folder / "x.h5", "r")["x"]

    def labelled(x: da.Array) -> da.Array:
        found = xr.apply_ufunc(
            step, xr.DataArray(x, dims=("a", "b")), dask="parallelized", output_dtypes=[float]
        )
        return found.data

    chunks = {"a": size, "b": size}
    return {
        "NumPy": lambda: da.from_array(values, chunks=size),
        "random": lambda: da.random.default_rng(0).integers(0, 50, shape, chunks=size).astype(float),
        "Zarr": lambda: da.from_zarr(str(folder / "x.zarr")),
        "HDF5": lambda: da.from_array(opened, chunks=size),
        "xarray over Zarr": lambda: (
            xr.open_zarr(folder / "labelled.zarr", chunks=chunks, consolidated=False).x.data
        ),
        "xarray over netCDF": lambda: (
            xr.open_dataset(folder / "labelled.nc", engine="scipy", chunks=chunks).x.data
        ),
        "map_blocks": lambda: loaded(path, shape, size),
        "from_delayed": lambda: from_delayed(path, shape, size),
        "apply_ufunc": lambda: labelled(da.from_array(opened, chunks=size)),
        "user step": lambda: da.from_array(opened, chunks=size).map_blocks(step, dtype=float),
        "cast": lambda: da.from_array(opened, chunks=size).astype("f4").astype("f8"),
    }


def again(times: int, function: Callable[[da.Array], da.Array], x: da.Array) -> da.Array:
    for _ in range(times):
        x = function(x)
    return x


def assigned(x: da.Array) -> da.Array:
    x = x.copy()
    for i in range(4):
        x[i, i] = 1
    return x


def size_of(x: da.Array) -> int:
    return int(x.chunks[0][0])


def there_and_back(x: da.Array) -> da.Array:
    size, n = size_of(x), x.shape[0]
    return again(3, lambda x: x.rechunk((size, n)).rechunk((n, size)).rechunk((size, size)), x)


#: The programs; results are whole numbers, whatever order they are added in.
PROGRAMS: dict[str, Callable[[da.Array], da.Array]] = {
    "rechunked to rows and columns and back": there_and_back,
    "rolled": lambda x: again(4, lambda x: da.roll(x, 1, 0) + da.roll(x, -1, 1), x),
    "stacked": lambda x: da.stack([x] * 12).sum(axis=0),
    "padded": lambda x: again(3, lambda x: da.pad(x, 2), x).sum(axis=0),
    "matmul": lambda x: x @ x.T,
    "dot": lambda x: x.dot(x.T),
    "einsum": lambda x: da.einsum("ij,kj->ik", x, x),
    "centred": lambda x: (x - 3).dot((x - 3).T),
    "appended": lambda x: again(
        5, lambda y: da.append(y, da.zeros((size_of(x), x.shape[1]), chunks=size_of(x)), axis=0), x
    ),
    "assigned": assigned,
    "halos": lambda x: again(
        2, lambda x: x.map_overlap(np.copy, depth=1, boundary="none", dtype=float, meta=np.empty((0, 0))), x
    ),
    "sliced": lambda x: x[1:, :][:, 1:][:-1, :-1] + 1,
    "joined and sliced": lambda x: da.concatenate([x, x])[size_of(x) : -size_of(x)].rechunk(size_of(x)),
    "turned": lambda x: (x.T.rechunk((size_of(x), -1)).T.rechunk((-1, size_of(x))).T).rechunk(size_of(x)),
    "differences": lambda x: x[2:] - 2 * x[1:-1] + x[:-2],
    "sum of rows": lambda x: sum([x[i] for i in range(20)]),
    "reshaped": lambda x: (
        x.rechunk((size_of(x), -1)).reshape(-1).reshape(x.shape).rechunk((size_of(x), size_of(x)))
    ),
}
