"""Points, assignments, repetitions, windows, quantiles: of each block what they need."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask._task_spec import DataNode, Task, TaskRef
from dask.array.core import _vindex_slice_and_transpose
from dask.array.lib.stride_tricks import sliding_window_view
from demand_cases import Stored, gets, square

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.demand import Demand
from helpers import assert_same, stock, switched_on


@pytest.fixture(autouse=True)
def small_blocks_too() -> Any:
    """As the blocks of these tests are."""
    with dask.config.set({"rewrite.options": {"demand": {"min-bytes": 1}}}):
        yield


def _assigned(v: Any, index: Any, value: Any = 7) -> Any:
    v = v + 0
    v[index] = value
    return v


def _labelled(v: Any) -> Any:
    return xr.DataArray(v, dims=("t", "y"), coords={"t": np.arange(100) % 4})


#: On (100, 100), stored in chunks of 10 and cut into blocks of 20: how many stored chunks are wanted.
ROWS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "points": (lambda v: (v + 1).vindex[[5, 30, 99], [7, 40, 0]], 3),
    "points of one block": (lambda v: (v + 1).vindex[[5, 8], [7, 2]], 1),
    "points and a slice": (lambda v: (v + 1).vindex[[5, 8], :][:, :3], 2),
    "points of labelled data": (
        lambda v: (_labelled(v) + 1).isel(
            t=xr.DataArray([5, 30], dims="p"), y=xr.DataArray([7, 40], dims="p")
        ),
        2,
    ),
    "outside of what is assigned": (lambda v: _assigned(v, np.s_[:, :10])[5:8, 13], 1),
    "inside of it": (lambda v: _assigned(v, np.s_[3:, :10])[5:8, 7], 1),
    "across its border": (lambda v: _assigned(v, np.s_[6:, :10])[5:8, 8:13], 2),
    "assigned, in steps": (lambda v: _assigned(v, np.s_[13:47, :10])[::33, 8:13], 8),
    "repeat": (lambda v: da.repeat(v, 3, axis=0)[29:31, 7], 2),
    "isin": (lambda v: da.isin(v, [1, 2])[5:8, 7], 1),
    "isnull": (lambda v: da.isnull(v)[5:8, 7], 1),
    "select": (lambda v: da.select([v > 500, v > 300], [v, v * 2], 5)[5:8, 7], 1),
    "choose": (lambda v: da.choose((v > 500).astype(int), [v, v + 1])[5:8, 7], 1),
    "quantile": (lambda v: da.quantile(v, 0.3, axis=0)[5:8], 10),
    "quantiles": (lambda v: da.nanquantile(v, [0.3, 0.5], axis=0)[:, 5:8], 10),
    "quantile of labelled data": (lambda v: _labelled(v).quantile([0.5, 0.9], "t")[:, 5:8], 10),
    "windows": (lambda v: sliding_window_view(v, 5, axis=0).max(axis=-1)[5:8, 7], 2),
    "rolling": (lambda v: _labelled(v).rolling(t=3).max()[5:8, 7], 1),
    "split": (lambda v: v.reshape(100, 25, 4)[:5, 2], 2),
    "split and reduced": (lambda v: _labelled(v).coarsen(t=5).max()[2:4, 7], 1),
    "rows become one": (lambda v: v[:, :20].reshape(2000)[5:8], 2),
    "groups": (lambda v: _labelled(v).groupby("t").max()[:, 7], 10),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", ["f8", "i4", "u1"])
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:All-NaN", "ignore:overflow")
def test_reads_what_is_needed(name: str, dtype: str) -> None:
    make, wanted = ROWS[name]
    source = Stored(square(dtype), (10, 10))
    with stock():
        before, expected = gets(make, source, (20, 20))
    with switched_on():
        after, found = gets(make, source, (20, 20))
    for one, other in zip(found, expected, strict=True):
        assert_same(getattr(one, "values", one), getattr(other, "values", other))
    assert after == wanted < before


@pytest.mark.parametrize("value", [7, 2.5, np.float32(1), -0.0, np.nan])
@pytest.mark.parametrize(
    "index", [np.s_[3:9], np.s_[:, 5:6], np.s_[3:50, 50:], np.s_[::2], np.s_[4], np.s_[-3:, ::-1], np.s_[5:5]]
)
def test_what_is_assigned_stands_where_it_did(value: Any, index: Any) -> None:
    for taken in np.s_[:4, :7], np.s_[2:5, 49:52], np.s_[40:, ::7], np.s_[7, 5], np.s_[::-9, 3:60:11]:
        data = np.arange(10_000.0).reshape(100, 100)
        made = _assigned(da.from_array(data, chunks=(50, 40)), index, value)[taken]
        with switched_on():
            found = made.compute(scheduler="sync")
        data[index] = value
        assert_same(found, data[taken])


def test_an_array_is_assigned_as_a_whole() -> None:
    data = square("i4")
    made = _assigned(da.from_array(data, chunks=(50, 40)), np.s_[3:9, :], np.arange(100))[4:6, ::9]
    with switched_on():
        found = made.compute(scheduler="sync")
    data[3:9] = np.arange(100)
    assert_same(found, data[4:6, ::9])


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("q", [0.25, [0.5], [0.1, 0.5, 0.9]])
@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2)])
@pytest.mark.parametrize("func", [da.quantile, da.nanquantile])
@pytest.mark.filterwarnings("ignore:All-NaN", "ignore:invalid value")
def test_quantiles(func: Any, axis: Any, q: Any, keepdims: bool) -> None:
    data = np.random.default_rng(0).integers(-3, 3, (12, 10, 8)) * 0.5
    data[::3, ::2, 1] = np.nan
    x = da.from_array(data.astype("f4"), chunks=(12, 5, 8) if axis != 1 else (6, 10, 8))
    made = func(x, q, axis=axis, keepdims=keepdims)
    made = made[..., :1] if made.shape[-1] > 1 else made[..., :1, :]
    with stock():
        expected = made.compute(scheduler="sync")
    with switched_on():
        assert_same(made.compute(scheduler="sync"), expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((6, 4), (24,)),
        ((24,), (4, 6)),
        ((6, 4), (8, 3)),
        ((4, 3, 10), (12, 10)),
        ((3, 8), (3, 2, 4)),
        ((6, 1), (6,)),
    ],
)
def test_a_range_of_what_is_reshaped(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Every range of the first axis that changes, against NumPy."""
    data = np.arange(np.prod(before, dtype=int)).reshape(before)
    at = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), 0)
    for low in range(after[at]):
        for high in range(low + 1, after[at] + 1):
            index = (*[slice(None)] * at, slice(low, high), *[slice(None)] * (len(after) - at - 1))
            nodes: dict[Any, Any] = {
                ("x", 0): DataNode(("x", 0), data),
                ("y", 0): Task(("y", 0), operator.add, TaskRef(("x", 0)), 1),
                ("r", 0): Task(("r", 0), np.reshape, TaskRef(("y", 0)), after),
                "z": Task("z", operator.getitem, TaskRef(("r", 0)), index),
            }
            made = Demand(min_bytes=1).run(Graph(nodes, ("z",)), Context())
            verify(made, thorough=True)
            assert_same(dask.get(made.nodes, "z"), (data + 1).reshape(after)[index])


@pytest.mark.parametrize(
    "places", [([1, 5], [2, 0]), ([-1], [2]), ([], []), ([9], slice(None)), (slice(1, 3), [0])]
)
def test_points_as_they_may_stand_in_a_task(places: Any) -> None:
    nodes: dict[Any, Any] = {
        ("x", 0): DataNode(("x", 0), np.arange(40.0).reshape(10, 4)),
        ("y", 0): Task(("y", 0), operator.add, TaskRef(("x", 0)), 1),
        "z": Task("z", _vindex_slice_and_transpose, TaskRef(("y", 0)), list(places), 0),
    }
    expected = dask.get(nodes, "z")
    made = Demand(min_bytes=1).run(Graph(nodes, ("z",)), Context())
    verify(made, thorough=True)
    assert_same(dask.get(made.nodes, "z"), expected)
