"""What belongs to a release says the same everywhere."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def recipe() -> Any:
    """The conda recipe, with its variables put in by hand."""
    text = (ROOT / "recipe/meta.yaml").read_text()
    given = dict(re.findall(r'^{% set (\w+) = "(.*)" %}$', text, re.MULTILINE))
    text = re.sub(r"^{%.*%}$", "", text, flags=re.MULTILINE)
    return yaml.safe_load(re.sub(r"{{ (\w+) }}", lambda found: given.get(found[1], found[1]), text))


def test_versions_agree() -> None:
    assert loaded("CITATION.cff")["version"] == PROJECT["version"]
    assert recipe()["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}


def test_the_recipe_needs_what_the_package_needs() -> None:
    wanted = {re.sub(r"(>=)", r" \1", need) for need in PROJECT["dependencies"]}
    wanted = {need.replace("dask ", "dask-core ") for need in wanted}
    assert set(recipe()["requirements"]["run"]) == {*wanted, f"python {PROJECT['requires-python']}"}


def test_the_workflow_runs_what_ci_runs() -> None:
    tree = ast.parse((ROOT / ".ci/parts.py").read_text())
    (parts,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PARTS"
    ]
    job = loaded(".github/workflows/ci.yml")["jobs"]["part"]
    assert job["strategy"]["matrix"]["part"] == list(parts)
    assert job["steps"][-1]["run"] == ".ci/run ${{ matrix.part }}"


def test_issues_ask_for_a_run_without_the_optimizer() -> None:
    form = loaded(".github/ISSUE_TEMPLATE/bug.yml")
    asked = {item["id"]: item for item in form["body"] if "id" in item}
    assert asked["without"]["validations"]["required"]
    assert "rewrite.enabled" in form["body"][0]["attributes"]["value"]
    assert "dask rewrite status" in asked["info"]["attributes"]["label"]


def test_the_support_window_is_that_of_the_package() -> None:
    readme = (ROOT / "README.md").read_text()
    window = readme[readme.index("## Support") : readme.index("## Limits")]
    needs = dict(need.split(">=") for need in PROJECT["dependencies"])
    assert f"NumPy {needs['numpy']} and newer" in window
    assert f"{needs['dask']} and newer" in window
    versions = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert f"Python {versions[0]} to {versions[-1]}" in window


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "recipe", ".github"])
def test_the_source_distribution_has_it(name: str) -> None:
    assert (ROOT / name).exists()
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert name in included["sdist"]["include"]
