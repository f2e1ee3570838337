"""Blocks that are declared as arrays, and are tuples of several (``da.modf``, functions of users)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest

from helpers import assert_same_as_stock


def two(block: Any) -> Any:
    return block, block + 1


def numbers() -> da.Array:
    return da.from_array(np.arange(36.0).reshape(6, 6) / 8, chunks=(3, 3))


def taken(number: int) -> da.Array:
    both = numbers().map_blocks(two, dtype=object, meta=np.empty((0, 0), object))
    return both.map_blocks(operator.getitem, number, dtype=float, meta=np.empty((0, 0)))


ONE_OF_SEVERAL: dict[str, Callable[[], Any]] = {
    "fractions": lambda: da.modf(numbers())[0],
    "exponents": lambda: da.frexp(numbers())[1],
    "remainders": lambda: da.divmod(numbers(), 2)[1],
    "of unknown blocks": lambda: da.modf(numbers().map_blocks(lambda block: block, dtype=float))[1],
    "of a gufunc": lambda: da.apply_gufunc(np.divmod, "(),()->(),()", numbers(), numbers() + 1)[0],
    "first of a user's": lambda: taken(0),
    "second of a user's": lambda: taken(1),
}

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "rechunked and cut": lambda x: x.rechunk(6)[1:],
    "one row": lambda x: x.rechunk(6)[1],
    "every second": lambda x: x.rechunk((2, 6))[::2],
    "joined": lambda x: da.concatenate([x, x])[4:9],
    "shifted": lambda x: x[1:5, 2:] + x[:4, :4],
    "overlapped": lambda x: x.map_overlap(lambda block: block * 2, depth=1, boundary=0),
    "turned": lambda x: x.T.sum(axis=0),
    "rolled": lambda x: da.roll(x, 1, 0).rechunk(4),
    "padded": lambda x: da.pad(x, 2, mode="reflect")[1:],
    "in one row": lambda x: x.reshape(-1)[3:],
}


@pytest.mark.parametrize("name", list(PROGRAMS))
@pytest.mark.parametrize("source", list(ONE_OF_SEVERAL))
def test_parts_are_taken_by_number(source: str, name: str) -> None:
    assert_same_as_stock(PROGRAMS[name](ONE_OF_SEVERAL[source]()))
