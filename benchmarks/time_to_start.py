"""What it takes until the first task of a large graph can run, beside stock dask.

    python -m benchmarks.time_to_start                  43 programs of some 10,000 to 150,000 tasks
    python -m benchmarks.time_to_start --scale 0.3      the same with a tenth of the blocks
    python -m benchmarks.time_to_start roll percentile  those whose names have one of these words in them

Blocks come from functions that nobody knows. Seconds of CPU: optimizing and pickling on the client,
unpickling and making the tasks on the scheduler, which takes some `A_TASK` seconds more to enter each.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.bag as db
import numpy as np
from dask._expr import FinalizeCompute
from dask.array.lib.stride_tricks import sliding_window_view
from dask.base import collections_to_expr
from distributed.protocol import deserialize, serialize, to_serialize
from distributed.scheduler import _materialize_graph
from distributed.utils import nbytes

import dask_rewrite
from benchmarks.harness.rows import geometric_mean
from benchmarks.harness.table import grid, show

#: Seconds that a scheduler takes to enter a task, about.
A_TASK = 4e-5


def load(block_id: Any = None) -> Any:
    return np.arange(16.0).reshape(4, 4) + sum(block_id)


def load_cube(block_id: Any = None) -> Any:
    return np.arange(64.0).reshape(4, 4, 4) + sum(block_id)


def load_long(block_id: Any = None) -> Any:
    return np.arange(31.0 * 64).reshape(31, 8, 8) + sum(block_id)


def step(block: Any) -> Any:
    return block * 2


def both(block: Any, other: Any) -> Any:
    return block + other


def plane(n: int, side: int = 4) -> da.Array:
    """n x n blocks; what is declared need not be made where nothing is computed."""
    return da.map_blocks(load, chunks=((side,) * n,) * 2, dtype=float, meta=np.empty((0, 0)))


def cube(n: int) -> da.Array:
    return da.map_blocks(load_cube, chunks=((4,) * n,) * 3, dtype=float, meta=np.empty((0, 0, 0)))


def stepped(x: da.Array) -> da.Array:
    return x.map_blocks(step, dtype=float)


def loop(n: int) -> Any:
    x = plane(n)
    for _ in range(15):
        x = stepped(x) + x.mean()
    return x.sum()


def halos(n: int) -> Any:
    x = plane(n)
    for _ in range(5):
        x = da.map_overlap(step, x, depth=1, boundary=0, dtype=float)
    return x


def changed(x: da.Array, index: Any) -> da.Array:
    x[index] = 0
    return x


def fitted(n: int) -> Any:
    x = plane(n)
    t = da.arange(x.shape[0], chunks=4)
    w = t - t.mean()
    return (x * w[:, None]).sum(axis=0) / (w**2).sum()


def delayed_blocks(n: int) -> Any:
    found = [dask.delayed(load_cube, pure=True)((i, i, i)) for i in range(n)]
    return da.stack([da.from_delayed(each, (4, 4, 4), float) for each in found]).mean(axis=0)


def delayed_tree(n: int) -> Any:
    found = [dask.delayed(step, pure=True)(i) for i in range(n)]
    while len(found) > 1:
        found = [dask.delayed(sum, pure=True)(found[i : i + 4]) for i in range(0, len(found), 4)]
    return found[0]


def several(n: int) -> Any:
    x = plane(n)
    return x.mean(), x.std(axis=0), stepped(x).max(axis=1), x[::5].sum()


def rolling(n: int) -> Any:
    """Means over windows of seven, which dask cuts into nine parts for each block."""
    chunks = ((31,) * n, (8,) * n, (8,) * n)
    x = da.map_blocks(load_long, chunks=chunks, dtype=float, meta=np.empty((0, 0, 0)))
    return sliding_window_view(x, 7, axis=0).mean(axis=-1)


def pieces(n: int) -> Any:
    x = plane(n)
    return da.block([[x, x.T], [x[::-1], stepped(x)]]).sum(axis=0)


#: What each program is, and of how many blocks along each axis.
PROGRAMS: dict[str, tuple[Callable[[int], Any], int]] = {
    "cumsum": (lambda n: plane(n).cumsum(axis=0), 120),
    "last of cumsum": (lambda n: plane(n).cumsum(axis=0)[-1], 120),
    "where": (lambda n: (lambda x: da.where(x > 3, x, x.mean()).std(axis=1))(plane(n)), 110),
    "clip, round, step": (lambda n: stepped(plane(n).clip(0, 3).round(2)).sum(), 90),
    "concatenate": (lambda n: da.concatenate([plane(n), stepped(plane(n))]).max(axis=1), 100),
    "stack": (lambda n: (lambda x: da.stack([x, x + 1, stepped(x)]).mean(axis=0))(plane(n)), 100),
    "rechunk": (lambda n: stepped(plane(n).rechunk((40, 4))).rechunk((4, 40)).sum(axis=0), 70),
    "one overlap": (lambda n: da.map_overlap(step, plane(n), depth=1, dtype=float).mean(axis=0), 60),
    "five overlaps": (halos, 40),
    "rolling mean": (rolling, 12),
    "diff": (lambda n: da.diff(plane(n), axis=0).max(), 100),
    "roll": (lambda n: (lambda x: (da.roll(x, 1, 0) - x).std())(plane(n)), 100),
    "strided": (lambda n: stepped(plane(n))[::2, 1::3].mean(axis=1), 100),
    "fancy": (lambda n: stepped(plane(n)[np.arange(0, 4 * n, 3)])[:, np.arange(5)].sum(), 100),
    "argmax": (lambda n: plane(n).argmax(axis=0), 120),
    "topk": (lambda n: da.topk(plane(n), 3, axis=0), 100),
    "matmul, tiny": (lambda n: (lambda x: x.dot(x.T))(plane(n)), 40),
    "matmul, 1 MB": (lambda n: (lambda x: x.dot(x.T))(plane(n, 400)), 30),
    "einsum, 1 MB": (lambda n: (lambda x: da.einsum("ij,kj->ik", x, stepped(x)))(plane(n, 400)), 30),
    "covariance": (lambda n: da.cov(plane(n)), 30),
    "two functions": (lambda n: da.map_blocks(both, plane(n), stepped(plane(n)).T, dtype=float).mean(0), 100),
    "setitem": (lambda n: changed(plane(n), np.s_[10:50, ::2]).sum(axis=0), 100),
    "masked setitem": (lambda n: (lambda x: changed(x, x > 5).sum(axis=0))(plane(n)), 100),
    "pad": (lambda n: da.pad(plane(n), 3, mode="reflect").sum(axis=0), 100),
    "histogram": (lambda n: da.histogram(plane(n), bins=10, range=(0, 100))[0], 100),
    "reshape": (lambda n: cube(n).reshape(4 * n, -1).mean(axis=1), 20),
    "centred cube": (lambda n: (lambda x: (x - x.mean(axis=0))[2:-2].std(axis=(1, 2)))(cube(n)), 26),
    "moveaxis": (lambda n: stepped(da.moveaxis(cube(n), 0, -1)).sum(axis=0), 28),
    "gufunc": (
        lambda n: da.apply_gufunc(lambda a: a.sum(-1), "(i)->()", plane(n).rechunk({1: -1})),
        100,
    ),
    "fifteen steps": (loop, 50),
    "nanmean, nanstd": (lambda n: da.nanmean(plane(n), axis=0) + da.nanstd(plane(n), axis=0), 100),
    "unknown sizes": (lambda n: (lambda x: x[x > 3].sum())(plane(n)), 60),
    "from_delayed": (delayed_blocks, 5_000),
    "tree of delayed": (delayed_tree, 30_000),
    "bag": (
        lambda n: db.from_sequence(range(n), npartitions=n).map(step).filter(bool).fold(both),
        10_000,
    ),
    "block": (pieces, 80),
    "apply_along_axis": (lambda n: da.apply_along_axis(np.sum, 0, plane(n).rechunk({0: -1})), 100),
    "four outputs": (several, 100),
    "fit of lines": (fitted, 100),
    "spectrum": (lambda n: abs(da.fft.fft(plane(n).rechunk({1: -1}), axis=1)).mean(axis=0), 80),
    "isin": (lambda n: da.isin(plane(n), [1, 2, 3]).any(axis=0), 100),
    "x + x.T": (lambda n: (lambda x: x + x.T)(plane(n)), 130),
    "standardized": (lambda n: (lambda x: (x - x.mean(0)) / x.std(0))(plane(n)), 100),
}


class Cost(NamedTuple):
    """What a graph costs before its first task can run."""

    client: float
    scheduler: float
    nbytes: int
    tasks: int

    @property
    def seconds(self) -> float:
        return self.client + self.scheduler + A_TASK * self.tasks


def cost(make: Callable[[int], Any], n: int, ours: bool) -> Cost:
    """Optimize, send and receive one program, as a client and a scheduler do."""
    built = make(n)
    built = built if isinstance(built, tuple) else (built,)
    gc.collect()
    started = time.process_time()
    with dask_rewrite.enable() if ours else nullcontext():
        expression = FinalizeCompute(collections_to_expr(built)).optimize()
        header, frames = serialize(to_serialize(expression), on_error="raise")
    sent = time.process_time()
    tasks, _ = _materialize_graph(deserialize(header, frames), False)
    received = time.process_time()
    return Cost(sent - started, received - sent, sum(map(nbytes, frames)), len(tasks))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="parts of names of programs")
    parser.add_argument("--scale", type=float, default=1.0, help="how many of the blocks along each axis")
    options = parser.parse_args()
    warnings.simplefilter("ignore", da.PerformanceWarning)
    lines, ratios = [], []
    for ours in (False, True):  # imports
        cost(several, 3, ours)
    for name, (make, blocks) in PROGRAMS.items():
        if options.words and not any(word in name for word in options.words):
            continue
        n = max(2, round(blocks * options.scale))
        stock, mine = cost(make, n, False), cost(make, n, True)
        ratios.append(mine.seconds / stock.seconds)
        pairs = [*zip(stock, mine, ("s", "s", "B", ""), strict=True)]
        cells = [show(value, unit) for a, b, unit in pairs for value in (a, b)]
        lines.append([name, str(n), *cells, f"{ratios[-1]:.2f}"])
    lines.append(["geometric mean", "", *[""] * 8, f"{geometric_mean(ratios):.2f}"])
    header = ["program", "n", "client: stock", "ours", "scheduler: stock", "ours", "bytes: stock", "ours"]
    print(grid([*header, "tasks: stock", "ours", "x"], lines))


if __name__ == "__main__":
    main()
