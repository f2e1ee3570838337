"""Run dask's own array, bag and delayed tests, from the installed package, with the optimizer switched on.

    python tests/dask_suites/run.py                                those
    python tests/dask_suites/run.py xarray.tests.test_dask xgcm    those of other packages that bring theirs

A test that fails is run again on stock dask: failing there too, it is not counted. Every other failure must
stand in expected.toml with its reason, and every entry of expected.toml must fail (both of dask's own alone).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import dask

HERE = Path(__file__).resolve().parent
SUITES = ["dask.array.tests", "dask.bag.tests", "dask.tests.test_delayed"]
#: Other packages have marks of their own, and let warnings pass.
LENIENT = ["-o", "addopts=-p no:cacheprovider", "-o", "filterwarnings=", "-o", "xfail_strict=false"]


@dataclass(frozen=True)
class Outcome:
    passed: int
    failed: set[str]


def run(name: str, suites: list[str], *, only: set[str] | None = None, stock: bool = False) -> Outcome:
    """Run suites, or `only` some of their tests, in a new folder: dask's tests leave files there."""
    print(f"== {name}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        result = Path(temporary, "result.json")
        work = Path(temporary, "work")
        work.mkdir()
        env = os.environ | {"PYTHONPATH": str(HERE), "DASK_SUITES_RESULT": str(result)}
        command = [sys.executable, "-m", "pytest", "-p", "plugin", "-c", str(HERE / "suites.ini")]
        command += ["--rootdir", str(Path(dask.__file__).parents[1]), "--timeout", "300", "--tb=short", "-q"]
        if suites is not SUITES:
            command += LENIENT
        if stock:
            env["DASK_SUITES_STOCK"] = "1"
        if only is None:
            command += ["-n", "2"]
        else:
            selection = Path(temporary, "only")
            selection.write_text("\n".join(sorted(only)))
            env["DASK_SUITES_ONLY"] = str(selection)
        code = subprocess.run([*command, "--pyargs", *suites], env=env, cwd=work).returncode
        if code > 1 or not result.exists():  # interrupted, nothing collected, or an error of pytest's own
            raise SystemExit(f"pytest ended with {code}")
        content = json.loads(result.read_text())
        return Outcome(content["passed"], set(content["failed"]))


def main(names: list[str]) -> int:
    suites = names or SUITES
    expected: dict[str, str] = {} if names else tomllib.loads((HERE / "expected.toml").read_text())
    ours = run("with the optimizer", suites)
    listed = ours.failed & expected.keys()
    stock, again = Outcome(0, set()), Outcome(0, set())
    if suspects := ours.failed - listed:
        stock = run("what failed, on stock dask", suites, only=suspects, stock=True)
    if suspects := ours.failed - listed - stock.failed:
        # some of dask's tests fail now and then; only what fails twice counts
        again = run("what failed with the optimizer only, once more", suites, only=suspects)

    print()
    messages = {
        "fails on stock dask too": ours.failed & stock.failed,
        "failed once, then passed": ours.failed - listed - stock.failed - again.failed,
        "fails, as expected.toml says": listed,
        "FAILS WITH THE OPTIMIZER ONLY": again.failed,
        "STANDS IN expected.toml BUT DID NOT FAIL": expected.keys() - listed,
    }
    for message, tests in messages.items():
        for test in sorted(tests):
            print(f"{message}: {test}")
    wrong = len(again.failed) + len(expected.keys() - listed)
    print(f"{ours.passed} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
