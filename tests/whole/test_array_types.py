"""Blocks of all kinds: masked, object, structured, sparse, duck arrays, unknown and empty ones."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph

from duck_arrays import Duck
from helpers import assert_same_as_stock, checked, distinct


def programs(x: da.Array) -> list[da.Array]:
    return [
        x + x,
        (x + 1) * 2 - x,
        x[1:],
        x.rechunk(tuple(max(1, n) for n in x.shape)),
        x.T,
        da.concatenate([x, x]),
    ]


def check(*collections: da.Array) -> None:
    for x in collections:
        checked(x)
        assert_same_as_stock(x)


@pytest.mark.parametrize("mask", ["some", "all", "none"])
def test_masked(mask: str) -> None:
    values = np.arange(12.0).reshape(3, 4)
    where = {"some": values % 3 == 0, "all": np.ones((3, 4), bool), "none": np.zeros((3, 4), bool)}[mask]
    x = da.from_array(np.ma.masked_array(values, mask=where), chunks=2)
    check(*programs(x))
    check(x.sum(), x.mean(axis=0), da.ma.filled(x, -1), da.ma.getmaskarray(x) | (x > 3))


def test_masked_fill_values_stay() -> None:
    x = da.ma.masked_greater(distinct((6,), 2), 3)
    da.ma.set_fill_value(x, 99)
    check(x + 0, da.ma.filled(x * 2), da.concatenate([x, distinct((3,), 2)]))


def test_a_user_function_with_unknown_meta_that_gives_masked_blocks() -> None:
    def mask(block: np.ndarray) -> np.ndarray:
        if not block.size:
            raise ValueError("so that the meta cannot be inferred")
        return np.ma.masked_equal(block, 3)

    x = distinct((6,), 2).map_blocks(mask, dtype="f8")
    check(x + 1, da.append(x, da.zeros(2, chunks=2)), x.rechunk(3), x.rechunk(3).sum())


def test_objects() -> None:
    values = np.array(["a", 1, None, (1, 2), 2.5, b"x"], dtype=object)
    x = da.from_array(values, chunks=2)
    check(x, x[1:4], x[::-1], x.rechunk(3), da.concatenate([x, x]), x.map_blocks(np.copy, dtype=object))
    numbers = da.from_array(np.array([10**30, 2, 3, 4], dtype=object), chunks=2)
    check(*programs(numbers), numbers.sum())


@pytest.mark.parametrize("dtype", ["U3", "S3", "M8[D]", "m8[s]", "?", "i1", "u8", ">f8", "c16", "f2", "g"])
def test_dtypes(dtype: str) -> None:
    values = np.arange(8).astype(dtype) if dtype[0] not in "US" else np.array(list("abcdefgh")).astype(dtype)
    x = da.from_array(values, chunks=3)
    check(x[1:7], x[::-2], x.rechunk(4), da.concatenate([x, x]), da.where(x == x[0], x, x[::-1]))
    if np.dtype(dtype).kind in "iufcb":
        check(x + x, (x * x).sum(), x + x[0], x * 0.5)


def test_dtypes_that_meet() -> None:
    one = da.from_array(np.arange(6, dtype="i1"), chunks=2)
    for dtype in ("u1", "i8", "f4", "f8", "c8", "?"):
        other = da.from_array(np.arange(6).astype(dtype), chunks=3)
        check(one + other, da.concatenate([one, other]), (one * other).sum(), one + np.float32(1.5))


def test_structured() -> None:
    values = np.zeros(6, dtype=[("a", "i4"), ("b", "f8"), ("c", "U2")])
    values["a"], values["b"], values["c"] = np.arange(6), np.linspace(0, 1, 6), list("uvwxyz")
    x = da.from_array(values, chunks=2)
    check(x, x[1:5], x["b"] + x["a"], x[["a", "c"]], x.rechunk(3), x["c"], da.concatenate([x, x]))


def test_sparse() -> None:
    sparse = pytest.importorskip("sparse")
    values = np.zeros((6, 6))
    values[1, 2], values[4, 4], values[5, 0] = 1, 2, -3
    x = da.from_array(values, chunks=2).map_blocks(sparse.COO)
    check(x, x + x, x * 2, x[1:5], x.T, x.sum(), x.sum(axis=0), da.tensordot(x, x, axes=1), x.rechunk(3))
    filled = da.from_array(values, chunks=2).map_blocks(lambda b: sparse.COO(b, fill_value=1))
    check(filled, filled * 3)


def test_duck_arrays() -> None:
    duck = Duck(np.empty((0, 0)))
    x = distinct((4, 6), 2).map_blocks(Duck, dtype="f8", meta=duck)
    for y in (x + x, (x * 2 - x) * x, x[1:3], x.T + 1, x.rechunk((4, 3)), da.concatenate([x, x]) * 3):
        checked(y)
        assert_same_as_stock(y)


def test_duck_arrays_are_never_looked_into() -> None:
    class Shy(Duck):
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

        def __reduce__(self) -> Any:
            raise AssertionError("pickled")

        def __eq__(self, other: object) -> bool:
            if other is self:
                return True
            raise AssertionError("compared")

        def __bool__(self) -> bool:
            raise AssertionError("asked for its truth")

        __hash__ = None

    shy = Shy(np.arange(2.0))
    x = distinct((4,), 2).map_blocks(
        lambda b, other: b + other.values, other=shy, dtype="f8", meta=np.empty(0)
    )
    y = (x * 2).rechunk(4)
    checked(y)


@pytest.mark.parametrize("build", [lambda x: x[x > 4], lambda x: x[x % 3 == 0] * 2, lambda x: x[x < 0] + 1])
def test_unknown_chunks(build: Any) -> None:
    x = build(distinct((10,), 3))
    check(x, x + x, x.sum(), da.concatenate([x, x]), x.map_blocks(lambda b: b[:1], dtype="f8"))


def test_unknown_chunks_that_become_known() -> None:
    x = distinct((10,), 3)
    y = x[x > 4].compute_chunk_sizes()
    check(y + 1, y.rechunk(2), y[1:3])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0)])
def test_empty(shape: tuple[int, ...]) -> None:
    x = da.from_array(np.empty(shape), chunks=tuple(max(1, n) for n in shape))
    check(x, x + 1, x.T, x.sum(), da.concatenate([x, x]), (x * 2)[:0])
    check(distinct((4, 3), 2)[:0] + 1, distinct((4,), 2)[2:2].sum())


def test_blocks_of_length_zero() -> None:
    x = da.from_array(np.arange(6.0), chunks=((0, 2, 0, 4, 0),))
    check(x + 1, x[1:5] * 2, x.sum(), x.rechunk(3), x + x[::-1].rechunk(x.chunks))


def test_zero_dimensional() -> None:
    x = da.from_array(np.array(5.0), chunks=())
    check(x, x + 1, x * x - x, x[None] + distinct((4,), 2), x.reshape(1, 1), distinct((4,), 2).sum() + x)
    check(distinct((4,), 2)[2] * 2, da.zeros((), dtype="i4") + 1)


@pytest.mark.parametrize("value", [np.nan, -0.0, 0.0, np.inf, -np.inf, -np.nan])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_odd_numbers(value: float) -> None:
    x = da.from_array(np.array([1.0, value, -1.0, value, 0.0, -0.0]), chunks=2)
    check(x + 0, x * 1, x * -0.0, -x, x.sum(), x.max(), da.full((4,), value, chunks=2) + x[:4])
    check(da.concatenate([x, da.zeros(2, chunks=2)]), da.where(x == x, x, value), x + value, x - x)


def test_nan_payloads() -> None:
    bits = np.array([0x7FF8000000000001, 0xFFF8000000000002, 0x7FF0000000000003], dtype="u8")
    x = da.from_array(bits.view("f8"), chunks=1)
    check(x, x[::-1], x.rechunk(3), da.concatenate([x, x]))


def test_subclasses_of_ndarray() -> None:
    x = da.from_array(np.arange(6.0).view(np.matrix), chunks=(1, 2), asarray=False)
    check(x, x * 2, x.T)
    y = da.from_array(
        np.rec.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]), chunks=1, asarray=False
    )
    check(y["a"] + 1)


def test_read_only_and_strided_blocks() -> None:
    values = np.arange(24.0).reshape(4, 6)[::2, ::-1]
    values.flags.writeable = False
    check(*programs(da.from_array(values, chunks=2)))


def test_blocks_that_are_no_arrays() -> None:
    x = distinct((4,), 2).map_blocks(lambda b: float(b.sum()), chunks=((1, 1),), dtype="f8")
    y = x.map_blocks(lambda value: np.array([value + 1]), dtype="f8", chunks=((1, 1),))
    check(y)


class Remote:
    """Stands for a function elsewhere, which is asked over the network for each unknown name."""

    __name__ = "remote"

    def __init__(self, answers: bool) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.answers:
            return self
        raise RuntimeError(f"asked for {name}")

    def __call__(self, block: np.ndarray) -> np.ndarray:
        return block[:3] * 2


@pytest.mark.parametrize("answers", [True, False])
def test_functions_are_not_asked_for_attributes(answers: bool) -> None:
    x = distinct((12, 8), 4)
    tasks: dict[Any, Any] = {
        ("remote", *key[1:]): Task(("remote", *key[1:]), Remote(answers), TaskRef(key))
        for key in flatten(x.__dask_keys__())
    }
    graph = HighLevelGraph.from_collections("remote", tasks, [x])
    y = da.Array(graph, "remote", chunks=((3, 3, 3), (4, 4)), dtype=x.dtype)
    for z in (y, y + 1, y[:2, 1:6] + y[1:3, 2:7], y.sum(axis=0)):
        checked(z)
        assert_same_as_stock(z)
