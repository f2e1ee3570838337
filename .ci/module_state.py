"""State at module level: what modules keep between calls, found in the code, with what bounds each.

Found are names of modules that a function changes, caches of functions, and objects that are made to be
changed. ``STATE`` says of each what it is, why it cannot grow for ever, and why threads do not mind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_ATOMIC = "each look and each store is one step of a dict; at worst two threads find the same thing"
_LRU = "`lru_cache` locks itself"
_SHORT = "20,000 entries, then all five tables of facts are emptied between graphs"

#: By file and name: what it is, its bound, and why it is safe in threads.
STATE: dict[str, tuple[str, str, str]] = {
    "analysis/fact_cache.py RESULTS": ("what calls give", _SHORT, _ATOMIC),
    "analysis/fact_cache.py _interned": ("equal facts as one object", _SHORT, "`setdefault`"),
    "analysis/fact_cache.py _arrays": ("facts of arrays at hand, by shape and dtype", _SHORT, _ATOMIC),
    "analysis/fact_cache.py _dicts": ("signatures of dicts of facts", _SHORT, _ATOMIC),
    "analysis/fact_cache.py _functions": ("numbers of functions", _SHORT, "`setdefault`"),
    "analysis/fact_cache.py _numbers": ("the next number of a fact or a function", "one integer", "`next`"),
    "analysis/knowledge/elementwise.py _result_type": ("dtypes that ufuncs give", "4,096 entries", _LRU),
    "analysis/knowledge/joining.py _joined_type": ("dtypes of joined arrays", "1,024 entries", _LRU),
    "analysis/knowledge/linear_algebra.py _einsum_type": ("dtypes of `einsum`", "1,024 entries", _LRU),
    "analysis/knowledge/linear_algebra.py _product_type": ("dtypes of products", "1,024 entries", _LRU),
    "analysis/knowledge/linear_algebra.py _types": ("dtypes of decompositions", "256 entries", _LRU),
    "analysis/knowledge/lookup.py KNOWN": (
        "what is known of functions; those of modules that are imported late are added",
        "one entry for each of `LATE`",
        _ATOMIC,
    ),
    "analysis/knowledge/lookup.py _partials": (
        "what is known of partials",
        "an entry goes with its partial",
        _ATOMIC,
    ),
    "analysis/knowledge/random.py _new_kinds": ("dtypes that generators draw", "one entry", _LRU),
    "analysis/knowledge/random.py _old_kinds": ("dtypes that `RandomState` draws", "one entry", _LRU),
    "analysis/knowledge/read_only.py _quantile_type": ("dtypes of quantiles", "1,024 entries", _LRU),
    "analysis/knowledge/reductions.py _count_type": ("dtypes of counts", "1,024 entries", _LRU),
    "analysis/knowledge/reductions.py _result_type": ("dtypes of reductions", "1,024 entries", _LRU),
    "config.py _last": (
        "the options read last, and what they were read from",
        "one entry",
        "both are one tuple, replaced as a whole",
    ),
    "graph/collector.py _aged": (
        "large graphs since all garbage was looked for",
        "one integer",
        "two threads at once may count one graph instead of two",
    ),
    "graph/kinds.py KINDS": ("what types of arguments mean", "10,000 types", _ATOMIC),
    "graph/kinds.py LEGACY_KINDS": ("what types of values in legacy tasks mean", "10,000 types", _ATOMIC),
    "graph/names.py _word": ("readable words of names", "1,024 entries", _LRU),
    "graph/pickling.py _plain_kinds": ("types that pickle takes as they are", "10,000 types", _ATOMIC),
    "hook/switch.py switched_on": (
        "who switched the optimizer on, by dask's option",
        "three keys",
        "written by `enable` and `disable` only; read by `status`",
    ),
    "pipeline/callbacks.py _watching": (
        "who looks on while passes run",
        "an entry goes with its `with` block",
        "appended and removed in one step; readers take a copy",
    ),
    "pipeline/selection.py _selected": (
        "the passes selected last, by options",
        "one entry",
        "an entry is a whole that names what it was made of",
    ),
}

_CHANGING = frozenset(["add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop"])
_CHANGING |= {"popitem", "remove", "setdefault", "update"}
_MADE_TO_CHANGE = frozenset(["ByIdentity", "ContextVar", "Counter", "Lock", "OrderedDict", "RLock"])
_MADE_TO_CHANGE |= {"count", "defaultdict", "deque", "local"}
_MADE_TO_CHANGE |= {"WeakKeyDictionary", "WeakSet", "WeakValueDictionary"}
_CACHES = frozenset(["lru_cache", "cache"])
_CONTAINERS = frozenset(["dict", "list", "set"])


def found(source: Path) -> set[str]:
    """The state of all modules, as ``file name``."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))}
    makers = _MADE_TO_CHANGE | set(_kinds_of_containers(trees.values()))
    places: dict[str, list[Path]] = {}
    state: set[tuple[Path, str]] = set()
    for path, tree in trees.items():
        for name, value in _assigned(tree):
            places.setdefault(name, []).append(path)
            if isinstance(value, ast.Call) and _last(value) in makers:
                state.add((path, name))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any(_last(d) in _CACHES for d in node.decorator_list):
                state.add((path, node.name))
    for path, tree in trees.items():
        for name in _changed(tree):
            owners = [path] if path in places.get(name, ()) else _imported(tree, name, places)
            state.update((owner, name) for owner in owners)
    return {f"{path.relative_to(source).as_posix()} {name}" for path, name in state}


def table() -> list[str]:
    """The list as a table for the page of the house."""
    rows = ["| state | what | bound | threads |", "|---|---|---|---|"]
    for place, (what, bound, threads) in sorted(STATE.items()):
        path, name = place.split()
        rows.append(f"| `{path}`: `{name}` | {what} | {bound} | {threads} |")
    return rows


def _last(node: ast.expr) -> str:
    """The last name of an expression such as ``functools.lru_cache(...)``."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _kinds_of_containers(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Classes that are dicts, lists or sets, directly or by way of each other."""
    kinds = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    known = set(_CONTAINERS)
    while (
        more := {name for name, node in kinds.items() if not known.isdisjoint(map(_last, node.bases))} - known
    ):
        known |= more
    yield from known - _CONTAINERS


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, getattr(node, "value", None)


def _changed(tree: ast.Module) -> Iterator[str]:
    """Names that functions change without having made them."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        nodes = list(ast.walk(function))
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in nodes:
            target: ast.expr | None = None
            if isinstance(node, ast.Global):
                yield from node.names
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                target = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                target = node.func.value if node.func.attr in _CHANGING else None
            if isinstance(target, ast.Name) and target.id not in own:
                yield target.id


def _imported(tree: ast.Module, name: str, places: Mapping[str, list[Path]]) -> list[Path]:
    """The file that a name comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            end = str(node.module).removeprefix("dask_rewrite.").replace(".", "/")
            return [p for p in places.get(name, ()) if p.with_suffix("").as_posix().endswith(end)]
    return []
