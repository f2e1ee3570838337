"""What tasks cost on the wire: columns beside plain pickle, of the same tasks in the same run.

    python -m benchmarks.wire                 a standardized array of up to 105,600 tasks, and other graphs
    python -m benchmarks.wire --times 5       the best of five

Packing is the writing of the columns and the pickling together. The collector of garbage is on, as it is on
a client and a scheduler.
"""

from __future__ import annotations

import argparse
import gc
import pickle
import time
import zlib
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.typing import Key

import dask_rewrite
from benchmarks.harness.table import grid
from dask_rewrite.hook.wire import Packed


def block(block_id: tuple[int, ...] | None = None) -> Any:
    """A block that nobody knows anything about."""
    return np.full((2, 2), float(sum(block_id or ())))


def blocks(n: int) -> da.Array:
    return da.map_blocks(block, chunks=((2,) * n, (2,) * n), dtype=float)


def standardized(n: int) -> da.Array:
    y = blocks(n)
    return (y - y.mean(0)) / y.std(0)


def with_transposed(n: int) -> da.Array:
    x = blocks(n)
    return x + x.T


def averaged(n: int) -> da.Array:
    return (blocks(n) + 1).mean(axis=0)


def random(n: int) -> da.Array:
    x = da.random.default_rng(0).random((2 * n, 2 * n), chunks=2)
    return (x - x.mean(0)) / x.std(0)


def overlapping(n: int) -> da.Array:
    return da.map_overlap(np.sin, blocks(n), depth=1, boundary="periodic", dtype=float)


def towers(n: int) -> da.Array:
    x = blocks(n)
    for _ in range(6):
        x = np.sin(x * 2) + x
    return x


CASES: list[tuple[Callable[[int], da.Array], int]] = [
    (standardized, 37),
    (standardized, 75),
    (standardized, 150),
    (with_transposed, 150),
    (averaged, 150),
    (random, 75),
    (overlapping, 60),
    (towers, 100),
]


def tasks_of(array: da.Array) -> dict[Key, Any]:
    """The tasks that go to a scheduler for it."""
    with dask.config.set({"rewrite.lower-limit": 10_000_000}):
        (optimized,) = (dask_rewrite.optimize(array),)
    return dict(optimized.__dask_graph__())


def best(times: int, action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the fastest of several runs, and what the last one gave."""
    seconds = []
    for _ in range(times):
        result = None
        gc.collect()
        start = time.perf_counter()
        result = action()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def row(name: str, tasks: dict[Key, Any], times: int) -> list[str]:
    plain, pickled = best(times, lambda: pickle.dumps(tasks, protocol=5))
    packing, packed = best(times, lambda: pickle.dumps(Packed(tasks), protocol=5))
    loading, _ = best(times, lambda: pickle.loads(pickled))
    unpacking, _ = best(times, lambda: pickle.loads(packed))
    count = len(tasks)
    return [
        *(name, str(count), f"{plain:.3f}", f"{packing:.3f}", f"{packing / plain:.3f}"),
        *(f"{loading:.3f}", f"{unpacking:.3f}", f"{unpacking / loading:.3f}"),
        *(f"{len(pickled) / count:.1f}", f"{len(packed) / count:.2f}"),
        *(f"{len(zlib.compress(packed, 1)) / count:.2f}", f"{1e6 * packing / count:.2f}"),
    ]


HEADER = ["graph", "tasks", "pickle: plain", "columns", "x", "unpickle: plain", "columns", "x"]
HEADER += ["bytes a task: plain", "columns", "compressed", "µs a task"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    rows = [row(f"{make.__name__} {n}x{n}", tasks_of(make(n)), times) for make, n in CASES]
    print(grid(HEADER, rows))


if __name__ == "__main__":
    main()
