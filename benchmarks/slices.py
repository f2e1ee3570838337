"""Slices after pipelines on files: how many stored chunks each side decodes.

    python -m benchmarks.slices

A file of 10 x 10 chunks, asked for in blocks of 2 x 2 of them, or of 1.5 x 1.5, behind dask itself and
behind xarray. Chunks are counted where they are decoded: gets of Zarr's store, chunks that a read of HDF5
touches. Stock dask and dask_rewrite run in this process, dask-array in one of its own (the interpreter that
``RIVALS_PYTHON`` names).
Ends with 1 if in some row this package decodes more than another side with the right answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
import dask.array
import h5py
import numpy as np
import xarray as xr
import zarr
from zarr.storage import LoggingStore, MemoryStore

from benchmarks.harness import sides, table
from benchmarks.harness.figures import same

ROOT = Path(__file__).resolve().parents[1]
SIZE, CHUNK, BLOCK, CUTTING = 100, 10, 20, 15
Make = Callable[[ModuleType, Any], Any]


def _unknown(block: Any) -> Any:
    """What it gives depends on all of its block: called with a part of it, it gives something else."""
    return block - block.max()


def _windows(da: ModuleType, v: Any) -> Any:
    module = da if hasattr(da, "sliding_window_view") else da.lib.stride_tricks
    return module.sliding_window_view(v, 11, axis=0)


def _assigned(v: Any) -> Any:
    v = v + 0
    v[:, :10] = 7
    return v


#: What is computed of an array, and how many stored chunks it takes: at most.
ROWS: dict[str, tuple[Make, int]] = {
    "a slice": (lambda da, v: v[:5, :3], 1),
    "a slice of slices": (lambda da, v: v[5:60][2:9][::2], 20),
    "elementwise": (lambda da, v: (v + v.sum(axis=0))[:5, :3], 10),
    "map_blocks": (lambda da, v: da.map_blocks(np.sin, v)[:25], 30),
    "map_blocks, unknown": (lambda da, v: da.map_blocks(_unknown, v, dtype=v.dtype)[:25], 40),
    "transpose": (lambda da, v: v.T[:5, :3], 1),
    "new axis": (lambda da, v: v[None][:, :5], 10),
    "broadcast_to": (lambda da, v: da.broadcast_to(v[0], (50, SIZE))[:3, :7], 1),
    "concatenate": (lambda da, v: da.concatenate([v, v + 1])[95:105], 20),
    "stack": (lambda da, v: da.stack([v, v])[1], 100),
    "reshape": (lambda da, v: v.reshape(SIZE, 10, 10)[:5], 10),
    "reduction": (lambda da, v: v.sum(axis=0)[:5], 10),
    "matrix product": (lambda da, v: (v @ v)[:5], 100),
    "map_overlap": (lambda da, v: v.map_overlap(np.negative, depth=1, boundary="none")[:25], 30),
    "map_overlap, unknown": (lambda da, v: v.map_overlap(_unknown, depth=1, boundary="none")[:25], 50),
    "a list, a slice": (lambda da, v: v[[5, 3, 8]][:, :5], 1),
    "coordinates": (lambda da, v: (v + da.arange(SIZE, chunks=BLOCK))[:5, ::50], 2),
    "two windows": (lambda da, v: ((v + 1)[:20], (v + 1)[60:]), 60),
    "transposed twice": (lambda da, v: (v + v).T.T[:5], 10),
    "elementwise, a list": (lambda da, v: (v + 1)[:, [5, 1, 77]], 20),
    "another user needs all": (lambda da, v: ((v + 1)[:5, :5], (v + 1).max()), 100),
    "no block is dropped": (lambda da, v: (v + 1)[::30, ::50], 8),
    "blocks that cut chunks": (lambda da, v: v + 1, 100),
    "blocks that cut chunks, summed": (lambda da, v: v.sum(), 100),
    "blocks that cut chunks, twice": (lambda da, v: (v - v.min(axis=0)).max(axis=0), 100),
    "a rechunk": (lambda da, v: v.rechunk((50, 50)) + 1, 100),
    "finer than chunks": (lambda da, v: v.rechunk((5, 5)), 100),
    "rechunk of a sum": (lambda da, v: (v + 1).rechunk((40, 40)), 100),
    "rechunk of a transpose": (lambda da, v: v.T.rechunk((50, 10)), 100),
    "rechunk of two": (lambda da, v: da.concatenate([v, v]).rechunk((40, 20)), 100),
    "rechunk off the grid": (lambda da, v: (v + 1)[3:].rechunk((20, 20)), 100),
    "rolled and added": (lambda da, v: da.roll(v, 3, axis=0) + v, 100),
    "all of a list": (lambda da, v: v[list(range(SIZE))], 100),
    "windows": (lambda da, v: _windows(da, v).mean(axis=-1), 100),
    "rows and columns of a product": (lambda da, v: (v @ v)[:5, :3], 20),
    "corner of a Gram matrix": (lambda da, v: (v @ v.T)[:5, :5], 10),
    "tensordot": (lambda da, v: da.tensordot(v, v, axes=1)[:5, :3], 20),
    "einsum": (lambda da, v: da.einsum("ij,kj->ik", v, v)[:5, :3], 10),
    "median": (lambda da, v: da.median(v.rechunk((SIZE, BLOCK)), axis=0)[:3], 10),
    "largest": (lambda da, v: da.topk(v, 3, axis=0)[:, :3], 10),
    "steps": (lambda da, v: (v + 1)[::45, ::45], 9),
    "points far apart": (lambda da, v: (v + 1)[3:60:19, 3:60:19], 9),
    "points": (lambda da, v: (v + 1).vindex[[5, 30, 99], [7, 40, 0]], 3),
    "repeat": (lambda da, v: da.repeat(v, 3, axis=0)[29:31, 7], 2),
    "isin": (lambda da, v: da.isin(v, [1, 2])[5:8, 7], 1),
    "select": (lambda da, v: da.select([v > 500, v > 300], [v, v * 2], 5)[5:8, 7], 1),
    "quantile": (lambda da, v: da.quantile(v.rechunk((SIZE, BLOCK)), 0.3, axis=0)[5:8], 10),
    "a window": (lambda da, v: _windows(da, v).mean(axis=-1)[5:8, 7], 2),
    "split axis": (lambda da, v: v.reshape(SIZE, 25, 4)[:5, 2], 2),
    "assigned": (lambda da, v: _assigned(v)[5:8, 13], 1),
}
SOURCES = ("Zarr", "xarray, Zarr", "xarray, netCDF", "HDF5", "HDF5, lock")


class CountingStore(LoggingStore):  # type: ignore[type-arg, unused-ignore] # generic in new Zarr only
    """A store that counts its gets, also through its read-only twins."""

    def with_read_only(self, read_only: bool = False) -> Any:
        twin = CountingStore(self._store.with_read_only(read_only), log_level="ERROR")
        twin.counter = self.counter
        return twin


class Files:
    """One array in each kind of file, and how many of its chunks were decoded."""

    def __init__(self, folder: Path) -> None:
        values = np.arange(float(SIZE * SIZE)).reshape(SIZE, SIZE) % 1009
        whole = xr.Dataset({"x": (("row", "column"), values)})
        self._counter: list[int] = []
        self._zarr = CountingStore(MemoryStore(), log_level="ERROR")
        whole.to_zarr(self._zarr, encoding={"x": {"chunks": (CHUNK, CHUNK)}}, consolidated=False)
        self._path = folder / "x.nc"
        whole.to_netcdf(self._path, engine="h5netcdf", encoding={"x": {"chunksizes": (CHUNK, CHUNK)}})
        self._opened: list[Any] = []

    def read(self, source: str, da: ModuleType, block: int = BLOCK) -> Any:
        """The array of a file, in blocks, as an array of a namespace."""
        chunks = (block, block)
        if source == "Zarr":
            return da.from_array(zarr.open_array(self._zarr, path="x", mode="r"), chunks=chunks)
        if source.startswith("HDF5"):
            self._opened.append(h5py.File(self._path, "r"))
            return da.from_array(self._opened[-1]["x"], chunks=chunks, lock=source.endswith("lock"))
        ask: dict[str, Any] = {"chunks": dict.fromkeys(("row", "column"), block)} if _is_dask(da) else {}
        if source == "xarray, Zarr":
            found = xr.open_zarr(self._zarr, consolidated=False, **(ask or {"chunks": None}))
        else:
            found = xr.open_dataset(self._path, engine="h5netcdf", cache=False, **ask)
        self._opened.append(found)
        variable = found["x"].variable
        if ask:
            return variable.data
        return da.from_array(
            xr.core.indexing.ImplicitToExplicitIndexingAdapter(variable._data), chunks=chunks
        )

    def decoded(self, source: str, name: str, da: ModuleType) -> tuple[int, Any]:
        """How many chunks are decoded to compute what a row makes, and the answer."""
        made = ROWS[name][0](da, self.read(source, da, CUTTING if "cut chunks" in name else BLOCK))
        with _touches() as touches:
            self._zarr.counter.clear()
            answer = dask.compute(made, scheduler="sync")[0]
        return self._zarr.counter["get"] + sum(touches), answer

    def close(self) -> None:
        """Close what was opened."""
        for each in self._opened:
            each.close()


def _is_dask(da: ModuleType) -> bool:
    return da.__name__ == "dask.array"


@contextlib.contextmanager
def _touches() -> Iterator[list[int]]:
    """How many chunks each read of an HDF5 dataset touches; the class stays what an optimizer knows."""
    plain, found = h5py.Dataset.__getitem__, []

    def counting(self: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        if self.chunks is not None:
            items = index if type(index) is tuple else (index,)
            found.append(math.prod(map(_chunks_along, _full(items, self.ndim), self.shape, self.chunks)))
        return plain(self, index, *args, **kwargs)

    h5py.Dataset.__getitem__ = counting
    try:
        yield found
    finally:
        h5py.Dataset.__getitem__ = plain


def _full(items: tuple[Any, ...], ndim: int) -> list[Any]:
    given = [item for item in items if item is not Ellipsis]
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(given))
    return given[:at] + [slice(None)] * (ndim - len(given)) + given[at:]


def _chunks_along(item: Any, length: int, chunk: int) -> int:
    return len(np.unique(np.arange(length)[item] // chunk))


def counts(side: str) -> dict[str, dict[str, int]]:
    """Decoded chunks of a side, by row and source; what it does not compute as NumPy does counts as -1."""
    da = sides.namespace(side)
    found: dict[str, dict[str, int]] = {name: {} for name in ROWS}
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Files(Path(folder))) as files:
        for name, (make, _) in ROWS.items():
            expected = dask.compute(make(dask.array, files.read("Zarr", dask.array)), scheduler="sync")[0]
            for source in SOURCES:
                try:
                    with sides.switched_on(side):
                        decoded, answer = files.decoded(source, name, da)
                except Exception:  # a row that a side cannot do is a figure like any other
                    decoded, answer = -1, None
                found[name][source] = decoded if same(expected, answer) == "yes" else -1
    return found


def rival() -> dict[str, dict[str, int]]:
    """The same of dask-array, in a process of its own; nothing where it is not installed."""
    python = os.environ.get("RIVALS_PYTHON", sys.executable)
    command = [python, "-m", "benchmarks.slices", "--side", "dask-array"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return dict(json.loads(done.stdout)) if not done.returncode else {}


def main() -> int:
    """Print the table; 1 if this package decodes more than another side in some row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--side", choices=("stock", "ours", "dask-array"), help="only this one, as JSON")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "The specified chunks separate the stored chunks")  # they do
    if args.side:
        print(json.dumps(counts(args.side)))
        return 0
    stock, ours, other = counts("stock"), counts("ours"), rival()
    lines, missed = [], False
    for name in ROWS:
        line = [name]
        for source in SOURCES:
            row = [side.get(name, {}).get(source) for side in (stock, ours, other)]
            missed |= row[1] < 0 or any(n is not None and 0 <= n < row[1] for n in row)
            line.append(" / ".join("-" if n is None else "wrong" if n < 0 else str(n) for n in row))
        lines.append(line)
    print("chunks decoded: stock / dask-rewrite / dask-array\n")
    print(table.grid(["of 100", *SOURCES], lines))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
