"""What waits for something else (`dask.graph_manipulation.bind`) goes on waiting, whatever it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.graph_manipulation import bind

import dask_rewrite
from helpers import stock, switched_on


class Unfit(Exception):
    """What was waited for has failed."""


def fails(block: Any) -> Any:
    raise Unfit


def check() -> da.Array:
    return da.ones(3, chunks=3).map_blocks(fails, dtype=float, meta=np.empty(0))


SOURCES: dict[str, Callable[[], da.Array]] = {
    "zeros": lambda: da.zeros((4, 4), chunks=2),
    "one constant": lambda: da.full((4, 4), 3.0, chunks=4),
    "constants, doubled": lambda: da.ones((4, 4), chunks=2) * 2,
    "nothing": lambda: da.ones((0, 40), chunks=(1, 4)),
    "an array": lambda: da.from_array(np.arange(16.0).reshape(4, 4), chunks=2),
}

PROGRAMS: dict[str, Callable[[da.Array], da.Array]] = {
    "rechunked": lambda y: y.rechunk((4, 4)),
    "sliced": lambda y: y[:, 1:],
    "turned": lambda y: y.T.rechunk(4),
    "times nothing": lambda y: y[:, :1] * 0,
    "broadcast": lambda y: da.broadcast_to(y, (3, *y.shape)),
    "stacked": lambda y: da.stack([y, y]).rechunk(4),
    "summed": lambda y: y.sum(),
    "rolled": lambda y: da.roll(y, 1, 1),
    "joined": lambda y: da.concatenate([y, y])[:, 1:],
    "added to": lambda y: da.broadcast_to(y, y.shape) + y + 1,
}


def is_checked(source: str, name: str, context: Any) -> bool:
    x = PROGRAMS[name](bind(SOURCES[source](), check()))
    try:
        with context():
            x.compute(scheduler="sync")
    except Unfit:
        return True
    return False


@pytest.mark.parametrize("name", list(PROGRAMS))
@pytest.mark.parametrize("source", list(SOURCES))
def test_what_is_waited_for_is_done(source: str, name: str) -> None:
    with_dask = is_checked(source, name, stock)
    assert with_dask or (source, name) == ("nothing", "stacked")  # of which dask itself makes nothing
    assert is_checked(source, name, switched_on) == with_dask


def test_forecasts_of_arrays_in_memory_that_wait() -> None:
    x = bind(SOURCES["an array"](), check()) + 1
    assert dask_rewrite.forecast(x, threads=2).after.peak >= x.nbytes
