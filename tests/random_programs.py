"""Random programs over the dask.array API, drawn by hypothesis: the operations, and programs of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from hypothesis import strategies as st

#: Blocks stay small, so that a program runs in milliseconds.
MAX_SIZE = 400
MAX_BLOCKS = 60

OPERATIONS: dict[str, Callable[[Any, list[da.Array]], da.Array]] = {}


def operation(function: Callable[[Any, list[da.Array]], da.Array]) -> Callable[..., Any]:
    """Makes a new array of the arrays so far, with choices drawn by hypothesis."""
    OPERATIONS[function.__name__] = function
    return function


def pick(draw: Any, arrays: list[da.Array], ndim: int = 0) -> da.Array:
    """One of the arrays, the latest ones most often; with at least ``ndim`` dimensions."""
    found = [x for x in arrays if x.ndim >= ndim and not any(np.isnan(n) for n in x.shape) and x.size]
    return found[-1 - draw(st.integers(0, min(len(found), 4) - 1))]


def chunks_of(draw: Any, n: int) -> tuple[int, ...]:
    size = draw(st.integers(max(1, (n + 3) // 4), max(1, n)))
    return tuple(min(size, n - i) for i in range(0, n, size)) or (0,)


def axis_of(draw: Any, x: da.Array) -> int:
    return draw(st.integers(0, x.ndim - 1))


@operation
def elementwise(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays)
    function = draw(st.sampled_from([np.negative, np.sin, abs, np.exp, np.isnan, np.sign, np.square]))
    return function(x) if x.dtype.kind == "f" else function(x + 0.5)


@operation
def with_scalar(draw: Any, arrays: list[da.Array]) -> da.Array:
    x, k = pick(draw, arrays), draw(st.sampled_from([2, 0.5, -1, np.float32(3), -0.0]))
    return draw(st.sampled_from([lambda: x + k, lambda: k - x, lambda: x * k, lambda: x / 3, lambda: x**2]))()


@operation
def binary(draw: Any, arrays: list[da.Array]) -> da.Array:
    x, y = pick(draw, arrays), pick(draw, arrays)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        y = y.sum()
    function = draw(st.sampled_from([da.add, da.subtract, da.multiply, da.maximum, da.arctan2]))
    if "b" in (x.dtype.kind, y.dtype.kind):
        x = x + 0
    return function(x, y)


@operation
def diamond(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays) + 0
    return (x + 1) * (x - 1) * 0.1


@operation
def broadcast(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return x + x[(slice(0, 1), *[slice(None)] * (x.ndim - 1))]


@operation
def new_axis(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return x[:, None] if x.ndim == 1 else x


@operation
def transpose(draw: Any, arrays: list[da.Array]) -> da.Array:
    return pick(draw, arrays).T


@operation
def with_its_transpose(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays)
    return x + x.T if x.ndim == 2 and x.shape[0] == x.shape[1] else x * 2


@operation
def sliced(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    index: list[Any] = []
    for n in x.shape:
        start, stop = sorted((draw(st.integers(0, n - 1)), draw(st.integers(1, n))))
        stop = max(stop, start + 1)
        index.append(slice(start, stop, draw(st.sampled_from([None, 1, 2]))))
        if draw(st.booleans()):
            index[-1] = slice(None, None, -1)
    return x[tuple(index)]


@operation
def item(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return x[draw(st.integers(-x.shape[0], x.shape[0] - 1))]


@operation
def fancy(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return x[draw(st.lists(st.integers(0, x.shape[0] - 1), min_size=1, max_size=5))]


@operation
def masked_by_condition(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays)
    return da.where(x > 3, x, -1 * x)


@operation
def concatenate(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return da.concatenate([x, x * 2, x[:1]], axis=0)


@operation
def stack(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays)
    return da.stack([x, x + 1], axis=draw(st.integers(0, x.ndim))) if x.ndim < 3 else x


@operation
def append(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return da.append(x, da.zeros((1, *x.shape[1:]), dtype=x.dtype), axis=0)


@operation
def rechunk(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return x.rechunk(tuple(chunks_of(draw, n) for n in x.shape))


@operation
def reduction(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0
    function = draw(st.sampled_from(["sum", "mean", "max", "min", "std", "prod", "any", "argmax"]))
    axis = axis_of(draw, x)
    if function == "argmax":
        return da.argmax(x, axis=axis)
    keepdims, split = draw(st.booleans()), draw(st.sampled_from([None, 2, 3]))
    return getattr(da, function)(x, axis=axis, keepdims=keepdims, split_every=split)


@operation
def centred(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0
    return x - x.mean(axis=0)


@operation
def tensordot(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0
    return da.tensordot(x, x, axes=((x.ndim - 1,), (x.ndim - 1,))) if x.ndim <= 2 else x.sum(axis=0)


@operation
def matmul(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0
    return x @ x.T if x.ndim == 2 else x * 3


@operation
def einsum(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0
    return da.einsum("ij,ij->i", x, x) if x.ndim == 2 else x


@operation
def blocks_with_their_place(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    return x.map_blocks(lambda b, block_id=None: b + sum(block_id), dtype="f8", meta=x._meta)


@operation
def blocks_with_info(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    return x.map_blocks(
        lambda b, block_info=None: b * block_info[0]["chunk-location"][0], dtype="f8", meta=x._meta
    )


@operation
def blocks_with_delayed(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    other = dask.delayed(pow)(2, draw(st.integers(0, 5)))
    return x.map_blocks(lambda b, k: b + k, k=other, dtype="f8", meta=x._meta)


@operation
def blocks_with_an_array(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    y = pick(draw, arrays, 1) + 0.0
    return x.map_blocks(lambda b, k: b + k.sum(), k=y, dtype="f8", meta=x._meta)


@operation
def overlap(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    boundary = draw(st.sampled_from(["reflect", "periodic", "nearest", 0.0]))
    x = x.rechunk(tuple(max(2, (n + 1) // 2) for n in x.shape))
    if any(min(c) < 2 for c in x.chunks):
        return x
    return x.map_overlap(lambda b: b * 2, depth=1, boundary=boundary, dtype="f8", meta=x._meta)


@operation
def cumulative(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    return da.cumsum(x, axis=axis_of(draw, x))


@operation
def blockwise(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    if x.ndim != 2:
        return x
    return da.blockwise(lambda b: b.sum(axis=1), "i", x, "ij", concatenate=True, dtype="f8", meta=np.empty(0))


@operation
def assigned(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = (pick(draw, arrays, 1) + 0.0).copy()
    x[draw(st.integers(0, x.shape[0] - 1))] = -1.0
    if draw(st.booleans()):
        x[x > 30] = 30.0
    return x


@operation
def pad(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    if x.dtype.kind == "b":
        x = x + 0
    return da.pad(x, 1, mode=draw(st.sampled_from(["constant", "edge", "wrap"])))


@operation
def roll(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return da.roll(x, draw(st.integers(-3, 3)), axis=axis_of(draw, x))


@operation
def reshape(draw: Any, arrays: list[da.Array]) -> da.Array:
    return pick(draw, arrays).ravel()


@operation
def cast(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays)
    with np.errstate(all="ignore"):
        return x.astype(draw(st.sampled_from(["f4", "f8", "c16"]))).real


@operation
def leap(draw: Any, arrays: list[da.Array]) -> da.Array:
    a = pick(draw, arrays) + 0.0
    b = a + 1
    for _ in range(draw(st.integers(1, 25))):
        a, b = b, (a + b) * 0.5
    return b


@operation
def tower(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays) + 0.0
    for i in range(draw(st.integers(1, 40))):
        x = x * 0.5 + i
    return x


@operation
def created(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays)
    kind = draw(st.sampled_from(["ones", "zeros", "random", "arange"]))
    if kind == "random":
        other = da.random.default_rng(7).normal(size=x.shape, chunks=x.chunks)
    elif kind == "arange":
        other = da.arange(x.size, chunks=max(1, x.size // 2)).reshape(x.shape)
    else:
        other = getattr(da, kind)(x.shape, chunks=x.chunks)
    return x + other


@st.composite
def programs(draw: Any) -> tuple[list[da.Array], bool]:
    """One to three outputs of a program of up to nine operations, over shared arrays."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=2)))
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(draw(st.sampled_from(["f8", "i8", "f4"])))
    chunks = tuple(chunks_of(draw, n) for n in shape)
    arrays = [da.from_array(values, chunks=chunks, name=f"source-{shape}-{chunks}-{values.dtype}")]
    names = draw(st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=9))
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = OPERATIONS[name](draw, arrays)
        if 0 < result.size <= MAX_SIZE and result.npartitions <= MAX_BLOCKS:
            arrays.append(result)
    count = draw(st.integers(1, 3))
    outputs = [arrays[-1]] + [draw(st.sampled_from(arrays)) for _ in range(count - 1)]
    return outputs, draw(st.booleans())
