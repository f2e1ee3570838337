"""What different programs, machines and options call by one name is one value: a scheduler may hold it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, pairwise, product
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_rewrite.scheduler import as_if
from helpers import switched_on, tasks_of

#: Blocks are looked at that no other task overwrites.
EXACT = {"rewrite.reassociate": False, "rewrite.disable": ["reuse-buffers", "place-blocks"]}
EAGER = {
    "coalesce": {"min-tasks": 1},
    "hoist": {"min-saved": 1000},
    "take-turns": {"min-bytes": 1},
}
WAYS: dict[str, dict[str, Any]] = {
    "threads": as_if(2, 0),
    "cluster": as_if(2, 4),
    "eager": {**as_if(1, 0), "rewrite.options": EAGER},
    "eager, many threads": {**as_if(16, 0), "rewrite.options": EAGER},
    "eager, cluster": {**as_if(2, 4), "rewrite.options": EAGER},
    "read again": {**as_if(2, 0), "rewrite.reread": True},
    "limited": {**as_if(2, 0), "rewrite.memory-limit": "100 kB"},
    "fused": {**as_if(2, 0), "optimization.fuse.delayed": True},
}
TABLES = [np.arange(5_000.0), np.arange(5_000.0)[::-1].copy()]


def load(tables: list[np.ndarray], block_info: Any = None) -> np.ndarray:
    """Blocks of a function that nobody knows, with tables."""
    where = block_info[None]["array-location"]
    rows, columns = (np.arange(*axis) for axis in where)
    return np.add.outer(100.0 * rows, columns) + sum(table[:1] for table in tables)


def load_other(tables: list[np.ndarray], block_info: Any = None) -> np.ndarray:
    return -load(tables, block_info)


def source(tables: list[np.ndarray], name: str, function: Any = load) -> da.Array:
    chunks = ((6,) * 8, (5,) * 8)
    return da.map_blocks(function, tables, chunks=chunks, dtype=float, name=name, meta=np.empty((0, 0)))


def programs() -> dict[str, tuple[Any, ...]]:
    x, y, z = source(TABLES, "both"), source(TABLES[:1], "first"), source(TABLES[1:], "second")
    both = [each.max(axis=0) for each in (x, source(TABLES, "again", load_other))]
    found = {
        "deviation": (x - x.mean(axis=0)).std(axis=1),
        "part": x[7:31, ::-1] + 1,
        "product": x.T @ y,
        "sum so far": y.cumsum(axis=0).max(),
        "columns": x.rechunk((48, 2)).max(axis=0),
        "neighbours": y.map_overlap(lambda block: block * 2, depth=1, boundary="none", dtype=float).sum(
            axis=0
        ),
        "anomalies": da.concatenate([x[i::6] - x[i::6].mean(axis=0) for i in range(6)]).max(axis=1),
        "first": (*both, y.max(axis=0)),
        "second": (*both, z.max(axis=0)),
        "delayed": dask.delayed(np.sum)(y + y.T[:40, :40].sum()),
        "padded": da.pad(x, 3, mode="edge")[2:-2, 2:-2],
    }
    return {name: made if type(made) is tuple else (made,) for name, made in found.items()}


def graphs(names: Any) -> Iterator[dict[Any, Any]]:
    """Of all programs alone and with the next, in all ways."""
    for wanted, way in product([*[(name,) for name in names], *pairwise(names)], WAYS):
        with switched_on(**EXACT, **WAYS[way]):
            made = programs()
            yield tasks_of(*chain.from_iterable(made[name] for name in wanted))


@pytest.mark.once
@pytest.mark.filterwarnings("ignore::dask_rewrite.RewriteWarning")
def test_one_name_is_one_value() -> None:
    found = list(graphs(programs()))
    times = Counter(key for graph in found for key in graph)
    values: defaultdict[Any, set[str]] = defaultdict(set)
    for graph in found:
        common = [key for key in graph if times[key] > 1]
        for key, value in zip(common, dask.get(graph, common), strict=True):
            values[key].add(dask.base.tokenize(value))
    assert len(values) > 500
    assert not [key for key, several in values.items() if len(several) > 1]
