"""Steps of random programs over blocks that lie in memory in all ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import dask.array as da
import numpy as np

from laid_blocks import LAYOUTS

STEPS: dict[str, Callable[[Random, list[da.Array]], da.Array]] = {}


def step(function: Any) -> Any:
    STEPS[function.__name__] = function
    return function


# -- choices ---------------------------------------------------------------------------------------


def pick(rng: Random, arrays: list[da.Array], ndim: int = 0) -> da.Array:
    """One of the arrays, the latest ones most often; with at least ``ndim`` dimensions."""
    found = [x for x in arrays if x.ndim >= ndim]
    return found[-1 - min(rng.choice([0, 0, 0, 1, 2]), rng.randrange(len(found)))]


def chunks_of(rng: Random, n: int) -> tuple[int, ...]:
    if rng.random() < 0.6:
        return (n,)
    size = rng.randint((n + 3) // 4, n)
    first = rng.randint(1, size)
    return tuple(b - a for a, b in zip([0, *range(first, n, size)], [*range(first, n, size), n]))


def axes_of(rng: Random, x: da.Array) -> Any:
    """One axis, several, or all."""
    kind = rng.randrange(3)
    if kind == 0:
        return None
    if kind == 1:
        return rng.randrange(x.ndim)
    return tuple(sorted(rng.sample(range(x.ndim), rng.randint(1, x.ndim))))


def range_of(rng: Random, n: int, steps: Sequence[int | None]) -> slice:
    if rng.random() < 0.7:  # what dask does not copy: more than half
        start, stop = rng.randint(0, n // 6), n - rng.randint(0, n // 6)
    else:
        start, stop = sorted(rng.sample(range(n + 1), 2))
    step = rng.choice(steps)
    if step is not None and step < 0:
        return slice(stop - 1, start - 1 if start else None, step)
    return slice(start, stop, step)


# -- what moves ------------------------------------------------------------------------------------


@step
def transpose(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 2)
    return x.transpose(rng.sample(range(x.ndim), x.ndim))


@step
def moveaxis(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 2)
    return da.moveaxis(x, rng.randrange(x.ndim), rng.randrange(x.ndim))


@step
def flip(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    return da.flip(x, rng.choice([None, rng.randrange(x.ndim)]))


@step
def rotate(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 2)
    return da.rot90(x, rng.randrange(4), axes=rng.sample(range(x.ndim), 2))


@step
def rechunk(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    return x.rechunk(tuple(chunks_of(rng, n) for n in x.shape))


@step
def roll(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    return da.roll(x, rng.randint(-4, 4), axis=rng.randrange(x.ndim))


@step
def concatenate(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    axis = rng.randrange(x.ndim)
    part = x[(*[slice(None)] * axis, range_of(rng, x.shape[axis], [None, 2, -1]))]
    return da.concatenate(rng.sample([x, x * 2, part], rng.randint(2, 3)), axis=axis)


@step
def stack(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays)
    return da.stack([x, rng.choice([x + 1, x])], axis=rng.randint(0, x.ndim)) if x.ndim < 3 else x


@step
def sliced(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    return x[tuple([range_of(rng, n, [None, 1, 2, -1, -2]) for n in x.shape])]


@step
def item(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    axis = rng.randrange(x.ndim)
    return x[(*[slice(None)] * axis, rng.randrange(-x.shape[axis], x.shape[axis]))]


@step
def new_axis(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    return x[:, None] if x.ndim < 3 else x


@step
def taken(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    axis = rng.randrange(x.ndim)
    wanted = [rng.randrange(x.shape[axis]) for _ in range(rng.randint(1, x.shape[axis]))]
    return da.take(x, sorted(wanted) if rng.random() < 0.5 else wanted, axis=axis)


@step
def reshape(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 2)
    at = rng.randrange(x.ndim - 1)
    return x.reshape((*x.shape[:at], -1, *x.shape[at + 2 :]), merge_chunks=rng.random() < 0.5)


@step
def ravel(rng: Random, arrays: list[da.Array]) -> da.Array:
    return pick(rng, arrays).ravel()


@step
def split(rng: Random, arrays: list[da.Array]) -> da.Array:
    """An axis becomes two."""
    x = pick(rng, arrays, 1)
    if x.ndim > 2:
        return x
    factors = [n for n in range(1, x.shape[0] + 1) if x.shape[0] % n == 0]
    return x.reshape((rng.choice(factors), -1, *x.shape[1:]))


@step
def pad(rng: Random, arrays: list[da.Array]) -> da.Array:
    return da.pad(pick(rng, arrays, 1), 1, mode=rng.choice(["constant", "edge", "wrap", "reflect"]))


@step
def broadcast(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays)
    return da.broadcast_to(x, (3, *x.shape)) if x.ndim < 3 else x


@step
def copied(rng: Random, arrays: list[da.Array]) -> da.Array:
    return pick(rng, arrays).map_blocks(np.copy)


MOVES = sorted(STEPS)


# -- what works on blocks --------------------------------------------------------------------------


@step
def elementwise(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays)
    return rng.choice([lambda: x * 3, lambda: -x, lambda: 0.1 - x, lambda: np.sin(x), lambda: x + x])()


@step
def binary(rng: Random, arrays: list[da.Array]) -> da.Array:
    x, y = pick(rng, arrays), pick(rng, arrays)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        y = rng.choice([x[::-1] if x.ndim else x, y.sum()])
    return rng.choice([da.add, da.subtract, da.multiply, da.maximum, da.minimum])(x, y)


@step
def where(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays)
    return da.where(x > 0.5, x, -x)


@step
def laid_otherwise(rng: Random, arrays: list[da.Array]) -> da.Array:
    """A function of the user that gives blocks in a layout of its own."""
    x, lies = pick(rng, arrays), rng.choice(LAYOUTS)
    return x.map_blocks(lambda b: lies(b * 2), dtype=x.dtype, meta=x._meta)


@step
def block_sums(rng: Random, arrays: list[da.Array]) -> da.Array:
    """A function of the user that sums up."""
    x = pick(rng, arrays, 1)
    return x.map_blocks(lambda b: b - b.sum(dtype=b.dtype), dtype=x.dtype, meta=x._meta)


@step
def as_memory(rng: Random, arrays: list[da.Array]) -> da.Array:
    """Elements in the order in which they lie: nothing sees more of a layout."""
    x = pick(rng, arrays, 1)
    return x.map_blocks(lambda b: b.ravel("K").reshape(b.shape), dtype=x.dtype, meta=x._meta)


@step
def blockwise(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    index = "ijk"[: x.ndim]
    return da.blockwise(lambda b: b.T * 3, index[::-1], x, index, dtype=x.dtype, meta=x._meta.T)


@step
def overlap(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    x = x.rechunk(tuple(max(2, (n + 1) // 2) for n in x.shape))
    if any(min(sizes) < 2 for sizes in x.chunks):
        return x
    boundary = rng.choice(["reflect", "periodic", "none", 0])
    return x.map_overlap(lambda b: b - b.mean(), depth=1, boundary=boundary, dtype=x.dtype, meta=x._meta)


@step
def assigned(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1).copy()
    if rng.random() < 0.5:
        x[tuple([range_of(rng, n, [None, 2]) for n in x.shape])] = rng.choice([-1, 7])
    elif rng.random() < 0.5:
        x[rng.randrange(x.shape[0])] = x[rng.randrange(x.shape[0])] * 2
    else:
        x[x > 1] = 1
    return x


# -- what sums up ----------------------------------------------------------------------------------


@step
def reduction(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    name = rng.choice(["sum", "mean", "std", "var", "prod", "nansum", "nanmean", "min", "max", "any"])
    options = {"keepdims": rng.random() < 0.5, "split_every": rng.choice([None, 2, 3])}
    return getattr(da, name)(x, axis=axes_of(rng, x), **options)


@step
def argument(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    return getattr(da, rng.choice(["argmin", "argmax"]))(x, axis=rng.randrange(x.ndim))


@step
def cumulative(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    method = rng.choice(["sequential", "blelloch"])
    return rng.choice([da.cumsum, da.cumprod])(x, axis=rng.randrange(x.ndim), method=method)


@step
def centred(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    return x - x.mean(axis=axes_of(rng, x), keepdims=True)


@step
def tensordot(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 1)
    y = laid_otherwise(rng, [x + 1])
    axes = rng.sample(range(x.ndim), rng.randint(1, x.ndim))
    return da.tensordot(x, y, axes=(axes, axes))


@step
def einsum(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 2)
    names = "ijk"[: x.ndim]
    kept = rng.choice(["", names[0], names[-1], names[::-1]])
    return da.einsum(f"{names},{names}->{kept}", x, x + 1)


@step
def matmul(rng: Random, arrays: list[da.Array]) -> da.Array:
    x = pick(rng, arrays, 2)
    return x @ da.swapaxes(x + 1, -1, -2)


UNSTABLE = {"as_memory", "argument", "where", "assigned", "cumulative"}
SUMS = ["reduction", "cumulative", "centred", "tensordot", "einsum", "matmul", "block_sums", "as_memory"]
