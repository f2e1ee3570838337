"""Compare stock dask, dask_rewrite and dask-array, side by side in one run.

    python -m benchmarks.run                      every workload at its normal size
    python -m benchmarks.run --only adds --scale large
    python -m benchmarks.run --targets            what the project must reach, and whether it does
    python -m benchmarks.run --growth             n, 2n, 4n: what doubling costs
    python -m benchmarks.run --targets memory     only the rows and targets of that group
    python -m benchmarks.run --targets foundation --passes foundation    every workload, without later passes
    python -m benchmarks.run --targets --only gram --on 2     one row, on one scheduler, judged

Heavy workloads are measured with ``--targets`` or by name only.

Each workload runs in a process of its own; a stage that takes longer than ``--limit`` seconds,
or that fails, is shown as that. Times are the best of ``--repeat`` turns in which the sides
alternate, on graphs that hold no caches, with the garbage collector as users have it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import table
from benchmarks.harness.rows import Row, collect, import_seconds
from benchmarks.harness.table import show
from benchmarks.targets import GROUPS, TARGETS
from benchmarks.targets.judges import Rows
from benchmarks.workloads import WORKLOADS

#: What came before movement, contractions and all other passes on tasks.
FOUNDATION_PASSES = ("cull", "fuse-blockwise", "lower", "fuse-slices", "fuse-chains", "sweep")
#: longest ``import dask_rewrite`` after ``import dask.array``, in seconds
IMPORT_LIMIT = 0.050


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="this workload; may be repeated")
    parser.add_argument("--scale", choices=("small", "normal", "large"), default="normal")
    parser.add_argument("--n", type=int, help="this size instead of a scale")
    parser.add_argument("--sides", default="stock,ours,dask-array", help="comma separated")
    parser.add_argument("--repeat", type=int, default=3, help="turns for each side (default 3)")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for one stage (default 30)")
    parser.add_argument("--on", help="schedulers of the rows that name some: 2 threads, or 2x1 for processes")
    parser.add_argument(
        "--targets",
        nargs="?",
        const="all",
        default="",
        choices=("all", *GROUPS),
        help="judge what the project must reach, or one group of it",
    )
    parser.add_argument(
        "--passes",
        choices=("all", "foundation"),
        default="all",
        help="what our side runs (default all)",
    )
    parser.add_argument("--growth", action="store_true", help="measure n, 2n and 4n")
    parser.add_argument("--no-run", action="store_true", help="only optimize")
    parser.add_argument("--json", metavar="FILE", help="also write every figure to this file")
    parser.add_argument("--list", action="store_true", help="name the workloads and stop")
    args = parser.parse_args(arguments)
    for name in args.only or ():
        if name not in WORKLOADS:
            parser.error(f"no workload is called {name!r}; see --list")
    return args


def plan(args: argparse.Namespace) -> dict[tuple[str, int], bool]:
    """The rows to measure, and whether each is to be run."""
    names = args.only or [name for name, workload in WORKLOADS.items() if not workload.heavy]
    if args.targets in GROUPS and args.targets != "foundation" and not args.only:
        names = []  # those of the foundation speak of every workload
    rows: dict[tuple[str, int], bool] = {}
    if args.growth:
        for name in names:
            rows.update({(name, n): False for n in WORKLOADS[name].growth})
        return rows
    for name in names:
        if args.targets and WORKLOADS[name].heavy and args.n is None:
            continue  # at the sizes of its targets alone
        rows[name, args.n or WORKLOADS[name].size(args.scale)] = not args.no_run
    if args.targets:
        for target in GROUPS.get(args.targets, TARGETS):
            for name, n in target.needs:
                if not args.only or name in args.only:
                    rows[name, n] = rows.get((name, n), False) or (target.run and not args.no_run)
    return rows


def progress(text: str) -> None:
    """Say on stderr where we are: on one line of a terminal, or on lines of their own."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def report_targets(rows: Rows, group: str) -> tuple[str, bool]:
    """The table of targets, and whether none was missed."""
    lines, missed = [], False
    for target in GROUPS.get(group, TARGETS):
        if not all(need in rows for need in target.needs):
            continue
        value, reached = target.judge(rows)
        missed = missed or reached is False
        lines.append([target.says, {True: "reached", False: "MISSED", None: "unknown"}[reached], value])
    seconds = import_seconds()
    reached = None if seconds is None else seconds <= IMPORT_LIMIT
    missed = missed or reached is False
    verdict = {True: "reached", False: "MISSED", None: "unknown"}[reached]
    lines.append(["import dask_rewrite after dask.array: <= 50 ms", verdict, show(seconds)])
    return table.grid(["target", "", "measured"], lines), missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a target was missed."""
    args = parse(arguments)
    if args.list:
        print(table.grid(["workload", "what"], [[w.name, w.about] for w in WORKLOADS.values()]))
        return 0
    if args.passes == "foundation":  # each row is measured in a process of its own
        os.environ["DASK_REWRITE__PASSES"] = json.dumps(FOUNDATION_PASSES)
    wanted = plan(args)
    rows: Rows = {}
    for turn, ((name, n), runs) in enumerate(wanted.items(), 1):
        progress(f"{turn}/{len(wanted)} {name} {n}")
        more = ["--optimize-only"] if args.growth else [] if runs else ["--no-run"]
        more += ["--on", args.on] if args.on else []
        rows[name, n] = collect(name, n, sides=args.sides, repeat=args.repeat, limit=args.limit, more=more)
        if args.json:  # after every row: a run that is stopped half way has not been in vain
            Path(args.json).write_text(json.dumps([asdict(row) for row in rows.values()], indent=1))
    progress("")
    missed = False
    if args.growth:
        families: dict[str, list[Row]] = {}
        for row in rows.values():
            families.setdefault(row.name, []).append(row)
        print(table.growth(list(families.values())))
    else:
        parts = [table.seconds(list(rows.values())), table.sizes(list(rows.values()))]
        parts += [table.computes(list(rows.values())), table.schedulers(list(rows.values()))]
        print("\n\n".join(part for part in parts if part))
    if args.targets:
        text, missed = report_targets(rows, args.targets)
        print("\n" + text)
    return int(missed)


def run() -> NoReturn:
    """What the command line starts; being told to end also removes files and processes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())


if __name__ == "__main__":
    run()
