"""What is done again is what it was, and no more is held than was said, in graphs of all kinds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from dask_rewrite.analysis.memory.evictions import evictions
from dask_rewrite.analysis.memory.turns import Footprint
from dask_rewrite.analysis.memory.work import Work


class Drawn:
    """A graph: blocks that are read, what is made of them and of what is there for all, views, reductions."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.inputs: list[tuple[int, ...]] = []
        self.views: list[tuple[int, ...]] = []
        self.owned: list[int] = []
        self.again: set[int] = set()
        blocks = [self._add((), 10) for _ in range(self.rng.randint(2, 6))]
        results: list[int] = []
        for _ in range(self.rng.randint(3, 25)):
            taken = tuple(sorted(set(self.rng.choices(blocks, k=self.rng.choice([1, 1, 2, 3])))))
            how = self.rng.random()
            if how < 0.2:
                blocks.append(self._add(taken[:1], 0, view=True))
            elif how < 0.5:
                shared = tuple(self.rng.sample(results, min(len(results), 1)))
                blocks.append(self._add((*taken, *shared), self.rng.choice([4, 10, 25])))
            else:
                results.append(self._add(taken, 1, again=self.rng.random() < 0.2))
        last = self._add(tuple(blocks[-3:] + results[-3:]), 1, again=False)
        n = len(self.inputs)
        kept = frozenset([last, *self.rng.sample(results, min(len(results), 2))])
        self.work = Work(
            self.inputs, self.views, self.owned, self.owned, [1.0] * n, [True] * n, frozenset(), kept
        )

    def _add(self, inputs: tuple[int, ...], owned: int, view: bool = False, again: bool = True) -> int:
        new = len(self.inputs)
        self.inputs.append(inputs)
        self.views.append(inputs if view else ())
        self.owned.append(owned)
        if again and self.rng.random() < 0.9:
            self.again.add(new)
        return new


def values(work: Work, order: Sequence[int], names: Sequence[int]) -> dict[int, Any]:
    """What each task gives: its name and what it was given."""
    found: dict[int, Any] = {}
    for task in order:
        found[task] = hash((names[task], frozenset([found[one] for one in work.inputs[task]])))
    return found


@pytest.mark.parametrize("some", range(4))
def test_what_is_done_again_is_what_it_was(some: int) -> None:
    redone = deeper = 0
    for seed in range(some * 300, some * 300 + 300):
        drawn = Drawn(seed)
        work, order = drawn.work, list(range(len(drawn.work)))
        before = values(work, order, order)
        most = Footprint(work, order).peak
        for part in (1.0, 0.8, 0.6, 0.4):
            found = evictions(work, order, int(part * most), frozenset(drawn.again), 1000)
            if found is None:
                continue
            more = found.work(work)
            assert sorted(found.order) == list(range(len(more)))
            after = values(more, found.order, [*order, *found.copies])
            assert all(after[task] == before[task] for task in order)
            assert all(after[len(work) + i] == before[task] for i, task in enumerate(found.copies))
            assert Footprint(more, found.order).peak <= part * most
            redone += len(found.copies)
            deeper += sum([not work.views[task] and bool(work.inputs[task]) for task in found.copies])
    assert redone > 500
    assert deeper > 100
