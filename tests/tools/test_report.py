"""``explain`` tells what every pass did; its report reads well and escapes what it shows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import dask
import pytest
from dask.delayed import delayed

import dask_rewrite
from dask_rewrite.graph.graph import Metrics
from dask_rewrite.remarks import Remark, Remarks
from dask_rewrite.tools.explain import Report, explain
from dask_rewrite.tools.tables import html_table, shorten, text_table

da = pytest.importorskip("dask.array")


@dataclass
class FakeStep:
    name: str
    before: Metrics
    after: Metrics
    seconds: float = 0.001


@dataclass
class FakeTrace:
    steps: list[FakeStep] = field(default_factory=list)
    remarks: Remarks = field(default_factory=Remarks)
    seconds: float = 0.01
    form: str = "tasks"


def report_of(*steps, form="tasks", remarks=()):
    trace = FakeTrace(list(steps), form=form)
    for kind, rule, key, reason, count in remarks:
        getattr(trace.remarks, kind)(rule, key, reason, count)
    return Report(trace)


CULL = FakeStep("cull", Metrics(437_501, 5, 3, 8_000_000), Metrics(11, 5, 3, 20_000))
SWEEP = FakeStep("sweep", Metrics(11, 5, 3, 20_000), Metrics(10, 4, 3, 18_000))


class Balanced(HTMLParser):
    """Fails on tags that do not match, and collects the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


# -- the report ------------------------------------------------------------------------------------


def test_report_reads_well():
    report = report_of(
        CULL,
        SWEEP,
        remarks=[
            ("applied", "cull", None, "not needed", 437_490),
            ("missed", "fuse-slices", ("x", 0), "the index is not a plain slice", 2),
            ("missed", "fuse-slices", ("x", 1), "the source is an output", 1),
        ],
    )
    assert repr(report).splitlines() == [
        "dask_rewrite: 437,501 tasks as written, 10 as sent, 7.63 MiB -> 17.58 kiB in 10.00 ms",
        "",
        "pass           tasks   depth  max fan-in                 pickled      time  applied",
        "-----  -------------  ------  ----------  ----------------------  --------  -------",
        "cull   437,501 -> 11       5           3   7.63 MiB -> 19.53 kiB   1.00 ms  437,490",
        "sweep       11 -> 10  5 -> 4           3  19.53 kiB -> 17.58 kiB   1.00 ms        -",
        "total  437,501 -> 10  5 -> 4           3   7.63 MiB -> 17.58 kiB  10.00 ms  437,490",
        "",
        "remark   rule           count  reason",
        "-------  -----------  -------  ----------------------------------",
        "applied  cull         437,490  not needed",
        "missed   fuse-slices        3  the index is not a plain slice (1)",
        "                               the source is an output (1)",
    ]


def test_bytes_only_where_they_were_measured():
    plain = report_of(FakeStep("cull", Metrics(5, 2, 1), Metrics(3, 2, 1)))
    assert "pickled" not in repr(plain)
    assert "B" not in repr(plain).splitlines()[0]
    partly = report_of(FakeStep("lower", Metrics(5, 2, 1), Metrics(3, 2, 1, 100)))
    assert "? -> 100 B" in repr(partly)


def test_empty_report():
    report = report_of()
    assert report.before is None
    assert repr(report) == "dask_rewrite: nothing was done in 10.00 ms"
    Balanced(report._repr_html_())
    json.dumps(report.to_dict())


def test_failures_are_shown_first_and_in_the_headline():
    report = report_of(
        CULL,
        remarks=[
            ("applied", "cull", None, "", 3),
            ("missed", "lower", None, "late", 1),
            ("failed", "fuse-chains", None, "ZeroDivisionError: division by zero", 1),
        ],
    )
    assert repr(report).splitlines()[0].endswith("; 1 FAILED")
    kinds = [line.split()[0] for line in repr(report).splitlines() if "  cull " in line or "  lower" in line]
    assert kinds[-2:] == ["applied", "missed"]
    assert "division by zero" in repr(report)


def test_a_graph_left_to_stock_is_named():
    report = report_of(CULL, form="stock")
    expected = "dask_rewrite: 437,501 tasks, left to dask's own optimizer, decided in 10.00 ms"
    assert repr(report).startswith(expected)


def test_many_reasons_are_cut_and_counted():
    remarks = [("missed", "rule", ("k", i), f"reason {i}", 1) for i in range(500)]
    report = report_of(CULL, remarks=remarks)
    assert report.counts["rule", "missed"] == 500
    assert len(report.remarks) == 100
    assert "500  reason 0 (1)" in repr(report)
    assert "and 97 more reasons" in repr(report)
    assert len(repr(report).splitlines()) < 20


def test_long_and_multiline_reasons_stay_on_one_line():
    report = report_of(CULL, remarks=[("failed", "rule", None, "first\nsecond" + "x" * 500 + "end", 1)])
    line = repr(report).splitlines()[-1]
    assert "first second" in line
    assert line.endswith("end")
    assert len(line) < 150


def test_everything_is_escaped_in_html():
    evil = "<script>alert('&')</script>"
    step = FakeStep(evil, Metrics(1, 1, 1), Metrics(1, 1, 1))
    report = report_of(
        step, form=evil, remarks=[("missed", evil, evil, evil, 1), ("failed", "b", None, evil, 1)]
    )
    html = report._repr_html_()
    assert "<script" not in html
    page = Balanced(html)
    assert page.tags <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}
    assert "".join(page.text).count(evil) >= 4


def test_to_dict_is_plain_data():
    report = report_of(CULL, SWEEP, remarks=[("applied", "cull", ("x", 0, b"raw"), "why", 1)])
    data = json.loads(json.dumps(report.to_dict()))
    assert data["before"] == {"tasks": 437_501, "depth": 5, "max_fan_in": 3, "nbytes": 8_000_000}
    assert data["after"]["tasks"] == 10
    assert [step["name"] for step in data["steps"]] == ["cull", "sweep"]
    assert data["remarks"] == [
        {"kind": "applied", "rule": "cull", "key": "('x', 0, b'raw')", "reason": "why"}
    ]
    assert data["counts"] == [{"rule": "cull", "kind": "applied", "count": 1}]


# -- tables ----------------------------------------------------------------------------------------


def test_tables_of_nothing():
    assert text_table(["a"], []) == []
    assert html_table(["a"], []) == ""


def test_table_columns_line_up():
    lines = text_table(["name", "n", "text"], [["a", "1,000", "x"], ["long name", "2", "yy"]], left=(0, 2))
    assert lines == [
        "name           n  text",
        "---------  -----  ----",
        "a          1,000  x",
        "long name      2  yy",
    ]


@pytest.mark.parametrize("width", [10, 11, 30])
def test_shorten_keeps_both_ends(width):
    text = "start" + "-" * 100 + "end"
    short = shorten(text, width)
    assert len(short) == width
    assert short[:3] == "sta"
    assert short[-3:] == "end"
    assert shorten("short", width) == "short"


# -- explain ---------------------------------------------------------------------------------------


def test_explain_an_array():
    x = da.ones((40, 40), chunks=4)
    y = (x + x.T)[:8, :8].sum()
    before = dict(y.__dask_graph__().layers)
    report = explain(y)
    assert isinstance(report, dask_rewrite.Report)
    assert report.steps
    assert report.before.tasks > report.after.tasks
    assert report.form == "tasks"
    assert report.seconds > 0
    assert all(step.seconds >= 0 for step in report.steps)
    assert all(isinstance(remark, Remark) for remark in report.remarks)
    assert dict(y.__dask_graph__().layers) == before  # the collection is left alone
    assert repr(report).startswith("dask_rewrite: ")
    Balanced(report._repr_html_())
    json.dumps(report.to_dict())


def test_explain_measures_bytes_on_request():
    x = da.ones((40, 40), chunks=4)
    assert explain(x + 1).after.nbytes is None
    report = explain((x + 1)[:4], nbytes=True)
    assert report.before.nbytes > report.after.nbytes > 0
    assert "pickled" in repr(report)


def _half(block):
    return block / 2


def test_explain_measures_depth():
    x = da.arange(4, chunks=2)
    for _ in range(10):
        x = da.concatenate([x[2:], x[:2]]).map_overlap(_half, depth=1, boundary="none")
    report = explain(x)
    assert report.before.depth > 20
    assert 10 <= report.after.depth <= report.before.depth


def test_explain_several_collections_together():
    x = da.random.default_rng(0).random(8, chunks=4)
    alone = explain(x + 1)
    both = explain(x + 1, delayed(len)([1]), x + 1)
    assert both.after.tasks == alone.after.tasks + 1


def test_explain_a_graph_that_stays_as_it_is():
    x = da.ones(100, chunks=1) + 1
    with dask.config.set({"rewrite.lower-limit": 10}):
        report = explain(x, nbytes=True)
    assert report.form == "stock"
    assert report.before == report.after
    assert report.after.tasks == 201
    assert "left to dask's own optimizer" in repr(report)


def test_explain_runs_nothing():
    def boom():
        raise AssertionError("computed")

    explain(delayed(boom)())


def test_explain_refuses_what_is_not_a_collection():
    with pytest.raises(TypeError, match=r"expects dask collections .*, got int"):
        explain(3)
    with pytest.raises(TypeError, match=r"got nothing|got a list without any"):
        explain()


def test_explain_says_that_an_object_is_loaded_already():
    xr = pytest.importorskip("xarray")
    with pytest.raises(TypeError, match=r"got a DataArray in memory, with no dask array in it"):
        explain(xr.DataArray([1.0]))
    with pytest.raises(TypeError, match=r"got a Dataset in memory, with no dask array in it"):
        dask_rewrite.optimize(xr.Dataset({"a": ("x", [1.0])}))


def test_explain_a_bag():
    db = pytest.importorskip("dask.bag")
    report = explain(db.from_sequence(range(10), npartitions=3).map(abs).sum())
    assert report.after.tasks > 0


def test_explain_a_dataframe():
    pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    frame = dd.from_pandas(pd.DataFrame({"a": range(10)}), npartitions=2)
    report = explain(frame.a.sum())
    assert isinstance(report, Report)
    assert repr(report).splitlines()[0].endswith("not rewritten, left to dask's own optimizer")
    assert "compute dask_rewrite.optimize(x) instead of x" in repr(report)
    assert dask_rewrite.optimize(frame.a.sum()).compute() == 45


def test_explain_xarray():
    xr = pytest.importorskip("xarray")
    array = xr.DataArray(da.ones((8, 8), chunks=4), dims=("a", "b"))
    report = explain((array + 1).isel(a=slice(0, 4)).to_dataset(name="v"))
    assert report.after.tasks > 0


def test_disabled_passes_do_not_appear():
    x = da.ones(8, chunks=4) + 1
    with dask.config.set({"rewrite.disable": ["fuse-chains"]}):
        report = explain(x)
    assert "fuse-chains" not in [step.name for step in report.steps]
    assert dask_rewrite.explain is not None
