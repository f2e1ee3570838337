"""Collections of several kinds in one call: each answer stands where its collection did."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise, permutations
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pytest
from dask._expr import HLGExpr

import dask_rewrite
from dask_rewrite.hook import apart
from dask_rewrite.hook.apart import Apart, Together
from dask_rewrite.hook.optimizer import optimize
from distributed import Client, LocalCluster
from helpers import stock

KINDS = ("array", "frame", "delayed", "bag", "other")
pytestmark = pytest.mark.filterwarnings("ignore:Computing mixed collections:UserWarning")
calls: list[int] = []


def load(block_info: Any = None) -> np.ndarray:
    (place,) = block_info[None]["chunk-location"]
    calls.append(place)
    return np.arange(2.0) + 2 * place


def made() -> dict[str, Any]:
    x = da.map_blocks(load, chunks=((2, 2),), dtype=float)
    return {
        "array": x,
        "frame": dd.from_dask_array(x),
        "delayed": dask.delayed(sum)(x),
        "bag": db.from_sequence([1, 2, 3], npartitions=2).map(str),
        "other": x + 1,
    }


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def one_by_one(names: tuple[str, ...]) -> list[Any]:
    with stock(scheduler="sync"):
        return [plain(made()[name].compute()) for name in names]


@pytest.mark.parametrize("names", [*permutations(KINDS, 3), KINDS, KINDS[::-1]])
def test_answers_are_in_order(names: tuple[str, ...]) -> None:
    expected = one_by_one(names)
    if names[0] == "frame":
        try:
            with stock(scheduler="sync"):
                dask.compute(*[made()[name] for name in names])
        except IndexError:
            pytest.xfail("this dask computes nothing together where a dataframe comes first")
    with dask_rewrite.enable(), dask.config.set(scheduler="sync"):
        found = dask.compute(*[made()[name] for name in names])
        (nested,) = dask.compute([{name: made()[name]} for name in names])
        kept = dask.persist(*[made()[name] for name in names])
    assert [plain(each) for each in found] == expected
    assert [plain(each[name]) for name, each in zip(names, nested)] == expected
    with stock(scheduler="sync"):
        assert [plain(each.compute()) for each in kept] == expected


@pytest.mark.parametrize(
    "names",
    [
        ("array", "frame", "delayed"),
        ("delayed", "frame", "array", "bag"),
        ("array", "frame", "other"),
        ("array", "frame", "delayed", "frame", "other", "bag", "array"),
    ],
)
def test_no_more_is_loaded_than_with_dask(names: tuple[str, ...]) -> None:
    """Where collections stand apart, others that nobody knows may hold the same blocks."""
    counts = []
    for side in (stock, dask_rewrite.enable):
        calls.clear()
        with side(), dask.config.set(scheduler="sync"):
            dask.compute(*[made()[name] for name in names])
        counts.append(len(calls))
    assert counts[1] <= counts[0]


def test_explain_tells_what_is_sent_of_those_that_stand_apart() -> None:
    names = ("array", "frame", "other")
    with dask_rewrite.enable():
        shown = dask_rewrite.explain(*[made()[name] for name in names])
    assert shown.form == "tasks"
    assert ("lower", "missed") not in shown.counts
    with dask_rewrite.enable(), dask.config.set({"rewrite.lower-limit": 1}):
        assert dask_rewrite.explain(*[made()[name] for name in names]).form == "stock"
        with dask.config.set(scheduler="sync"):
            found = dask.compute(*[made()[name] for name in names])
    assert [plain(each) for each in found] == one_by_one(names)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    layout = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "silence_logs": 60}
    with LocalCluster(**layout, dashboard_address=":0") as cluster, Client(cluster) as found:
        yield found


@pytest.mark.parametrize("names", [("array", "frame", "bag"), ("bag", "frame", "delayed", "other")])
def test_on_a_cluster(client: Client, names: tuple[str, ...]) -> None:
    expected = one_by_one(names)
    with dask_rewrite.enable():
        futures = client.compute([made()[name] for name in names])
        kept = client.persist([made()[name] for name in names])
        assert [plain(each) for each in client.gather(futures)] == expected
        assert [plain(each) for each in client.gather(client.compute(kept))] == expected


def test_collections_side_by_side_are_one_graph() -> None:
    """Only what another kind stands between is taken apart."""
    parts = made()
    with dask_rewrite.enable():
        together = dask.base.collections_to_expr([parts[name] for name in ("array", "delayed", "frame")])
        split = dask.base.collections_to_expr([parts[name] for name in ("array", "frame", "delayed")])
        assert len(together.optimize().operands) == 2
        assert len(split.optimize().operands) == 3


def test_the_optimizer_of_those_that_stand_apart() -> None:
    one, same, other = (Apart(i, Together(optimize)) for i in (1, 1, 3))
    assert one == same
    assert hash(one) == hash(same)
    assert one not in (other, optimize)
    assert optimize != one
    assert pickle.loads(pickle.dumps(one)) is da.optimization.optimize


def test_what_was_rewritten_is_put_together_with_nothing() -> None:
    with dask_rewrite.enable():
        expr = dask.base.collections_to_expr([made()["array"], made()["delayed"]]).optimize()
    (group,) = expr.operands
    assert isinstance(group, HLGExpr)
    assert group.low_level_optimizer is not None
    assert group.low_level_optimizer({}, []) == {}


def test_many_collections_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(values: Any) -> Any:
        nonlocal looks
        looks += 1
        return pairwise(values)

    monkeypatch.setattr(apart, "pairwise", counted)
    with dask_rewrite.enable():
        dask.base.collections_to_expr([da.ones(2) + i for i in range(50)]).optimize()
    assert 0 < looks < 5
