"""Measure one workload in this process; one line of JSON on stdout for every figure.

It is run in a process of its own by :mod:`benchmarks.run`, because stock dask may hang, run out
of stack or die on some workloads: that is a result like any other, and what was measured before
it must not be lost.
"""

from __future__ import annotations

import argparse
import gc
import json
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask

from benchmarks.harness import machines, sides
from benchmarks.harness.figures import depth_and_fan_in, pickled_tasks, same, submitted_bytes, whole_arrays
from benchmarks.harness.memory import held_bytes
from benchmarks.workloads import WORKLOADS, Workload


class OutOfTime(BaseException):
    """A stage took longer than its limit; no ``except Exception`` on the way stops it."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise :class:`OutOfTime` in this thread after so many seconds."""

    def stop(signum: int, frame: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Emitter:
    """Print a figure when it is known, and remember it."""

    def __init__(self, seconds: float) -> None:
        self.limit = seconds
        self.dead: set[str] = set()

    def put(self, side: str, figure: str, value: Any) -> None:
        print(json.dumps({"side": side, "figure": figure, "value": value}), flush=True)

    def attempt(self, side: str, figure: str, call: Callable[[], Any]) -> Any:
        """Call; on failure or at the limit record why and return None."""
        try:
            with limit(self.limit):
                return call()
        except OutOfTime:
            self.put(side, figure, f"> {self.limit:.0f} s")
        except Exception as error:
            self.put(side, figure, type(error).__name__)
        self.dead.add(f"{side} {figure}")
        return None

    def figure(self, side: str, figure: str, call: Callable[[], Any]) -> Any:
        """Attempt, and print what came out."""
        value = self.attempt(side, figure, call)
        if isinstance(value, int):
            self.put(side, figure, value)
        return value


def timed(call: Callable[[], Any], clean: bool = True) -> tuple[float, Any]:
    """Seconds and result of a call; garbage of earlier work is collected before, not during."""
    on = "stock"
    if isinstance(call, sides.Prepared):
        call.reset()
        on = call.on
    if clean:
        gc.collect()
    with sides.switched_on(on):
        start = time.perf_counter()
        result = call()
        return time.perf_counter() - start, result


def alternate(emit: Emitter, figure: str, calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, Any]:
    """The best time of each side, the sides taking turns; the last result of each side.

    Short calls are repeated more often: their best of three is mostly noise.
    """
    best: dict[str, float] = {}
    results: dict[str, Any] = {}
    spent, turn = 0.0, 0
    while turn < repeat or (spent < 0.3 and turn < 25):
        for side, call in calls.items():
            if f"{side} {figure}" in emit.dead or best.get(side, 0.0) > 8.0:
                continue
            results.pop(side, None)
            # a full collection takes longer than a short call: those only take the best of many
            clean = best.get(side, 1.0) > 0.02
            outcome = emit.attempt(side, figure, lambda c=call, clean=clean: timed(c, clean))
            if outcome is None:
                best.pop(side, None)
                continue
            seconds, results[side] = outcome
            best[side] = min(seconds, best.get(side, seconds))
            spent += seconds
        turn += 1
    for side, seconds in best.items():
        emit.put(side, figure, seconds)
    return results


def measure(workload: Workload, n: int, wanted: list[str], args: argparse.Namespace) -> None:
    """Everything there is to know about one workload at one size."""
    emit = Emitter(args.limit)
    sides.warm_up(wanted)
    building, collections = timed(lambda: sides.build(wanted[0], workload, n))
    if wanted != ["dask-array"]:
        emit.put("raw", "build", building)
        emit.put("raw", "tasks", sides.raw_tasks(collections))

    calls = {side: sides.PREPARE[side](workload, n, collections) for side in wanted}
    graphs = alternate(emit, "optimize", calls, args.repeat)
    if args.optimize_only:
        return
    for side, (graph, keys) in graphs.items():
        emit.put(side, "tasks", len(graph))
        shape = emit.figure(side, "depth", lambda g=graph, k=keys: depth_and_fan_in(g, k))
        if shape is not None:
            emit.put(side, "depth", shape[0])
            emit.put(side, "fan_in", shape[1])
        emit.figure(side, "task_bytes", lambda g=graph: pickled_tasks(g))
    for side in calls:
        if side in graphs or side == "stock":
            emit.figure(side, "bytes", lambda s=side: submitted_bytes(s, collections))
    if not args.no_run and workload.on:
        _on_machines(emit, workload, n, wanted, args)
    elif not args.no_run:
        _run(emit, workload, n, graphs, args)


def _on_machines(
    emit: Emitter, workload: Workload, n: int, wanted: list[str], args: argparse.Namespace
) -> None:
    """Compute from end to end on every scheduler that the workload names."""
    on = [one for one in workload.on if not args.on or one in args.on.split(",")]

    def turns(figure: str, calls: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        return alternate(emit, figure, calls, args.repeat)

    machines.Session(workload, n, wanted, turns, emit.figure, emit.put, args.repeat).measure(on)


def _run(
    emit: Emitter, workload: Workload, n: int, graphs: dict[str, tuple[Any, Any]], args: argparse.Namespace
) -> None:
    """Run the optimized graphs, compare the answers, and the same from end to end."""
    runs = {side: (lambda g=graph, k=keys: dask.get(g, k)) for side, (graph, keys) in graphs.items()}
    answers = alternate(emit, "run", runs, args.repeat)
    if "stock" in answers and "ours" in answers:
        emit.put("ours", "same", same(answers["stock"], answers["ours"]))
    for side in ("stock", "dask-array"):
        if args.answer is None or side not in answers or not workload.portable:
            continue
        arrays = whole_arrays(graphs[side][1], answers[side])
        if side == "stock":
            args.answer.write_bytes(pickle.dumps(arrays))
        elif args.answer.exists():
            emit.put(side, "same", same(pickle.loads(args.answer.read_bytes()), arrays))
    if workload.memory:
        for side, (graph, keys) in graphs.items():
            emit.figure(side, "held", lambda g=graph, k=keys: held_bytes(g, k))
    if workload.end_to_end:
        calls = {side: sides.end_to_end(side, workload, n) for side in graphs}
        alternate(emit, "compute", calls, max(args.repeat, 9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name")
    parser.add_argument("n", type=int)
    parser.add_argument("--sides", default="stock,ours", help="those that are installed are measured")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--optimize-only", action="store_true", help="seconds to optimize, nothing else")
    parser.add_argument("--on", help="only these of the schedulers that the workload names")
    parser.add_argument("--answer", type=Path, help="a file: stock writes its answer, dask-array compares")
    args = parser.parse_args()
    wanted = [side for side in sides.available() if side in args.sides.split(",")]
    if "dask-array" in wanted and len(wanted) > 1:
        parser.error("dask-array changes dask when it is imported: measure it in a process of its own")
    if wanted:
        workload = WORKLOADS[args.name]
        with dask.config.set(dict(workload.config)):
            measure(workload, args.n, wanted, args)


if __name__ == "__main__":
    main()
