"""Steps of reductions that need results of one block alone are made with these."""

from __future__ import annotations

from collections import Counter
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask._task_spec import List, Task, TaskRef
from dask.array import chunk

import dask_rewrite
from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.siblings.together import Together
from dask_rewrite.passes.site import Site
from helpers import assert_same_as_stock
from passes import test_fuse_small, test_siblings

#: Rows of each block, an odd number: some pairs of rows lie in two blocks. A row has 32 kB.
ROWS, BLOCKS, WIDTH = 31, 6, 4_000


class Counted(dict[Any, Any]):
    """A dict that counts how often it is asked."""

    asked = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


def test_what_waits_for_all_groups_is_counted_once() -> None:
    def asked(blocks: int) -> int:
        parts = 4
        nodes: dict[Any, Any] = {}
        for i in range(blocks):
            nodes["x", i] = Task(("x", i), np.full, (40, 40), float(i))
            for j in range(parts):
                nodes["y", i, j] = Task(("y", i, j), np.add, TaskRef(("x", i)), j)
        nodes["all"] = Task("all", np.concatenate, List(*[TaskRef(key) for key in nodes if key[0] == "y"]))
        graph = Graph(nodes, ("all",))
        site = Site(graph, Context(options=Options.current()))
        together = Together(site, {("x", i) for i in range(blocks)}, 65_536, 128)
        together.nodes = counted = Counted(together.nodes)
        together.run()
        assert len(together.gone) == blocks * parts
        return counted.asked

    assert asked(200) < 2.2 * asked(100)


def pairs(step: Any = np.add, between: int = 0) -> Graph:
    """Rows of some blocks that are worked on, something of each pair of them, and the sum of all of it."""
    nodes: dict[Any, Any] = {}
    for block in range(BLOCKS):
        size = ROWS * WIDTH
        whole = Task(None, chunk.arange, block, block + size, 1, size, np.dtype("f8"))
        nodes["x", block] = Task(("x", block), np.reshape, whole, (ROWS, WIDTH))
    for i in range(BLOCKS * ROWS):
        row = Task(None, chunk.getitem, TaskRef(("x", i // ROWS)), (i % ROWS, slice(None)))
        nodes["y", i, 0] = Task(("y", i, 0), np.add, row, 1)
        for more in range(between):
            nodes["y", i, more + 1] = Task(("y", i, more + 1), np.negative, TaskRef(("y", i, more)))
    for i in range(0, BLOCKS * ROWS, 2):
        two = [TaskRef(("y", each, between)) for each in (i, i + 1)]
        nodes["z", i] = Task(("z", i), step, *(two if step is np.add else [List(*two)]))
    nodes["all"] = Task("all", np.concatenate, List(*[TaskRef(key) for key in nodes if key[0] == "z"]))
    return Graph(nodes, ("all",))


def lists(graph: Graph) -> list[int]:
    """How many results the tasks give that stand for several."""
    return [len(node.args) for key, node in graph.nodes.items() if "siblings" in str(key)]


def of_each_kind(graph: Graph) -> Counter[str]:
    return Counter(str(key[0]) for key in graph.nodes if type(key) is tuple)


def test_they_take_the_place_of_what_they_need() -> None:
    after, remarks = test_siblings.run(pairs(), threads=1)
    assert lists(after) == [ROWS // 2 + 1] * BLOCKS  # the last row, or the first, is for a pair with another
    kinds = of_each_kind(after)
    assert kinds["x"] == BLOCKS
    assert kinds["y"] == 0
    assert kinds["z"] == BLOCKS // 2
    assert remarks.counts["siblings", "applied"] == BLOCKS * ROWS + BLOCKS * (ROWS // 2)


@pytest.mark.parametrize("wanted", [("y", 0, 0), ("z", 0)])
def test_not_where_others_need_these_or_it_is_asked_for(wanted: Any) -> None:
    graph = pairs()
    nodes = {**graph.nodes, "more": Task("more", np.add, TaskRef(wanted), 1)}
    outputs = ("all", "more", wanted) if wanted[0] == "z" else ("all", "more")
    after, _ = test_siblings.run(Graph(nodes, outputs), threads=1)
    assert sorted(lists(after)) == [ROWS // 2 + 1] * (BLOCKS - 1) + [ROWS // 2 + 2]


def test_nor_what_is_larger_than_each_of_them() -> None:
    after, _ = test_siblings.run(pairs(np.concatenate), threads=1)
    assert ROWS in lists(after)


def test_until_then_they_do_not_become_part_of_what_waits_for_other_blocks() -> None:
    """``fuse-small`` looks through what lies between a step and the blocks that its parts are of."""
    nodes = dict(pairs(between=2).nodes)
    del nodes["all"]
    steps = [key for key in nodes if key[0] == "z"][:-1]
    for i in range(0, len(steps), 2):
        nodes["t", i] = Task(("t", i), np.add, *[TaskRef(step) for step in steps[i : i + 2]])
    outputs = tuple(key for key in nodes if key[0] == "t")
    after, _ = test_fuse_small.run(Graph(nodes, outputs))
    of_two_blocks = [key for key in steps if key[1] // ROWS < (key[1] + 1) // ROWS]
    assert len(of_two_blocks) == BLOCKS // 2
    assert {key for key in after.nodes if key[0] == "z"} & set(steps) == set(steps) - set(of_two_blocks)


def season(days: int) -> Any:
    x = da.random.default_rng(0).random((days, 24, 32), chunks=(60, 24, 32))
    time = np.arange(days).astype("M8[D]").astype("M8[ns]")
    by_day = xr.DataArray(x, dims=("time", "lat", "lon"), coords={"time": time}).groupby("time.dayofyear")
    return (by_day - by_day.mean()).std("time").data


def test_anomalies_of_days_hold_little() -> None:
    """A block of sixty days has fifteen partial moments, which are half of it; six of them are left."""
    with dask.config.set(num_workers=2, scheduler="threads"):
        assert_same_as_stock(season(180))
        assert_same_as_stock(season(180), **{"rewrite.reassociate": False})
        found = dask_rewrite.forecast(season(360), threads=1)
        assert found.after.tasks < found.before.tasks / 20
        assert found.after.peak < 1.2 * found.before.peak
