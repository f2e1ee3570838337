"""What many tasks share is sent once, and copied no more often than it takes to send it."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

from dask_rewrite.graph.held import Held
from helpers import allocated, assert_same


def table() -> np.ndarray:
    return np.arange(200_000.0)


def beside_the_stream(held: Held) -> tuple[bytes, list[pickle.PickleBuffer]]:
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(held, protocol=5, buffer_callback=buffers.append), buffers


def test_what_is_heavy_goes_beside_the_stream() -> None:
    sent, buffers = beside_the_stream(Held(table()))
    assert len(sent) < 500
    assert sum(buffer.raw().nbytes for buffer in buffers) >= table().nbytes
    for given in ([buffer.raw() for buffer in buffers], [bytearray(buffer) for buffer in buffers]):
        copy = pickle.loads(sent, buffers=given)
        assert type(copy) is functools.partial
        again = pickle.loads(pickle.dumps(copy))  # from the scheduler to a worker
        first, second = again(), again()
        first[0] = -1.0
        assert_same(second, table())


def test_it_is_copied_once() -> None:
    held, nbytes = Held(table()), table().nbytes
    # Pickle asks for half more than it has, while it goes on.
    assert allocated(lambda: beside_the_stream(held)) < 1.8 * nbytes


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_any_protocol(protocol: int) -> None:
    copy = pickle.loads(pickle.dumps(Held({"t": table()}), protocol=protocol))
    assert_same(copy()["t"], table())
    assert type(copy.args[0]) is bytes
