"""Reports as pages, as JSON, and as graphs of networkx."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from dask._task_spec import Task
from dask.utils import key_split

import dask_rewrite
from dask_rewrite.graph.graph import Metrics
from dask_rewrite.tools.cli import rewrite
from dask_rewrite.tools.curves import bars
from dask_rewrite.tools.pictures import picture
from helpers import distinct
from tools.test_report import FakeStep, report_of

EMPTY = {"meta", "input", "br", "rect"}


class Page(HTMLParser):
    """Fails on tags that do not match; collects text, attributes and rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: dict[str, int] = {}
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.links += [value for name, value in attrs if name in ("src", "href", "action")]
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def scale(block: np.ndarray) -> np.ndarray:
    return block * 2


def program() -> da.Array:
    x = distinct((8, 8), 4).map_blocks(scale)
    return (x + x.T).sum(axis=0)


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    report = dask_rewrite.explain(program(), forecast=True)
    path = tmp_path / "report.html"
    text = report.to_html(path)
    assert path.read_text(encoding="utf-8") == text
    page = Page(text)
    assert not page.links
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert page.tags["script"] == page.tags["input"] == page.tags["select"] == 1
    assert page.tags["svg"] == 5  # tasks, seconds, before, after, memory
    assert page.tags["polyline"] == 2


def test_the_page_has_passes_tasks_and_remarks() -> None:
    report = dask_rewrite.explain(program())
    page = Page(report.to_html())
    first = [row[0] for row in page.rows]
    assert all(step.name in first for step in report.steps)
    assert sum(row[0] in ("applied", "missed") and len(row) == 4 for row in page.rows) == len(report.remarks)
    calls = [row[3] for row in page.rows if len(row) == 4 and "scale" in row[3]]
    assert calls
    bars_of_passes = 2 * len(report.steps) + 1
    layers = len(program().dask.layers) + 1
    assert page.tags["rect"] == bars_of_passes + layers + len({key_split(key) for key in report.graph})


def test_everything_is_escaped_in_the_page() -> None:
    evil = "</script><script>alert('&')</script>"
    report = report_of(
        FakeStep(evil, Metrics(1, 1, 1), Metrics(1, 1, 1)),
        remarks=[("missed", evil, evil, evil, 1), ("failed", "b", None, evil, 1)],
    )
    text = report.to_html()
    page = Page(text)
    assert page.tags["script"] == 1
    assert text.count(evil) == 0
    assert ["missed", evil, repr(evil), evil] in page.rows


def test_pages_of_nothing_and_of_what_stays_as_it_is() -> None:
    assert "Remarks" not in report_of().to_html()
    Page(report_of().to_html())
    import dask

    with dask.config.set({"rewrite.lower-limit": 1}):
        report = dask_rewrite.explain(program())
    assert report.form == "stock"
    Page(report.to_html())
    assert len(report.graph) > 10


def test_large_graphs_are_not_made_for_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    report = dask_rewrite.explain(program())
    monkeypatch.setattr("dask_rewrite.tools.report._DRAWN", 2)
    report.sent = None
    text = report.to_html()
    assert "as it was built" in text
    assert "Heaviest" not in text


def test_what_cannot_be_pickled_is_listed() -> None:
    def generates() -> Any:
        yield 1

    report = dask_rewrite.explain(dask_rewrite.optimize(program()))
    report.sent = type(
        "Sent", (), {"__dask_graph__": lambda self: {"a-1": Task("a-1", scale, generates())}}
    )()
    assert ["1", "cannot be pickled", "a", "scale"] in Page(report.to_html()).rows


def test_bars() -> None:
    text = bars([("a<b", 10, "10"), ("none", 0, "0")])
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', text)]
    assert widths[0] == 260
    assert widths[1] == 1
    assert "a&lt;b" in text
    assert bars([]).count("<rect") == 0


def boxes(text: str) -> list[str]:
    return [re.sub("^.*>", "", part) for part in re.findall(r"<text [^>]*>([^<]*)", text)]


def test_pictures() -> None:
    needs = {("a-1", 0): [], ("a-1", 1): [], ("b-2", 0): [("a-1", 0), ("future", 0)], "c-3": [("b-2", 0)]}
    text = picture(needs)
    assert sorted(boxes(text)) == ["a × 2", "b × 1", "c × 1"]
    assert text.count("<line") == 2
    heights = [int(y) for y in re.findall(r'<rect x="\d+" y="(\d+)"', text)]
    assert heights == sorted(heights)
    Page(text)
    Page(picture({}))


def test_pictures_of_layers_that_wait_for_each_other() -> None:
    text = picture({("a", 0): [], ("b", 0): [("a", 0)], ("a", 1): [("b", 0)]})
    assert sorted(boxes(text)) == ["a × 2", "b × 1"]
    assert text.count("<line") == 2


def test_pictures_of_many_layers_are_bounded() -> None:
    chain: dict[str, list[str]] = {f"add-{i}": [f"add-{i - 1}"] if i else [] for i in range(5000)}
    assert boxes(picture(chain, dict.fromkeys(chain, 4))) == ["add × 20,000"]
    many = {f"{chr(97 + i // 26)}{chr(97 + i % 26)}-1": [] for i in range(100)}
    text = picture(many)
    assert len(boxes(text)) == 40
    assert "and 60 more" in text


def test_names_in_pictures_are_escaped() -> None:
    assert "<b>" not in picture({"<b>x</b>": []})


def test_json() -> None:
    report = dask_rewrite.explain(program(), forecast=True)
    assert json.loads(report.to_json()) == json.loads(json.dumps(report.to_dict()))
    assert report.to_json(indent=2).startswith("{\n")


def test_networkx() -> None:
    nx = pytest.importorskip("networkx")
    y = program()
    report = dask_rewrite.explain(y)
    graph = report.to_networkx()
    assert nx.is_directed_acyclic_graph(graph)
    assert set(graph) == set(report.graph)
    assert len(graph) == report.after.tasks
    assert graph.number_of_edges() == sum(len(task.dependencies) for task in report.graph.values())
    assert any("scale" in data["functions"] for _, data in graph.nodes(data=True))
    assert all(data["name"] for _, data in graph.nodes(data=True))
    (last,) = [key for key in graph if not graph.out_degree(key)]
    assert nx.dag_longest_path_length(graph) + 1 == report.after.depth
    assert report.graph[last].dependencies == set(graph.predecessors(last))


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job_of_page.py").write_text("import dask.array as da\nx = da.ones(8, chunks=4).sum()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = ["explain", "--html", "report.html", "job_of_page:x"]
    result = CliRunner().invoke(rewrite, arguments, catch_exceptions=False)
    assert result.output.startswith("dask_rewrite: ")
    Page((tmp_path / "report.html").read_text())
    result = CliRunner().invoke(rewrite, ["explain", "--html", "no/report.html", "job_of_page:x"])
    assert "Error: --html: " in result.output


def test_a_page_of_a_dataframe() -> None:
    """What is sent of it are tuples, as dask had them."""
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame({"a": range(8)}), npartitions=2)
    Page(dask_rewrite.explain(frame.a.sum()).to_html())
