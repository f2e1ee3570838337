"""What the documents say is what the code says."""

from __future__ import annotations

import ast
import doctest
import re
import runpy
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import dask_rewrite
from dask_rewrite.pipeline.selection import PASSES

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.once


def test_the_configuration_table_has_every_key_with_its_default() -> None:
    defaults = yaml.safe_load((ROOT / "src/dask_rewrite/rewrite.yaml").read_text())["rewrite"]
    rows = re.findall(
        r"^\| `rewrite\.([a-z-]+)` \| `([^`]*)` \|", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    shown = {key: yaml.safe_load(value) for key, value in rows}
    assert shown == defaults


def test_the_schema_has_every_key() -> None:
    defaults = yaml.safe_load((ROOT / "src/dask_rewrite/rewrite.yaml").read_text())["rewrite"]
    schema = yaml.safe_load((ROOT / "src/dask_rewrite/rewrite-schema.yaml").read_text())
    assert list(schema["properties"]["rewrite"]["properties"]) == list(defaults)


def test_every_pass_has_a_page() -> None:
    pages = {page.stem for page in (ROOT / "docs/passes").glob("*.md")} - {"index"}
    assert pages == set(PASSES)


def test_the_report_that_is_shown_has_a_line_for_each_pass() -> None:
    shown = re.search(r"\n-+  .*?\ntotal ", (ROOT / "docs/debugging.md").read_text(), re.DOTALL)
    assert shown is not None
    lines = [line.split()[0] for line in shown[0].splitlines()[2:-1]]
    assert lines == [name for name in PASSES if name not in ("cull", "fuse-blockwise")]  # part of lower


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/quickstart.md", "docs/debugging.md"])
def test_every_command_of_the_documents_exists(name: str) -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    used = set(re.findall(r"python dev\.py ([a-z]+)", (ROOT / name).read_text()))
    assert used <= functions


#: Every page with Python: its blocks run one after the other; what examples print is not compared.
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if "\n```python\n" in page.read_text()
)


def _tested() -> list[tuple[str, str]]:
    return re.findall(r"^([\w-]+)==(\S+)$", (ROOT / ".ci/tested.txt").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_runs(name: str, python: Callable[..., str], tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for i, block in enumerate(blocks):
        if block.startswith(">>>"):
            blocks[i] = "".join(example.source for example in doctest.DocTestParser().get_examples(block))
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    python(f"import runpy; runpy.run_path({str(script)!r}, run_name='page')")


def test_the_walk_through_prints_what_it_shows(python: Callable[..., str]) -> None:
    pytest.importorskip("zarr")
    page = ROOT / "docs/walkthrough.md"
    tested = dict(_tested())
    said = dict(re.findall(r"(dask|xarray|zarr) (\d+\.\d+\.\d+)", page.read_text()))
    assert said == {name: tested[name] for name in ("dask", "xarray", "zarr")}
    if any(version(name) != tested[name] for name in said):
        pytest.skip("its figures are those of other versions")
    python(f"import doctest; assert not doctest.testfile({str(page)!r}, module_relative=False).failed")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_that_is_linked_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    pages = re.findall(r"\{doc\}`(?:[^`<]*<)?([\w/-]+)>?`", text)
    assert all((ROOT / name).parent.joinpath(f"{page}.md").exists() for page in pages)


def test_both_landing_pages_show_the_same_table_and_picture() -> None:
    pages = [(ROOT / name).read_text() for name in ("README.md", "docs/index.md")]
    tables = [re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)[0] for page in pages]
    assert tables[0] == tables[1]
    assert all("pictures/before-and-after.svg" in page and "python dev.py demo" in page for page in pages)


def test_the_picture_is_what_its_script_draws() -> None:
    folder = ROOT / "docs/pictures"
    made = runpy.run_path(str(folder / "make.py"))["drawn"]()
    assert set(re.findall(r">([^<>]+)</text>", made)) >= {"as you wrote it: 216 tasks", "transpose × 64"}
    if version("dask") == dict(_tested())["dask"]:
        assert made == (folder / "before-and-after.svg").read_text()


def test_pictures_of_the_pages_are_there_and_small() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text()):
            assert 500 < (page.parent / name).stat().st_size < 40_000, name


def test_what_is_photographed_is_the_anomaly_of_the_walk_through(tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    pytest.importorskip("zarr")
    script = runpy.run_path(str(ROOT / "docs/pictures/dashboard.py"))
    names = script["streamed"](script["program"](str(tmp_path)), tmp_path / "page.html", dask_rewrite.enable)
    assert len(names) < 1200
    assert "bokeh" in (tmp_path / "page.html").read_text()


def test_the_wheel_of_the_page_is_the_one_that_is_built() -> None:
    wheels = re.findall(r"dask_rewrite-(\S+)-py3-none-any.whl", (ROOT / "docs/quickstart.md").read_text())
    assert wheels == [dask_rewrite.__version__]


def test_the_versions_agree() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == dask_rewrite.__version__
