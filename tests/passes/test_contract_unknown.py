"""Products of blocks of unknown type are added up by the functions that dask calls."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.highlevelgraph import HighLevelGraph

from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.lowering.lower import Lowering
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.contract import Contract
from dask_rewrite.remarks import Remarks
from helpers import Source, assert_same, keys_of
from passes.contract_cases import PRODUCTS, assert_close, blocks, reasons


@pytest.fixture(autouse=True)
def two_threads() -> Any:
    with dask.config.set({"scheduler": "threads", "num_workers": 2}):
        yield


def same(block: Any) -> Any:
    """A function that nobody knows."""
    return block


def declaring(collection: Any, assume: bool = True) -> tuple[Graph, Context]:
    """The graph, and a context with what collections say of their blocks."""
    graph = HighLevelGraph.merge(collection.__dask_graph__())
    lowering = Lowering(graph, keys_of(collection), Remarks(), assume=assume)
    found, context = lowering.run(), Context(options=Options.current())
    context.declared = lowering.declared
    return found, context


def both(collection: Any) -> tuple[bool, list[Any], list[Any]]:
    """Whether it is rewritten, and the values with and without."""
    graph, context = declaring(collection)
    after = Contract(min_bytes=1).run(graph, context)
    outputs = list(graph.outputs)
    return after is not graph, dask.get(after.nodes, outputs), dask.get(graph.nodes, outputs)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_blocks_of_unknown_type_are_added_up_as_dask_does(name: str, threads: int) -> None:
    x = blocks(4, 12)
    file = da.from_array(Source(np.arange(16.0 * 48).reshape(16, 48)), chunks=4)
    changed = []
    with dask.config.set(num_workers=threads):
        for each in (x, file, x.map_blocks(same)):
            rewritten, actual, expected = both(PRODUCTS[name](each))
            changed.append(rewritten)
            assert_close(actual, expected)
    assert changed == [changed[0]] * 3
    assert changed[0] or name == "vector"


def test_nothing_is_assumed_if_so_asked() -> None:
    graph, context = declaring((lambda y: y @ y.T)(blocks().map_blocks(same)), assume=False)
    assert Contract(min_bytes=1).run(graph, context) is graph
    assert "not known to be NumPy arrays" in reasons(context.remarks)


def test_masked_blocks() -> None:
    masked = da.ma.masked_greater(blocks(2, 12), 100)
    with dask.config.set(num_workers=1):
        rewritten, actual, expected = both((masked[:, None, :] * masked[None, :, :]).sum(axis=2))
    assert rewritten
    for one, other in zip(actual, expected, strict=True):
        assert_same(one, other)


def test_sparse_blocks() -> None:
    sparse = pytest.importorskip("sparse")
    x = blocks(2, 12).map_blocks(sparse.COO)
    _, actual, expected = both(da.tensordot(x, x, axes=((1,), (1,))))
    for one, other in zip(actual, expected, strict=True):
        assert type(one) is type(other) is sparse.COO
        np.testing.assert_allclose(one.todense(), other.todense())


@pytest.mark.parametrize("dtype", ["f8", "i4"])
@pytest.mark.parametrize("loads", [None, same])
def test_one_function_adds_up_all_sums(loads: Any, dtype: str) -> None:
    x = blocks(6, 12).astype(dtype)
    x = x if loads is None else x.map_blocks(loads)
    graph, context = declaring(x.dot(x.T))
    after = Contract(min_bytes=1).run(graph, context)
    steps = [
        node for key, node in after.nodes.items() if str(key[0]).startswith("contract-") and len(key) == 4
    ]
    assert len(steps) > 36
    assert len({id(step.func) for step in steps}) <= 2  # the first of a chain, and all others
