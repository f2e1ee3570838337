"""How large blocks probably are."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask._task_spec import convert_legacy_graph
from dask.highlevelgraph import HighLevelGraph

from dask_rewrite.analysis.declared import Declared
from dask_rewrite.analysis.estimates import believed, estimate
from dask_rewrite.analysis.facts import Facts
from helpers import assert_same_as_stock, distinct


def estimates(x: Any) -> tuple[Facts, list[Any]]:
    """Facts that look at a graph, and the keys that were looked up since."""
    hlg: HighLevelGraph = x.dask
    nodes = dict(convert_legacy_graph(hlg.to_dict()))
    asked: list[Any] = []

    def lookup(key: Any) -> Any:
        asked.append(key)
        return nodes.get(key)

    return Facts(lookup, declared=Declared(hlg, {}, {})), asked


def sizes(facts: Facts, key: Any) -> tuple[int, int]:
    """Elements and bytes of a block, as estimated."""
    found = estimate(facts, key)
    assert found is not None
    return found.size, found.nbytes


def unknown(block: Any) -> Any:
    return block


def test_a_declared_block_is_not_looked_into() -> None:
    x = (distinct((8, 6), (2, 3)).map_blocks(unknown) + 1).sum(axis=0)
    facts, asked = estimates(x)
    assert sizes(facts, (x.name, 0)) == (3, 24)
    assert asked == []


def test_what_is_made_of_declared_blocks_is_not_followed_below_them() -> None:
    x = distinct((8, 6), (2, 3)).map_blocks(unknown)
    y = x.map_blocks(np.negative) + x
    for name in y.dask.layers.keys() - {x.name}:
        y.dask.layers[name].collection_annotations = {}
    facts, asked = estimates(y)
    assert sizes(facts, (y.name, 0, 0)) == (6, 48)
    assert (x.name, 0, 0) not in asked
    assert asked
    assert facts.of((y.name, 0, 0)) is None  # which is no proof


def test_a_list_weighs_what_its_parts_are_said_to() -> None:
    x = distinct((8, 6), (3, 3)).map_blocks(unknown)
    facts, _ = estimates(x)
    facts.tell_list("some", [(x.name, i, 0) for i in range(3)])
    facts.tell_list("one that nobody knows", [(x.name, 0, 0), ("another", 0, 0)])
    assert sizes(facts, "some") == (24, 192)
    assert estimate(facts, "one that nobody knows") is None
    assert facts.of("some") is None


def test_tasks_of_a_list_are_not_looked_at_where_its_parts_are_declared() -> None:
    x = distinct((8, 6), (3, 3)).map_blocks(unknown)
    facts, asked = estimates(x)
    facts.tell_list("some", [(x.name, i, 0) for i in range(3)])
    assert believed(facts, "some") is None  # no block
    assert sizes(facts, "some") == (24, 192)
    assert not asked


def test_facts_that_were_found_go_before_declarations() -> None:
    x = distinct((4, 6), (2, 3)).astype("f4").map_blocks(np.negative, dtype="f8", meta=np.empty((0, 0)))
    facts, _ = estimates(x)
    key = (x.name, 0, 0)
    assert sizes(facts, key) == (6, 48)
    fact = facts.of(key)
    assert fact is not None
    assert fact.dtype == "f4"
    assert sizes(facts, key) == (6, 24)


def test_what_is_declared_to_be_of_unknown_size_is_found_out() -> None:
    x = distinct((8,), 4) + 1
    name = x.name
    layer = x.dask.layers[name]
    layer.collection_annotations = {**layer.collection_annotations, "chunks": ((np.nan, np.nan),)}
    facts, asked = estimates(x)
    assert sizes(facts, (name, 0)) == (4, 8 * 4)
    assert asked


def test_nothing_is_known_of_the_unknown() -> None:
    x = distinct((8,), 4).map_blocks(unknown)
    facts = Facts(dict(convert_legacy_graph(x.dask.to_dict())).get)
    assert estimate(facts, (x.name, 0)) is None


def test_partial_results_are_as_large_as_their_parts() -> None:
    x = distinct((4, 6), (2, 3)).mean(axis=0)
    nodes = dict(convert_legacy_graph(dict(x.dask)))
    (chunk,) = [key for key in nodes if str(key[0]).startswith("mean_chunk") and key[1:] == (1, 1)]
    assert sizes(Facts(nodes.get), chunk) == (6, 48)


def test_axes_that_keys_do_not_count_are_counted() -> None:
    x = distinct((8, 6, 5), (2, 3, 5)).map_blocks(unknown)
    y = da.apply_gufunc(unknown, "(i)->(j)", x, output_sizes={"j": 5}, output_dtypes="f8")
    (leaf,) = y.dask.dependencies[y.name]
    (name,) = y.dask.dependencies[leaf]
    facts, _ = estimates(y + 1)
    assert sizes(facts, (name, 0, 0)) == (30, 240)
    declared = Declared(y.dask, {}, {})
    assert declared.of((name, 0, 0)) is None  # what is declared of it is something else
    assert declared.of((leaf, 0, 0, 0)) is not None


def test_only_blocks_under_longer_keys_have_such_axes() -> None:
    x = distinct((8, 6), (2, 3)).map_blocks(unknown)
    total = da.apply_gufunc(unknown, "(i)->()", x.rechunk((2, 6)), output_dtypes="f8")
    (leaf,) = total.dask.dependencies[total.name]
    (name,) = total.dask.dependencies[leaf]
    assert sizes(estimates(total)[0], (name, 0)) == (2, 16)
    declared = Declared(total.dask, {}, {})
    assert declared.of((name, 0)) is not None


@pytest.mark.parametrize("block", [([1, 2],), ({},), ()])
def test_blocks_that_stand_in_the_graph_as_tuples(block: Any) -> None:
    made = HighLevelGraph.from_collections("t", {("t", 0, 0): block}, ())
    x = da.Array(made, "t", ((3,), (1,)), dtype="i8")
    assert_same_as_stock(x.map_blocks(lambda block: np.ones((3, 1)), dtype="f8"))
