"""Random programs with unknown sources and steps: the same bits, warnings and errors as with stock dask.

A few hundred of them are always run. Many more, with seeds of one's own::

    export HYPOTHESIS_PROFILE=nightly  # 3,000 of each test
    python -m pytest --timeout=0 --hypothesis-seed=1 tests/whole/test_random_unknown.py
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import pytest
from hypothesis import given

from helpers import assert_same, assert_sound, examples, keys_of, stock, switched_on, tasks_of
from random_more import ADDED
from random_unknown import EAGER, SOURCES, STEPS, outcome, programs_of_unknown

for module in ("xarray", "zarr"):
    pytest.importorskip(module)


def compare(outputs: list[da.Array], **config: Any) -> None:
    with stock():
        kind, expected, heard = outcome(outputs)
    with switched_on(**config):
        assert_same(outcome(outputs), (kind, expected, heard))
        assert_sound(tasks_of(*outputs), keys_of(*outputs))


@given(programs_of_unknown())
def test_small_blocks_are_treated_as_large_ones_are(outputs: list[da.Array]) -> None:
    compare(outputs, **EAGER)


@examples(50)
@given(programs_of_unknown())
def test_blocks_are_read_again_instead_of_held(outputs: list[da.Array]) -> None:
    compare(outputs, **EAGER, **{"rewrite.reread": True})


@given(programs_of_unknown())
def test_the_same_bits_as_stock(outputs: list[da.Array]) -> None:
    compare(outputs)


def test_there_are_many_sources_and_steps() -> None:
    assert len(SOURCES) >= 6
    assert len(STEPS) >= 24
    assert len(ADDED) >= 12
