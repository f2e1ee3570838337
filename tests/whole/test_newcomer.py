"""The steps of CONTRIBUTING.md, followed to the letter in a copy of the source: they work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEP = re.compile(
    r"^(?:New file `(?P<new>[^`\n]+)`"
    r"|In `(?P<old>[^`\n]+)`, (?P<where>above|below) (?P<ticks>`+)(?P<line>.+?)(?P=ticks)):\n\n"
    r"```\w+\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
pytestmark = pytest.mark.once


def follow(steps: str, copy: Path) -> list[str]:
    """Do what the steps say; returns the files that they name."""
    touched = []
    for step in STEP.finditer(steps):
        path = copy / (step["new"] or step["old"])
        touched.append(path.relative_to(copy).as_posix())
        if step["new"]:
            assert not path.exists(), f"{path} exists already"
            path.write_text(step["text"], encoding="utf-8")
            continue
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        found = [i for i, line in enumerate(lines) if line.strip().startswith(step["line"].strip())]
        assert len(found) == 1, f"{step['line']!r} starts {len(found)} lines of {path}"
        lines.insert(found[0] + (step["where"] == "below"), step["text"])
        path.write_text("".join(lines), encoding="utf-8")
    return touched


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository after the steps."""
    made = tmp_path_factory.mktemp("newcomer")
    skip = shutil.ignore_patterns("__pycache__", "_build", "*.egg-info")
    for name in ("src", "tests", "docs", ".ci"):
        shutil.copytree(ROOT / name, made / name, ignore=skip)
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "noxfile.py"):
        shutil.copy(ROOT / name, made / name)
    touched = follow((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), made)
    assert len(touched) == 10
    assert len(set(touched)) == 7
    return made


def python(copy: Path, *words: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *words], cwd=copy, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_copy_is_what_runs(copy):
    code = "import sys, dask_rewrite.passes.idempotent as new; assert new.__file__.startswith(sys.argv[1])"
    python(copy, "-c", code, str(copy))


def test_the_pass_fires_and_has_its_page(copy):
    page = "tests/whole/test_documentation.py::test_every_pass_has_a_page"
    python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/passes/test_idempotent.py", page)


FACT = """
import dask.array as da, numpy as np
from array_programs import COUNTING, matrix
from analysis.facts_cases import Run, made
from dask_rewrite.analysis.knowledge import Fact, known

for dtype in ("i4", "f4", "f8"):
    found = Run(*made(COUNTING["unwrapped"], matrix(dtype))).check()
    assert found["known"] and not found["unknown"], found
assert known(np.unwrap).fact(Fact((3,), np.dtype("f4"))) == Fact((3,), np.unwrap(np.ones(2, "f4")).dtype)
"""


def test_the_fact_is_known_and_true(copy):
    python(copy, "-c", "import sys; sys.path.insert(0, 'tests')\n" + FACT)


def test_the_new_files_are_within_bounds(copy):
    python(copy, ".ci/house.py")
    python(copy, ".ci/house.py", "--check")
