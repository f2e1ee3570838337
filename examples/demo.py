"""The demonstration: stock dask and the rewritten graph, side by side, on a cluster of processes.

    python dev.py demo            does all the set-up and runs this
    python examples/demo.py       where everything is installed already

It makes an HDF5 file and a Zarr store in a temporary folder, starts a cluster of two worker
processes for each side, and computes every case on both. A case that does not end is stopped after
a few seconds and shown as "> 10 s": some of these hang, others are slow. The rewritten side, whose answer
is waited for, has three times as long on slow machines. Everything is removed at the end, whatever happens.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

SIDES = ("stock", "rewritten")
CHILD = """
import sys
from pathlib import Path
from demonstration.child import main
main(sys.argv[1], Path(sys.argv[2]))
"""


class Side:
    """A child process with its cluster; started anew after a case that had to be stopped."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str] = queue.Queue()

    def start(self) -> None:
        """Start the process if it does not run; `ready` waits for it."""
        if self.process is not None and self.process.poll() is None:
            return
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"{self.name}.log", "a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CHILD, self.name, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
                start_new_session=True,
            )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put("")

    def ready(self) -> None:
        """Wait until the cluster is there."""
        self.start()
        if self.lines.get(timeout=60).strip() != "ready":
            log = (self.folder / f"{self.name}.log").read_text()
            raise RuntimeError(f"the cluster of the {self.name} side did not start\n{log[-2000:]}")

    def ask(self, case: str, limit: float) -> dict[str, Any]:
        """The figures of a case, or how it failed."""
        if self.process is None or self.process.poll() is not None:
            self.ready()
        assert self.process is not None
        assert self.process.stdin is not None
        print(case, file=self.process.stdin, flush=True)
        try:
            line = self.lines.get(timeout=60)
            if line.strip() == "built":
                line = self.lines.get(timeout=limit)
        except queue.Empty:
            self.stop()
            return {"failure": f"> {limit:.0f} s"}
        if not line:
            self.stop()
            return {"failure": "dies"}
        return dict(json.loads(line))

    def stop(self, kind: bool = False) -> None:
        """End the process and its workers; `kind` gives the cluster time to close."""
        process, self.process = self.process, None
        if process is None:
            return
        if kind and process.poll() is None and process.stdin is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:  # Windows: workers end by themselves when their parent is gone
                process.kill()
        process.wait()


def same(case: Any, folder: Path, stock: dict[str, Any], ours: dict[str, Any]) -> str:
    """Whether our answer is stock's; or, where stock has none or a wrong one, the one that is known."""
    import numpy as np

    if "answer" not in ours:
        return "NO ANSWER"
    mine = pickle.loads((folder / ours["answer"]).read_bytes())

    def equal(one: Any, two: Any) -> bool:
        if isinstance(one, tuple):
            return len(one) == len(two) and all(map(equal, one, two))
        if case.loose:
            return bool(np.allclose(one, two, rtol=1e-12))
        return bool(np.shape(one) == np.shape(two) and np.array_equal(one, two, equal_nan=True))

    known = case.expected(folder) if case.expected else None
    theirs = pickle.loads((folder / stock["answer"]).read_bytes()) if "answer" in stock else None
    if known is not None and not equal(mine, known):
        return "WRONG"
    if theirs is None:
        return "right" if known is not None else "unknown"
    if equal(mine, theirs):
        return "yes"
    return "stock wrong" if known is not None else "DIFFERENT"


class Progress:
    """Say where we are: a moving line on a terminal, else nothing but the finished rows."""

    def __init__(self) -> None:
        self.text, self.since = "", time.monotonic()
        self.live = sys.stdout.isatty()
        if self.live:
            threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        while True:
            if self.text:
                print(f"\r\033[K{self.text}  {time.monotonic() - self.since:.0f} s", end="", flush=True)
            time.sleep(0.2)

    def say(self, text: str) -> None:
        """What is being done now."""
        self.text, self.since = text, time.monotonic()

    def row(self, text: str) -> None:
        """A line that stays."""
        self.text = ""
        print(("\r\033[K" if self.live else "") + text, flush=True)


def run(names: list[str], limit: float, only: str | None) -> list[dict[str, Any]]:
    """Compute every case on both sides, printing each as it is done."""
    from demonstration import show
    from demonstration.cases import CASES, make_files

    results = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dask-rewrite-demo-")))
        progress = Progress()
        progress.row(f"an HDF5 file, a Zarr store and two clusters, in {folder}")
        make_files(folder)
        sides = {name: Side(name, folder) for name in SIDES if only in (None, name)}
        for side in sides.values():
            stack.callback(side.stop, kind=True)
            side.start()
        for name, side in sides.items():
            progress.say(f"starting the cluster of the {name} side")
            side.ready()
        progress.row(show.header())
        for turn, name in enumerate(names, 1):
            case = CASES[name]
            figures: dict[str, dict[str, Any]] = {side: {"failure": "not asked"} for side in SIDES}
            for label, side in sides.items():
                progress.say(f"[{turn}/{len(names)}] {case.title}: {label}")
                figures[label] = side.ask(name, limit if label == "stock" else 3 * limit)
            verdict = same(case, folder, figures["stock"], figures["rewritten"])
            progress.row(show.line(case.title, verdict, figures["stock"], figures["rewritten"]))
            results.append({"case": name, "verdict": verdict, **figures})
    return results


def main() -> int:
    """Run the demonstration; 1 if an answer of ours is missing or wrong."""
    from demonstration.cases import CASES

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=list(CASES), help="this case; may be repeated")
    parser.add_argument("--side", choices=SIDES, help="only this side")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for a case of stock (default 10)")
    parser.add_argument("--json", metavar="FILE", help="also write every figure to this file")
    args = parser.parse_args()
    # so that being told to end also cleans up
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.monotonic()
    results = run(args.only or list(CASES), args.limit, args.side)
    bad = [r["case"] for r in results if r["verdict"] not in ("yes", "right", "stock wrong")]
    print(
        f"\n{len(results) - len(bad)} of {len(results)} answers are right; {time.monotonic() - start:.0f} s"
    )
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    return int(bool(bad) and args.side is None)


if __name__ == "__main__":
    sys.exit(main())
