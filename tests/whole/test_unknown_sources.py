"""Rewriting works on blocks of any source, not only on those that known functions make."""

from __future__ import annotations

from typing import Any

import dask
import pytest
from benchmarks.every_source import PROGRAMS, sources
from benchmarks.reach import IN_MEMORY

from helpers import assert_same_as_stock, tasks_of

for module in ("xarray", "zarr", "h5py", "scipy"):
    pytest.importorskip(module)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sources(tmp_path_factory.mktemp("small"), 8)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sources(tmp_path_factory.mktemp("large"), 96)


#: Passes that put a program on another grid, where files tell theirs or blocks are known to lie in C order.
OTHER_GRIDS = {"reshaped": ["align-reads"], "rolled": ["regrid"], "differences": ["regrid"]}


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_sources_come_out_alike(program: str, large: Any, small: Any) -> None:
    made = {name: PROGRAMS[program](make()) for name, make in large.items()}
    with dask.config.set({"rewrite.disable": OTHER_GRIDS.get(program, [])}):
        tasks = {name: len(tasks_of(collection)) for name, collection in made.items()}
    least = min([count for name, count in tasks.items() if name != IN_MEMORY])  # the tasks carry those
    assert max(tasks.values()) <= 1.15 * least, tasks
    several = ("xarray over netCDF", "map_blocks", "from_delayed")
    assert_same_as_stock(*[PROGRAMS[program](small[name]()) for name in several])


@pytest.mark.parametrize("program", ["matmul", "dot", "einsum", "centred"])
def test_large_blocks_of_all_sources_are_accumulated(program: str, large: Any) -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        tasks = {name: tasks_of(PROGRAMS[program](make())) for name, make in large.items()}
    counts = {name: len(each) for name, each in tasks.items()}
    assert max(counts.values()) <= 1.15 * min(counts.values()), counts
    for name, each in tasks.items():
        assert any(str(key).startswith("('contract-") for key in each), name
