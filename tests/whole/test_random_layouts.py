"""Random programs over blocks that lie in memory in all ways: the same bits as with stock dask.

Some are always run. Thousands of others, with seeds of one's own::

    export HYPOTHESIS_PROFILE=nightly  # 3,000 of each test
    python -m pytest --timeout=0 --hypothesis-seed=1 tests/whole/test_random_layouts.py

Where one fails, its seed is the falsifying example, and ``written`` shows the steps. Steps can be left out of
that list to find the ones that matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import assert_same, stock, switched_on
from laid_blocks import LAYOUTS
from random_layout_steps import MOVES, STEPS, SUMS
from random_layouts import SOURCES, answers, built, written
from random_unknown import EAGER

pytest.importorskip("zarr")
EXACT = {"rewrite.reassociate": False}
SEEDS = st.integers(0, 10**12)
FEW = settings(max_examples=settings().max_examples // 5)


def compare(outputs: list[Any], same: Any = assert_same, **config: Any) -> None:
    with stock():
        expected = answers(outputs)
    with switched_on(**config):
        same(answers(outputs), expected)


def assert_close(actual: Any, expected: Any) -> None:
    """Equal up to what sums that are added in another order differ by; whatever is rounded to is not."""
    assert type(actual) is type(expected)
    if type(expected) is not tuple:
        assert actual is expected
        return
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        scale = np.max(np.abs(other), initial=1, where=np.isfinite(other))
        off = 1e-2 if other.dtype == "f4" else 1e-8
        np.testing.assert_allclose(one, other, rtol=off, atol=off * scale)


@FEW
@given(SEEDS)
def test_the_same_bits_where_no_sum_is_regrouped(seed: int) -> None:
    compare(built(written(seed)), **EXACT)


@pytest.mark.parametrize("seed", [50331])
def test_programs_that_differed_once(seed: int) -> None:
    compare(built(written(seed)), **EXACT)


@FEW
@given(SEEDS)
def test_small_blocks_are_treated_as_large_ones_are(seed: int) -> None:
    compare(built(written(seed)), **EAGER)


@FEW
@given(SEEDS)
def test_integers_come_out_the_same(seed: int) -> None:
    compare(built(written(seed, ("i4", "i8", "u1"))))


@FEW
@given(SEEDS)
def test_floats_differ_by_rounding_at_most(seed: int) -> None:
    compare(built(written(seed, unstable=False)), assert_close)


@FEW
@given(SEEDS)
def test_floats_come_out_the_same_where_nothing_is_summed_up(seed: int) -> None:
    compare(built(written(seed, sums=False)))


def test_there_are_many_steps() -> None:
    assert len(LAYOUTS) >= 6
    assert len(SOURCES) >= 5
    assert len(MOVES) >= 18
    assert len(STEPS) >= 34
    assert set(SUMS) < set(STEPS)
