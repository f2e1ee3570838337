"""Random programs over stored blocks, all of which are read again wherever that may be: the same bits."""

from __future__ import annotations

import random
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from dask_rewrite.passes.reread import Copies
from helpers import assert_same_as_stock, checked

AGAIN = {"rewrite.reread": True, "rewrite.options": {"reread": {"min-bytes": 1, "min-blocks": 1}}}


def source(draw: random.Random, shape: tuple[int, ...]) -> da.Array:
    """Stored, drawn from a seed, or made by a function that nobody knows."""
    chunks = tuple(draw.randint(1, 3) for _ in shape)
    values = (np.arange(np.prod(shape)).reshape(shape) * 3 % 17).astype("f8")
    kind = draw.random()
    if kind < 0.7:
        stored = zarr.create_array(store=MemoryStore(), shape=shape, chunks=chunks, dtype="f8")
        stored[...] = values
        return da.from_array(stored, chunks=chunks)
    if kind < 0.85:
        return da.random.default_rng(draw.randint(0, 99)).integers(9, size=shape, chunks=chunks).astype("f8")
    return da.from_array(values, chunks=chunks).map_blocks(lambda block: block + 1)


def step(draw: random.Random, x: da.Array, y: da.Array) -> da.Array:
    """One operation; the numbers stay whole where sums are not regrouped."""
    name = draw.choice(["sum", "max", "min", "mean", "std"])
    made = getattr(y, name)(axis=draw.choice([0, 1, None]), keepdims=True)
    return draw.choice(
        [
            *4 * [x - made],
            x * 2 + y,
            da.concatenate([x[1:], y[:1]]),
            da.where(x > 3, x, y),
            da.roll(x, 1, axis=draw.choice([0, 1])) + y,
            x.rechunk((2, 2)),
            x[::-1],
            x @ (y.T @ x),
            da.cumsum(x, axis=draw.choice([0, 1])),
            x.map_blocks(lambda block: block * 2),
        ]
    )


def program(seed: int) -> list[Any]:
    draw = random.Random(seed)
    shape = (draw.randint(4, 10), draw.randint(3, 7))
    arrays = [source(draw, shape) for _ in range(draw.randint(1, 2))]
    for _ in range(draw.randint(3, 8)):
        arrays.append(step(draw, draw.choice(arrays), draw.choice(arrays)))
    outputs = []
    for _ in range(draw.randint(1, 3)):
        x = draw.choice(arrays[-4:])
        outputs.append(draw.choice([x, x.sum(axis=draw.choice([0, 1])), abs(x).max()]))
    return outputs


@pytest.mark.parametrize("seed", range(24))
def test_the_same_bits(seed: int) -> None:
    how = {"scheduler": ("sync", "threads")[seed % 2], "num_workers": 2, "rewrite.reassociate": False}
    with dask.config.set({**AGAIN, **how}), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        outputs = program(seed)
        assert_same_as_stock(*outputs)
        checked(*outputs)


def test_blocks_are_read_again_in_many_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    phases: list[int] = []
    put = Copies.put

    def noting(self: Copies, phase: int, blocks: Any) -> None:
        phases.append(phase)
        put(self, phase, blocks)

    monkeypatch.setattr(Copies, "put", noting)
    with dask.config.set({**AGAIN, "num_workers": 2}):
        for seed in range(24):
            checked(*program(seed))
    assert len(phases) >= 12
    assert set(phases) >= {1, 2}
