"""``explain`` with the real pipeline: what it says is what happens."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import dask.bag as db
import pytest
from dask._expr import FinalizeCompute
from dask.base import collections_to_expr
from dask.highlevelgraph import HighLevelGraph

import dask_rewrite
from helpers import add_one, counted, distinct, leapfrog, running_total, switched_on


@pytest.fixture
def x() -> da.Array:
    return ((distinct((8, 8), 2) + 1) * 2).rechunk(4).sum(axis=0)


def test_one_row_per_pass(x: da.Array) -> None:
    report = dask_rewrite.explain(x)
    assert isinstance(report, dask_rewrite.Report)
    assert report.steps
    for step in report.steps:
        assert step.name
        assert step.seconds >= 0
        assert step.after.tasks > 0
        assert step.after.depth > 0
    for before, after in zip(report.steps, report.steps[1:], strict=False):
        assert before.after.tasks == after.before.tasks


def sent(x: da.Array) -> dict[Any, Any]:
    """The tasks that a scheduler gets when this is computed."""
    return dict(FinalizeCompute(collections_to_expr((x,))).optimize().__dask_graph__())


def test_the_last_row_is_what_one_gets(x: da.Array) -> None:
    last = dask_rewrite.explain(x).steps[-1].after
    with switched_on():
        assert last.tasks == len(sent(x))


@pytest.mark.once
def test_the_last_row_of_many_tasks_is_what_one_gets() -> None:
    many = da.ones((101, 101), chunks=1).map_blocks(add_one).map_overlap(add_one, depth=1)
    for disabled in ([], ["coalesce"]):  # verifying after each pass would take longer than that
        with dask.config.set({"rewrite.disable": disabled, "rewrite.verify": "end"}):
            last = dask_rewrite.explain(many).steps[-1].after
            with switched_on():
                assert last.tasks == len(sent(many))
    assert last.tasks > 10_000


def test_the_first_row_is_what_came_in(x: da.Array) -> None:
    first = dask_rewrite.explain(x).before
    assert first.tasks == len(dict(x.__dask_graph__())) + 1  # which puts the blocks together


def test_bytes_only_on_request(x: da.Array) -> None:
    report = dask_rewrite.explain(x)
    assert all(step.after.nbytes is None for step in report.steps)
    report = dask_rewrite.explain(x, nbytes=True)
    assert report.before.nbytes > 0
    assert report.steps[-1].after.nbytes > 0


def test_bytes_of_a_tile_become_few() -> None:
    rows = [
        da.concatenate([da.zeros((1, 1), chunks=1) + i * j for i in range(30)], axis=1) for j in range(30)
    ]
    report = dask_rewrite.explain(da.concatenate(rows)[:2, :2], nbytes=True)
    assert report.steps[-1].after.nbytes < 10_000 < 100_000 < report.before.nbytes
    assert report.steps[-1].after.tasks < 20 < report.before.tasks


def test_nothing_is_computed_and_nothing_changed() -> None:
    source, x = counted((8,), 2)
    source.reset()
    before = set(x.__dask_graph__().layers)
    dask_rewrite.explain(x + 1, nbytes=True)
    assert source.loads == 0
    assert set(x.__dask_graph__().layers) == before


def test_fusion_shows(x: da.Array) -> None:
    report = dask_rewrite.explain(leapfrog(100))
    assert report.before.tasks > 300
    assert report.steps[-1].after.tasks <= 8
    assert any(remark.kind == "applied" for remark in report.remarks)
    assert all(remark.rule for remark in report.remarks)


def test_remarks_are_data(x: da.Array) -> None:
    for remark in dask_rewrite.explain(x).remarks:
        assert isinstance(remark, dask_rewrite.Remark)
        assert remark.kind in ("applied", "missed", "failed")
        assert isinstance(remark.reason, str)


def test_missed_rewrites_have_a_reason() -> None:
    total = distinct((4,), 2)
    for i in range(60):  # no chain of one operation, and too many blocks for one task
        term = (distinct((4,), 2) + i).rechunk(4)
        total = total + term if i % 2 else total - term
    missed = [remark for remark in dask_rewrite.explain(total).remarks if remark.kind == "missed"]
    assert missed
    assert all(remark.reason for remark in missed)


def test_several_collections() -> None:
    x = distinct((4,), 2)
    report = dask_rewrite.explain(
        x + 1, x * 2, dask.delayed(sum)([1, 2]), db.from_sequence([1], npartitions=1)
    )
    assert report.steps[-1].after.tasks >= 6


@pytest.mark.parametrize("limit", [1, 10**9])
def test_left_or_rewritten(limit: int, x: da.Array) -> None:
    with dask.config.set({"rewrite.lower-limit": limit}):
        report = dask_rewrite.explain(x)
    assert repr(report)
    assert report.steps


def test_in_a_terminal(x: da.Array) -> None:
    text = repr(dask_rewrite.explain(x, nbytes=True))
    for word in ("tasks", "depth", "fan-in", "pickled", "time", "lower"):
        assert word in text, text
    assert max(map(len, text.splitlines())) <= 120


def test_in_a_notebook(x: da.Array) -> None:
    html = dask_rewrite.explain(x, nbytes=True)._repr_html_()
    assert "<table" in html
    assert html.count("<tr") >= 3
    from html.parser import HTMLParser

    class Balanced(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag not in ("br", "hr", "img", "meta", "input", "col"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    parser = Balanced()
    parser.feed(html)
    assert not parser.open


def test_names_are_escaped_in_a_notebook() -> None:
    d = dask.delayed(sum, name="<script>")([1], dask_key_name="<script>alert(1)</script>")
    assert "<script>" not in dask_rewrite.explain(d)._repr_html_()


def test_xarray_can_be_explained() -> None:
    xr = pytest.importorskip("xarray")
    ds = xr.Dataset({"t": (("a", "b"), distinct((8, 8), 2))})
    assert dask_rewrite.explain((ds - ds.mean("a")).isel(b=0)).steps


def test_wrong_use_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="collection"):
        dask_rewrite.explain(3)


def test_a_deep_graph_can_be_explained() -> None:
    assert repr(dask_rewrite.explain(running_total(1_500)))


def test_tasks_are_taken_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for one key, a graph looks through all layers, where keys do not begin with their names."""
    asked: list[Any] = []
    look = HighLevelGraph.__getitem__

    def looked(graph: HighLevelGraph, key: Any) -> Any:
        asked.append(key)
        return look(graph, key)

    monkeypatch.setattr(HighLevelGraph, "__getitem__", looked)
    y = distinct((60,), 20)
    for _ in range(3):
        y = y.map_overlap(add_one, depth=1, boundary="periodic", dtype=y.dtype)
    assert dask_rewrite.explain(y).before.tasks > 60
    assert not asked
    assert dask_rewrite.explain(y, forecast=True).forecast.after.peak
    assert len(asked) < 20
