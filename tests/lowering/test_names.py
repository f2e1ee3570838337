"""Fused tasks are named after what is in them, where nobody else waits for them under their own name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import TaskRef
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.utils import key_split

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.names import compound, mark, unmarked
from dask_rewrite.lowering.lower import Lowering
from dask_rewrite.remarks import Remarks
from helpers import assert_same, assert_same_as_stock, checked, distinct


def loaded(block: np.ndarray) -> np.ndarray:
    return block + 1


@pytest.fixture(autouse=True)
def small_blocks_stay() -> Iterator[None]:
    """These blocks are tiny: they would be computed where they are gathered."""
    with dask.config.set({"rewrite.disable": ["fuse-small"]}):
        yield


def rolled(steps: int) -> da.Array:
    """Work on blocks that wait for two loads each."""
    x = distinct((8, 8), 4).map_blocks(loaded)
    y = x + x.T
    for step in range(steps):
        y = y + step if step % 2 else y * 2
    return y.sum(axis=0)


def prefixes(x: da.Array) -> Counter[str]:
    return Counter(map(key_split, dask_rewrite.optimize(x).dask))


def test_the_prefix_shows_the_members_in_their_order() -> None:
    found = prefixes(rolled(2))
    assert found["transpose-add-mul-sum"] == 2
    assert found["sum"] == 2  # they use one load twice, take it in, and wait for nothing
    assert_same_as_stock(rolled(2))


def test_names_are_bounded_and_stable() -> None:
    found = prefixes(rolled(300))
    assert found == prefixes(rolled(300))
    assert found["transpose-add-mul-sum"] == 2
    assert max(map(len, found)) < 60
    assert max(len(key[0]) for key in checked(rolled(300)) if type(key) is tuple) < 120


def test_names_do_not_grow_when_they_are_rewritten_again() -> None:
    once = dask_rewrite.optimize(rolled(3))
    twice = dask_rewrite.optimize(dask_rewrite.optimize(once))
    names = [max(len(key[0]) for key in each.dask if type(key) is tuple) for each in (once, twice)]
    assert names[0] == names[1]
    assert_same(twice.compute(), rolled(3).compute(optimize_graph=False))


def test_outputs_and_loads_keep_their_names() -> None:
    x = distinct((8,), 4)
    y = da.concatenate([x[2:], x[:2]]) * 2 + 1
    assert {key[0] for key in dask_rewrite.optimize(y).dask if key[0].endswith(y.name)} == {y.name}
    z = (x + 1) * 2  # waits for nothing but data: others may hold it
    assert any(key[0] == z.name for key in dask_rewrite.optimize(z[2:].sum(), z).__getitem__(1).dask)


@pytest.mark.parametrize(
    ("members", "prefix"),
    [
        (["load-1", "scale-2", "sum-3"], "load-scale-sum"),
        (["add-1", "add-2", "add-3"], "add"),
        (["mean_chunk-1", "x_1-2"], "mean-chunk-x"),
        (["centroid-1", "sum-2"], "Centroid-sum"),  # dask takes eight letters from a to f for a hash
        (["0-1", "é-2"], "x"),
        (["a" * 200, "b" * 200], f"{'a' * 20}-{'b' * 20}"),
    ],
)
def test_what_dask_reads_in_a_name(members: list[str], prefix: str) -> None:
    name = compound(members, mark(members[-1], "00c0ffee"))
    assert key_split(name) == prefix
    assert unmarked(name) == members[-1]


def test_names_that_users_gave_with_two_dashes() -> None:
    assert compound(["x--1", "y--2"], "y--2-r00c0ffee") == "y--2-r00c0ffee"
    assert unmarked("y--2") == "y--2"


def test_forecasts_know_the_blocks_of_fused_tasks() -> None:
    def unknown(block: object) -> object:
        return block

    x = distinct((64, 64), 32)
    y = (x + x.T).map_blocks(unknown, dtype="f8").map_blocks(unknown, dtype="f8").rechunk((64, 16))
    assert "transpose-add-unknown" in prefixes(y)
    found = dask_rewrite.forecast(y, threads=1)
    assert found.after.unknown == 0
    assert found.after.peak >= x.nbytes


class Future(TaskRef):
    """Stands for what a scheduler holds, as a client's does."""


def of_futures(graph: dict[Any, Any]) -> da.Array:
    """An array of the blocks of a graph that are called `x`."""
    sizes = tuple([2 for key in graph if key[0] == "x"])
    return da.Array(HighLevelGraph.from_collections("x", graph), "x", (sizes,), dtype="f8")


def lowered(x: da.Array) -> Graph:
    return Lowering(x.dask, list(flatten(x.__dask_keys__())), Remarks()).run()


def test_what_a_scheduler_holds_keeps_its_name() -> None:
    """Another name for it would be one more task for each block, and perhaps a copy on another worker."""
    graph = {("x", i): Future(("x", i)) for i in range(3)}
    x = of_futures(graph)
    found = lowered((x - x.mean()).max())
    assert set(found.held) == graph.keys()
    assert graph.keys() <= set().union(*(node.dependencies for node in found.nodes.values()))
    assert set(dask_rewrite.optimize(x).dask) == graph.keys()


def test_futures_under_another_name_are_waited_for_as_what_they_are() -> None:
    graph = {("x", i): Future(f"block-{i}") for i in range(3)}
    x = of_futures(graph)
    found = lowered(x + 1)
    assert set(found.held) == {"block-0", "block-1", "block-2"} == found.external
    assert [node.dependencies for node in found.nodes.values()] == [{name} for name in found.held]
    assert set(lowered(x).held) == graph.keys()  # somebody asks for these


def test_a_future_named_as_a_task_of_the_graph_stays_beside_it() -> None:
    found = lowered(of_futures({("x", 0): Future("y"), "y": (sum, [1, 2])}) + 1)
    assert list(found.held) == [("x", 0)]
    assert "y" not in found.nodes
