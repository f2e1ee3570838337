"""Under a limit tasks wait for each other: no more is held, whatever runs side by side."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from benchmarks.forecasts import Added
from dask._task_spec import Task, TaskRef
from dask.core import flatten
from dask.graph_manipulation import chunks
from dask.highlevelgraph import HighLevelGraph

import dask_rewrite
from dask_rewrite.analysis.memory import graphs
from dask_rewrite.analysis.memory.original import Original
from dask_rewrite.analysis.memory.turns import thrifty_order
from dask_rewrite.analysis.memory.work import Work
from dask_rewrite.graph.graph import Graph
from dask_rewrite.hook.plans import chosen
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.take_turns.gates import Ordered, Turns, _Gates, taking_turns
from dask_rewrite.pipeline.run import rewrite_tasks
from helpers import switched_on

#: Blocks that are too large for steps of reductions to take in several of them.
ROWS, LENGTH = 24, 20_000
BLOCK = 8 * LENGTH
AT_MOST = Turns("limit", 2 * BLOCK, 2 * BLOCK)


def rows() -> da.Array:
    """Blocks by a function that nobody knows, each used twice before a reduction takes it in."""
    return da.arange(ROWS * LENGTH, chunks=LENGTH, dtype="f8").map_blocks(lambda b: b * 1.5, dtype="f8")


def differences() -> Any:
    x = rows()
    return abs(x[LENGTH:] - x[:-LENGTH]).max(), (x[LENGTH:] * x[:-LENGTH]).sum()


def limited(limit: int, threads: int = 2) -> Any:
    return dask.config.set(
        {"rewrite.memory-limit": limit, "rewrite.on-memory": "raise", "num_workers": threads}
    )


def gates_of(graph: Any) -> list[Task]:
    return [node for node in graph.values() if type(node) is Task and node.func is chunks.checkpoint]


def sent(limit: int, *collections: Any, threads: int = 2) -> dict[Any, Any]:
    with switched_on(), limited(limit, threads):
        made = dask.base.collections_to_expr(collections).optimize()
        return dict(made.__dask_graph__())


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_no_more_is_held_than_the_limit(threads: int) -> None:
    limit = 7 * BLOCK
    expected = dask.compute(*differences(), scheduler="sync")
    with switched_on(), limited(limit, threads), Added() as held:
        found = dask.compute(*differences(), scheduler="threads", num_workers=threads)
    assert found == expected
    assert held.peak <= limit


def test_where_there_is_room_nobody_waits() -> None:
    assert not gates_of(sent(ROWS * 4 * BLOCK, *differences()))
    assert gates_of(sent(5 * BLOCK, *differences()))


def test_one_limit_gives_one_graph_and_another_limit_other_names() -> None:
    made = differences()
    first, again, other = (sent(limit, *made) for limit in (5 * BLOCK, 5 * BLOCK, 6 * BLOCK))
    assert first.keys() == again.keys()
    waiting = [
        {key for key, node in graph.items() if type(node) is Task and node.func is chunks.bind}
        for graph in (first, other)
    ]
    assert waiting[0]
    assert waiting[0].isdisjoint(waiting[1])


def raw_of(*collections: Any) -> tuple[Any, list[Any]]:
    """The graph as it was written, and what is asked of it."""
    layers = [each.__dask_graph__() for each in collections]
    keys = [key for each in collections for key in flatten(each.__dask_keys__())]
    return HighLevelGraph.merge(*layers), keys


def planned(*collections: Any) -> tuple[Graph, Any]:
    """The graph without a limit, and as numbers."""
    raw, keys = raw_of(*collections)
    graph = rewrite_tasks(raw, keys)
    assert graph is not None
    results = Original(raw).rewritten(graph.nodes)
    return graph, graphs.sized(graph.nodes, keys, results.of, 2)


def test_outputs_and_what_is_annotated_keep_what_they_have() -> None:
    with dask.annotate(priority=7):
        x = rows()
    graph, sizes = planned(x)
    made = taking_turns(Ordered(graph, sizes, thrifty_order(sizes.likely)[0]), AT_MOST)
    assert made is None or set(graph.outputs) <= made.nodes.keys()
    y = (x[LENGTH:] - x[:-LENGTH]).max()
    graph, sizes = planned(y)
    waiting = taking_turns(Ordered(graph, sizes, thrifty_order(sizes.likely)[0]), AT_MOST)
    assert waiting is not None
    assert waiting.outputs == graph.outputs
    assert len(waiting.annotations) == len(graph.annotations)
    assert all(key in waiting.nodes for key in waiting.annotations)


def test_what_others_may_hold_waits_for_nothing() -> None:
    made = differences()
    low = dask.config.set({"rewrite.memory-limit": BLOCK, "num_workers": 2})
    warned = pytest.warns(dask_rewrite.RewriteWarning, match="would hold")
    with switched_on(), low, warned:
        found = dask.optimize(*made)
    assert not gates_of(dict(HighLevelGraph.merge(*[each.__dask_graph__() for each in found])))


def test_delayed_tasks_wait_as_well() -> None:
    @dask.delayed(pure=False)
    def load(i: int) -> Any:
        return np.full(LENGTH, i)

    parts = [da.from_delayed(load(i), (LENGTH,), dtype="i8") for i in range(ROWS)]
    total = sum((abs(a - b).max() for a, b in pairwise(parts)), start=da.zeros((), dtype="i8"))
    limit = 6 * BLOCK
    with switched_on(), limited(limit, 8), Added() as seen:
        assert total.compute(scheduler="threads", num_workers=8) == ROWS - 1
    assert seen.peak <= limit


def test_reads_are_taken_again_where_few_blocks_wait(tmp_path: Path) -> None:
    """Six blocks wait for their mean: too few to read them again, but for a limit of two of them."""
    data = np.random.default_rng(0).random((6, 100, 100))
    da.from_array(data, chunks=(1, -1, -1)).to_zarr(str(tmp_path / "x.zarr"))
    x = da.from_zarr(str(tmp_path / "x.zarr"))
    y = abs(x - x.mean(axis=0)).max()
    limit = 3 * x.nbytes // 6 + 200_000
    with switched_on(), limited(limit), Added() as held:
        found = y.compute(scheduler="threads", num_workers=2)
    assert found == y.compute(scheduler="sync")
    assert held.peak <= limit


def test_a_cheaper_plan_that_fits_is_taken() -> None:
    made = differences()
    raw, keys = raw_of(*made)
    graph = rewrite_tasks(raw, keys)
    assert graph is not None
    asked: list[Any] = []

    def rewrite(**changes: Any) -> None:
        asked.append(changes["options"].reread)

    from dask_rewrite.config import Options

    with dask.config.set({"num_workers": 2, "rewrite.memory-limit": 8 * BLOCK}):
        plan, run = chosen(raw, graph, keys, rewrite, Context(options=Options.current()))
    assert plan is not graph
    assert run.least <= 8 * BLOCK
    assert not asked
    with dask.config.set({"num_workers": 2, "rewrite.memory-limit": ROWS * 4 * BLOCK}):
        plan, _ = chosen(raw, graph, keys, rewrite, Context(options=Options.current()))
    assert plan is graph
    x = rows()
    raw, keys = raw_of(abs(x - x.mean()).max())  # which no order helps
    graph = rewrite_tasks(raw, keys)
    assert graph is not None
    with dask.config.set({"num_workers": 2, "rewrite.memory-limit": 6 * BLOCK}):
        chosen(raw, graph, keys, rewrite, Context(options=Options.current()))
    assert asked == [True] * 4


class Counted(list[int]):
    """Counts how often somebody looks."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_long_chains_are_looked_through_once(blocks: int) -> None:
    """Also where each task waits for what its gate would wait for, so that there is none."""
    n = 400
    nodes: dict[Any, Any] = {i: Task(i, abs, *([TaskRef(i - 1)] if i else [1])) for i in range(n)}
    inputs = [(i - 1,) if i else () for i in range(n)]
    work = Work(inputs, [()] * n, [10] * n, [10] * n, [1.0] * n, [True] * n)
    sizes = graphs.Sized(range(n), [], [work])
    gates = _Gates(Ordered(Graph(nodes, (n - 1,)), sizes, range(n)), "gate")
    gates._first = Counted(gates._first)
    gates.put(Turns("gate", 10 * blocks, 10 * blocks))
    assert gates._first.looks <= 3 * n
