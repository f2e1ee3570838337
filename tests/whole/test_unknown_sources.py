"""Rewriting works on blocks of any source, not only on those that known functions make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.every_source import PROGRAMS, part, size_of, sources, step
from benchmarks.reach import ALL, above, tasks_from_each

from helpers import assert_same, assert_same_as_stock, loads, stock, stock_tasks_of, switched_on, tasks_of

xr = pytest.importorskip("xarray")
for module in ("zarr", "h5py", "scipy"):
    pytest.importorskip(module)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sources(tmp_path_factory.mktemp("small"), 8)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sources(tmp_path_factory.mktemp("large"), 96)


@pytest.mark.once
@pytest.mark.parametrize("program", sorted({*ALL} - {"rolled, halved"}))  # as "rolled"
def test_all_sources_come_out_alike(program: str, large: Any, small: Any) -> None:
    """Where each block is read or made by a task of its own."""
    for arrays in (large, small):
        tasks = tasks_from_each(arrays, ALL[program], "2 threads, reads apart")
        assert not any(above(arrays, tasks)), tasks


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_sources_come_out_as_from_stock(program: str, small: Any) -> None:
    several = ("xarray over netCDF", "map_blocks", "from_delayed")
    assert_same_as_stock(*[PROGRAMS[program](small[name]()) for name in several])


@pytest.mark.parametrize("program", ["padded", "sum", "chosen by value", "histogram", "argmax", "QR"])
def test_only_what_is_known_is_read_together(program: str, small: Any) -> None:
    """On few threads several reads go into one task; calls of a user's functions do not: each may be slow."""
    known, unknown = ["random", "HDF5", "cast"], ["map_blocks", "from_delayed", "user step"]
    arrays = {name: small[name] for name in known + unknown}
    tasks = dict(zip(arrays, tasks_from_each(arrays, ALL[program], "2 threads")))
    apart = dict(zip(arrays, tasks_from_each(arrays, ALL[program], "2 threads, reads apart")))
    assert max([tasks[name] for name in known]) < min([apart[name] for name in known]), (tasks, apart)
    assert [tasks[name] for name in unknown] == [apart[name] for name in unknown]
    with dask.config.set(scheduler="threads", num_workers=2):
        for name, function in (("from_delayed", part), ("user step", step)):
            graph = tasks_of(ALL[program](arrays[name]()))
            assert max([loads({key: node}, function) for key, node in graph.items()]) == 1


@pytest.mark.parametrize("program", ["matmul", "dot", "einsum", "centred"])
def test_large_blocks_of_all_sources_are_accumulated(program: str, large: Any) -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        tasks = {name: tasks_of(PROGRAMS[program](make())) for name, make in large.items()}
    counts = {name: len(each) for name, each in tasks.items()}
    assert max(counts.values()) <= 1.15 * min(counts.values()), counts
    for name, each in tasks.items():
        assert any(str(key).startswith("('contract-") for key in each), name


def turned_and_cut(x: da.Array) -> da.Array:
    size, n = size_of(x), x.shape[0]
    return x.rechunk((size, n)).rechunk((n, size)).rechunk((size, size)).T[size:, :-size]


STEPS: dict[str, Callable[[da.Array, Any], da.Array]] = {
    "map_blocks": lambda x, f: x.map_blocks(f, dtype=float),
    "apply_ufunc": lambda x, f: (
        xr.apply_ufunc(f, xr.DataArray(x, dims=("a", "b")), dask="parallelized", output_dtypes=[float]).data
    ),
}


@pytest.mark.parametrize("after", ["turned and cut", "joined and sliced", "differences", "matmul"])
@pytest.mark.parametrize("how", STEPS)
def test_what_stands_around_a_step_of_the_user_is_rewritten(how: str, after: str, small: Any) -> None:
    """Declared sizes hold on both sides of it: no more tasks than around a function that is known."""
    program = {**PROGRAMS, "turned and cut": turned_and_cut}[after]
    x = turned_and_cut(small["map_blocks"]())
    unknown, known = [program(STEPS[how](x, f)) for f in (step, np.square)]
    tasks = len(tasks_of(unknown))
    assert tasks <= 1.15 * len(tasks_of(known))
    assert tasks < len(stock_tasks_of(unknown)) / 1.5
    assert_same_as_stock(unknown)


class Reader:
    """A file of a format that nobody knows, as readers of images are: it notes what is asked of it."""

    shape, dtype, ndim = (40, 60), np.dtype("f8"), 2

    def __init__(self) -> None:
        self.read = 0

    def __getitem__(self, index: Any) -> np.ndarray:
        found = np.arange(2400.0).reshape(self.shape)[index]
        self.read += found.size
        return found


@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.parametrize("asarray", [True, False])
def test_only_what_is_needed_is_read_of_files_that_nobody_knows(asarray: bool, lock: bool) -> None:
    programs: dict[Callable[[da.Array], da.Array], int] = {
        lambda x: x[3:5, 7:9]: 4,
        lambda x: x[5:35][2:9][::2]: 4 * 60,
        lambda x: da.concatenate([x, x])[38:42, :5]: 20,
        lambda x: x.rechunk((20, 30))[:5, :5]: 100,  # a block: what a rechunk needs is no slice of a read yet
        lambda x: x.T[:5, :3]: 100,
    }
    for program, wanted in programs.items():
        file = Reader()
        y = program(da.from_array(file, chunks=10, lock=lock, asarray=asarray))
        with stock():
            expected = y.compute(scheduler="sync")
        before, file.read = file.read, 0
        with switched_on():
            assert_same(y.compute(scheduler="sync"), expected)
        assert file.read <= wanted <= before, (file.read, wanted, before)
