"""Orders along arrays."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from dask_rewrite.analysis.memory.sweeps import sweeps
from dask_rewrite.analysis.memory.turns import Footprint, thrifty_order
from dask_rewrite.analysis.memory.work import Work

pytestmark = pytest.mark.once


def work(inputs: list[tuple[int, ...]], owned: list[int], given: tuple[int, ...] = ()) -> Work:
    count = len(inputs)
    return Work(inputs, [()] * count, owned, owned, [1.0] * count, [False] * count, frozenset(given))


@pytest.mark.parametrize("seed", range(40))
def test_each_task_comes_once_and_after_what_it_needs(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(1, 40)
    inputs = [tuple(rng.sample(range(i), min(i, rng.randrange(0, 4)))) for i in range(count)]
    given = tuple([i for i in range(count) if not inputs[i] and rng.random() < 0.3])
    keys: list[Any] = [
        rng.choice([("x", rng.randrange(3), rng.randrange(3), i), f"x-{i}", ("y", "a", i)])
        for i in range(count)
    ]
    for order in sweeps(work(inputs, [1] * count, given), keys):
        assert sorted([*order, *given]) == list(range(count))
        place = {task: i for i, task in enumerate(order)}
        assert all(place.get(one, -1) < place[task] for task in order for one in inputs[task])


@pytest.mark.parametrize(("rows", "columns"), [(40, 4), (4, 40)])
def test_rows_of_a_stencil(rows: int, columns: int) -> None:
    """Blocks that need their neighbours, all added up in the end: two short rows are held, and a bit."""
    grid = list(product(range(rows), range(columns)))
    number = {place: i for i, place in enumerate(grid)}
    steps = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]
    near = [
        tuple(sorted([number[i + a, j + b] for a, b in steps if (i + a, j + b) in number])) for i, j in grid
    ]
    count = len(grid)
    inputs = [*[()] * count, *near, tuple(range(count, 2 * count))]
    keys: list[Any] = [("x", *place) for place in grid] + [("y", *place) for place in grid] + ["sum"]
    made = work(inputs, [100] * count + [1] * (count + 1))
    order, peak = thrifty_order(made, keys)
    assert peak <= 100 * (2 * min(rows, columns) + 2) + 2 * count
    assert peak == Footprint(made, order).peak
    assert peak <= thrifty_order(made)[1]
