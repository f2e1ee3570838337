"""A second way to switch on, for the day when dask asks no optimizer any more: a scheduler that rewrites.

It needs only what is public: ``dask.config.set(scheduler=...)`` takes a function, what that function is given
has ``__dask_graph__``, and ``dask_rewrite.optimize(graph, keys)`` rewrites a graph. What arrives there went
through dask's own optimizer: fused tasks are taken apart again, annotations of arrays are lost as without us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import dask.multiprocessing
import numpy as np
import pandas as pd
import pytest

import dask_rewrite
from helpers import add_one, assert_same, distinct, leapfrog, running_total


class Rewriting:
    """A scheduler that rewrites what it is given, and hands it to another one."""

    def __init__(self, get: Callable[..., Any]) -> None:
        self.get = get
        self.sent: list[int] = []

    def __call__(self, dsk: Any, keys: Any, **kwargs: Any) -> Any:
        graph = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
        graph = dict(dask_rewrite.optimize(graph, keys))
        self.sent.append(len(graph))
        return self.get(graph, keys, **kwargs)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "elementwise": lambda: ((distinct((8, 8), 2) + 1) * 2).sum(axis=0),
    "tile": lambda: (x := distinct((20, 20), 2) + 1)[:2, :2] + x.T[:2, :2],
    "product": lambda: (x := distinct((6, 12), 3)) @ x.T,
    "user": lambda: distinct((8, 8), 2).map_blocks(add_one).mean(axis=0),
    "overlap": lambda: distinct((8, 8), 4).map_overlap(add_one, depth=1, boundary="none"),
    "loop": lambda: running_total(300),
    "leapfrog": lambda: leapfrog(250),
    "delayed": lambda: dask.delayed(sum)([dask.delayed(abs)(-i) for i in range(20)]),
    "bag": lambda: db.range(20, npartitions=4).map(abs).sum(),
    "frame": lambda: dd.from_pandas(pd.DataFrame({"a": range(12)}), npartitions=3).a.sum(),
}


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_scheduler_that_rewrites(name: str, threads: bool) -> None:
    x = PROGRAMS[name]()
    get = Rewriting(dask.threaded.get if threads else dask.local.get_sync)
    if name != "leapfrog":  # which dask's own fusion nests too deep to be computed
        expected = x.compute(scheduler="sync", optimize_graph=False)
        with dask.config.set(scheduler=get):
            actual = x.compute()
            assert_same(actual, expected)
            if isinstance(x, da.Array):
                assert_same(dask.persist(x)[0].compute(scheduler="sync"), expected)
    with dask.config.set(scheduler=get):
        found = x.compute(optimize_graph=False)
    assert_same(found, x.compute(scheduler="sync", optimize_graph=False))
    assert get.sent
    assert get.sent[-1] <= len(dict(x.__dask_graph__())) + 1


def test_what_dask_fused_is_taken_apart_and_rewritten() -> None:
    x = PROGRAMS["tile"]()
    get = Rewriting(dask.local.get_sync)
    with dask.config.set(scheduler=get):
        x.compute()
        x.compute(optimize_graph=False)
    (stock,) = dask.optimize(x)
    assert max(get.sent) <= len(dict(stock.__dask_graph__())) + 1


def test_on_a_cluster(client: Any) -> None:
    get = Rewriting(client.get)
    with dask.config.set(scheduler=get):
        for name in ("elementwise", "product", "user", "delayed"):
            x = PROGRAMS[name]()
            assert_same(x.compute(), x.compute(scheduler="sync", optimize_graph=False))
    assert len(get.sent) == 4


def test_several_arrays_and_numpy() -> None:
    x = distinct((8, 8), 2)
    get = Rewriting(dask.local.get_sync)
    with dask.config.set(scheduler=get):
        total, y = dask.compute(x.sum(), x + 1)
        assert_same(np.asarray(x), y - 1)
    assert total == y.sum() - 64
    assert len(get.sent) == 2


@pytest.mark.parametrize("planned", [True, False])
def test_arrays_over_expressions_too(planned: bool, python: Callable[..., str]) -> None:
    """Which the hook does not reach: dask asks no optimizer for them."""
    pytest.importorskip("dask_array")
    script = """
        import sys
        import dask
        import numpy as np
        from dask.local import get_sync
        if sys.argv[1] == "True":
            dask.config.set({"array.query-planning": True})
            import dask.array as da
        else:
            import dask_array as da
        import dask_rewrite

        x = da.from_array(np.arange(64.0).reshape(8, 8), chunks=2)
        y = (x + x.T)[:4].sum(axis=0)
        expected = (np.arange(64.0).reshape(8, 8) + np.arange(64.0).reshape(8, 8).T)[:4].sum(axis=0)
        sent = []

        def get(dsk, keys, **kwargs):
            graph = dict(dask_rewrite.optimize(dsk.__dask_graph__(), keys))
            sent.append(len(graph))
            return get_sync(graph, keys, **kwargs)

        assert np.array_equal(y.compute(scheduler=get), expected)
        assert sent[0] <= len(dict(y.optimize().__dask_graph__())) + 1, sent
        z = dask_rewrite.optimize(y)  # the way that needs no switch at all
        assert type(z) is type(y)
        assert len(dict(z.__dask_graph__())) < len(dict(y.__dask_graph__()))
        assert np.array_equal(z.compute(), expected)
        assert np.array_equal((z + 1).compute(), expected + 1)
        (remark,) = dask_rewrite.explain(y).remarks
        assert "dask asks no optimizer" in remark.reason and "dask_rewrite.optimize(x)" in remark.reason
        print("right")
    """
    assert python(script, str(planned)).strip() == "right"
