"""The project's jobs, each in an environment of its own below .venvs: `python dev.py JOB`, or `nox -s JOB`.

Environments are kept: a job installs only if what it wants has changed, and needs no network otherwise.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
PROJECT = nox.project.load_toml("pyproject.toml")
PYTEST = ["python", "-m", "pytest", "-W", "error", "-q"]
# Half of the tests start clusters: more processes than this and they wait for each other.
PARALLEL = ["-n", "2", "--dist", "loadfile"]
# With other releases of dask or Python: what depends on them, and fewer random programs, but other ones.
ELSEWHERE = ["-m", "not once", "--verify", "end", "--hypothesis-profile", "elsewhere", "--hypothesis-seed"]
# Releases of dask between the oldest and the newest, and what finds out first whether they fit.
BETWEEN = ("2025.9.1", "2025.10.0", "2025.11.0", "2025.12.0")
CLOSE_TO_DASK = [
    "tests/hook",
    "tests/lowering/test_lower.py",
    "tests/lowering/test_lower_layers.py",
    "tests/passes/test_movement.py",
    "tests/passes/test_share.py",
    "tests/passes/test_tree_sum.py",
    "tests/distributed/test_zero_footprint.py",
    *("-k", "not test_equivalent and not test_batches"),  # they take a minute each
]

# Libraries on top of dask that bring their tests; of xarray's these.
XARRAY = [
    "dask",
    "computation",
    "duck_array_ops",
    "groupby",
    "rolling",
    "interp",
    "missing",
    "weighted",
    "datatree",
]
OTHERS = [*(f"xarray.tests.test_{name}" for name in XARRAY), "pint_xarray", "xgcm", "xhistogram", "xrspatial"]

nox.needs_version = ">=2025.2"
nox.options.envdir = ".venvs"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "test"]

# pyenv keeps Pythons where nox does not look; a shim of its own on PATH may lead nowhere.
for found in sorted(
    (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions").glob("3.1[134].*/bin")
):
    os.environ["PATH"] = os.pathsep.join([str(found), os.environ["PATH"]])


def install(session: nox.Session, extra: str, *groups: str, versions: str = ".ci/tested.txt") -> None:
    """Install this clone with one of its extras and these groups, unless that is done already."""
    wanted = ["-e", f".[{extra}]" if extra else ".", *nox.project.dependency_groups(PROJECT, *groups)]
    inputs = [
        *wanted,
        (ROOT / "pyproject.toml").read_text(),
        (ROOT / versions).read_text(),
        str(ROOT),
        sys.version,
    ]
    digest = hashlib.sha256("\0".join(inputs).encode()).hexdigest()
    stamp = Path(session.virtualenv.location, "installed")
    if not stamp.exists() or stamp.read_text() != digest:
        stamp.unlink(missing_ok=True)
        session.install(*wanted, "-c", versions)
        stamp.write_text(digest)


@nox.session
def demo(session: nox.Session) -> None:
    """What the optimizer is worth, beside stock dask, on a local cluster with real files."""
    install(session, "demo")
    session.run("python", "examples/demo.py", *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """The tests; further words go to pytest."""
    install(session, "demo", "test")
    session.run(*PYTEST, *PARALLEL, *session.posargs)


@nox.session(python="3.11")
def oldest(session: nox.Session) -> None:
    """The tests on the oldest supported dask: of each test half of the cases."""
    install(session, "demo", "test", versions=".ci/oldest.txt")
    session.run(*PYTEST, *PARALLEL, *ELSEWHERE, "1", "--share", "1/2", *session.posargs)


@nox.session(python="3.11")
def between(session: nox.Session) -> None:
    """The tests that are closest to dask, on releases between: of each test a quarter of the cases."""
    install(session, "demo", "test", versions=".ci/oldest.txt")
    failed = []
    for i, version in enumerate(BETWEEN):
        session.install("-q", "--no-deps", f"dask=={version}", f"distributed=={version}")
        try:
            part = [f"{4 + i}", "--share", f"{i}/{len(BETWEEN)}"]
            session.run(*PYTEST, *PARALLEL, *ELSEWHERE, *part, *CLOSE_TO_DASK, *session.posargs)
        except nox.command.CommandFailed:
            failed.append(version)
    if failed:
        session.error(f"failed with dask {', '.join(failed)}")


@nox.session(python="3.13")
def python313(session: nox.Session) -> None:
    """The tests on Python 3.13: of each test a third of the cases, as dask is that of `test`."""
    install(session, "demo", "test")
    session.run(*PYTEST, *PARALLEL, *ELSEWHERE, "2", "--share", "0/3", *session.posargs)


@nox.session(python="3.14")
def python314(session: nox.Session) -> None:
    """The tests on Python 3.14; not a part of .ci/run, since few machines have it yet."""
    install(session, "demo", "test")
    session.run(*PYTEST, *PARALLEL, *ELSEWHERE, "3", "--share", "1/3", *session.posargs)


@nox.session
def development(session: nox.Session) -> None:
    """The tests on the newest wheels, pre-releases too; PIP_EXTRA_INDEX_URL adds nightly ones."""
    session.install("-e", ".[demo]", *nox.project.dependency_groups(PROJECT, "test"))
    session.install("--pre", "--upgrade", "dask", "distributed", "numpy", "xarray", "zarr")
    session.run("python", "-m", "pip", "list")
    session.run(*PYTEST, *PARALLEL, *(session.posargs or CLOSE_TO_DASK))


@nox.session
def thresholds(session: nox.Session) -> None:
    """Answers with each threshold of the code at 0 and at 1, and in mixtures; takes half an hour."""
    install(session, "demo", "test")
    for words in [session.posargs] if session.posargs else ([], ["--mixed", "40"]):
        session.run("python", "tests/thresholds.py", "--jobs", "2", *words)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy, which folder may import which, and whether the map of the source is true."""
    install(session, "demo", "lint")
    failed = []
    house = "python .ci/house.py --check"
    for command in ("ruff check .", "ruff format --check .", "mypy --strict src", "lint-imports", house):
        try:
            session.run(*command.split())
        except nox.command.CommandFailed:
            failed.append(command)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session
def doctest(session: nox.Session) -> None:
    """The examples in docstrings."""
    install(session, "demo", "doctest")
    session.run(*PYTEST, "--doctest-modules", "src", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, in docs/_build/html."""
    install(session, "distributed", "docs")
    options = ["-W", "--keep-going", "-q", "-E"]
    session.run("python", "-m", "sphinx", *options, "docs", "docs/_build/html", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Every script in examples/."""
    install(session, "demo")
    for script in sorted((ROOT / "examples").glob("*.py")):
        session.run("python", str(script.relative_to(ROOT)), *session.posargs)


@nox.session
def release(session: nox.Session) -> None:
    """The wheel and the source distribution, checked, in dist/."""
    install(session, "", "release")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    session.run("python", "-m", "build", "--no-isolation")
    made = sorted(map(str, (ROOT / "dist").iterdir()))
    session.run("twine", "check", "--strict", *made)
    session.run("check-wheel-contents", *[name for name in made if name.endswith(".whl")])


@nox.session(requires=["release"])
def package(session: nox.Session) -> None:
    """The wheel alone, installed without any of the optional packages."""
    install(session, "")
    session.install("-q", "--force-reinstall", "--no-deps", *map(str, (ROOT / "dist").glob("*.whl")))
    session.run("python", "-W", "error", ".ci/minimal.py")
    session.run("python", "-m", "dask", "rewrite", "passes")


@nox.session
def rivals(session: nox.Session) -> None:
    """The environment of what the benchmarks compare with, beside stock dask."""
    install(session, "demo", "rivals")


@nox.session(requires=["rivals"])
def bench(session: nox.Session) -> None:
    """The benchmarks."""
    install(session, "demo")
    python = ROOT / ".venvs/rivals" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    session.run("python", "-m", "benchmarks", *session.posargs, env={"RIVALS_PYTHON": str(python)})


@nox.session
def downstream(session: nox.Session) -> None:
    """Libraries that build on dask, beside stock: the same answers?"""
    install(session, "demo", "downstream")
    session.run("python", "-m", "benchmarks.downstream", *session.posargs)


@nox.session
def cubed(session: nox.Session) -> None:
    """cubed beside stock dask and this package, in an environment of its own."""
    install(session, "demo", "cubed")
    session.run("python", "-m", "benchmarks.beside_cubed", env={"OPENBLAS_NUM_THREADS": "1"})


@nox.session
def suites(session: nox.Session) -> None:
    """dask's own array, bag and delayed tests, with the optimizer switched on."""
    install(session, "demo", "suites")
    session.run("python", "tests/dask_suites/run.py", *session.posargs)


@nox.session
def others(session: nox.Session) -> None:
    """The tests that libraries on top of dask bring with them, with the optimizer switched on."""
    install(session, "demo", "downstream", "suites", "others")
    session.run("python", "tests/dask_suites/run.py", *(session.posargs or OTHERS))


@nox.session(venv_backend="none")
def ci(session: nox.Session) -> None:
    """All of these but the benchmarks, with a table at the end."""
    session.run(sys.executable, ".ci/parts.py", *session.posargs)
