"""Steps write into what the step before them made, and into nothing else."""

from __future__ import annotations

import operator
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MethodType
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef

import dask_rewrite
from dask_rewrite.analysis.effects import Effects
from dask_rewrite.analysis.knowledge.in_place import IN_PLACE
from dask_rewrite.passes import reuse_buffers
from helpers import (
    allocated,
    assert_same,
    assert_same_as_stock,
    checked,
    distinct,
    functions_in,
    keys_of,
    stock,
    switched_on,
    walk_nested,
)

EVERY = {"rewrite.options": {"reuse-buffers": {"min-bytes": 1}}}
MB = 2**20
#: In Fortran order.
COLUMNS = np.arange(30.0).reshape(5, 6).T


@pytest.fixture
def any_size() -> Iterator[None]:
    with dask.config.set(EVERY):
        yield


def in_place(*collections: Any) -> list[str]:
    """The steps that write into the one before, in all tasks."""
    found = []
    parts: list[Any] = list(checked(*collections).values())
    while parts:
        part = parts.pop()
        found += functions_in(part)
        for _, inside in walk_nested(part):  # the steps of programs stand in their arguments
            parts += [step.__self__ for step in getattr(inside, "args", ()) if type(step) is MethodType]
    return sorted(func.__name__ for func in found if func in IN_PLACE)


class Subclass(np.ndarray):
    """Of which nobody knows how it adds."""

    @classmethod
    def of(cls, block: np.ndarray) -> np.ndarray:
        return block.view(cls)


def program(x: da.Array) -> da.Array:
    return ((x * 1.8 + 32) ** 2 - 1).mean()


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "u1", "i2", "?"])
@pytest.mark.parametrize(
    ("work", "steps"),
    [
        (lambda x: (x * x + x) * x, ["iadd", "imul"]),
        (lambda x: 3 + x * 2 + 1, ["iadd", "iadd"]),
        (lambda x: (x + 2) ** 2, ["ipow"]),
        (lambda x: 2 * (1 + (x | x)) - 3, None),
        (lambda x: ((x > 2) & (x < 9)) ^ (x == 4), ["iand", "ixor"]),
        (lambda x: da.sqrt(da.multiply(x, 3) + 1) / 7, None),
    ],
)
def test_the_same_bits(work: Any, steps: list[str] | None, dtype: str) -> None:
    for shape, chunks in [((24,), 8), ((6, 8), (3, 4)), ((2, 3, 4), 2)]:
        x = distinct(shape, chunks, "i8").astype(dtype)
        try:
            y = work(x)
        except TypeError:
            return  # NumPy has no such thing for this dtype
        found = in_place(y)
        if steps is not None and dtype != "?":
            assert set(found) >= set(steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # halves overflow
            assert_same_as_stock(y, x)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, 3, -1, 1.5, 0])
def test_powers(exponent: float) -> None:
    """Only those that are one exact function in NumPy, in place or not."""
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 5e-324, 1e300, -3.7, 0.1] * 40)
    y = (da.from_array(special, chunks=100) * 1.0) ** exponent
    assert bool(in_place(y)) == (exponent in (2, 0.5))
    with np.errstate(all="ignore"):
        assert_same_as_stock(y)


@pytest.mark.usefixtures("any_size")
def test_special_values() -> None:
    payload = np.array([0x7FF8000000000001, 0xFFF8000000000123], "u8").view("f8")
    special = np.concatenate([np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e308] * 37), payload])
    x = da.from_array(special, chunks=50)
    with np.errstate(all="ignore"):
        assert_same_as_stock(
            (x * 1.5 + 2) / 3 - 1, 1e308 * (x * 10), np.nan + x * 2, (x - x) * x, -0.0 + x * 1
        )
    assert not in_place(np.nan + x * 2)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    "make",
    [
        lambda x: (x + 1) / 2,  # integers become floats
        lambda x: (x * 2)[:, :1] - (x * 1),  # the result is larger
        lambda x: 1 - x * 2,  # the new array comes second
        lambda x: x + x * 2,
        lambda x: (x * 2).map_blocks(np.asarray) + 1,  # might give what others have
        lambda x: (x * 2)[::2] + 1,  # a view
        lambda x: x + 1,
        lambda x: da.transpose(x * 2) + 1,
        lambda x: x.astype(">i8") * 2,  # bytes of another order
    ],
)
def test_what_is_left(make: Callable[[da.Array], da.Array]) -> None:
    x = distinct((6, 8), (3, 4), "i8")
    y = make(x)
    assert not in_place(y)
    assert_same_as_stock(y, x)


@pytest.mark.usefixtures("any_size")
def test_data_and_shared_steps_are_not_written_into() -> None:
    data = np.arange(48.0).reshape(6, 8)
    before = data.copy()
    x = da.from_array(data, chunks=3)
    t = x * 2
    u = (t + 1) * (t - 1) + t
    assert_same_as_stock(u, t, x + 0, x)
    np.testing.assert_array_equal(data, before)
    with switched_on():
        kept = dask.persist(t, scheduler="sync")[0]
        first = (kept + 1).compute()
        assert_same(((kept * 1 + 1) * 2 - 1).compute(), first * 2 - 1)
        assert_same((kept + 1).compute(), first)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    "source",
    [
        lambda: distinct((4, 6), 2).map_blocks(lambda b: b),  # nobody knows
        lambda: distinct((4, 6), 2).map_blocks(Subclass.of, dtype="f8"),
        lambda: da.ma.masked_greater(distinct((4, 6), 2), 9),
        lambda: distinct((4, 6), 2, "i8").astype(object),
        lambda: distinct((4, 6), 2).astype("c16"),
        lambda: distinct((4, 6), 2).sum(),  # without axes: NumPy's scalars
    ],
)
def test_only_what_is_known_to_be_plain_arrays(source: Callable[[], da.Array]) -> None:
    x = source()
    y = (x * 2 + 1) * 3 - 1
    assert not in_place(y)
    assert_same_as_stock(y)


@pytest.mark.usefixtures("any_size")
def test_empty_blocks_and_unknown_sizes() -> None:
    x = distinct((6, 8), 3)
    some = x[x[:, 0] > 20]
    assert_same_as_stock((some * 2 + 1) * 3, (x[:0] * 2 + 1) * 3, (x[3:3, :] * 2 + 1).sum())


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_order_in_memory_is_the_same(order: Any) -> None:
    """A new array lies as both arguments say; sums follow the order of the memory."""
    data = np.asarray(np.random.default_rng(1).random((60, 70)), order=order)
    x = da.from_array(data, chunks=-1)
    for y in (x.T, da.from_array(data.T.copy(order="A"), chunks=-1)):
        for z in (
            (y * 2 + da.from_array(np.ones((70, 60)), chunks=-1)),
            (y * 2 + 1) * np.arange(60.0),
            y * 2 + y,
        ):
            with stock():
                expected = z.compute(scheduler="sync")
            with switched_on():
                actual = z.compute(scheduler="sync")
            assert actual.strides == expected.strides
            assert_same(actual, expected)
            assert_same_as_stock(z.sum())


def _shared(x: da.Array) -> da.Array:
    """Blocks that are used several times: tasks become programs."""
    return da.maximum(x / (x + 1), (x + 1) / (x + 2))


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "work",
    [
        lambda x: _shared(x) + 1.5,
        lambda x: _shared(x[:, :1]).map_blocks(np.multiply, COLUMNS, chunks=(6, 5), dtype=float),
        lambda x: _shared(x[:, :1]).map_blocks(np.multiply, COLUMNS, chunks=(6, 5), dtype=float) * 2,
        lambda x: _shared(x.map_blocks(np.multiply, 2.5, order="F", dtype=float) + 1) * 2,
    ],
)
def test_files_and_constants_in_the_other_order(
    work: Callable[[da.Array], da.Array], order: Any, inline: bool, tmp_path: Path
) -> None:
    """Also where they stand in the tasks themselves."""
    values = np.arange(60.0).reshape(12, 5)
    zarr = pytest.importorskip("zarr")
    file = zarr.create_array(str(tmp_path / "x"), data=values, chunks=(4, 5), config={"order": order})
    y = work(da.from_array(file, chunks=(6, 5), inline_array=inline)) + da.from_array(values, chunks=(6, 5))
    with stock():
        expected = _strides(y)
    with switched_on():
        assert _strides(y) == expected
    assert_same_as_stock(y)


def _strides(x: da.Array) -> list[tuple[int, ...]]:
    """How each block lies in memory."""
    kept = x.persist(scheduler="sync").__dask_graph__()
    return [kept[key].strides for key in keys_of(x)]


@pytest.mark.usefixtures("any_size")
def test_warnings_and_errors_are_the_same() -> None:
    x = da.from_array(np.array([1.0, 0.0, -1.0]), chunks=3)
    y = (x * 1e308 * 10) / 0
    assert in_place(y)
    said = []
    for how in (stock(), switched_on()):
        with how, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y.compute(scheduler="sync")
        said.append(sorted(str(each.message) for each in caught if each.category is RuntimeWarning))
    assert said[0] == said[1] != []
    with np.errstate(all="raise"), switched_on(), pytest.raises(FloatingPointError):
        y.compute(scheduler="sync")


@pytest.mark.usefixtures("any_size")
def test_optimized_twice() -> None:
    x = distinct((40, 50), (20, 25))
    y = dask_rewrite.optimize(program(x))
    assert in_place(y)
    assert_same_as_stock(program(x))
    with stock():
        expected = (program(x) + 1).compute(scheduler="sync"), (x * 1.8 + 32)[3:9].compute(scheduler="sync")
    again = dask_rewrite.optimize(dask_rewrite.optimize(y) + 1)
    part = dask_rewrite.optimize(dask_rewrite.optimize(x * 1.8 + 32)[3:9])
    assert_same((again.compute(scheduler="sync"), part.compute(scheduler="sync")), expected)
    there = pickle.loads(cloudpickle.dumps(again))
    assert_same(there.compute(scheduler="sync", optimize_graph=False), expected[0])


@pytest.mark.usefixtures("any_size")
def test_what_writes_into_a_block_of_the_graph_is_unknown() -> None:
    effects = Effects()
    assert effects.of(Task("y", operator.iadd, TaskRef("x"), 1)) == "unknown"
    assert effects.of(Task("y", operator.iadd, Task(None, operator.getitem, TaskRef("x"), 0), 1)) == "unknown"
    assert effects.of(Task("y", operator.iadd, Task(None, operator.mul, TaskRef("x"), 2), 1)) == "fresh"


def _steps(x: da.Array) -> da.Array:
    return ((x * 2 + 1) ** 2 - 1) * 3


@pytest.mark.parametrize(
    "work", [_steps, lambda x: _steps(x).sum(axis=0), lambda x: _steps(x) - _steps(x)[0]]
)
@pytest.mark.parametrize("chunks", [32, (100, 33)])
@pytest.mark.parametrize("stored", [True, False])
def test_blocks_of_one_layer_share_their_template(
    work: Callable[[da.Array], da.Array], chunks: Any, stored: bool, tmp_path: Path
) -> None:
    """Wherever in a file and in an array they stand: one template is sent, not one for each block."""
    values = np.arange(256.0 * 264).reshape(256, 264)
    x = da.random.default_rng(1).random((256, 264), chunks=chunks)
    if stored:
        file = pytest.importorskip("zarr").create_array(str(tmp_path / "x"), data=values, chunks=(32, 33))
        x = da.from_array(file, chunks=chunks)
    target = np.empty(x.shape)
    with dask.config.set({"rewrite.options": {"reuse-buffers": {"min-bytes": 32 * 32 * 8}}}):
        for made in (work(x), da.store(_steps(x), target, lock=False, compute=False)):
            tasks = checked(made)
            bodies = {
                id(f.__self__) for t in tasks.values() for f in functions_in(t) if hasattr(f, "__self__")
            }
            assert len(bodies) <= 10  # blocks at the edges are smaller
        assert in_place(work(x))
        assert_same_as_stock(work(x))


def test_blocks_in_memory_are_decided_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    decide = reuse_buffers._makes_array
    monkeypatch.setattr(reuse_buffers, "_makes_array", lambda call: asked.append(0) or decide(call))
    counts = []
    for n in (8, 24):
        x = da.from_array(np.arange(100.0 * n * n).reshape(10 * n, 10 * n), chunks=10)
        asked.clear()
        with dask.config.set(EVERY), switched_on():
            dask.optimize(((x * 2 + 1) * (x - x * 3) / (x + 1)).sum())
        counts.append(len(asked))
    assert 0 < counts[1] <= counts[0] < 64


@pytest.mark.parametrize(("numbers", "fires"), [(32_767, False), (32_768, True)])
def test_small_blocks_are_new_arrays(numbers: int, fires: bool) -> None:
    y = distinct((numbers,), -1) * 2 + 1
    assert bool(in_place(y)) == fires
    assert_same_as_stock(y)


def _drawn(path: Path) -> da.Array:
    return da.random.default_rng(1).random((1024, 512), chunks=(512, 512))


def _in_memory(path: Path) -> da.Array:
    return da.from_array(np.arange(1024.0 * 512).reshape(1024, 512), chunks=(512, 512))


def _in_hdf5(path: Path) -> da.Array:
    h5py = pytest.importorskip("h5py")
    file = h5py.File(path / "x.h5", "w")
    file["x"] = np.arange(1024.0 * 512).reshape(1024, 512)
    return da.from_array(file["x"], chunks=(512, 512))


def _in_zarr(path: Path) -> da.Array:
    zarr = pytest.importorskip("zarr")
    store = zarr.open(str(path / "x.zarr"), mode="w", shape=(1024, 512), chunks=(512, 512), dtype="f8")
    store[:] = np.arange(1024.0 * 512).reshape(1024, 512)
    return da.from_array(store, chunks=(512, 512))


def peak(x: da.Array) -> int:
    return allocated(lambda: x.compute(scheduler="sync"))


@pytest.mark.parametrize("source", [_drawn, _in_memory, _in_hdf5, _in_zarr])
def test_one_block_is_allocated_beyond_the_input(source: Callable[[Path], da.Array], tmp_path: Path) -> None:
    """What a block is read with may be more than what is computed of it."""
    x = source(tmp_path)
    block = 2 * MB
    given = 0 if source is _in_memory else block
    with stock():
        reading = peak(x[:512].map_blocks(np.sum, dtype="f8", chunks=(), drop_axis=(0, 1)))
        assert peak(program(x)) >= 2 * block
    most = max(given + 1.1 * block, reading + 0.25 * block)
    with switched_on():  # the threads of Zarr let go of a block when all of them have had some work
        assert any(peak(program(x)) <= most for _ in range(8))
    assert_same_as_stock(program(x))
