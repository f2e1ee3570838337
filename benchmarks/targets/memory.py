"""What contractions and shared reductions must reach: peak bytes held, seconds, loads."""

from __future__ import annotations

from benchmarks.harness.table import show
from benchmarks.targets.judges import NOISE, Rows, Target, Verdict, at_most, never_longer, ratio

#: in MB: the outputs and two slabs, and how many chunks a person's program reads
SMALLEST = {
    "einsum-gram": (40, 8 + 4, 160),
    "tensordot-gram": (40, 8 + 4, 160),
    "matmul-gram": (40, 8 + 4, 160),
    "gram-total": (40, 8 + 4, 160),
    "normal-equations": (40, 8 + 4, 200),
    "tensordot-two-axes": (10, 0.12 + 3.07, 120),
    "matmul-3d": (20, 9.2 + 6.2, 240),
}


def _no_slower(name: str, n: int, on: str) -> Target:
    return Target(f"{name}, on {on}: no slower", [(name, n)], ratio(name, n, f"seconds {on}", NOISE))


def _part(name: str, n: int, figure: str, most: float, says: str) -> Target:
    return Target(f"{name}, on {figure.split()[1]}: {says}", [(name, n)], ratio(name, n, figure, most, "B"))


def _covariance(on: str) -> Target:
    """The mean needs all of x before the first product can be made: x is read twice, or held."""

    def judge(rows: Rows) -> Verdict:
        row = rows["covariance", 40]
        held, loads = row.number("ours", f"held {on}"), row.number("ours", f"loads {on}")
        stock = row.number("stock", f"held {on}")
        if held is None or loads is None or stock is None:
            return row.note or "not measured", None
        text = f"{show(held, 'B')}, {loads:.0f} loads (stock {show(stock, 'B')})"
        return text, (held <= 30e6 and loads <= 320) or (held <= 1.05 * stock and loads <= 160)

    return Target(
        f"covariance, {on} threads: <= 30 MB and 320 loads, or 160 loads and what stock holds",
        [("covariance", 40)],
        judge,
    )


GRAM = [
    Target(
        "x.dot(x.T) of 4 x 80 blocks of 2 MB, 2 threads: holds <= 70 MB",
        [("gram", 80)],
        at_most("gram", 80, "held 2", 70e6, "B"),
    ),
    _no_slower("gram", 80, "2"),
    _part("gram-in-files", 80, "held 2", 1 / 6, "holds <= 1/6 of stock"),
    _no_slower("gram-in-files", 80, "2"),
    _part("gram-in-files", 80, "held 8", 1 / 5, "holds <= 1/5 of stock"),
    _no_slower("gram-in-files", 80, "8"),
    Target(
        "gram-in-files: reads each chunk once",
        [("gram-in-files", 80)],
        at_most("gram-in-files", 80, "loads 2", 320, ""),
    ),
    _part("gram-of-processes", 60, "held 8", 1 / 5, "holds <= 1/5 of stock"),
    _no_slower("gram-of-processes", 60, "8"),
    _part("gram-of-processes", 60, "managed 2x1", 1 / 5, "workers manage <= 1/5 of stock"),
    _no_slower("gram-of-processes", 60, "2x1"),
    _part("gram-of-many", 110, "managed 2x1", 1 / 3, "workers manage <= 1/3 of stock"),
    _no_slower("gram-of-many", 110, "2x1"),
    _part("gram-of-processes", 60, "managed 4x1", 1 / 5, "workers manage <= 1/5 of stock"),
    _no_slower("gram-of-processes", 60, "4x1"),
]

ONE_OUTPUT = [
    target
    for on in ("1", "2", "8")
    for target in (
        _part("one-product", 80, f"held {on}", 1.0, "holds no more than stock"),
        _no_slower("one-product", 80, on),
    )
]

SLOW_LOADS = [
    _no_slower(f"slow-loads-{rows}", 80 // rows, on) for rows in (1, 3) for on in ("8", "32", "4x2")
]

OTHERS = [
    target
    for name, (n, smallest, loads) in SMALLEST.items()
    for target in (
        Target(f"{name}: reads <= {loads} chunks", [(name, n)], at_most(name, n, "loads 2", loads, "")),
        *(
            Target(
                f"{name}, {on} threads: holds <= 2.5 x {smallest:.1f} MB",
                [(name, n)],
                at_most(name, n, f"held {on}", 2.5e6 * smallest, "B"),
            )
            for on in ("1", "2")
        ),
    )
]

COVARIANCE = [_covariance("1"), _covariance("2")]

#: not one byte more than stock, where several outputs share what is summed
SHARED = [
    _part(name, n, "held 2", 1.0, "holds no more than stock")
    for name, n in (
        ("members-and-anomaly", 40),
        ("members-spread", 40),
        ("centred", 24),
        ("standardized", 24),
    )
]

#: blocks of 0.5 MB that two threads hold at most, where stock holds 80; a covariance is one itself
AGAIN = {"anomaly-read-again": 6, "standardized-read-again": 10, "covariance-read-again": 16}

STREAMS = [
    *(
        Target(
            f"{name}, 2 threads: holds <= {most} members of 2 MB",
            [(name, 60)],
            at_most(name, 60, "held 2", most * 2e6, "B"),
        )
        for name, most in (("long-sum", 5), ("sibling-means", 12))
    ),
    *(_no_slower(name, 60, "2") for name in ("long-sum", "sibling-means")),
    Target(
        "overlap-rows, 2 threads: holds <= two rows of blocks and their edges",
        [("overlap-rows", 8)],
        at_most("overlap-rows", 8, "held 2", 17.5 * 64**3 * 8, "B"),
    ),
    _no_slower("overlap-rows", 8, "2"),
    *(
        target
        for name, most in AGAIN.items()
        for target in (
            Target(f"{name}: two reads a block", [(name, 80)], at_most(name, 80, "loads 2", 160, "")),
            Target(
                f"{name}, 2 threads: holds <= {most} blocks",
                [(name, 80)],
                at_most(name, 80, "held 2", most * 0.5e6, "B"),
            ),
            Target(f"{name}: <= 1.3 of stock's seconds", [(name, 80)], ratio(name, 80, "seconds 2", 1.3)),
        )
    ),
]

BUFFERS = [
    Target(
        "((x * 1.8 + 32) ** 2 - 1).mean() on 64 MB blocks, 1 thread: one block beyond the input",
        [("degrees", 6)],
        at_most("degrees", 6, "traced 1", 2.1 * 2896**2 * 8, "B"),
    ),
    *(
        Target(
            f"((x * 1.8 + 32) ** 2 - 1).mean() on 64 MB blocks, {on} threads: <= 0.75 of stock's seconds",
            [("degrees", 6)],
            ratio("degrees", 6, f"seconds {on}", 0.75),
        )
        for on in ("1", "2")
    ),
]

MEMORY = [
    *GRAM,
    *ONE_OUTPUT,
    *SLOW_LOADS,
    *OTHERS,
    *COVARIANCE,
    *SHARED,
    *STREAMS,
    *BUFFERS,
    Target("from end to end, on whatever scheduler: no longer than stock", [], never_longer),
]
