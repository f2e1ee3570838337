"""Random programs in labels: the same bits, warnings and errors as with stock dask.

Some are always run; many more, with seeds of one's own, as `test_random_unknown.py` says.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

pytest.importorskip("xarray")
pytest.importorskip("zarr")

from helpers import assert_same, examples, stock, switched_on
from random_labelled import STEPS, labelled_programs
from random_unknown import EAGER, outcome


def compare(outputs: list[Any], **config: Any) -> None:
    with stock():
        expected = outcome(outputs)
    with switched_on(**config):
        assert_same(outcome(outputs), expected)


@examples(100)
@given(labelled_programs())
def test_the_same_bits_as_stock(outputs: list[Any]) -> None:
    compare(outputs, **{"rewrite.reassociate": False})


@examples(50)
@given(labelled_programs())
def test_small_blocks_are_treated_as_large_ones_are(outputs: list[Any]) -> None:
    compare(outputs, **EAGER)


@examples(50)
@given(labelled_programs())
def test_blocks_are_read_again_instead_of_held(outputs: list[Any]) -> None:
    compare(outputs, **EAGER, **{"rewrite.reread": True})


def test_there_are_many_steps() -> None:
    assert len(STEPS) >= 24
