"""How the cost of optimizing and pickling grows with the graph: ``python -m benchmarks.growth``.

Three curves: tasks (blocks of one program), layers (operations one after the other), and collections that are
computed together. Each point is measured in a process of its own: seconds of CPU time, and by how much the
peak of its memory rises. A curve that grows like ``n ** p`` is a straight line of slope ``p`` in the picture.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: Largest exponent that counts as linear, up to noise and caches.
LINEAR = 1.1
#: Memory that a process takes at first whatever the graph: smaller rises say nothing about growth.
FEW_MEGABYTES = 20.0


class Point(NamedTuple):
    """What one size costs."""

    size: int
    seconds: float
    megabytes: float


def _load(block_info: Any = None) -> Any:
    return np.ones((1, 1))


def _tasks(size: int) -> list[Any]:
    """The mean along one axis of blocks of a function that nobody knows; about ``size`` tasks."""
    import dask.array as da

    blocks = max(2, round(math.sqrt(size / 2.3)))
    x = da.map_blocks(_load, chunks=((1,) * blocks,) * 2, dtype=float, meta=np.empty((0, 0)))
    return [(x + 1).mean(axis=0)]


def _layers(size: int) -> list[Any]:
    """So many additions one after the other; built layer by layer, since dask copies a graph for each."""
    import operator

    import dask.array as da
    from dask.blockwise import blockwise
    from dask.highlevelgraph import HighLevelGraph

    x = da.ones(4, chunks=2)
    layers, dependencies = dict(x.dask.layers), dict(x.dask.dependencies)
    below = x.name
    for i in range(size):
        name = f"add-{i:08d}"
        layers[name] = blockwise(operator.add, name, "i", below, "i", 1, None, numblocks={below: (2,)})
        dependencies[name] = {below}
        below = name
    return [da.Array(HighLevelGraph(layers, dependencies), below, x.chunks, meta=x._meta)]


def _collections(size: int) -> list[Any]:
    """So many small arrays, computed together."""
    import dask.array as da

    return [da.ones(4, chunks=2) + i for i in range(size)]


CURVES: dict[str, tuple[Callable[[int], list[Any]], tuple[int, ...]]] = {
    "tasks": (_tasks, (1_000, 10_000, 100_000, 1_000_000)),
    "layers": (_layers, (10, 100, 1_000, 10_000, 100_000)),
    "collections": (_collections, (1, 10, 100, 1_000, 10_000)),
}


def measure(curve: str, size: int, stock: bool = False) -> Point:
    """Optimize and pickle one program in this process."""
    import dask
    from dask._expr import FinalizeCompute
    from dask.base import collections_to_expr
    from distributed.protocol import pickle

    import dask_rewrite

    with nullcontext() if stock else dask_rewrite.enable():
        dask.compute(_tasks(10), scheduler="sync")  # imports
        built = CURVES[curve][0](size)
        gc.collect()
        before = _peak(reset=True)
        started = time.process_time()
        optimized = FinalizeCompute(collections_to_expr(built)).optimize()
        sent = pickle.dumps(optimized)
        if stock:  # the scheduler does the work
            pickle.loads(sent).__dask_graph__()
        return Point(size, time.process_time() - started, _peak() - before)


def _peak(reset: bool = False) -> float:
    """Most megabytes that this process has had, since the last reset where the system can do that."""
    status = Path("/proc/self/status")
    if status.exists():
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def exponent(points: Sequence[Point], value: Callable[[Point], float], least: float) -> float | None:
    """Slope of the line through the points on logarithmic axes; None if too few of them are above ``least``.

    Examples
    --------
    >>> round(exponent([Point(n, 1e-3 * n**2, 0) for n in (10, 100, 1000)], lambda p: p.seconds, 0.0), 6)
    2.0
    """
    found = [(math.log(p.size), math.log(value(p))) for p in points if value(p) > least]
    if len(found) < 2:
        return None
    xs, ys = zip(*found)
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in found) / sum((a - x) ** 2 for a in xs)


def picture(curves: dict[str, list[Point]]) -> str:
    """Seconds over size, on logarithmic axes, as SVG."""
    points = [p for curve in curves.values() for p in curve]
    left, right = 0, math.ceil(math.log10(max(p.size for p in points)))
    low = math.floor(math.log10(min(p.seconds for p in points)))
    high = math.ceil(math.log10(max(p.seconds for p in points)))

    def at(size: float, seconds: float) -> tuple[float, float]:
        across = 60 + 500 * (math.log10(size) - left) / (right - left)
        return across, 20 + 300 * (high - math.log10(seconds)) / (high - low)

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 370" font-family="sans-serif">']
    parts.append('<rect width="680" height="370" fill="white"/>')
    for power in range(left, right + 1):
        x, y = at(10**power, 10**low)
        parts.append(f'<path d="M{x:.0f} 20V{y:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="340" font-size="12" text-anchor="middle">{10**power:,}</text>')
    for power in range(low, high + 1):
        x, y = at(10**left, 10.0**power)
        parts.append(f'<path d="M{x:.0f} {y:.0f}H560" stroke="#ddd"/>')
        parts.append(
            f'<text x="52" y="{y + 4:.0f}" font-size="12" text-anchor="end">{10.0**power:g} s</text>'
        )
    for (name, curve), colour in zip(curves.items(), ("#1b6ca8", "#c8553d", "#4a7c59")):
        places = [at(p.size, p.seconds) for p in curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = places[-1]
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 4:.0f}" font-size="13" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the curves, print them, and say whether they are linear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", default=",".join(CURVES))
    parser.add_argument("--most", type=int, default=10**6, help="leave larger sizes out")
    parser.add_argument("--stock", action="store_true", help="dask's own optimizer instead")
    parser.add_argument("--svg", type=Path, help="write the picture there")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.point:
        name, size = options.point.split(":")
        print(json.dumps(measure(name, int(size), options.stock)))
        return 0
    curves: dict[str, list[Point]] = {}
    linear = True
    for name in options.curves.split(","):
        points = curves[name] = []
        for size in CURVES[name][1]:
            if size <= options.most:
                points.append(_apart(name, size, options.stock))
                print(
                    f"{name:12} {size:>9,} {points[-1].seconds:9.4f} s {points[-1].megabytes:8.0f} MB",
                    flush=True,
                )
        slopes = (
            exponent(points, lambda p: p.seconds, 0.02),
            exponent(points, lambda p: p.megabytes, FEW_MEGABYTES),
        )
        linear = linear and all(slope is None or slope <= LINEAR for slope in slopes)
        print(
            f"{name:12} exponents: {', '.join('-' if s is None else f'{s:.2f}' for s in slopes)}", flush=True
        )
    if options.svg:
        options.svg.write_text(picture(curves))
    return 0 if linear else 1


def _apart(name: str, size: int, stock: bool) -> Point:
    command = [sys.executable, "-m", "benchmarks.growth", "--point", f"{name}:{size}"]
    done = subprocess.run(command + ["--stock"] * stock, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} of {size}: {done.stderr[-2000:]}")
    return Point(*json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
