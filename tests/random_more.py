"""More steps of random programs: other types of blocks, stencils, windows, empty blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from hypothesis import strategies as st

from random_programs import axis_of, chunks_of, pick
from random_unknown import LIES, STEPS, TRUTHS, step

RECORD = np.dtype([("a", "f8"), ("b", "i2")])


def one_of(draw: Any, *makers: Callable[[], da.Array]) -> da.Array:
    return draw(st.sampled_from(makers))()


def recorded(block: Any) -> np.ndarray:
    made = np.zeros(block.shape, RECORD)
    made["a"], made["b"] = block, 3
    return made


@step
def moved_objects(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1).real.astype(object)
    y = one_of(
        draw,
        lambda: x + x,
        lambda: x[::-1],
        lambda: x.sum(axis=0),
        lambda: da.concatenate([x, x.T]) if x.ndim == 1 else x.T,
        lambda: da.roll(x, 1, 0) + x,
        lambda: x.rechunk(2),
    )
    return y.astype("f8")


@step
def moved_records(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1).real
    x = x.map_blocks(recorded, dtype=RECORD, meta=np.empty((0,) * x.ndim, RECORD))
    y = one_of(
        draw,
        lambda: x[1:] if len(x) > 1 else x,
        lambda: x.T.rechunk(2),
        lambda: da.concatenate([x, x[::-1]]),
        lambda: da.roll(x, 1, 0),
        lambda: x.reshape(-1),
    )
    return y["a"] * y["b"]


@step
def types_that_differ(draw: Any, arrays: list[da.Array]) -> da.Array:
    """Blocks of one array that are of two types."""
    x = pick(draw, arrays, 1)
    even, odd = (draw(st.sampled_from(LIES + TRUTHS)) for _ in range(2))

    def made(block: Any, block_id: Any = None) -> Any:
        return (odd if sum(block_id) % 2 else even)(block)

    return x.map_blocks(made, dtype=x.dtype, meta=x._meta)


@step
def wave_of_unknown(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    for _ in range(draw(st.integers(1, 3))):
        x = (da.roll(x, 1, 0) + da.roll(x, -1, x.ndim - 1)) / 2
        if draw(st.booleans()):
            x = x.map_blocks(lambda b: b * 1, dtype=x.dtype, meta=x._meta)
    return x


@step
def stencil(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    for _ in range(draw(st.integers(1, 2))):
        padded = da.pad(x, 1, mode=draw(st.sampled_from(["constant", "edge", "wrap"])))
        inner = (slice(1, -1),) * (x.ndim - 1)
        x = padded[(slice(2, None), *inner)] - 2 * padded[(slice(1, -1), *inner)]
    return x


@step
def each_boundary(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    kinds = st.sampled_from(["reflect", "periodic", "nearest", "none", 0.0])
    depth = {i: draw(st.integers(0, min(2, n))) for i, n in enumerate(x.shape)}
    boundary = {i: draw(kinds) for i in range(x.ndim)}
    return x.map_overlap(lambda b: b * 2, depth=depth, boundary=boundary, dtype=x.dtype, meta=x._meta)


@step
def windows(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    axis = axis_of(draw, x)
    width = draw(st.integers(1, min(3, x.shape[axis])))
    y = da.lib.stride_tricks.sliding_window_view(x, width, axis=axis)
    return one_of(draw, lambda: y.sum(axis=-1), lambda: y.max(axis=-1))


@step
def with_empty_blocks(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return da.concatenate([x, x[:0], x[:1]]) if draw(st.booleans()) else da.concatenate([x[:0], x])


@step
def many_rechunks(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    if any(0 in sizes for sizes in x.chunks):  # which dask rechunks wrongly
        return x
    for _ in range(draw(st.integers(1, 4))):
        x = x.rechunk(tuple(chunks_of(draw, n) for n in x.shape))
        x = draw(st.sampled_from([x, x[::-1], x.T]))
    return x


@step
def largest(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = (pick(draw, arrays, 1) + 0.0).real
    axis, k = axis_of(draw, x), draw(st.sampled_from([1, 2, -1]))
    return one_of(draw, lambda: da.topk(x, k, axis=axis), lambda: x.argmin(axis=axis))


@step
def counts(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = (pick(draw, arrays, 1) + 0.0).real
    edges = np.array([1.0, 3.0, 8.0])
    return one_of(
        draw, lambda: da.histogram(x, bins=4, range=(0, 30))[0], lambda: da.digitize(x, edges) * 1.0
    )


@step
def many_assignments(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1).copy()
    for _ in range(draw(st.integers(1, 3))):
        i = draw(st.integers(0, len(x) - 1))
        kind = draw(st.sampled_from(["number", "itself", "where"]))
        if kind == "number":
            x[i:] = draw(st.sampled_from([0, 7]))
        elif kind == "itself":
            x[i] = x[i] * 2
        else:
            x[x.real > 4] = 1
    return x


@step
def optimized_before(draw: Any, arrays: list[da.Array]) -> da.Array:
    import dask

    x = pick(draw, arrays)

    def persisted() -> da.Array:
        try:
            return x.persist()
        except Exception:  # blocks that are not as declared: how that fails is compared in the end
            return x

    return one_of(draw, lambda: dask.optimize(x)[0], persisted)


ADDED = sorted(set(STEPS) & {name for name, made in STEPS.items() if made.__module__ == __name__})
