"""What looks on while passes run."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef

import dask_rewrite
from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.pipeline.callbacks import Checkpoint
from helpers import switched_on


def test_printed_graphs_show_what_fused_tasks_call(capsys: pytest.CaptureFixture[str]) -> None:
    x = da.random.default_rng(1).random((8, 8), chunks=4)
    with dask.config.set({"rewrite.print-after": ["sweep"]}):
        dask_rewrite.explain(abs(x * 2 + 1).sum(axis=0))
    lines = capsys.readouterr().err.splitlines()
    assert any("mul add abs sum" in line for line in lines)
    assert not any("__call__" in line or "..." in line for line in lines)


def test_what_dask_fused_before_is_verified_where_templates_are_given_it() -> None:
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame({"a": range(30), "b": [1.5] * 30})  # of two types: one column is cast
    frame = dd.from_pandas(table, npartitions=4)
    x = da.stack([frame.a.values, frame.b.values], axis=1, allow_unknown_chunksizes=True).sum(axis=0)
    with switched_on(), dask.config.set({"rewrite.verify": "each", "rewrite.on-error": "raise"}):
        assert np.array_equal(x.compute(), [435, 45])


def test_other_tasks_or_other_passes_are_another_plan() -> None:
    def graph_of(**needed: str) -> Graph:
        return Graph({key: Task(key, abs, TaskRef(needs)) for key, needs in needed.items()}, ("c",))

    point, context = Checkpoint("reread"), Context()
    first = graph_of(b="a", c="b")
    point.begins("coalesce", first, context)
    assert point.is_new(first, context)
    assert not point.is_new(first, context)
    assert not point.is_new(graph_of(c="b", b="a"), context)  # the same in other objects
    for other in (graph_of(b="a", c="a"), graph_of(c="b"), graph_of(b="a", c="b", d="c")):
        assert point.is_new(other, context)
        assert not point.is_new(other, context)
    without = Context(options=Options(disable=frozenset({"coalesce"})))
    point.begins("reread", first, without)
    assert not point.is_new(first, without)
