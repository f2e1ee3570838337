"""Loads whose constants were hoisted while dask built the graph are the loads of the graph around them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed

import dask_rewrite
from helpers import assert_same, switched_on

BLOCKS = 40
#: Heavy enough for a key.
FILES = [f"/data/store/run-{i:06}.dat" for i in range(1000)]


class Loads:
    """Counts how often each block is loaded."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def array(self) -> da.Array:
        files = FILES

        def load(block_id: tuple[int, ...] = (0,)) -> np.ndarray:
            (i,) = block_id
            with self._lock:
                self.counts[i] += 1
            return np.arange(5.0) + len(files[i]) + i

        load.__dask_tokenize__ = lambda: "load"  # type: ignore[attr-defined]  # functions have it not
        return da.map_blocks(load, chunks=((5,) * BLOCKS,), dtype=float, meta=np.empty(0))


def histogram(x: da.Array, of: da.Array) -> da.Array:
    return da.histogram(x, bins=5, range=(of.min(), of.max()))[0]


PROGRAMS: dict[str, Callable[[da.Array], Any]] = {
    "histogram": lambda x: histogram(x, x),
    "histograms of both": lambda x: [histogram(x, x), histogram(x[50:], x[50:]), x.sum()],
    "histograms of parts": lambda x: [histogram(x, x[50:]), histogram(2 * x[50:], x[:100])],
    "a delayed mean beside it": lambda x: [delayed(float)(x.mean()), x],
    "a delayed mean in it": lambda x: x.map_blocks(np.subtract, delayed(float)(x.mean()), dtype=float),
    "delayed extremes": lambda x: [delayed(max)([x.min(), x.max()]), x.sum()],
    "a mean and a block": lambda x: delayed(lambda m, b: m + b.sum())(x.mean(), x.to_delayed()[3]),
    "an extreme for each block": lambda x: x.map_blocks(lambda b, m=None: b - m, m=x.max(), dtype=float),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_block_is_loaded_more_often(name: str) -> None:
    counts, found = [], []
    for on in (False, True):
        loads = Loads()
        with switched_on() if on else dask.config.set(scheduler="sync"):
            found.append(dask.compute(PROGRAMS[name](loads.array())))
        counts.append(loads.counts)
    assert_same(found[1], found[0])
    assert counts[1] <= counts[0]


def test_a_histogram_loads_each_block_once() -> None:
    loads = Loads()
    with switched_on():
        PROGRAMS["histogram"](loads.array()).compute()
    assert loads.counts == dict.fromkeys(range(BLOCKS), 1)


def loads_in(graph: Any) -> dict[Any, frozenset[Any]]:
    nodes = dict(graph).items()
    marked = [(k, n) for k, n in nodes if type(k) is tuple and k[0].startswith("load-") and "-r" in k[0]]
    return {key: node.dependencies for key, node in marked}


def test_one_name_stands_for_one_task() -> None:
    """A scheduler mixes up tasks of one name that wait for different things."""
    with switched_on():
        built = PROGRAMS["histogram"](Loads().array())
        inner, outer = loads_in(built.dask), loads_in(dask_rewrite.optimize(built).dask)
        final = loads_in(dask.base.collections_to_expr([built]).optimize().__dask_graph__())
    assert len(inner) == BLOCKS
    assert outer == final == inner
    assert len(frozenset().union(*final.values())) == 1
