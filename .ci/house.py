"""The map of the source: rooms, files with their first lines, and arrows between rooms.

python .ci/house.py          write docs/house.md
python .ci/house.py --check  fail if it is stale, if a file or a function is too long, or if a module keeps
                             something between calls that `module_state.py` does not list
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import module_state

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src/dask_rewrite"
PAGE = ROOT / "docs/house.md"
ORDER = ("tools", "hook", "pipeline", "passes", "lowering", "analysis", "graph")
#: Most lines of a file, and of a function with its docstring.
FILE, FUNCTION = 300, 60
HEAD = """# Map of the source

Made by `python .ci/house.py` from the code itself; lint checks that it is not stale. Rooms stand above
those that they import from.
"""


KEPT = (
    "## State at module level",
    "",
    "Everything that a module keeps between calls, what bounds it, and why threads may share it. Lint holds",
    "the list against the code.",
    "",
)


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "root"


def first_line(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").split("\n")[0]


def imports(tree: ast.Module) -> set[str]:
    """The rooms that a file imports from."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dask_rewrite."):
            room = str(node.module).split(".")[1]
            found.add(room if room in ORDER else "root")
    return found


def page() -> str:
    files: dict[str, list[str]] = {}
    arrows: Counter[tuple[str, str]] = Counter()
    about: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        room = room_of(path)
        arrows.update((room, other) for other in imports(tree) - {room})
        name = path.relative_to(SOURCE if room == "root" else SOURCE / room).as_posix()
        if name == "__init__.py" and room != "root":
            about[room] = first_line(tree)
        else:
            row = f"| `{name.removesuffix('/__init__.py')}` | {first_line(tree)} |"
            files.setdefault(room, []).append(row)
    lines = [HEAD]
    for room in (*ORDER, "root"):
        title = "The ground: public names, and what everyone may use" if room == "root" else f"`{room}/`"
        lines += [f"## {title}", ""]
        if room in about:
            lines += [about[room], ""]
        down = [f"{other} ({count})" for other in ORDER if (count := arrows[room, other])]
        if down:
            lines += [f"Imports from (files): {', '.join(down)}.", ""]
        lines += ["| file | what |", "|---|---|", *files[room], ""]
    return "\n".join([*lines, *KEPT, *module_state.table(), ""])


def too_long() -> list[str]:
    """Files and functions that are longer than they may be."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        sizes = [(path.name, len(text.splitlines()), FILE)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                sizes.append((node.name, (node.end_lineno or 0) - node.lineno + 1, FUNCTION))
        place = path.relative_to(ROOT).as_posix()
        found += [
            f"{place}: {name} has {size} lines, {most} at most" for name, size, most in sizes if size > most
        ]
    return found


def main() -> int:
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    state = module_state.found(SOURCE)
    wrong = [f"{place}: not in .ci/module_state.py" for place in sorted(state - module_state.STATE.keys())]
    wrong += [f"{place}: no such state" for place in sorted(module_state.STATE.keys() - state)]
    if wrong := too_long() + wrong:
        print(*wrong, sep="\n")
        return 1
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        print("docs/house.md is stale: run `python .ci/house.py`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
