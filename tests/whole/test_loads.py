"""Nothing is loaded twice: whatever fuses, accumulates or regroups, each block is read once.

Blocks are counted one by one, so that a block read twice is not hidden by one that is not read at all.
Stock dask reads each block of ``tensordot(x, x)`` once for every product that it stands in.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from helpers import keys_of, switched_on

pytestmark = pytest.mark.filterwarnings("ignore:Increasing number of chunks")

ROWS, SLABS, SIDE = 3, 24, 4
SHAPE = (ROWS * SIDE, SLABS * SIDE)

#: x has ROWS x SLABS blocks; all blocks of it are needed
PROGRAMS: dict[str, Callable[[da.Array], Any]] = {
    "dot": lambda x: x.dot(x.T),
    "matmul": lambda x: x @ x.T,
    "matmul of the short axis": lambda x: x.T @ x,
    "tensordot": lambda x: da.tensordot(x, x, axes=((1,), (1,))),
    "tensordot over all axes": lambda x: da.tensordot(x, x, axes=2),
    "vdot": lambda x: da.vdot(x.ravel(), x.ravel()),
    "einsum": lambda x: da.einsum("ik,jk->ij", x, x),
    "einsum to a number": lambda x: da.einsum("ik,ik->", x, x),
    "einsum of three": lambda x: da.einsum("ik,jk,lk->ijl", x, x, x[:SIDE]),
    "einsum over batches": lambda x: da.einsum("ik,ik->k", x, x),
    "a vector": lambda x: x @ x.sum(axis=0),
    "cast": lambda x: x.astype("f4") @ x.astype("f4").T,
    "centred rows": lambda x: (x - x.mean(axis=1, keepdims=True)) @ (x - x.mean(axis=1, keepdims=True)).T,
    "covariance": lambda x: da.cov(x),
    "correlation": lambda x: da.corrcoef(x),
    "scaled": lambda x: (x.T @ x) / len(x),
    "elementwise below": lambda x: (2 * x + 1) @ (2 * x + 1).T,
    "different below": lambda x: (2 * x + 1) @ (x - 1).T,
    "total": lambda x: (x @ x.T).sum(),
    "trace": lambda x: da.trace(x @ x.T),
    "product of three": lambda x: x @ x.T @ x,
    "power": lambda x: (x @ x.T) @ (x @ x.T),
    "normal equations": lambda x: (x @ x.T, x @ x[0]),
    "gram and sum": lambda x: (x @ x.T, x.sum(axis=0), x),
    "both grams": lambda x: (x @ x.T, x.T @ x),
    "three dimensions": lambda x: x.reshape(ROWS, SIDE, -1) @ x.reshape(ROWS, SIDE, -1).transpose(0, 2, 1),
    "two axes": lambda x: da.tensordot(x[:, :, None] * [1, 2], x[:, :, None] * [1, 2], axes=((1, 2), (1, 2))),
    "a part": lambda x: (x @ x.T)[: 2 * SIDE, SIDE:],
    "squares": lambda x: (x * x).sum(axis=1),
    "variance": lambda x: x.var(axis=1),
    "norms": lambda x: da.linalg.norm(x, axis=1),
    "sum of slabs": lambda x: sum(x[:, k * SIDE : (k + 1) * SIDE] for k in range(SLABS)),
    "sums that share": lambda x: (x.sum(axis=0), x.sum(axis=1), x.max()),
    "away from the mean": lambda x: x - x.mean(axis=0),
    "repeated": lambda x: da.concatenate([x, x]) @ da.concatenate([x, x]).T,
    "rechunked": lambda x: x.rechunk((SIDE, 6 * SIDE)) @ x.rechunk((SIDE, 6 * SIDE)).T,
    "singular values": lambda x: da.linalg.svd((x @ x.T).rechunk((SIDE, -1)))[1],
    "into a list": lambda x: dask.delayed(list)([x @ x.T, x.sum()]),
}


def every_block() -> Counter[tuple[int, int]]:
    return Counter({(i * SIDE, k * SIDE): 1 for i in range(ROWS) for k in range(SLABS)})


def values() -> np.ndarray:
    return np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE) % 101 - 50


class Reads:
    """Which blocks were read, and how often."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[tuple[int, int]] = Counter()

    def note(self, index: Any) -> None:
        """Every block that a read touches counts: one read may take several."""
        touched = []
        for part, length in zip(index, SHAPE):
            start, stop, _ = (part if isinstance(part, slice) else slice(part, part + 1)).indices(length)
            touched.append(range(start // SIDE * SIDE, stop, SIDE))
        with self.lock:
            self.counts.update(itertools.product(*touched))


class Lazy:
    """An array of somebody's own class, read when it is indexed."""

    def __init__(self, reads: Reads) -> None:
        self.reads, self.values = reads, values()
        self.shape, self.dtype, self.ndim = SHAPE, self.values.dtype, 2

    def __getitem__(self, index: Any) -> np.ndarray:
        block = np.array(self.values[index])
        if block.size:
            self.reads.note(index)
        return block


def from_lazy(reads: Reads, folder: Path, monkeypatch: pytest.MonkeyPatch) -> da.Array:
    return da.from_array(Lazy(reads), chunks=SIDE)


def from_inlined(reads: Reads, folder: Path, monkeypatch: pytest.MonkeyPatch) -> da.Array:
    return da.from_array(Lazy(reads), chunks=SIDE, inline_array=True)


def from_hdf5(reads: Reads, folder: Path, monkeypatch: pytest.MonkeyPatch) -> da.Array:
    h5py = pytest.importorskip("h5py")
    plain = h5py.Dataset.__getitem__

    def noting(self: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        block = plain(self, index, *args, **kwargs)
        if np.size(block):
            reads.note(index)
        return block

    monkeypatch.setattr(h5py.Dataset, "__getitem__", noting)
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=values(), chunks=(SIDE, SIDE))
    return da.from_array(h5py.File(folder / "x.h5")["x"], chunks=SIDE)


def from_function(reads: Reads, folder: Path, monkeypatch: pytest.MonkeyPatch) -> da.Array:
    def load(block_id: tuple[int, int]) -> np.ndarray:
        where = tuple(slice(number * SIDE, (number + 1) * SIDE) for number in block_id)
        reads.note(where)
        return values()[where]

    chunks = tuple((SIDE,) * (size // SIDE) for size in SHAPE)
    return da.map_blocks(load, chunks=chunks, dtype="f8", meta=np.empty((0, 0)))


def from_delayed(reads: Reads, folder: Path, monkeypatch: pytest.MonkeyPatch) -> da.Array:
    @dask.delayed
    def load(i: int, k: int) -> np.ndarray:
        where = (slice(i, i + SIDE), slice(k, k + SIDE))
        reads.note(where)
        return values()[where]

    return da.block(
        [
            [da.from_delayed(load(i, k), (SIDE, SIDE), "f8") for k in range(0, SHAPE[1], SIDE)]
            for i in range(0, SHAPE[0], SIDE)
        ]
    )


#: programs that are run on every kind of source; the others on HDF5 alone
FEW = ("dot", "tensordot", "einsum", "covariance", "total", "rechunked", "away from the mean", "sum of slabs")
CASES = [(name, from_hdf5) for name in PROGRAMS]
CASES += [(name, source) for name in FEW for source in (from_lazy, from_inlined, from_function, from_delayed)]


def flat(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from flat(part)
    else:
        yield result


@pytest.mark.parametrize(("name", "source"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_every_block_is_read_once(
    name: str, source: Callable[..., da.Array], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads()
    x = source(reads, tmp_path, monkeypatch)
    built = PROGRAMS[name](x)
    outputs = built if isinstance(built, tuple) else (built,)
    reads.counts.clear()
    with switched_on():
        found = dask.compute(*outputs)
    assert reads.counts == every_block()
    whole = PROGRAMS[name](da.from_array(values(), chunks=SHAPE))
    expected = dask.compute(*(whole if isinstance(whole, tuple) else (whole,)))
    for one, other in zip(flat(found), flat(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4 if name == "cast" else 1e-9, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 8, 32])
@pytest.mark.parametrize(
    "name", ["dot", "tensordot", "einsum", "total", "covariance", "matmul of the short axis"]
)
def test_every_block_is_read_once_by_threads(
    name: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads()
    built = PROGRAMS[name](from_hdf5(reads, tmp_path, monkeypatch))
    reads.counts.clear()
    with switched_on(scheduler="threads", num_workers=threads):
        built.compute()
    assert reads.counts == every_block()


def test_a_read_that_two_collections_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads()
    x = from_hdf5(reads, tmp_path, monkeypatch)
    built = [program(x) for program in PROGRAMS.values()]
    built = [one for each in built for one in (each if isinstance(each, tuple) else (each,))]
    reads.counts.clear()
    with switched_on():
        dask.compute(*built)
    assert reads.counts == every_block()


def test_reads_that_are_locked_or_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    reads = Reads()
    from_hdf5(reads, tmp_path, monkeypatch)
    x = da.from_array(h5py.File(tmp_path / "x.h5")["x"], chunks=SIDE, lock=True)
    with h5py.File(tmp_path / "y.h5", "w") as file:
        target = file.create_dataset("y", shape=(SHAPE[0], SHAPE[0]), dtype="f8")
        reads.counts.clear()
        with switched_on():
            da.store(x @ x.T, target)
        assert reads.counts == every_block()
        np.testing.assert_array_equal(target[:, :], values() @ values().T)


def test_what_is_free_may_be_made_again() -> None:
    """The rule is for loads: a constant costs nothing, and holding it would."""
    x = da.ones(SHAPE, chunks=SIDE)
    y = dask_rewrite.optimize(x @ x.T)
    np.testing.assert_array_equal(y.compute(), np.full((SHAPE[0],) * 2, float(SHAPE[1])))
    assert len(keys_of(y)) == ROWS * ROWS


def test_stock_reads_a_block_for_every_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others are measured against: if this fails, dask has mended it."""
    reads = Reads()
    x = from_hdf5(reads, tmp_path, monkeypatch)
    built = da.tensordot(x, x, axes=((1,), (1,)))
    reads.counts.clear()
    built.compute()
    assert set(reads.counts.values()) == {2 * ROWS}
