"""Under a limit parts of stored blocks are read on their own, and blocks that one task needs in that task."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from benchmarks.forecasts import Added
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.remarks import RewriteWarning
from helpers import assert_same, examples, stock, switched_on

DAYS, LATS, LONS = 120, 24, 32


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> xr.DataArray:
    path = str(tmp_path_factory.mktemp("parts") / "x.zarr")
    values = np.random.default_rng(0).normal(size=(DAYS, LATS, LONS))
    da.from_array(values, chunks=(60, 12, 16)).to_zarr(path)
    time = np.arange(DAYS).astype("M8[D]").astype("M8[ns]")
    return xr.DataArray(da.from_zarr(path), dims=("time", "lat", "lon"), coords={"time": time})


def held(collection: Any, **config: Any) -> int:
    with dask.config.set(scheduler="threads", num_workers=2, **config), Added() as found:
        dask.compute(collection)
    return found.peak


PROGRAMS: dict[str, Any] = {
    "months": lambda x: x.resample(time="MS").mean(),
    "days": lambda x: (x.groupby("time.dayofyear") - x.groupby("time.dayofyear").mean()).std("time"),
    "selected": lambda x: x[:, np.random.default_rng(1).permutation(LATS)[:12]][:, :, ::-3].mean("time"),
    "turned": lambda x: x.data.rechunk((30, 5, 32)).swapaxes(1, 2).mean(axis=0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_limit_of_half_is_kept(name: str, field: xr.DataArray) -> None:
    made = PROGRAMS[name](field)
    with stock():
        limit = held(made) // 2
        expected = dask.compute(made, scheduler="sync")[0]
    with switched_on(**{"rewrite.memory-limit": limit, "rewrite.on-memory": "raise"}):
        assert held(made) <= limit
        found = dask.compute(made)[0]
    np.testing.assert_allclose(found, expected)


FORCED = {"min-bytes": 1, "min-blocks": 1, "parts": 8, "loads": 16}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("loads", [1, 16])
def test_bits_stay(name: str, loads: int, field: xr.DataArray) -> None:
    made = PROGRAMS[name](field)
    with stock():
        expected = dask.compute(made, scheduler="sync")[0]
    forced = {"rewrite.options": {"reread": {**FORCED, "loads": loads}}, "rewrite.reread": True}
    with switched_on(**forced, **{"rewrite.reassociate": False}):
        assert_same(dask.compute(made)[0], expected)


def test_a_limit_that_is_kept_anyway_reads_blocks_once(field: xr.DataArray) -> None:
    made = PROGRAMS["months"](field)
    with switched_on(**{"rewrite.memory-limit": "1 GB"}):
        few = dict(dask.base.collections_to_expr([made]).optimize().__dask_graph__())
    with switched_on():
        assert len(few) == len(dict(dask.base.collections_to_expr([made]).optimize().__dask_graph__()))


@st.composite
def cuts(draw: Any) -> list[Any]:
    """Parts of an array: slices, positions, single elements."""
    part = st.one_of(
        st.slices(DAYS), st.integers(0, DAYS - 1), st.lists(st.integers(0, DAYS - 1), min_size=1, max_size=9)
    )
    return [(draw(part), draw(st.slices(LATS))) for _ in range(draw(st.integers(2, 6)))]


@examples(60)
@given(cuts(), st.integers(2, 9), st.sampled_from([1, 4]), st.booleans())
def test_random_parts(field: xr.DataArray, found: list[Any], parts: int, loads: int, regroup: bool) -> None:
    x = field.data
    made = [x[part] * 2 - x[part].mean() for part in found if x[part].size]
    if not made:
        return
    with stock():
        expected = dask.compute(*made, scheduler="sync")
    options = {"reread": {**FORCED, "parts": parts, "loads": loads}}
    with switched_on(**{"rewrite.options": options, "rewrite.reread": True, "rewrite.reassociate": regroup}):
        result = dask.compute(*made)
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
        if not regroup:
            assert_same(one, other)


def test_blocks_of_a_function_that_nobody_knows_are_not_read_again(field: xr.DataArray) -> None:
    seen: list[int] = []

    def load(block: Any) -> Any:
        seen.append(1)
        return block + 0

    x = da.from_array(np.ones((60, 20)), chunks=(60, 10)).map_blocks(load, dtype="f8", meta=np.empty((0, 0)))
    made = da.stack([x[i : i + 7].mean(axis=0) for i in range(0, 60, 7)])
    with switched_on(**{"rewrite.memory-limit": 100}), pytest.warns(RewriteWarning):
        made.compute(scheduler="sync")
    assert len(seen) == 2
