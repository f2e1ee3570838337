"""Y = X X.T far beyond this computer: what dask's graph and the accumulated one would hold and move.

    python -m benchmarks.simulate             the tables of docs/design/2026-11-20-contractions-at-scale.md
    python -m benchmarks.simulate --whole     the large problem in all its length: some minutes, and gigabytes

Numbers repeat exactly: the schedulers of :mod:`benchmarks.harness.simulation` know neither clocks nor chance.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness.simulated_work import Work, accumulated, products
from benchmarks.harness.simulation import Found, Rates, on_cluster, on_threads
from benchmarks.harness.table import grid

#: a scheduler of threads, and one of a cluster whose files are on a shared file system
HERE = Rates()
CLUSTER = Rates(disk=100e9, overhead=5e-4)
#: the same where loads are sent out early enough to overlap with work
EAGER = Rates(disk=100e9, overhead=5e-4, saturation=2.0)


@dataclass(frozen=True, slots=True)
class Problem:
    """X of rows x columns float64 numbers in square blocks."""

    rows: int
    columns: int
    side: int

    @property
    def outer(self) -> int:
        return self.rows // self.side

    @property
    def slabs(self) -> int:
        return self.columns // self.side

    @property
    def operations(self) -> float:
        """Multiplications, as bounds count them."""
        return float(self.rows) ** 2 * self.columns


SMALL = Problem(10_000, 800_000, 1_000)
LARGE = Problem(100_000, 8_000_000, 5_000)


def irony_toledo_tiskin(problem: Problem, workers: int, nbytes: float) -> float:
    """Bytes that some worker has to send or receive if each has so much memory.

    >>> round(irony_toledo_tiskin(LARGE, 100, 8e9) / 1e9)
    64
    """
    words = nbytes / 8
    return 8 * max(0.0, problem.operations / (2 * math.sqrt(2) * workers * math.sqrt(words)) - words)


def attainable(problem: Problem, workers: int, nbytes: float) -> float:
    """Bytes that a worker of a 2D or 2.5D algorithm moves if its outputs fill this memory.

    >>> round(attainable(LARGE, 100, 8e8) / 1e9)
    1280
    """
    return 8 * 2 * problem.operations / (workers * math.sqrt(nbytes / 8))


def memory_independent(problem: Problem, workers: int) -> float:
    """Bytes that some worker has to move however much memory it has (two factors of their own).

    >>> round(memory_independent(LARGE, 100) / 1e9)
    78
    """
    short, long = float(problem.rows), float(problem.columns)
    if workers <= long / short:
        most = 2 * short * long / workers + short * short
    else:
        most = 3 * (problem.operations / workers) ** (2 / 3)
    return 8 * (most - (2 * short * long + short * short) / workers)


def split_25d(problem: Problem, q: int, c: int) -> tuple[float, float]:
    """Bytes held for outputs, and moved, by each of q x q x c workers: Solomonik and Demmel's algorithm.

    >>> [round(each / 1e9, 1) for each in split_25d(LARGE, 5, 4)]
    [3.2, 642.4]
    """
    out = 8 * (problem.rows / q) ** 2
    inputs = 8 * (2 if q > 1 else 0) * problem.rows / q * problem.columns / c
    return out, inputs + out * (c - 1) / c


def _line(name: str, found: Found, started: float, scale: float = 1.0) -> list[str]:
    return [
        name,
        f"{found.tasks * scale:,.0f}",
        f"{found.seconds * scale:,.1f}",
        f"{found.peak / 1e6:,.0f}",
        f"{found.peak_worker / 1e6:,.0f}",
        f"{found.read * scale / 1e9:,.2f}",
        f"{found.moved * scale / 1e9:,.2f}",
        f"{found.busy:.2f}",
        f"{time.perf_counter() - started:.1f}",
    ]


HEADER = ["graph", "tasks", "seconds", "peak MB", "of a worker", "read GB", "moved GB", "busy", "(took s)"]


def _table(title: str, cases: Sequence[tuple[str, Callable[[], Found]]], scale: float = 1.0) -> None:
    lines = []
    for name, run in cases:
        started = time.perf_counter()
        lines.append(_line(name, run(), started, scale))
    print(f"{title}\n\n{grid(HEADER, lines)}\n", flush=True)


def _natural(work: Work) -> range:
    """Priorities in the order of building, slab after slab: as dask's order, and free."""
    return range(len(work))


def calibrate() -> None:
    """The cases that were measured, on blocks of 2 MB."""
    stock = products(4, 80, 500, 500)
    ours = {
        "steps of two slabs, one ahead": accumulated(4, 80, 500, 500, width=2, look=1),
        "one slab, two ahead, in step": accumulated(4, 80, 500, 500, look=2, lockstep=True),
    }
    _table(
        "X 4 x 80 blocks of 2 MB, 2 threads",
        [
            ("dask", lambda: on_threads(stock, 2, HERE)),
            *((name, lambda w=work: on_threads(w, 2, HERE)) for name, work in ours.items()),
        ],
    )
    _table(
        "X 4 x 60 blocks of 2 MB, 2 processes of one thread",
        [
            ("dask", lambda: on_cluster(products(4, 60, 500, 500), 2, 1, CLUSTER)),
            *(
                (
                    f"two ahead, gate behind {every}",
                    lambda e=every: on_cluster(_slabs(4, 60, 500, 2, e), 2, 1, CLUSTER),
                )
                for every in (1, 2)
            ),
        ],
    )


def _slabs(outer: int, slabs: int, side: int, look: int, every: int = 2, **more: int) -> Work:
    return accumulated(outer, slabs, side, side, look=look, every=every, notes=True, **more)


def small() -> None:
    """10,000 x 800,000: 64 GB, 8,000 blocks of 8 MB; Y is 0.8 GB."""
    outer, slabs, side = SMALL.outer, SMALL.slabs, SMALL.side

    def threads(work: Work) -> Found:
        return on_threads(work, 8, HERE, _natural(work))

    def workers(work: Work, rates: Rates) -> Found:
        return on_cluster(work, 10, 8, rates, _natural(work))

    _table(
        "X 10,000 x 800,000 in blocks of 8 MB, 8 threads",
        [
            ("dask", lambda: on_threads(products(outer, slabs, side, side), 8, HERE)),
            *(
                (
                    f"{look} slabs ahead",
                    lambda look=look: threads(
                        accumulated(outer, slabs, side, side, look=look, lockstep=True)
                    ),
                )
                for look in (2, 3, 6)
            ),
        ],
    )
    _table(
        "the same on 10 workers of 8 threads",
        [
            ("dask", lambda: on_cluster(products(outer, slabs, side, side), 10, 8, CLUSTER)),
            *(
                (f"{look} slabs ahead", lambda look=look: workers(_slabs(outer, slabs, side, look), CLUSTER))
                for look in (3, 6, 17)
            ),
            ("6 ahead, worker-saturation 2", lambda: workers(_slabs(outer, slabs, side, 6), EAGER)),
        ],
    )


def large(slabs: int) -> None:
    """100,000 x 8,000,000: 6.4 TB, 32,000 blocks of 200 MB; Y is 80 GB."""
    outer, side = LARGE.outer, LARGE.side

    def workers(work: Work) -> Found:
        return on_cluster(work, 100, 8, EAGER, _natural(work))

    scale = LARGE.slabs / slabs
    shown = "" if scale == 1 else f" ({slabs} of {LARGE.slabs} slabs; all but memory times {scale:g})"
    cases = [
        *(
            (
                f"2 chains, {2 * look} slabs ahead",
                lambda look=look, every=every: workers(_slabs(outer, slabs, side, look, every, chains=2)),
            )
            for look, every in ((1, 1), (2, 1), (4, 1), (41, 2))
        ),
        (
            "2 chains, 8 ahead, on 10 x 10",
            lambda: workers(_slabs(outer, slabs, side, 4, 1, chains=2, grid=10)),
        ),
        (
            "4 chains, 16 ahead, on 5 x 5 x 4",
            lambda: workers(_slabs(outer, slabs, side, 4, 1, chains=4, grid=5, layers=4)),
        ),
    ]
    if scale > 1:
        cases.insert(0, ("dask", lambda: on_cluster(products(outer, slabs, side, side), 100, 8, EAGER)))
    _table(f"X 100,000 x 8,000,000 in blocks of 200 MB, 100 workers of 8 threads{shown}", cases, scale)


def bounds() -> None:
    """On paper: what any algorithm has to move, and what 2D and 2.5D ones do."""
    lines = [
        [
            f"{q} x {q} x {c}",
            *(f"{each / 1e9:,.1f}" for each in split_25d(LARGE, q, c)),
            f"{irony_toledo_tiskin(LARGE, q * q * c, split_25d(LARGE, q, c)[0]) / 1e9:,.1f}",
            f"{memory_independent(LARGE, q * q * c) / 1e9:,.1f}",
        ]
        for q, c in ((10, 1), (5, 4), (2, 25), (1, 100))
    ]
    header = ["workers", "outputs GB", "moved GB", "bound for this memory", "for any memory"]
    print(f"X 100,000 x 8,000,000, each of 100 workers, on paper\n\n{grid(header, lines)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--whole", action="store_true", help="all slabs of the large problem")
    args = parser.parse_args()
    calibrate()
    small()
    large(LARGE.slabs if args.whole else 400)
    bounds()


if __name__ == "__main__":
    main()
