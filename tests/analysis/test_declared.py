"""How large blocks are at most, as far as arrays say."""

from __future__ import annotations

from math import inf, nan

import dask.array as da
import numpy as np
import pytest
from dask.highlevelgraph import HighLevelGraph

from dask_rewrite.analysis.declared import Declared


def _with_chunks(*chunks: tuple[float, ...]) -> da.Array:
    x = da.ones(tuple(len(lengths) for lengths in chunks), chunks=1)
    return x.map_blocks(lambda block: block, chunks=chunks, dtype="f8", meta=np.empty((0,) * len(chunks)))


@pytest.mark.parametrize(
    ("chunks", "nbytes"),
    [
        (((3, 4), (5,)), 4 * 5 * 8),
        (((0,), (5,)), 0),
        (((nan, nan), (5,)), inf),  # nobody knows
        (((0,), (nan,)), 0),  # nothing, however long the other axis is
        (((0, 2), (nan,)), inf),
    ],
)
def test_the_largest_block(chunks: tuple[tuple[float, ...], ...], nbytes: float) -> None:
    made = _with_chunks(*chunks)
    layers = {made.name: made.dask.layers[made.name]}  # what it is made of has small blocks
    found = Declared(HighLevelGraph(layers, {made.name: set()}), {}, {}).most_bytes
    assert found == nbytes


def test_of_no_array_nothing_is_known() -> None:
    assert Declared(HighLevelGraph({}, {}), {}, {}).most_bytes == inf
