"""Tasks are counted without making them, and what is surely too large is seen at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.blockwise
import numpy as np
import pytest
from dask._task_spec import Alias, List, Task, TaskRef
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

import dask_rewrite
from dask_rewrite.lowering import sizes
from dask_rewrite.lowering.layer_order import layer_order
from dask_rewrite.lowering.references import References
from dask_rewrite.lowering.sizes import probably_above, tasks_in, tasks_of
from helpers import add_one, distinct, switched_on, work_of


def overlaps(depth: Any) -> da.Array:
    return da.overlap.overlap(distinct((8, 9), (3, 2)), depth, boundary="none")


@pytest.mark.parametrize("depth", [1, {0: 1, 1: 0}, {0: (0, 1), 1: (1, 1)}, {0: (2, 0), 1: 0}])
def test_an_overlap_is_counted_as_it_will_be(depth: Any) -> None:
    x = overlaps(depth)
    counted = {name: tasks_in(layer) for name, layer in x.dask.layers.items()}
    assert not any(layer.is_materialized() for name, layer in x.dask.layers.items() if "overlap" in name)
    assert counted == {name: len(dict(layer)) for name, layer in x.dask.layers.items()}


def test_all_layers_are_counted() -> None:
    x = (distinct((8, 8), 2) + 1).rechunk(3).sum(axis=0)
    assert tasks_of(x.dask) == len(dict(x.dask))


def test_a_walk_counts_what_stays() -> None:
    tasks: dict[Any, Any] = {
        "out": Task("out", sum, List(TaskRef("a"), TaskRef("b"), TaskRef(("x", 0)), TaskRef(("x", 1)))),
        "a": Alias("a", ("y", 0)),
        "b": Alias("b", ("y", 0)),
        ("y", 0): Task(("y", 0), abs, TaskRef(("x", 1))),
        "old": (abs, [["b", ("x", 0)], (abs, ("x", 1)), 5, ("x", []), (1, 2), ()]),
        "again": "third",
        "third": ("y", 0),
        "unused": Task("unused", abs, 1),
        "round": Alias("round", "round"),
    }
    x = dask.blockwise.blockwise(add_one, "x", "i", "source", "i", numblocks={"source": (3,)})
    graph = HighLevelGraph({"tasks": MaterializedLayer(tasks), "x": x}, {"tasks": {"x"}, "x": set()})
    for outputs, count in [
        (["out"], 4),
        (["a", "b"], 2),
        (["old", "none"], 4),
        (["again", "third"], 2),
        (["round"], 1),
        ([], 0),
    ]:
        refs = References(graph, outputs, annotated=False)
        refs.read_layers(graph.layers)
        assert not probably_above(count, refs)
        assert count == 0 or probably_above(count - 1, refs)


def _diagonal(block: Any) -> Any:
    return np.diagonal(block)


def _dataset() -> Any:
    x = distinct((8, 8), 2)
    return pytest.importorskip("xarray").Dataset({"t": (("a", "b"), x + 1), "u": ("a", np.arange(8))})


PROGRAMS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "blocks": lambda: (distinct((8, 8), 2) + 1,),
    "source": lambda: (da.ones((8, 8), chunks=2),),
    "tile": lambda: ((distinct((8, 8), 2) + 1)[:2, :2],),
    "sum": lambda: ((distinct((8, 8), 2) + 1).sum(),),
    "two": lambda: (distinct((8,), 2) + 1, distinct((8,), 2) * 2),
    "the same twice": lambda: (distinct((8,), 2) + 1,) * 2,
    "mixed": lambda: (distinct((8,), 2) + 1, dask.delayed(sum)([1, 2]), db.range(6, npartitions=3)),
    "means": lambda: ((distinct((8, 8), 2) + 1).mean(axis=0), distinct((8, 8), 2).rechunk(4).max()),
    "reversed": lambda: ((distinct((8, 8), 2) + 1)[::-1].rechunk(3),),
    "from delayed": lambda: (
        da.stack([da.from_delayed(dask.delayed(np.asarray)(i), (), "i8") for i in range(9)]),
    ),
    "user": lambda: (distinct((8, 8), 2).map_blocks(add_one),),
    "overlap": lambda: (distinct((8, 8), 2).map_overlap(add_one, depth=1, boundary="none"),),
    "sum of overlap": lambda: (distinct((8, 8), 2).map_overlap(add_one, depth=1, boundary="none").sum(),),
    "overlap of rechunk": lambda: (
        distinct((8, 8), 2).rechunk((2, 4)).map_overlap(add_one, depth=1, boundary="reflect").sum(axis=0),
    ),
    "tile of overlap": lambda: (distinct((8, 8), 2).map_overlap(add_one, depth=1)[:2, :2],),
    "outer": lambda: (distinct((6,), 2)[:, None] + distinct((8,), 2).rechunk(4)[None, :],),
    "diagonal": lambda: (da.blockwise(_diagonal, "i", distinct((8, 8), 2), "ii", dtype="i8").sum(),),
    "product": lambda: (distinct((8, 8), 2) @ distinct((8, 8), 2).rechunk((2, 4)),),
    "running": lambda: (distinct((8, 8), 2).cumsum(axis=0).max(axis=1),),
    "joined": lambda: (da.concatenate([distinct((8,), 2), distinct((8,), 2) + 1])[3:].sum(),),
    "legacy": lambda: (da.Array({("l", i): (np.ones, (2,)) for i in range(9)}, "l", ((2,) * 9,), float) + 1,),
    "persisted": lambda: ((distinct((8,), 2) + 1).persist(scheduler="sync"),),
    "dataset": lambda: (_dataset(),),
    "mean of a dataset": lambda: ((_dataset() - _dataset().mean("a")).t,),
    "one block": lambda: ((distinct((8, 8), 2) + 1).to_delayed().ravel()[3],),
}


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 7, 8, 15, 16, 17, 100])
@pytest.mark.parametrize("name", PROGRAMS)
def test_explain_says_what_computing_does(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from dask_rewrite.pipeline import run

    done, rewrite_tasks = [], run.rewrite_tasks

    def watched(*args: Any, **kwargs: Any) -> Any:
        done.append(rewrite_tasks(*args, **kwargs))
        return done[-1]

    program = PROGRAMS[name]()
    with dask.config.set({"rewrite.lower-limit": limit}):
        report = dask_rewrite.explain(*program)
        monkeypatch.setattr(run, "rewrite_tasks", watched)
        with switched_on():
            dask.compute(*program, scheduler="sync")
    assert [graph is None for graph in done] == [report.form == "stock"]
    if done[0] is not None:
        assert report.after.tasks == len(done[0].nodes)
    else:
        assert report.after == report.before
        assert "rewrite.lower-limit" in report.remarks[-1].reason
    assert report.graph


def legacy(n: int) -> da.Array:
    tasks = {("legacy", i, j): (np.ones, (1, 1)) for i in range(n) for j in range(n)}
    return da.Array(tasks, "legacy", ((1,) * n,) * 2, float)


LARGE: dict[str, Callable[[int], Any]] = {
    "source": lambda n: da.ones((n, n), chunks=1),
    "blocks": lambda n: da.ones((n, n), chunks=1) + 1,
    "transposed": lambda n: (lambda x: x + x.T)(da.ones((n, n), chunks=1)),
    "slice": lambda n: (da.ones((n + 9, n + 9), chunks=1) + 1)[9:, 9:],
    "sum": lambda n: (da.ones((n, n), chunks=1) + 1).sum(),
    "means": lambda n: (da.ones((n, n), chunks=1) + 1).mean(axis=0),
    "running": lambda n: da.ones((n, n), chunks=1).cumsum(axis=0),
    "overlap": lambda n: da.ones((n, n), chunks=1).map_overlap(add_one, depth=1, boundary="none"),
    "periodic": lambda n: da.ones((n, n), chunks=1).map_overlap(add_one, depth=1, boundary="periodic"),
    "sum of overlap": lambda n: da.ones((n, n), chunks=1).map_overlap(add_one, depth=1).sum(),
    "split": lambda n: da.ones((n, n), chunks=(2, 1)).rechunk(1),
    "merged": lambda n: da.ones((n, 2 * n), chunks=1).rechunk((1, 2)),
    "from delayed": lambda n: da.concatenate(
        [da.concatenate([da.from_delayed(dask.delayed(np.ones)(1), (1,), float) for _ in range(n)])] * n
    ),
    "dataset": lambda n: (
        pytest.importorskip("xarray").Dataset({"t": (("a", "b"), da.ones((n, n), chunks=1))}) + 1
    ),
    "legacy": legacy,
    "sum of legacy": lambda n: legacy(n).sum(),
}


def _walked(x: Any) -> float:
    refs = References(x.__dask_graph__(), list(flatten(x.__dask_keys__())), annotated=False)
    refs.read_layers(layer_order(refs.hlg, refs.outputs)[0])
    walk = sizes._Walk(refs)
    walk.ask(refs.outputs, 1)
    return list(walk.totals())[-1]


SHARED: dict[str, Callable[[int], Any]] = {
    "the same block again": lambda n: distinct((8,), 2)[[0] * n * n].rechunk(1),
    "a few blocks of many": lambda n: (da.ones((n * n,), chunks=1) + 1)[:: n // 2].rechunk(n // 4),
    "one of all": lambda n: (da.ones((n, n), chunks=1) + 1).sum(axis=0)[:1],
    "long lists": lambda n: da.ones((n, n), chunks=1).rechunk((n, 1)).rechunk((1, n)),
}


@pytest.mark.parametrize("name", [*LARGE, *SHARED])
def test_some_tasks_stand_for_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = {**LARGE, **SHARED}[name](100)
    seen: list[int] = []
    read = sizes._read
    monkeypatch.setattr(sizes, "_read", lambda values: seen.append(len(values)) or read(values))
    estimated = _walked(x)
    assert max(seen, default=0) <= 16 * 256
    monkeypatch.setattr(sizes, "_RUNS", 10**9)
    assert estimated == pytest.approx(_walked(x), rel=0.1)


@pytest.mark.parametrize("name", LARGE)
def test_few_steps_tell_that_a_large_graph_stays(name: str) -> None:
    """Lines of Python for each task, whatever the machine; as many for millions above the usual limit."""
    x = LARGE[name](125)
    dask_rewrite.explain(LARGE[name](3))  # what is imported then is no step of this
    reports: list[Any] = []
    with dask.config.set({"rewrite.lower-limit": 15_000}):
        calls = work_of(lambda: reports.append(dask_rewrite.explain(x)))
    assert reports[0].form == "stock"
    assert calls < 9 * reports[0].before.tasks


def test_three_million_tasks_that_stay_are_explained_without_making_any() -> None:
    x = da.ones((1750, 1750), chunks=1)
    for program in (x, x + 1, x + x.T, (x + 1, dask.delayed(abs)(1))):
        reports: list[Any] = []
        calls = work_of(lambda p=program, r=reports: r.append(dask_rewrite.explain(p)))
        assert calls < 20_000
        assert reports[0].form == "stock"
        assert reports[0].before.tasks > 3_000_000
        assert f"{reports[0].before.tasks:,} tasks, left to dask's own optimizer" in repr(reports[0])


def test_the_page_of_such_a_report_counts_too() -> None:
    x = da.ones((1750, 1750), chunks=1) + 1
    pages: list[str] = []
    assert work_of(lambda: pages.append(dask_rewrite.explain(x).to_html())) < 40_000
    assert "3,062,500" in pages[0]


def test_switched_off_by_its_option() -> None:
    x = (distinct((8, 8), 2) + 1).sum()
    with dask.config.set({"rewrite.enabled": False}):
        report = dask_rewrite.explain(x)
        assert report.form == "stock"
        assert "rewrite.enabled is false" in repr(report)
        with switched_on():
            assert report.before.tasks > len(report.graph) == len(dict(_sent(x)))


def _sent(x: da.Array) -> Any:
    from dask._expr import FinalizeCompute
    from dask.base import collections_to_expr

    return FinalizeCompute(collections_to_expr((x,))).optimize().__dask_graph__()
