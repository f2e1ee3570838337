"""What belongs to a release says the same everywhere."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.once


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


def assigned(file: str) -> dict[str, Any]:
    """What a file gives names at its top, where that is written out."""
    tree = ast.parse((ROOT / file).read_text())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


@pytest.mark.parametrize(("job", "parts"), [("part", "PARTS"), ("beyond", "BEYOND")])
def test_the_workflow_runs_what_ci_runs(job: str, parts: str) -> None:
    found = loaded(".github/workflows/ci.yml")["jobs"][job]
    assert found["strategy"]["matrix"]["part"] == list(assigned(".ci/parts.py")[parts])
    assert found["steps"][-1]["run"] == ".ci/run ${{ matrix.part }}"
    assert all(set(step) <= {"uses", "with", "run"} for step in found["steps"])


def test_every_part_is_a_session() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    pythons = {}
    for node in tree.body:
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            words = decorator.keywords if isinstance(decorator, ast.Call) else []
            pythons[node.name] = {word.arg: ast.unparse(word.value) for word in words}.get("python")
    parts = assigned(".ci/parts.py")
    assert set(parts["PARTS"] + parts["BEYOND"]) <= set(pythons)
    wanted = {python.strip("'") for name, python in pythons.items() if python and name in parts["PARTS"]}
    offered = loaded(".github/workflows/ci.yml")["jobs"]["part"]["steps"][1]["with"]["python-version"]
    assert wanted <= set(offered.split())


def test_releases_in_between_are_tested() -> None:
    def version(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(".")))

    pins = [
        dict(re.findall(r"^(\w+)==(\S+)$", (ROOT / f".ci/{name}.txt").read_text(), re.MULTILINE))["dask"]
        for name in ("oldest", "tested")
    ]
    between = assigned("noxfile.py")["BETWEEN"]
    assert [version(text)[:2] for text in between] == [(2025, month) for month in (9, 10, 11, 12)]
    assert version(pins[0]) < version(between[0])
    assert version(between[-1]) < version(pins[1])
    readme = (ROOT / "README.md").read_text()
    assert f"{pins[0]}, {', '.join('.'.join(text.split('.')[:2]) for text in between)}" in readme
    close = re.findall(r'"(tests/[\w/.]+)"', (ROOT / "noxfile.py").read_text())
    assert len(close) > 5
    assert all((ROOT / path).exists() for path in close)


def test_random_programs_and_shares_of_cases_differ_from_job_to_job() -> None:
    text = (ROOT / "noxfile.py").read_text()
    seeds = re.findall(r'\*ELSEWHERE, "(\d+)"', text) + [str(4 + i) for i in range(4)]
    assert "4 + i" in text
    assert len(seeds) == len(set(seeds)) == 7
    shares = re.findall(r'"--share", "(\d)/(\d)"', text)
    assert len(shares) == len(set(shares)) == 3


def test_the_recipe_is_whole() -> None:
    found = recipe()
    assert (ROOT / "recipe" / found["source"]["path"] / "pyproject.toml").resolve() == ROOT / "pyproject.toml"
    assert found["build"]["noarch"] == "python"
    assert f"python {PROJECT['requires-python'].lstrip('>=')}.*" in found["requirements"]["host"]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {re.sub(r"(>=)", r" \1", need) for need in build} <= set(found["requirements"]["host"])
    constrained = PROJECT["optional-dependencies"]["distributed"]
    assert found["requirements"]["run_constrained"] == [n.replace(">=", " >=") for n in constrained]
    assert found["about"]["license"] == PROJECT["license"]
    assert (ROOT / found["about"]["license_file"]).exists()
    for module in found["test"]["imports"]:
        assert importlib.util.find_spec(module) is not None


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
