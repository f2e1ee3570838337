"""Measure one workload in this process; one line of JSON on stdout for every figure.

It is run in a process of its own by :mod:`benchmarks.run`, because stock dask may hang, run out
of stack or die on some workloads: that is a result like any other, and what was measured before
it must not be lost.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
import dask.array

from benchmarks import sides
from benchmarks.figures import depth_and_fan_in, held_bytes, pickled_tasks, same, submitted_bytes
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
            outcome = emit.attempt(side, figure, lambda c=call, clean=clean: timed(c, clean))  # type: ignore[misc]
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


def measure(workload: Workload, n: int, wanted: list[str], repeat: int, seconds: float, run: bool) -> None:
    """Everything there is to know about one workload at one size."""
    emit = Emitter(seconds)
    sides.warm_up(wanted)
    building, built = timed(lambda: workload.build(dask.array, n))
    collections = built if isinstance(built, tuple) else (built,)
    emit.put("raw", "build", building)
    emit.put("raw", "tasks", sides.raw_tasks(collections))

    calls = {}
    for side in wanted:
        prepare = sides.PREPARE[side]
        if side == "dask-array":
            if not workload.portable:
                continue
            call = emit.attempt(side, "optimize", lambda p=prepare: p(workload, n, collections))  # type: ignore[misc]
            if call is None:
                continue
        else:
            call = prepare(workload, n, collections)
        calls[side] = call
    graphs = alternate(emit, "optimize", calls, repeat)

    for side, (graph, keys) in graphs.items():
        emit.put(side, "tasks", len(graph))
        shape = emit.attempt(side, "depth", lambda g=graph, k=keys: depth_and_fan_in(g, k))  # type: ignore[misc]
        if shape is not None:
            emit.put(side, "depth", shape[0])
            emit.put(side, "fan_in", shape[1])
        total = emit.attempt(side, "task_bytes", lambda g=graph: pickled_tasks(g))  # type: ignore[misc]
        if total is not None:
            emit.put(side, "task_bytes", total)
    for side in calls:
        if side in graphs or side == "stock":
            size = emit.attempt(side, "bytes", lambda s=side: submitted_bytes(s, workload, n, collections))  # type: ignore[misc]
            if size is not None:
                emit.put(side, "bytes", size)
    if run:
        _run(emit, workload, n, graphs, repeat)


def _run(emit: Emitter, workload: Workload, n: int, graphs: dict[str, tuple[Any, Any]], repeat: int) -> None:
    """Run the optimized graphs, compare the answers, and the same from end to end."""
    runs = {side: (lambda g=graph, k=keys: dask.get(g, k)) for side, (graph, keys) in graphs.items()}
    answers = alternate(emit, "run", runs, repeat)
    reference = next((answers[side] for side in ("stock", "ours") if side in answers), None)
    for side, answer in answers.items():
        if side != "stock" and "stock" in answers:
            keys = graphs[side][1], graphs["stock"][1]
            emit.put(side, "same", same(reference, answer, loose=side == "dask-array", keys=keys))
    if workload.memory:
        for side, (graph, keys) in graphs.items():
            held = emit.attempt(side, "held", lambda g=graph, k=keys: held_bytes(g, k))  # type: ignore[misc]
            if held is not None:
                emit.put(side, "held", held)
    if workload.end_to_end:
        calls = {side: sides.end_to_end(side, workload, n) for side in graphs}
        alternate(emit, "compute", calls, max(repeat, 9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name")
    parser.add_argument("n", type=int)
    parser.add_argument("--sides", default="stock,ours,dask-array", help="those installed are measured")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--no-run", action="store_true")
    args = parser.parse_args()
    wanted = [side for side in sides.available() if side in args.sides.split(",")]
    measure(WORKLOADS[args.name], args.n, wanted, args.repeat, args.limit, not args.no_run)


if __name__ == "__main__":
    main()
