"""Programs as people write them, over data on disk: what they cost beside stock, in one run.

    python -m benchmarks.as_written                      all of them, small
    python -m benchmarks.as_written large                four times the days, and finer
    python -m benchmarks.as_written small eof cells      only these

For each: whether the answers are the same; tasks; seconds to optimize; on two threads the bytes held at most
between tasks, and those allocated at most, inside of tasks too; and seconds of the processor to optimize and
compute, which a busy machine changes little.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.threaded
import zarr
from dask.core import flatten

import dask_rewrite
from benchmarks.forecasts import Added
from benchmarks.harness.figures import same
from benchmarks.harness.memory import traced
from benchmarks.harness.rows import geometric_mean
from benchmarks.harness.table import grid, show
from benchmarks.workloads.written_data import SIZES, Data
from benchmarks.workloads.written_fields import FIELDS
from benchmarks.workloads.written_work import WORK

#: What is measured, and how the answer is made.
PROGRAMS: dict[str, Callable[[Data], Any]] = {**FIELDS, **WORK}
#: Of turns the best time counts, and the middle of what was held: threads make it differ.
TURNS = 3
FIGURES = ("tasks", "optimize", "held", "allocated", "processor")
_NAMES = ("array_optimize", "delayed_optimize", "bag_optimize")
SIDES: dict[str, dict[str, Any]] = {
    "stock": {"array_optimize": None, "delayed_optimize": None, "bag_optimize": None},
    "ours": dict.fromkeys(_NAMES, dask_rewrite.optimize),
}


def switched(side: str) -> Any:
    """A context in which one side optimizes, on two threads."""
    settings = {name: value for name, value in SIDES[side].items() if value is not None}
    return dask.config.set({**settings, "scheduler": "threads", "num_workers": 2})


def collections(made: Any) -> tuple[tuple[Any, ...], str | None]:
    """What is computed, and the path under which the answer is then found."""
    parts = made if isinstance(made, tuple) else (made,)
    return (parts[:-1], parts[-1]) if isinstance(parts[-1], str) else (parts, None)


def _plain(answer: Any) -> list[Any]:
    """Arrays and scalars of an answer, labelled ones too."""
    if isinstance(answer, tuple | list):
        return [part for each in answer for part in _plain(each)]
    if hasattr(answer, "data_vars"):
        return [variable.values for variable in answer.variables.values()]
    return [answer.values if hasattr(answer, "values") and not callable(answer.values) else answer]


def optimized(program: Callable[[Data], Any], data: Data) -> tuple[int, float]:
    """Tasks that are sent, and seconds of the processor until then; the best of `TURNS`."""
    best = []
    for _ in range(TURNS):
        parts, _ = collections(program(data))
        gc.collect()
        start = time.process_time()
        graph = dask.base.collections_to_expr(parts).optimize().__dask_graph__()
        best.append(time.process_time() - start)
    return len(dict(graph)), min(best)


def computed(program: Callable[[Data], Any], data: Data) -> tuple[int, float, list[Any]]:
    """Bytes held at most, seconds of the processor, and the answer."""
    parts, path = collections(program(data))
    gc.collect()
    start = time.process_time()
    with Added() as held:
        answer: Any = dask.compute(*parts)
    seconds = time.process_time() - start
    return held.peak, seconds, _plain(zarr.open(path)[...] if path else answer)


def allocated(program: Callable[[Data], Any], data: Data) -> int:
    """Bytes that Python and NumPy allocate at most while the tasks run: blocks inside of tasks count too."""
    parts, _ = collections(program(data))
    expression = dask.base.collections_to_expr(parts).optimize()
    graph, keys = dict(expression.__dask_graph__()), list(flatten(expression.__dask_keys__()))
    return traced(lambda: dask.threaded.get(graph, keys))[1]


def measured(program: Callable[[Data], Any], data: Data) -> tuple[str, dict[str, tuple[float, float]]]:
    """Whether answers are the same, and each figure of stock's and ours."""
    found: dict[str, tuple[float, ...]] = {}
    answers = {}
    for side in SIDES:
        with switched(side):
            found[side] = optimized(program, data)
    best: dict[str, list[tuple[int, int, float]]] = {side: [] for side in SIDES}
    for _ in range(TURNS):
        for side in SIDES:
            with switched(side):
                held, seconds, answers[side] = computed(program, data)
                best[side].append((held, allocated(program, data), seconds))
    for side, runs in best.items():
        held, most, _ = (sorted(figures)[TURNS // 2] for figures in zip(*runs, strict=True))
        found[side] = (*found[side], held, most, min(seconds for *_, seconds in runs))
    pairs = zip(FIGURES, *found.values(), strict=True)
    return same(answers["stock"], answers["ours"]), {name: (a, b) for name, a, b in pairs}


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if an answer is another one."""
    size = arguments[0] if arguments and arguments[0] in SIZES else "small"
    names = [name for name in arguments if name not in SIZES] or list(PROGRAMS)
    lines, ratios, wrong = [], {figure: dict[str, float]() for figure in FIGURES}, []
    with tempfile.TemporaryDirectory(prefix="dask-rewrite-written-") as folder:
        data = Data(Path(folder), size)
        for name in names:
            is_same, figures = measured(PROGRAMS[name], data)
            wrong += [name] * (is_same == "NO")
            line = [name, is_same]
            for figure, (stock, ours) in figures.items():
                unit = {"tasks": "", "held": "B", "allocated": "B"}.get(figure, "s")
                if stock and ours:
                    ratios[figure][name] = ours / stock
                line += [show(stock, unit), show(ours, unit), f"{ours / stock:.2f}" if stock else "-"]
            lines.append(line)
            print(*line, file=sys.stderr, flush=True)  # a run that is stopped has not been in vain
    heads = [head for figure in FIGURES for head in (f"{figure}: stock", "ours", "x")]
    print(grid(["program", "same", *heads], lines))
    for figure, found in ratios.items():
        worst = sorted(found.items(), key=lambda pair: -pair[1])[:6]
        print(f"\n{figure}: geometric mean {geometric_mean(found.values()):.3f}; worst", end=" ")
        print(", ".join(f"{name} {ratio:.2f}" for name, ratio in worst), end="")
    print(f"\n\n{len(lines)} programs; answers that differ: {', '.join(wrong) or 'none'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
