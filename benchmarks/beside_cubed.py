"""cubed beside stock dask and this package: the same programs, one after the other, in one process.

``python dev.py cubed`` runs it in an environment of its own. Blocks are computed one at a time by each of
the three. Times are from building the program to its answer, tasks are what each of them runs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
from dask.base import collections_to_expr

import dask_rewrite

SIZE, BLOCK = 1000, 100
Program = Callable[[Any, Any], Any]


def _sums(xp: Any, x: Any) -> Any:
    total = x
    for _ in range(30):
        total = total + x
    return total


def _normal(xp: Any, x: Any) -> Any:
    return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)


def _there_and_back(xp: Any, x: Any) -> Any:
    for _ in range(3):
        x = x.rechunk((SIZE // 5, BLOCK)).rechunk((BLOCK, SIZE // 5))
    return x


PROGRAMS: dict[str, Program] = {
    "one tile of `x + x.T`": lambda xp, x: (x + x.T)[:BLOCK, :BLOCK],
    "`total = total + x`, 30 times": _sums,
    "`x + x.T`": lambda xp, x: x + x.T,
    "`(x - x.mean(0)) / x.std(0)`": _normal,
    "rechunk there and back, 3 times": _there_and_back,
    "`(x @ x.T).sum()`": lambda xp, x: xp.sum(x @ x.T),
}


def _with_dask(values: np.ndarray[Any, Any], program: Program) -> tuple[float, int, Any]:
    start = time.perf_counter()
    built = program(da, da.from_array(values, chunks=BLOCK))
    answer = built.compute(scheduler="sync")
    seconds = time.perf_counter() - start
    return seconds, len(dict(collections_to_expr((built,)).optimize().__dask_graph__())), answer


def _with_ours(values: np.ndarray[Any, Any], program: Program) -> tuple[float, int, Any]:
    with dask_rewrite.enable():
        return _with_dask(values, program)


def _with_cubed(values: np.ndarray[Any, Any], program: Program) -> tuple[float, int, Any]:
    import cubed
    import cubed.array_api as xp

    with tempfile.TemporaryDirectory() as folder:
        spec = cubed.Spec(work_dir=folder, allowed_mem="2GB", executor_name="single-threaded")
        start = time.perf_counter()
        built = program(xp, cubed.from_array(values, chunks=(BLOCK, BLOCK), spec=spec))
        answer = built.compute()
        seconds = time.perf_counter() - start
        return seconds, built.plan().num_tasks, answer


SIDES = {"stock dask": _with_dask, "dask-rewrite": _with_ours, "cubed": _with_cubed}


def table() -> pd.DataFrame:
    """Seconds and tasks of each program with each side."""
    values = np.random.default_rng(0).random((SIZE, SIZE))
    first = next(iter(PROGRAMS.values()))
    for run in SIDES.values():
        run(values, first)  # what is imported is imported
    rows = {}
    for name, program in PROGRAMS.items():
        seconds, tasks, answers = zip(*[run(values, program) for run in SIDES.values()], strict=True)
        assert all(np.allclose(answers[0], other) for other in answers[1:]), name
        rows[name] = [*(f"{one:.2f} s" for one in seconds), *(f"{one:,}" for one in tasks)]
    columns = [*(f"{side}" for side in SIDES), *(f"tasks: {side}" for side in SIDES)]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


if __name__ == "__main__":
    print(table().to_string())
