"""The runner of all parts: what fails is counted, what runs side by side shown apart, and all ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.once

#: Stands in for nox: says what it was asked for, slowly.
FAKE = """
import sys, time
names = [word for word in sys.argv[2:] if not word.startswith("-")]
for i in range(3):
    print(*names, "line", i, flush=True)
    time.sleep(float("slow" in sys.argv[0]) * 100 + 0.05)
print("3 failed, 4 passed in 0.1s" if names == ["oldest"] else "5 passed in 0.1s")
sys.exit("docs" in names or names == ["oldest"])
"""
RUN = """
import sys
sys.path.insert(0, sys.argv.pop(1))
nox = sys.argv.pop(1)
import parts, signal
parts.nox = lambda: [sys.executable, nox]
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(parts.main(sys.argv[1:]))
"""


def started(folder: Path, name: str, *words: str) -> subprocess.Popen[str]:
    (folder / name).write_text(FAKE)
    command = [sys.executable, "-c", RUN, str(ROOT / ".ci"), str(folder / name), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_table_of_all_parts_in_their_order(tmp_path: Path) -> None:
    process = started(tmp_path, "nox.py", "oldest", "lint", "docs", "doctest")
    shown = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 1
    rows = [line.split() for line in shown[-7:-2]]
    assert [(row[0], *row[2:]) for row in rows] == [
        ("oldest", "4", "3"),
        ("lint", "5", "0"),
        ("docs", "5", "1"),
        ("doctest", "5", "0"),
        ("total", "19", "4"),
    ]
    assert shown[-1] == "19 passed, 4 failed"


def test_what_runs_side_by_side_is_shown_apart(tmp_path: Path) -> None:
    shown = started(tmp_path, "nox.py", "lint", "docs", "test").communicate(timeout=60)[0].splitlines()
    heads = {line.partition("= ")[2]: i for i, line in enumerate(shown) if line.startswith("[ci] ====")}
    for name in ("lint", "docs"):
        assert shown[heads[name] + 2 : heads[name] + 5] == [f"{name} line {i}" for i in range(3)]
    assert shown[heads["installation of the others"] + 1].endswith("-s test --install-only")
    assert heads["test"] == max(heads.values())  # when all environments are there


@pytest.mark.skipif(os.name != "posix", reason="groups of processes are ended")
def test_being_told_to_end_ends_what_runs(tmp_path: Path) -> None:
    process = started(tmp_path, "slow.py", "lint", "docs", "doctest")
    assert process.stdout is not None
    assert "two at a time" in process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode
    assert not subprocess.run(["pgrep", "-f", str(tmp_path / "slow.py")], capture_output=True).stdout
