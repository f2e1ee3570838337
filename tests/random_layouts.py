"""Random programs over blocks that lie in memory in all ways: turned, with gaps, in Fortran order, backwards.

Floating-point sums add in the order of the memory, so that a rewrite which changes how a block lies changes
last bits. A program is a list of steps with a seed of its own for each: one that fails stays the same program
where steps are left out of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import dask
import dask.array as da
import numpy as np

from laid_blocks import LAYOUTS, File, made_by_function
from random_layout_steps import MOVES, STEPS, SUMS, UNSTABLE, chunks_of

#: Arrays stay small, so that programs run in milliseconds; blocks are large enough to be summed in many ways.
MAX_SIZE, MAX_BLOCKS = 30_000, 60
SOURCES: list[Callable[[Random, np.ndarray, Any], da.Array]] = []


def source(function: Any) -> Any:
    SOURCES.append(function)
    return function


@source
def in_memory(rng: Random, values: np.ndarray, chunks: Any) -> da.Array:
    return da.from_array(rng.choice(LAYOUTS)(values), chunks=chunks)


@source
def in_a_file(rng: Random, values: np.ndarray, chunks: Any) -> da.Array:
    source = File(rng.choice(LAYOUTS)(values))
    options = {name: rng.random() < 0.5 for name in ("asarray", "fancy", "lock", "inline_array")}
    return da.from_array(source, chunks=chunks, name=False, **options)


@source
def in_chunks(rng: Random, values: np.ndarray, chunks: Any) -> da.Array:
    zarr = __import__("zarr")
    stored = zarr.array(values, chunks=tuple(each[0] for each in chunks), order=rng.choice("CF"))
    return da.from_array(stored, chunks=chunks)


@source
def loaded(rng: Random, values: np.ndarray, chunks: Any) -> da.Array:
    return made_by_function(values, chunks, rng.choice(LAYOUTS), f"loaded-{rng.getrandbits(60)}")


@source
def drawn(rng: Random, values: np.ndarray, chunks: Any) -> da.Array:
    made = da.random.default_rng(rng.randrange(9)).normal(size=values.shape, chunks=chunks)
    return made.astype(values.dtype) if values.dtype.kind == "f" else (made * 9).astype(values.dtype)


def values_of(rng: Random, dtypes: Sequence[str]) -> np.ndarray:
    numbers = np.random.default_rng(rng.getrandbits(32))
    most = {1: 2000, 2: 150, 3: 30}[ndim := rng.choice([1, 2, 2, 2, 3, 3])]
    made = numbers.normal(size=[rng.randint(1, most) for _ in range(ndim)])
    dtype = np.dtype(rng.choice(dtypes))
    if dtype.kind != "f":
        return (made * 9).astype(dtype)
    for special in rng.choice([[], [], [], [-0.0], [-0.0], [np.nan, np.inf]]):
        made[numbers.random(made.shape) < 0.03] = special
    return made.astype(dtype)


def written(
    seed: int, dtypes: Sequence[str] = ("f4", "f8"), sums: bool = True, unstable: bool = True
) -> list[tuple[str, int]]:
    """A program: sources and steps by name, each with a seed.

    Few kinds of steps, so that the same ones meet; most of them move blocks, and then something sums them up.

    Parameters
    ----------
    seed : int
        Of the whole.
    dtypes : sequence of str
        Of the sources.
    sums : bool
        Whether anything is summed up.
    unstable : bool
        Whether steps are among them whose results jump where a sum is rounded otherwise.
    """
    rng = Random(seed)
    kinds = sorted(STEPS.keys() - ({*SUMS, "overlap"} if not sums else set() if unstable else UNSTABLE))
    steps = ["sliced", *rng.sample(MOVES, rng.randint(1, 3)), *rng.sample(kinds, rng.randint(0, 2))]
    last = ["reduction", "reduction", *SUMS] if unstable else ["reduction", "tensordot", "centred"]
    names = [" ".join(dtypes)] * rng.choice([1, 1, 2])
    for _ in range(rng.choice([1, 1, 2])):
        names += [rng.choice(steps) for _ in range(rng.randint(1, 6))]
        if sums:
            names.append(rng.choice(last))
    return [(name, rng.getrandbits(32)) for name in names]


def built(program: list[tuple[str, int]]) -> list[da.Array]:
    """One to three outputs; steps that cannot be made, or that make too much, are left out."""
    arrays: list[da.Array] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, seed in program:
            rng = Random(seed)
            if name not in STEPS:
                values = values_of(rng, name.split())
                chunks = tuple(chunks_of(rng, n) for n in values.shape)
                arrays.append(rng.choice(SOURCES)(rng, values, chunks))
                continue
            try:
                result = STEPS[name](rng, arrays)
            except (IndexError, ValueError, NotImplementedError, TypeError, OverflowError):
                continue  # no array has so many axes, or dask cannot do this with these
            if 0 < result.size <= MAX_SIZE and result.npartitions <= MAX_BLOCKS:
                arrays.append(result)
    rng = Random(program[-1][1])
    return [arrays[-1]] + [rng.choice(arrays) for _ in range(rng.randrange(3))]


def answers(outputs: list[da.Array]) -> Any:
    """What comes out of all outputs computed together, or the type of the error."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return dask.compute(*outputs)
        except Exception as error:
            return type(error)
