"""Joins of slices of large blocks, each of a block of its own, stay as they are without being read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.movement import Movement
from dask_rewrite.passes.movement.isolated import BORDER, staying
from dask_rewrite.passes.site import Site
from passes.movement_cases import cut, data, graph_of, join, run, same_values

#: A block that is just too large to travel whole, and one that is not.
LARGE, SMALL = (100, 96), (10, 96)
HALF = (slice(None), slice(0, 48))


def rechunk(shapes: list[tuple[int, int]], *more: Any, index: Any = HALF) -> Graph:
    """One join of a slice of each of some blocks with distinct values."""
    blocks = [np.arange(float(a * b)).reshape(a, b) + 1e6 * i for i, (a, b) in enumerate(shapes)]
    nodes = [data(f"x{i}", block) for i, block in enumerate(blocks)]
    slices = [cut(f"s{i}", f"x{i}", *index) for i in range(len(blocks))]
    return graph_of(*nodes, *slices, join("all", *[[each.key] for each in slices]), *more)


def still(graph: Graph) -> set[Any]:
    moves = {key for key in graph.nodes if not str(key).startswith("x")}
    return set(staying(moves, Site(graph, Context()), Movement().max_whole))


@pytest.mark.parametrize(("large", "stays"), [(BORDER - 1, True), (BORDER - 2, False)])
def test_nearly_all_blocks_have_to_be_large(large: int, stays: bool) -> None:
    graph = rechunk([LARGE] * large + [SMALL])
    assert still(graph) == ({key for key in graph.nodes if not str(key).startswith("x")} if stays else set())
    after, _ = run(graph)
    assert (after is graph) is stays  # else the small block travels whole, which is one task less
    same_values(graph, after)


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), slice(None)),  # all of a block, for which no task is needed
        (slice(None), slice(90, 200)),
        (slice(None), slice(96, 99)),  # nothing
        (slice(None, None, -1), slice(None)),
        (3, slice(None)),
        ([3, 1], slice(0, 7)),
    ],
)
def test_other_slices_are_read(index: Any) -> None:
    graph = rechunk([LARGE] * 9, index=index)
    assert ("all" in still(graph)) == (index == (slice(None), slice(90, 200)))
    if all(type(item) is slice for item in index):
        after, _ = run(graph)
        same_values(graph, after)


def test_what_other_moves_use_is_read() -> None:
    graph = rechunk([LARGE] * 9, cut("part", "all", slice(0, 100), slice(None)))
    assert "all" not in still(graph)
    after, _ = run(graph)
    assert after.nodes["part"]._dependencies == {"x0"}
    same_values(graph, after)


def test_two_slices_of_one_block_are_read() -> None:
    graph = rechunk([LARGE] * 9)
    nodes = {**graph.nodes, "s8": cut("s8", "x0", slice(None), slice(48, 96))}
    assert "all" not in still(Graph(nodes, graph.outputs))
