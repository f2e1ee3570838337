"""Set up an environment in this clone and do the project's jobs in it. Needs Python 3.11 or newer, and pip.

    python dev.py demo      what the optimizer is worth, beside stock dask, on a local cluster with real files
    python dev.py test      the tests; further words go to pytest: `python dev.py test -k bisect`
    python dev.py lint      ruff, mypy, and which folder may import which
    python dev.py doctest   the examples in docstrings
    python dev.py docs      the documentation, in docs/_build/html
    python dev.py examples  every script in examples/
    python dev.py package   the installed package alone, without any of the optional packages
    python dev.py bench     the benchmarks
    python dev.py suites    dask's own array, bag and delayed tests, with the optimizer switched on
    python dev.py oldest    the tests on the oldest supported dask
    python dev.py python313 the tests on Python 3.13
    python dev.py ci        all of these but the benchmarks, with a table at the end

Environments live in .venv and .venvs, and are kept: a job installs only what has changed since the last one.
Uses the standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
MINIMUM = (3, 11)


def say(text: str) -> None:
    print(f"[dev] {text}", flush=True)


# ---------------------------------------------------------------- environments


@dataclass(frozen=True)
class Environment:
    """A virtual environment in this clone; `constraints` fixes the versions, `python` None means this one."""

    folder: str
    constraints: str
    python: str | None = None

    @property
    def path(self) -> Path:
        return ROOT / self.folder

    @property
    def executable(self) -> Path:
        return self.path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def ensure(self, extras: str) -> Path:
        """Create the environment and install this project with `extras`, unless that is done already."""
        stamp = self.path / "dev.json"
        inputs = [(ROOT / name).read_bytes() for name in ("pyproject.toml", self.constraints)]
        digest = hashlib.sha256(b"\0".join([str(ROOT).encode(), *inputs])).hexdigest()
        have = {"digest": "", "extras": []}
        if stamp.exists() and works(str(self.executable), self.python):
            have = json.loads(stamp.read_text())
        wanted = set(extras.split(","))
        if have["digest"] == digest:
            if wanted <= set(have["extras"]):
                return self.executable
            wanted |= set(have["extras"])
        stamp.unlink(missing_ok=True)
        if not works(str(self.executable), self.python):
            self.create()
        names = ",".join(sorted(wanted))
        say(f"installing dask-rewrite[{names}] into {self.folder} (the first time takes a few minutes)")
        target = ["install", "-e", f".[{names}]" if names else ".", "-c", self.constraints]
        subprocess.run([*self.pip(), *target], cwd=ROOT, check=True)
        stamp.write_text(json.dumps({"digest": digest, "extras": sorted(wanted)}))
        return self.executable

    def create(self) -> None:
        python = find_python(self.python) if self.python else sys.executable
        shutil.rmtree(self.path, ignore_errors=True)
        say(f"creating the environment {self.folder} with {python}")
        command = [python, "-m", "venv", str(self.path)]
        if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode:
            # some systems package Python without ensurepip: this Python's pip then installs into the other
            subprocess.run([*command, "--without-pip", "--clear"], cwd=ROOT, check=True)

    def pip(self) -> list[str]:
        inside = [str(self.executable), "-m", "pip"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if subprocess.run([*inside, "--version"], **quiet).returncode == 0:
            return inside
        return [sys.executable, "-m", "pip", "--python", str(self.executable)]


def works(python: str, version: str | None) -> bool:
    """Whether `python` runs, and is of the version asked for (by default, this one's)."""
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == (
        version or f"{sys.version_info[0]}.{sys.version_info[1]}"
    )


def find_python(version: str) -> str:
    """A Python of this version on the machine: this one, on PATH, or where pyenv, uv and conda put them."""
    home = Path.home()
    candidates = [sys.executable, shutil.which(f"python{version}"), shutil.which("python3")]
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv"))
    patterns = {
        pyenv / "versions": f"{version}*/bin/python",
        home / ".local/share/uv/python": f"cpython-{version}*/bin/python",
        Path("/opt/hostedtoolcache/Python"): f"{version}*/*/bin/python",
        Path("/usr/local/bin"): f"python{version}",
        Path("/opt/homebrew/bin"): f"python{version}",
    }
    for folder, pattern in patterns.items():
        candidates += [str(found) for found in sorted(folder.glob(pattern), reverse=True)]
    for candidate in candidates:
        if candidate and works(candidate, version):
            return candidate
    raise SystemExit(f"[dev] NO PYTHON {version} ON THIS MACHINE: install it, or put it on PATH")


MAIN = Environment(".venv", ".ci/tested.txt")
OLDEST = Environment(".venvs/oldest", ".ci/oldest.txt", "3.11")
PYTHON313 = Environment(".venvs/python3.13", ".ci/tested.txt", "3.13")
MINIMAL = Environment(".venvs/minimal", ".ci/tested.txt")
# Apart from the others, so that nothing that tests need hides what the demonstration needs.
DEMO = Environment(".venvs/demo", ".ci/tested.txt")

# ------------------------------------------------------------------------ jobs

PYTEST = ["-m", "pytest", "-W", "error", "-q"]
# Half of the tests start clusters: more processes than this and they wait for each other.
PARALLEL = ["-n", "2", "--dist", "loadfile"]

Command = list[str]


def demo(rest: list[str]) -> list[Command]:
    python = str(DEMO.ensure("demo"))
    return [[python, "examples/demo.py", *rest]]


def tests_in(environment: Environment, rest: list[str]) -> list[Command]:
    python = str(environment.ensure("test"))
    return [[python, *PYTEST, *PARALLEL, *rest]]


def test(rest: list[str]) -> list[Command]:
    return tests_in(MAIN, rest)


def oldest(rest: list[str]) -> list[Command]:
    return tests_in(OLDEST, rest)


def python313(rest: list[str]) -> list[Command]:
    return tests_in(PYTHON313, rest)


def lint(rest: list[str]) -> list[Command]:
    python = str(MAIN.ensure("lint,test"))
    return [
        [python, "-m", "ruff", "check", "."],
        [python, "-m", "ruff", "format", "--check", "."],
        [python, "-m", "mypy", "--strict", "src"],
        [str(Path(python).with_name("lint-imports"))],
    ]


def doctest(rest: list[str]) -> list[Command]:
    python = str(MAIN.ensure("test"))
    return [[python, *PYTEST, "--doctest-modules", "src", *rest]]


def docs(rest: list[str]) -> list[Command]:
    python = str(MAIN.ensure("docs"))
    return [[python, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "docs", "docs/_build/html", *rest]]


def examples(rest: list[str]) -> list[Command]:
    python = str(DEMO.ensure("demo"))
    scripts = sorted((ROOT / "examples").glob("*.py"))
    return [[python, str(script.relative_to(ROOT)), *rest] for script in scripts]


def package(rest: list[str]) -> list[Command]:
    python = str(MINIMAL.ensure(""))
    return [
        [*MINIMAL.pip(), "install", "-q", "--force-reinstall", "--no-deps", "."],
        [python, "-W", "error", ".ci/minimal.py"],
        [python, "-m", "dask", "rewrite", "passes"],
    ]


def bench(rest: list[str]) -> list[Command]:
    python = str(MAIN.ensure("bench"))
    return [[python, "-m", "benchmarks", *rest]]


def ci(rest: list[str]) -> list[Command]:
    return [[sys.executable, ".ci/parts.py", *rest]]


def suites(rest: list[str]) -> list[Command]:
    python = str(MAIN.ensure("suites"))
    return [[python, "tests/dask_suites/run.py", *rest]]


_JOBS = (demo, test, lint, doctest, docs, examples, package, bench, suites, oldest, python313, ci)
JOBS = {job.__name__: job for job in _JOBS}


def main() -> int:
    if sys.version_info[:2] < MINIMUM:
        raise SystemExit(f"[dev] Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=list(JOBS), metavar="job")
    options, rest = parser.parse_known_args()
    os.chdir(ROOT)
    commands = JOBS[options.job](rest)
    if not commands:
        raise SystemExit(f"[dev] {options.job} has nothing to run")
    codes = [subprocess.run(command, cwd=ROOT).returncode for command in commands]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
