"""Movement of masked blocks, of which nobody knows that they are masked."""

from __future__ import annotations

from collections.abc import Callable

import dask.array as da
import numpy as np
import pytest

from helpers import stock, switched_on

Step = Callable[[da.Array], da.Array]


def masked(dtype: str, fill: float | None = None) -> da.Array:
    """Blocks with a mask in which nothing is masked, of a type that is not declared."""

    def unmasked(block: np.ndarray) -> np.ma.MaskedArray:
        return np.ma.masked_array(block, np.zeros(block.shape, bool), fill_value=fill)

    return da.from_array(np.arange(24).reshape(4, 6).astype(dtype), chunks=(4, 6)).map_blocks(
        unmasked, dtype=dtype, meta=np.empty((0, 0), dtype)
    )


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # NumPy's 1e20 in halves, by dask itself
@pytest.mark.parametrize("fill", [None, 7])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.T[1:2],
        lambda x: x.T[1:].T,
        lambda x: x.T.T,
        lambda x: x[::-1].T[:, ::-1],
        lambda x: x[1:].T[None, 1:],
        lambda x: x[:, 1:].T[:, :, None][1:],
        lambda x: x.T.reshape(-1).reshape(6, 4)[1:],
        lambda x: x.rechunk((2, 6)).rechunk((4, 6)).T,
    ],
)
def test_a_mask_of_nothing_and_its_fill_value_stay(step: Step, dtype: str, fill: float | None) -> None:
    y = step(masked(dtype, fill))
    with stock():
        expected = y.compute(scheduler="sync")
    with switched_on():
        actual = y.compute(scheduler="sync")
    assert np.shape(actual.mask) == np.shape(expected.mask)
    assert actual.fill_value.dtype == expected.fill_value.dtype
    assert actual.fill_value == expected.fill_value
    assert actual.flags.c_contiguous == expected.flags.c_contiguous
    np.testing.assert_array_equal(actual.data, expected.data, strict=True)
