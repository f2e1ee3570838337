"""Run all parts of the continuous integration to the end, whatever fails, and print a table of them.

.ci/run              all parts
.ci/run lint docs    only these
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
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dev import ROOT, nox

PARTS = ("lint", "docs", "package", "doctest", "test", "examples", "oldest", "between", "python313", "suites")
#: Parts that run by name only: not every machine has what they need.
BEYOND = ("python314", "development")
#: A command that hangs is stopped after this; all parts together take half an hour.
MINUTES = 20


@dataclass
class Result:
    """What one part of the continuous integration came to."""

    name: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0


def say(text: str) -> None:
    print(f"[ci] {text}", flush=True)


def end_group(process: subprocess.Popen[str]) -> None:
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def run_and_count(command: list[str], result: Result) -> None:
    """Run one command, showing its output, and add pytest's own counts (or one, for other commands)."""
    say(" ".join(command))
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a group of its own, so that what it leaves running can be ended
    )
    assert process.stdout is not None
    timer = threading.Timer(MINUTES * 60, end_group, [process])
    timer.start()
    last = ""
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            if re.search(r"\b\d+ (passed|failed)", line):
                last = line
        code = process.wait()
    finally:
        timer.cancel()
        end_group(process)
    counts = {word: int(number) for number, word in re.findall(r"\b(\d+) (passed|failed|error)", last)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    result.passed += counts.get("passed", 0 if code else 1)
    result.failed += failed or (1 if code else 0)


def main(names: list[str]) -> int:
    unknown = set(names) - {*PARTS, *BEYOND, "demo", "bench"}
    if unknown:
        raise SystemExit(f"[ci] unknown parts: {', '.join(sorted(unknown))}")
    results = []
    for name in names or PARTS:
        result = Result(name)
        say(f"======== {name}")
        start = time.perf_counter()
        try:
            run_and_count([*nox(), "-s", name], result)
        except (SystemExit, subprocess.CalledProcessError, OSError) as error:
            say(str(error))
            result.failed += 1
        result.seconds = time.perf_counter() - start
        results.append(result)
    total = Result("total", *(sum(getattr(r, f) for r in results) for f in ("passed", "failed", "seconds")))
    print(f"\n{'part':<12}{'seconds':>9}{'passed':>9}{'failed':>9}")
    for row in [*results, total]:
        print(f"{row.name:<12}{row.seconds:>9.0f}{row.passed:>9}{row.failed:>9}")
    print(f"\n{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs is ended as with control-C
    sys.exit(main(sys.argv[1:]))
