"""Measure workloads in processes of their own and collect what they print as rows."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.workloads import WORKLOADS

#: seconds for one stage and for one process of a heavy workload
HEAVY = (180.0, 1800.0)

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Row:
    """All figures of one workload at one size: ``row["ours", "optimize"]``."""

    name: str
    n: int
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    note: str = ""

    def __getitem__(self, where: tuple[str, str]) -> Any:
        return self.figures.get(where[0], {}).get(where[1])

    def number(self, side: str, figure: str) -> float | None:
        """The figure, or None where there is none because the side failed."""
        value = self[side, figure]
        return float(value) if isinstance(value, (int, float)) else None

    def ratio(self, figure: str) -> float | None:
        """Ours over stock, where both have the figure."""
        ours, stock = self.number("ours", figure), self.number("stock", figure)
        return ours / stock if ours is not None and stock else None

    def total_ratio(self) -> float | None:
        """Optimizing plus running, ours over stock."""
        parts = [self.number(s, f) for s in ("ours", "stock") for f in ("optimize", "run")]
        if None in parts:
            return None
        a, b, c, d = (float(part) for part in parts if part is not None)
        return (a + b) / (c + d)


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the values that are known."""
    logs = [math.log(value) for value in values if value]
    return math.exp(sum(logs) / len(logs)) if logs else None


def collect(
    name: str,
    n: int,
    *,
    sides: str,
    repeat: int,
    limit: float,
    more: Sequence[str] = (),
    whole: float = 240.0,
) -> Row:
    """Measure one workload at one size in new processes, each for at most ``whole`` seconds."""
    row = Row(name, n)
    wanted = sides.split(",")
    if WORKLOADS[name].heavy:
        limit, whole = max(limit, HEAVY[0]), max(whole, HEAVY[1])
    with tempfile.TemporaryDirectory(prefix="dask-rewrite-bench-") as folder:
        options = ["--repeat", str(repeat), "--limit", str(limit), "--answer", str(Path(folder, "answer"))]
        options += more
        together = [side for side in ("stock", "ours") if side in wanted]
        if together:
            _measure(row, [name, str(n), "--sides", ",".join(together), *options], whole, folder)
        if "dask-array" in wanted and WORKLOADS[name].portable:
            python = os.environ.get("RIVALS_PYTHON", sys.executable)
            _measure(row, [name, str(n), "--sides", "dask-array", *options], whole, folder, python)
    return row


def _measure(row: Row, arguments: list[str], whole: float, folder: str, python: str = sys.executable) -> None:
    """Run one process and read its figures into the row; it leaves files in ``folder`` only."""
    # one thread in BLAS: dask's threads are the parallel ones, as they are on a cluster
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **single, "TMPDIR": folder}
    command = [python, "-m", "benchmarks.harness.measure", *arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=errors, start_new_session=True
        )
        try:
            code = process.wait(whole)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            row.note = f"stopped after {whole:.0f} s"
        else:
            errors.seek(0)
            if code:
                row.note = (errors.read().strip().splitlines() or [f"exit code {code}"])[-1]
        out.seek(0)
        for line in out:
            if line.startswith('{"side"'):
                found = json.loads(line)
                row.figures.setdefault(found["side"], {})[found["figure"]] = found["value"]


def import_seconds(repeat: int = 5) -> float | None:
    """Seconds of ``import dask_rewrite`` after ``import dask.array``, best of fresh interpreters."""
    code = (
        "import time, dask.array; start = time.perf_counter(); import dask_rewrite; "
        "print(time.perf_counter() - start)"
    )
    best = None
    for _ in range(repeat):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            return None
        seconds = float(done.stdout)
        best = seconds if best is None else min(best, seconds)
    return best
