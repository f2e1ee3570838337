"""Run programs with single thresholds of the code set to 0 or 1: the answers stay those of dask.

    python tests/thresholds.py                        each one, set to 0 and to 1, in processes of their own
    python tests/thresholds.py SMALL passes/stream    those whose place has one of these words in it
    python tests/thresholds.py --mixed 40             half of all at once, drawn by chance, forty times
    python tests/thresholds.py --one passes/small_work.py:REDUCES=0    only that, in this process

A threshold is a number at the top of a module. It is changed where it is written, before the module runs, so
that whatever is made of it (defaults of arguments, other constants) has the other value too.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src/dask_rewrite"
ROOMS = ("graph", "analysis", "lowering", "passes", "pipeline", "hook")
#: Numbers that are no thresholds: sizes of what is written, and facts.
NO_THRESHOLDS = {
    "graph/names.py:LENGTH": "letters of a mark",
    "graph/nesting.py:NESTING_LIMIT": "what the verifier lets pass: 0 refuses every graph",
    "passes/contract/accumulate.py:FAN_IN": "sums of fewer than two terms are no sums",
    "passes/inline_sources.py:_ITEM": "bytes of an element",
    "passes/siblings/light.py:FEWEST": "one task does not go together with itself",
}
#: What others are divided by, or taken in steps of: how many are looked at of many, how much larger is much.
DIVISORS = {
    "analysis/memory/runs.py:POINTS",
    "hook/plans.py:_SMALL",
    "hook/reading_again.py:_SMALL",
    "lowering/lower.py:_BATCH",
    "passes/align_reads/__init__.py:_OF_LIMIT",
    "passes/align_reads/texts.py:_RUNS",
    "passes/contract/__init__.py:_PRODUCTS",
    "passes/coalesce/weights.py:_BLOCKS",
    "passes/demand/beginnings.py:_BLOCKS",
    "passes/merge_reads/__init__.py:_BLOCKS",
    "passes/small_work.py:REDUCES",
    "passes/small_work.py:_BLOCKS",
    "passes/hoist/sizes.py:_SAMPLE",
    "passes/fuse_small.py:_SAMPLE",
    "passes/reuse_buffers.py:_SAMPLE",
    "passes/tiny_reads.py:PER_THREAD",
    "passes/tiny_reads.py:_BLOCKS",
    "passes/waiting.py:PART",
    "passes/waiting.py:_BLOCKS",
}


def thresholds() -> dict[str, int]:
    """All numbers at the top of modules, as ``file:NAME``, with their values."""
    found: dict[str, int] = {}
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            for name, node in _numbers(ast.parse(path.read_text(encoding="utf-8"))):
                found[f"{path.relative_to(SOURCE).as_posix()}:{name}"] = eval(ast.unparse(node))
    return {place: value for place, value in found.items() if place not in NO_THRESHOLDS}


def _numbers(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        else:
            pairs = [(target, value)]
        for one, number in pairs:
            if isinstance(one, ast.Name) and one.id.isupper() and _is_integer(number):
                yield one.id, number


def _is_integer(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_integer(node.left) and _is_integer(node.right)
    return isinstance(node, ast.Constant) and type(node.value) is int


class Changed(importlib.abc.MetaPathFinder):
    """Imports modules of the package with other numbers in them."""

    def __init__(self, settings: Sequence[str]) -> None:
        self.wanted: dict[Path, dict[str, int]] = {}
        for setting in settings:
            place, _, value = setting.partition("=")
            file, _, name = place.partition(":")
            self.wanted.setdefault(SOURCE / file, {})[name] = int(value)
        self.done: set[Path] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        parts = name.split(".")
        if parts[0] != SOURCE.name:
            return None
        place = SOURCE.joinpath(*parts[1:])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file in self.wanted:
                self.done.add(file)
                return importlib.util.spec_from_file_location(
                    name, file, loader=_Loader(name, str(file), self.wanted[file])
                )
        return None


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, values: dict[str, int]) -> None:
        super().__init__(name, path)
        self.values = values

    def get_code(self, fullname: str) -> Any:
        tree = ast.parse(Path(self.path).read_text(encoding="utf-8"))
        new = {node: ast.Constant(self.values[n]) for n, node in _numbers(tree) if n in self.values}
        assert len(new) == len(self.values), f"{self.path} has no {sorted(self.values)}"
        for parent in tree.body:
            if isinstance(parent, ast.Assign):
                parent.value = new.get(parent.value, parent.value)
                if isinstance(parent.value, ast.Tuple):
                    parent.value.elts = [new.get(each, each) for each in parent.value.elts]
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


def run(settings: Sequence[str], examples: int = 60) -> None:
    """Set thresholds in this process, and compare the answers of many programs with dask's."""
    finder = Changed(settings)
    sys.meta_path.insert(0, finder)
    from threshold_programs import compare_all

    compare_all(examples)
    assert finder.done == set(finder.wanted), f"not imported: {set(finder.wanted) - finder.done}"


def values(place: str) -> tuple[int, int]:
    """What a threshold is set to."""
    return (1, 2) if place in DIVISORS else (0, 1)


def mixed(seed: int) -> list[str]:
    """Half of the thresholds at 0 or 1, drawn by chance, the same for the same seed."""
    draw = random.Random(seed)
    return [f"{place}={draw.choice(values(place))}" for place in thresholds() if draw.random() < 0.5]


def outcome(settings: Sequence[str], examples: int = 60, seconds: float = 300) -> str:
    """What comes of these settings in a process of its own: nothing, or the last lines of its error."""
    command = [sys.executable, "-W", "error", __file__, "--examples", str(examples), "--one", *settings]
    path = os.pathsep.join([str(SOURCE.parent), str(Path(__file__).parent)])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env={**os.environ, "PYTHONPATH": path}
        )
    except subprocess.TimeoutExpired:
        return f"takes longer than {seconds:.0f} s"
    return "" if not done.returncode else "\n".join(done.stderr.strip().splitlines()[-12:])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*", help="only thresholds with one of these words in their place")
    parser.add_argument("--one", nargs="+", help="these settings, in this process")
    parser.add_argument("--mixed", type=int, default=0, help="so many draws of half of the thresholds")
    parser.add_argument("--examples", type=int, default=60, help="random programs of each setting")
    parser.add_argument("--jobs", type=int, default=1, help="settings that are tried at a time")
    args = parser.parse_args(arguments)
    if args.one:
        run(args.one, args.examples)
        return 0
    if args.mixed:
        wanted = {f"draw {seed}": mixed(seed) for seed in range(args.mixed)}
    else:
        places = [p for p in thresholds() if not args.words or any(word in p for word in args.words)]
        wanted = {f"{place}={value}": [f"{place}={value}"] for place in places for value in values(place)}
    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        found = pool.map(lambda settings: outcome(settings, args.examples), wanted.values())
        for name, wrong in zip(wanted, found, strict=True):
            failed += bool(wrong)
            print(f"{'WRONG' if wrong else 'right'} {name}", *wrong.splitlines(), sep="\n      ", flush=True)
    print(f"{len(wanted) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
