"""``forecast`` of several answers, and of answers that consist of several arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import pytest
from benchmarks.forecasts import Added

import dask_rewrite
from helpers import switched_on

xr = pytest.importorskip("xarray")


def dataset() -> Any:
    """Variables in one chunk each."""
    drawn = da.random.default_rng(1)
    return xr.Dataset({name: (("t", "x"), drawn.random((200, 300), chunks=-1)) for name in "abcd"})


PROGRAMS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "all": lambda data: (data,),
    "anomalies": lambda data: (data - data.mean("t"),),
    "beside its mean": lambda data: (data, data.mean()),
    "twice": lambda data: (data, data + 1),
    "more variables": lambda data: (data.assign({name + "2": data[name] * 2 for name in "abcd"}),),
    "one beside its sum": lambda data: (data.a, data.a.sum()),
    "one beside means and itself": lambda data: (data.a.mean("t"), data.a, data.a + 1, data.a.std()),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_variables_in_one_chunk_count_as_often_as_they_are_held(name: str, threads: int) -> None:
    """Room for all was taken to be there from the start, and sums to be as large as what is summed."""
    made = PROGRAMS[name](dataset())
    scheduler = "sync" if threads == 1 else "threads"
    found = dask_rewrite.forecast(*made, threads=threads).after
    with switched_on(), dask.config.set(scheduler=scheduler, num_workers=threads), Added() as held:
        dask.compute(*made)
    block = made[0].nbytes / len(getattr(made[0], "data_vars", "d"))
    most = held.peak + block if threads > 1 else held.peak
    assert held.peak - (threads - 1) * block <= found.peak + 1000
    assert found.peak <= most + 1000


def test_a_limit_that_is_kept_refuses_nothing() -> None:
    """Two arrays are held."""
    made = PROGRAMS["one beside its sum"](dataset())
    limit = {"rewrite.memory-limit": int(2.5 * made[0].nbytes), "rewrite.on-memory": "raise"}
    with switched_on(), dask.config.set({**limit, "num_workers": 2}):
        dask.compute(*made)
