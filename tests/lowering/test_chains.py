"""Long chains of one operation between layers are lowered to one fold, in the same order."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task
from dask.core import flatten

from dask_rewrite.graph.graph import Graph
from dask_rewrite.lowering.lower import Lowering
from dask_rewrite.remarks import Remarks
from helpers import assert_same


def members(n: int, dtype: Any = float, chunks: int = 2) -> list[Any]:
    return [
        da.from_array((np.arange(12.0).reshape(3, 4) * (i + 1) / 7).astype(dtype), chunks=chunks)
        for i in range(n)
    ]


def lowered(*collections: Any, **options: Any) -> tuple[Graph, Remarks]:
    dsk = dask.highlevelgraph.HighLevelGraph.merge(*[x.dask for x in collections])
    keys = list(flatten([x.__dask_keys__() for x in collections]))
    remarks = Remarks()
    return Lowering(dsk, list(dict.fromkeys(keys)), remarks, **options).run(), remarks


def folds(graph: Graph) -> list[Task]:
    return [node for node in graph.nodes.values() if type(node) is Task and node.func is reduce]


def same_as_stock(graph: Graph, *collections: Any) -> None:
    for x in collections:
        keys = list(flatten(x.__dask_keys__()))
        assert_same(list(dask.get(graph.nodes, keys)), list(dask.get(dict(x.dask), keys)))


@pytest.mark.parametrize("op", [operator.add, operator.mul, np.maximum, np.logical_or])
def test_a_chain_too_long_for_one_task_is_one_fold(op: Any) -> None:
    x = reduce(op, members(40))
    graph, remarks = lowered(x)
    assert len(folds(graph)) == 4
    assert remarks.counts["tree-sum", "applied"] == 1
    assert graph.metrics().depth == 2
    same_as_stock(graph, x)


def test_arrays_of_one_block() -> None:
    x = sum(members(40, chunks=4))
    graph, _ = lowered(x)
    assert len(folds(graph)) == 1
    same_as_stock(graph, x)


def test_short_chains_and_chains_over_few_inputs_stay_fused() -> None:
    short = sum(members(6))
    (x,) = members(1)
    narrow = x
    for _ in range(100):
        narrow = narrow + x
    for y in (short, narrow):
        graph, _ = lowered(y)
        assert not folds(graph)
        same_as_stock(graph, y)


def test_a_chain_ends_where_it_is_used_twice_or_asked_for() -> None:
    terms = members(60)
    half = sum(terms[:30])
    whole = sum(terms[30:], half)
    for asked in ((whole, half), (whole, half * 2)):
        graph, _ = lowered(*asked)
        assert len(folds(graph)) == 8
        same_as_stock(graph, *asked)


def test_the_order_of_operands_is_kept() -> None:
    terms = members(40)
    right = terms[0]
    for term in terms[1:]:
        right = term + right  # grows to the right: not a fold from the left
    graph, _ = lowered(right)
    assert not folds(graph)
    same_as_stock(graph, right)
    mixed = terms[0]
    for i, term in enumerate(terms[1:]):
        mixed = mixed + term if i % 20 else mixed - term
    graph, _ = lowered(mixed)
    same_as_stock(graph, mixed)


def test_broadcast_terms_and_scalars() -> None:
    rows = [da.from_array(np.arange(4.0) * i, chunks=2) for i in range(40)]
    x = da.from_array(np.arange(12.0).reshape(3, 4), chunks=2)
    for row in rows:
        x = x + row
    graph, _ = lowered(x)
    assert folds(graph)
    same_as_stock(graph, x)
    y = sum(members(20)) + 1
    for term in members(40)[20:]:
        y = y + term
    graph, _ = lowered(y)
    same_as_stock(graph, y)


def test_annotations_cut_chains() -> None:
    with dask.annotate(priority=3):
        half = sum(members(30))
    with dask.annotate(priority=7):
        whole = half
        for term in members(60)[30:]:
            whole = whole + term
    graph, _ = lowered(whole)
    priorities = {graph.annotations[fold.key]["priority"] for fold in folds(graph)}
    assert priorities
    assert priorities <= {3, 7}
    same_as_stock(graph, whole)


def test_folding_can_be_left_out() -> None:
    x = sum(members(40))
    graph, _ = lowered(x, fold=False)
    assert not folds(graph)
    same_as_stock(graph, x)
