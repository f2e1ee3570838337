"""Run all parts of the continuous integration to the end, whatever fails, and print a table of them.

.ci/run              all parts
.ci/run lint docs    only these

Parts of one process run two at a time, each printing what it has to say when it is done. The environments of
the others are installed beside them; these others run tests in two processes, and one after the other.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dev import ROOT, nox

PARTS = ("lint", "docs", "package", "doctest", "test", "examples", "oldest", "between", "python313", "suites")
#: Parts that run by name only: not every machine has what they need.
BEYOND = ("python314", "development")
#: Parts of one process.
ALONE = ("lint", "docs", "package", "doctest", "examples")
#: A command that hangs is stopped after this; the longest takes twenty minutes, twice that on slow machines.
MINUTES = 55


@dataclass
class Result:
    """What one part of the continuous integration came to."""

    name: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0


#: Commands that are running.
RUNNING: list[subprocess.Popen[str]] = []


def show(text: str) -> None:
    print(text, end="", flush=True)


def say(text: str) -> None:
    show(f"[ci] {text}\n")


def end_group(process: subprocess.Popen[str]) -> None:
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def run(command: list[str], result: Result, show: Callable[[str], object]) -> None:
    """Run one command, showing its output, and add pytest's own counts (or one, for other commands)."""
    show(f"[ci] {' '.join(command)}\n")
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a group of its own, so that what it leaves running can be ended
    )
    RUNNING.append(process)
    assert process.stdout is not None
    timer = threading.Timer(MINUTES * 60, end_group, [process])
    timer.start()
    last = ""
    try:
        for line in process.stdout:
            show(line)
            if re.search(r"\b\d+ (passed|failed)", line):
                last = line
        code = process.wait()
    finally:
        timer.cancel()
        end_group(process)
        RUNNING.remove(process)
    counts = {word: int(number) for number, word in re.findall(r"\b(\d+) (passed|failed|error)", last)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    result.passed += counts.get("passed", 0 if code else 1)
    result.failed += failed or (1 if code else 0)
    result.seconds = time.perf_counter() - start


def run_beside(jobs: list[tuple[list[str], Result]]) -> None:
    """Run commands two at a time; what one prints is shown when it is done, in one piece."""

    def run_one(command: list[str], result: Result) -> None:
        lines: list[str] = []
        run(command, result, lines.append)
        show(f"[ci] ======== {result.name}\n{''.join(lines)}")

    with ThreadPoolExecutor(2) as pool:
        try:
            list(pool.map(run_one, *zip(*jobs, strict=True)))
        except BaseException:  # such as control-C: end what runs, or the pool waits for it
            for process in list(RUNNING):
                end_group(process)
            raise


def main(names: list[str]) -> int:
    unknown = set(names) - {*PARTS, *BEYOND, "demo", "bench"}
    if unknown:
        raise SystemExit(f"[ci] unknown parts: {', '.join(sorted(unknown))}")
    start = time.perf_counter()
    session = [*nox(), "-s"]
    results = {name: Result(name) for name in names or PARTS}
    alone = [name for name in results if name in ALONE and len(results) > 1]
    wide = [name for name in results if name not in alone]
    if alone:
        say(f"======== {', '.join(alone)}: two at a time")
        jobs = [([*session, name], results[name]) for name in alone]
        if wide:  # what cannot be installed fails again when it is its turn, and counts then
            jobs.insert(0, ([*session, *wide, "--install-only"], Result("installation of the others")))
        run_beside(jobs)
    for name in wide:
        say(f"======== {name}")
        run([*session, name], results[name], show)
    total = Result("total", *(sum(getattr(r, f) for r in results.values()) for f in ("passed", "failed")))
    total.seconds = time.perf_counter() - start
    print(f"\n{'part':<12}{'seconds':>9}{'passed':>9}{'failed':>9}")
    for row in [*results.values(), total]:
        print(f"{row.name:<12}{row.seconds:>9.0f}{row.passed:>9}{row.failed:>9}")
    print(f"\n{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs is ended as with control-C
    sys.exit(main(sys.argv[1:]))
