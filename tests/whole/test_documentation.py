"""What the documents say is what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from dask_rewrite.pipeline.selection import PASSES

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/quickstart.md", "docs/debugging.md"])
def test_every_command_of_the_documents_exists(name: str) -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    used = set(re.findall(r"python dev\.py ([a-z]+)", (ROOT / name).read_text()))
    assert used <= functions


def test_the_versions_agree() -> None:
    import tomllib

    import dask_rewrite

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == dask_rewrite.__version__
