"""Forecasts against what is held: on threads, and on a cluster of two processes.

    python -m benchmarks.forecasts              both
    python -m benchmarks.forecasts threads      without a cluster

For each program the peak that was predicted and the one that was measured, for dask's graph and for ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.array.optimization import optimize as stock

import dask_rewrite
from benchmarks.harness.memory import Held, buffers, managed
from benchmarks.harness.table import grid

#: Of programs, and how far predictions may be off.
WITHIN, THREADS, CLUSTER = 0.9, 0.20, 0.35


class Added(Held):
    """What computing adds: arrays that stand in the graph were there before."""

    def _start_state(self, dsk: Any, state: Any) -> None:
        for value in state["cache"].values():
            self.users.update((id(owner), 1) for owner in buffers(value))


def drawn(shape: tuple[int, ...], chunks: Any) -> da.Array:
    return da.random.default_rng(1).random(shape, chunks=chunks)


def anomaly() -> Any:
    x = drawn((32, 512, 512), (1, -1, -1))
    return abs(x - x.mean(axis=0)).mean()


def shared_reductions() -> Any:
    u, v, w = (drawn((640, 256, 256), (32, -1, -1)) for _ in range(3))
    return (u * v).mean(axis=0), (v * w).mean(axis=0)


def product() -> Any:
    x = drawn((2000, 8000), (500, 500))
    return x @ x.T


def long_sum() -> Any:
    return drawn((60, 400_000), (1, -1)).sum(axis=0)


def smoothed() -> Any:
    return drawn((512, 512, 64), (64, 64, 64)).map_overlap(lambda b: b * 2, depth=(1, 1, 0)).mean(axis=2)


def turned() -> Any:
    return drawn((4000, 2000), (4000, 100)).rechunk((200, 2000)).std(axis=1)


def climatology() -> Any:
    x = drawn((720, 128, 128), (30, 128, 128))
    labelled = xr.DataArray(x, dims=("t", "y", "x"), coords={"t": np.arange(720)})
    return (labelled.groupby(labelled.t % 12).mean() - labelled.mean()).data


def standardized() -> Any:
    x = drawn((8000, 1000), (400, 1000))
    return ((x - x.mean(axis=0)) / x.std(axis=0)).max(axis=1)


def running() -> Any:
    return drawn((6400, 1000), (400, 1000))[::2, 100:900].cumsum(axis=0)


def regression() -> Any:
    x, y = drawn((400_000, 20), (20_000, 20)), drawn((400_000,), 20_000)
    return x.T @ x, x.T @ y


PROGRAMS: list[Callable[[], Any]] = [
    anomaly, shared_reductions, product, long_sum, smoothed,
    turned, climatology, standardized, running, regression,
]  # fmt: skip


def measured(collections: Any, optimizer: Any, client: Any) -> int:
    """The most bytes that were held while these were computed."""
    with dask.config.set(array_optimize=optimizer):
        if client is None:
            with dask.config.set(scheduler="threads", num_workers=2), Added() as held:
                dask.compute(*collections)
            return held.peak
        return managed(client, collections)[1]


def rows(client: Any) -> tuple[list[list[str]], list[float]]:
    """A line and the two errors of each program."""
    lines, errors = [], []
    for program in PROGRAMS:
        made = program()
        collections = made if isinstance(made, tuple) else (made,)
        with dask.config.set(num_workers=2) if client is None else nullcontext():
            found = dask_rewrite.forecast(*collections, threads=2 if client is None else None)
        line = [program.__name__]
        for run, optimizer in ((found.before, stock), (found.after, dask_rewrite.optimize)):
            held = measured(collections, optimizer, client)
            errors.append(run.peak / held - 1)
            line += [f"{run.peak / 1e6:,.1f}", f"{held / 1e6:,.1f}", f"{errors[-1]:+.0%}"]
        lines.append(line)
    return lines, errors


def show(title: str, client: Any, most: float) -> bool:
    """Print a table; whether enough predictions are near enough."""
    lines, errors = rows(client)
    near = sum(abs(error) <= most for error in errors)
    header = ["program", "stock: predicted", "held MB", "off", "ours: predicted", "held MB", "off"]
    print(f"{title}: {near} of {len(errors)} within {most:.0%}\n\n{grid(header, lines)}\n", flush=True)
    return near >= WITHIN * len(errors)


def main() -> int:
    """Both tables; fails if predictions are too far off."""
    good = show("two threads", None, THREADS)
    if "threads" not in sys.argv[1:]:
        from distributed import Client, LocalCluster

        workers = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        with workers as cluster, Client(cluster) as client:
            good = show("two processes of one thread", client, CLUSTER) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
