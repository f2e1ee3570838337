"""Random programs half of whose sources and steps are functions that nobody knows."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from hypothesis import strategies as st

from laid_blocks import File, made_by_function
from random_programs import MAX_BLOCKS, MAX_SIZE, OPERATIONS, axis_of, chunks_of, pick

SOURCES: dict[str, Callable[..., da.Array]] = {}
STEPS: dict[str, Callable[[Any, list[da.Array]], da.Array]] = {}

#: The smallest blocks are treated as large ones are, for two threads; no sum is regrouped.
EAGER: dict[str, Any] = {
    "scheduler": "threads",
    "num_workers": 2,
    "rewrite.reassociate": False,
    "rewrite.options": {
        "contract": {"min-bytes": 1},
        "stream": {"min-bytes": 1},
        "demand": {"max-share": 99, "min-bytes": 1},
        "movement": {"max-whole": 1},
        "fuse-small": {"max-bytes": 64},
        "inline-sources": {"max-bytes": 64},
        "halo-corners": {"max-bytes": 64},
        "hoist": {"min-bytes": 1, "min-saved": 1},
        "reuse-buffers": {"min-bytes": 1},
        "reread": {"min-bytes": 1, "min-blocks": 1},
    },
}

#: What blocks are though their array says that they are plain arrays of its dtype, in one case out of four.
LIES: list[Callable[[Any], Any]] = [
    lambda block: block.astype("f4"),
    lambda block: block.astype("i2"),
    lambda block: block.astype(">f8"),
    lambda block: np.ma.masked_equal(block, 3),
    lambda block: np.asfortranarray(block),
]
TRUTHS = [lambda block: block] * 3 * len(LIES)

_numbers = itertools.count()


def outcome(outputs: list[Any]) -> tuple[str, Any, set[Any]]:
    """The result or the error, and the warnings."""
    with np.errstate(all="warn"), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            kind, found = "value", dask.compute(*outputs)
        except Exception as error:
            kind, found = "error", type(error)
    return kind, found, {(each.category, str(each.message)) for each in heard}


def source(function: Any) -> Any:
    SOURCES[function.__name__] = function
    return function


def step(function: Any) -> Any:
    STEPS[function.__name__] = function
    return function


def through_xarray(x: da.Array, core: bool) -> da.Array:
    """A function of single elements, or one of the whole last axis."""
    import xarray as xr

    names = [f"d{i}" for i in range(x.ndim)]
    found = xr.apply_ufunc(
        (lambda b: b.max(axis=-1)) if core else (lambda b: b * 2 + 1),
        xr.DataArray(x.rechunk({-1: -1}) if core else x, dims=names),
        input_core_dims=[names[-1:] if core else []],
        dask="parallelized",
        output_dtypes=[x.dtype],
    )
    return found.data


@source
def loaded(draw: Any, values: np.ndarray, chunks: Any) -> da.Array:
    made_of = draw(st.sampled_from(LIES + TRUTHS))
    return made_by_function(values, chunks, made_of, f"loaded-{next(_numbers)}")


@source
def from_delayed(draw: Any, values: np.ndarray, chunks: Any) -> da.Array:
    made_of = draw(st.sampled_from(LIES + TRUTHS))
    pure = draw(st.booleans())

    @dask.delayed(pure=pure)
    def part(*ends: tuple[int, int]) -> Any:
        return made_of(values[tuple([slice(*each) for each in ends])].copy())

    bounds = [list(itertools.pairwise([0, *np.cumsum(each).tolist()])) for each in chunks]

    def nested(chosen: tuple[Any, ...]) -> Any:
        if len(chosen) == len(bounds):
            return da.from_delayed(part(*chosen), [b - a for a, b in chosen], dtype=values.dtype)
        return [nested((*chosen, each)) for each in bounds[len(chosen)]]

    return da.block(nested(()))


@source
def lazy_file(draw: Any, values: np.ndarray, chunks: Any) -> da.Array:
    """What xarray opens, as it comes out of the file or decoded."""
    import xarray as xr
    from zarr.storage import MemoryStore

    store, names = MemoryStore(), [f"d{i}" for i in range(values.ndim)]
    encoding = {"x": {"chunks": tuple(each[0] for each in chunks)}}
    if draw(st.booleans()):
        encoding["x"].update(scale_factor=0.5, dtype="i4", _FillValue=-9)  # type: ignore[dict-item] # numbers beside a name
        values = values.astype(float)
    made = xr.Dataset({"x": (names, values)})
    made.to_zarr(store, encoding=encoding, consolidated=False)
    opened = xr.open_zarr(store, chunks=None, consolidated=False)
    return opened.chunk(dict(zip(names, chunks))).x.data


@source
def file_of_another_library(draw: Any, values: np.ndarray, chunks: Any) -> da.Array:
    return da.from_array(File(values), chunks=chunks, lock=draw(st.booleans()), asarray=draw(st.booleans()))


@source
def applied(draw: Any, values: np.ndarray, chunks: Any) -> da.Array:
    return through_xarray(da.from_array(values, chunks=chunks), core=False)


@source
def cast_of_unknown(draw: Any, values: np.ndarray, chunks: Any) -> da.Array:
    return loaded(draw, values, chunks).astype(draw(st.sampled_from(["f4", "f8", "c16"]))).real


KNOWN_SOURCES: list[Callable[..., da.Array]] = [
    lambda draw, values, chunks: da.from_array(values, chunks=chunks),
    lambda draw, values, chunks: da.random.default_rng(3).normal(size=values.shape, chunks=chunks),
    lambda draw, values, chunks: da.arange(values.size).reshape(values.shape).rechunk(chunks),
    lambda draw, values, chunks: da.ones(values.shape, chunks=chunks) * 3,
]


@step
def map_blocks(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays)
    made_of = draw(st.sampled_from(LIES + TRUTHS))
    factor = draw(st.sampled_from([2, 0.5, -1]))
    return x.map_blocks(
        lambda b: made_of(b * factor + b.shape[0] if b.ndim else b), dtype=x.dtype, meta=x._meta
    )


@step
def map_blocks_that_writes(draw: Any, arrays: list[da.Array]) -> da.Array:
    """It writes into a block that, as dask has it, is a copy that nobody else has."""
    x = pick(draw, arrays, 1)
    number = next(_numbers)

    def writes(block: Any) -> Any:
        block[...] = block * 2
        return block

    own = x.map_blocks(np.array, dtype=x.dtype, meta=x._meta, name=f"own-{number}")
    return own.map_blocks(writes, dtype=x.dtype, meta=x._meta, name=f"written-{number}")


@step
def map_blocks_of_two(draw: Any, arrays: list[da.Array]) -> da.Array:
    x, y = pick(draw, arrays, 1), pick(draw, arrays, 1)
    if x.shape != y.shape:
        y = x * 2
    return da.map_blocks(lambda a, b: a - b, x, y.rechunk(x.chunks), dtype=x.dtype, meta=x._meta)


@step
def map_blocks_with_other_shapes(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    kind = draw(st.sampled_from(["dropped", "new", "doubled"]))
    meta = np.empty((0,) * (x.ndim + {"dropped": -1, "new": 1, "doubled": 0}[kind]), x.dtype)
    if kind == "dropped":
        x = x.rechunk({0: -1})
        return x.map_blocks(lambda b: b[0] + b[-1], drop_axis=0, dtype=x.dtype, meta=meta)
    if kind == "new":
        return x.map_blocks(lambda b: b[None], new_axis=0, dtype=x.dtype, meta=meta) if x.ndim < 3 else x
    chunks = (tuple(2 * n for n in x.chunks[0]), *x.chunks[1:])
    return x.map_blocks(lambda b: np.concatenate([b, b + 1]), chunks=chunks, dtype=x.dtype, meta=meta)


@step
def apply_ufunc(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays)
    return through_xarray(x, core=draw(st.booleans()) and x.ndim > 0)


@step
def through_delayed(draw: Any, arrays: list[da.Array]) -> da.Array:
    """Blocks as delayed objects, through a function, and together again."""
    x = pick(draw, arrays, 1)
    blocks = x.to_delayed()
    again = np.empty(blocks.shape, object)
    work = dask.delayed(lambda b: b + b, pure=draw(st.booleans()))
    for place in np.ndindex(blocks.shape):
        shape = tuple(sizes[i] for sizes, i in zip(x.chunks, place))
        again[place] = da.from_delayed(work(blocks[place]), shape, dtype=x.dtype)
    return da.block(again.tolist())


@step
def generalized(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    return da.apply_gufunc(
        lambda b: b - b.min(axis=-1, keepdims=True), "(i)->(i)", x.rechunk({-1: -1}), output_dtypes=x.dtype
    )


@step
def along_axis(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    return da.apply_along_axis(lambda row: row[::-1] * 2, axis_of(draw, x), x, dtype=x.dtype, shape=())


@step
def unknown_reduction(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    return da.reduction(
        x,
        chunk=lambda b, axis, keepdims: b.max(axis=axis, keepdims=keepdims),
        aggregate=lambda b, axis, keepdims: b.max(axis=axis, keepdims=keepdims) * 2,
        combine=draw(st.sampled_from([None, lambda b, axis, keepdims: b.max(axis=axis, keepdims=keepdims)])),
        axis=axis_of(draw, x),
        split_every=draw(st.sampled_from([None, 2])),
        dtype=x.dtype,
    )


@step
def unknown_overlap(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1) + 0.0
    x = x.rechunk(tuple(max(2, (n + 1) // 2) for n in x.shape))
    if any(min(sizes) < 2 for sizes in x.chunks):
        return x
    boundary = draw(st.sampled_from(["reflect", "none", 0.0]))
    return x.map_overlap(lambda b: b - b.mean(), depth=1, boundary=boundary, dtype="f8", meta=x._meta)


@step
def unknown_blockwise(draw: Any, arrays: list[da.Array]) -> da.Array:
    x = pick(draw, arrays, 1)
    index = "ijk"[: x.ndim]
    return da.blockwise(lambda b: b.T * 3, index[::-1], x, index, dtype=x.dtype, meta=x._meta.T)


@step
def unknown_sizes(draw: Any, arrays: list[da.Array]) -> da.Array:
    """Boolean indexing of unknown blocks, and back to known sizes."""
    x = pick(draw, arrays, 1)
    first = x[(slice(None),) + (0,) * (x.ndim - 1)]
    kept = x[first.real > 2]
    return kept.sum(axis=0) if draw(st.booleans()) else da.stack([(kept + 1).sum(), kept.mean()])


def chosen_source(draw: Any, shape: tuple[int, ...]) -> da.Array:
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(draw(st.sampled_from(["f8", "i8", "f4"])))
    chunks = tuple(chunks_of(draw, n) for n in shape)
    unknown = draw(st.booleans())
    make = draw(st.sampled_from(sorted(SOURCES) if unknown else range(len(KNOWN_SOURCES))))
    return (SOURCES if unknown else dict(enumerate(KNOWN_SOURCES)))[make](draw, values, chunks)


@st.composite
def programs_of_unknown(draw: Any) -> list[da.Array]:
    """One to three outputs of a program of up to nine steps over one or two sources."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=2)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = [chosen_source(draw, shape) for _ in range(draw(st.integers(1, 2)))]
        for unknown in draw(st.lists(st.booleans(), min_size=1, max_size=9)):
            made = STEPS if unknown else OPERATIONS
            result = made[draw(st.sampled_from(sorted(made)))](draw, arrays)
            if 0 < result.size <= MAX_SIZE and result.npartitions <= MAX_BLOCKS:
                arrays.append(result)
    count = draw(st.integers(1, 3))
    return [arrays[-1]] + [draw(st.sampled_from(arrays)) for _ in range(count - 1)]
