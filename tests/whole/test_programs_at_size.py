"""The programs whose time to start is measured give the answers of stock dask, bit for bit."""

from __future__ import annotations

import pytest
from benchmarks.time_to_start import PROGRAMS, cost

from helpers import assert_same_as_stock

#: Declared larger than what is made: to measure, not to compute.
DECLARED = {"matmul, 1 MB", "einsum, 1 MB"}


def blocks(name: str) -> int:
    """Few, but more than one along each axis."""
    most = PROGRAMS[name][1]
    return 40 if most > 1000 else max(3, most // 15)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in DECLARED])
@pytest.mark.filterwarnings("ignore::dask.array.PerformanceWarning")
def test_same_answers(name: str) -> None:
    built = PROGRAMS[name][0](blocks(name))
    assert_same_as_stock(*(built if isinstance(built, tuple) else (built,)))


def test_fewer_tasks_are_sent() -> None:
    make, _ = PROGRAMS["standardized"]
    before, after = cost(make, 40, ours=False), cost(make, 40, ours=True)
    assert 2 * after.tasks < before.tasks
    assert 2 * after.nbytes < before.nbytes
