"""Orders in which little is held, and bounds that no schedule gets past."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from dask_rewrite.analysis.memory.turns import Footprint, depth_first, thrifty_order
from dask_rewrite.analysis.memory.work import Work

pytestmark = pytest.mark.once


def work(
    inputs: list[tuple[int, ...]],
    owned: list[int],
    views: dict[int, tuple[int, ...]] | None = None,
    given: tuple[int, ...] = (),
    kept: tuple[int, ...] = (),
) -> Work:
    count = len(inputs)
    seen = [(views or {}).get(task, ()) for task in range(count)]
    return Work(inputs, seen, owned, owned, [1.0] * count, [False] * count, frozenset(given), frozenset(kept))


def drawn(seed: int) -> Work:
    """Tasks over earlier ones; some give views, some are data, some are asked for."""
    rng = random.Random(seed)
    count = rng.randrange(2, 40)
    inputs: list[tuple[int, ...]] = []
    views: dict[int, tuple[int, ...]] = {}
    owned = []
    for task in range(count):
        needed = tuple(sorted(rng.sample(range(task), min(task, rng.randrange(0, 4)))))
        inputs.append(needed)
        if needed and rng.random() < 0.2:
            views[task] = needed[:1]
        owned.append(0 if task in views else rng.randrange(0, 100))
    given = tuple(task for task in range(count) if not inputs[task] and rng.random() < 0.2)
    used = {one for needed in inputs for one in needed}
    kept = tuple(task for task in range(count) if task not in used or rng.random() < 0.1)
    return work(inputs, owned, views, given, kept)


def most_held(made: Work, order: list[int], bounds: list[int], rng: random.Random, threads: int) -> int:
    """What a scheduler holds that takes any task whose turn has come, with what runs counted as made."""
    last: dict[int, set[int]] = {task: set() for task in range(len(made))}
    for task in reversed(order):
        for one in made.inputs[task]:
            last[one].add(task)
        for one in made.views[task]:
            last[one] |= last[task] | ({-1} if task in made.kept else set())
    place = {task: i for i, task in enumerate(order)}
    done: set[int] = set(made.given)
    started: list[int] = []
    waiting = set(order)
    peak = 0
    while waiting or started:
        free = [
            task
            for task in sorted(waiting)
            if done.issuperset(made.inputs[task])
            and done.issuperset(order[: bounds[place[task]]])
            and len(started) < threads
        ]
        if free and (not started or rng.random() < 0.7):
            task = rng.choice(free)
            waiting.discard(task)
            started.append(task)
        else:
            done.add(started.pop(rng.randrange(len(started))))
        alive = [
            task
            for task in (*done, *started)
            if task not in made.given
            and (task in made.kept or task in started or -1 in last[task] or not last[task] <= done)
        ]
        peak = max(peak, sum(made.owned[task] for task in alive))
    return peak


@pytest.mark.parametrize("seed", range(60))
def test_orders_follow_what_tasks_need(seed: int) -> None:
    made = drawn(seed)
    order, peak = thrifty_order(made)
    assert sorted(order) == [task for task in range(len(made)) if task not in made.given]
    done = set(made.given)
    for task in order:
        assert done.issuperset(made.inputs[task])
        done.add(task)
    assert peak >= max((made.owned[task] for task in order), default=0)


@pytest.mark.parametrize("seed", range(120))
def test_no_schedule_gets_past_the_bounds(seed: int) -> None:
    made, rng = drawn(seed), random.Random(seed)
    order, peak = thrifty_order(made)
    for limit in (0, peak, peak * 3 // 2):
        bounds = Footprint(made, order).waits(limit)
        assert all(bound <= place for place, bound in enumerate(bounds))
        for threads in (1, 3, 50):
            assert most_held(made, order, bounds, rng, threads) <= max(limit, peak)


def test_nothing_waits_where_there_is_room() -> None:
    made = work([(), (), (0,), (1,)], [10, 10, 1, 1], kept=(2, 3))
    order, peak = thrifty_order(made)
    assert (order, peak) == ([0, 2, 1, 3], 12)
    assert Footprint(made, order).waits(22) == [0, 0, 0, 0]
    assert Footprint(made, order).waits(21) == [0, 0, 0, 2]  # both blocks with their sums are 22
    assert Footprint(made, order).waits(20) == [0, 0, 2, 2]


def test_what_lacks_least_comes_next() -> None:
    """Blocks of two groups, read in turns by number: one group is finished before the other begins."""
    inputs: list[tuple[int, ...]] = [(), (), (), (), (0, 2), (1, 3)]
    order, peak = thrifty_order(work(inputs, [10, 10, 10, 10, 1, 1], kept=(4, 5)))
    assert peak == 22
    assert order.index(4) < 4 or order.index(5) < 4


def test_the_order_of_the_numbers_is_tried_as_well() -> None:
    """The other two go on with what became ready, which frees nothing, and then hold it."""
    inputs: list[tuple[int, ...]] = [(), (), (0, 1), (0,)]
    owned = [10, 10, 1, 10]
    assert thrifty_order(work(inputs, owned, kept=(2, 3))) == ([0, 1, 2, 3], 21)
    assert thrifty_order(work(inputs, owned, given=(1,), kept=(2, 3)))[0] == [0, 2, 3]


def test_a_long_chain_takes_one_loop() -> None:
    count = 20_000
    made = work([(), *[(i,) for i in range(count - 1)]], [8] * count)
    order, peak = thrifty_order(made)
    assert (order, peak) == (list(range(count)), 16)
    assert Footprint(made, order).waits(16) == [0, 0, *range(2, count)]


class Asked(tuple[int, ...]):
    """The inputs of a task, which count how often somebody goes through all of them."""

    times = 0

    def __iter__(self) -> Iterator[int]:
        type(self).times += 1
        return super().__iter__()

    def __contains__(self, one: object) -> bool:
        type(self).times += 1
        return super().__contains__(one)


@pytest.mark.parametrize("beside", [False, True])
def test_a_wide_task_is_not_gone_through_for_each_of_its_inputs(
    beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Putting n blocks together looked at n inputs n times."""
    monkeypatch.setattr(Asked, "times", 0)
    n = 300
    inputs: list[tuple[int, ...]] = [(), *[() for _ in range(n)], Asked(range(1, n + 1))]
    inputs += [(i,) for i in range(1, n + 1) if beside]
    sizes = [10] * len(inputs)
    work = Work(inputs, [()] * len(inputs), sizes, sizes, [1.0] * len(inputs), [True] * len(inputs))
    order, _ = thrifty_order(work)
    assert len(order) == len(inputs)
    assert Asked.times < 30


@pytest.mark.parametrize("seed", range(20))
def test_depth_first_does_each_task_once_and_after_what_it_needs(seed: int) -> None:
    made = drawn(seed)
    place = {task: i for i, task in enumerate(depth_first(made))}
    assert sorted(place) == [task for task in range(len(made)) if task not in made.given]
    assert all(place[one] < place[task] for task in place for one in set(made.inputs[task]) - made.given)


def test_depth_first_is_linear_and_not_recursive() -> None:
    """A chain, of which each task is needed by the last one, too."""
    count = 100_000
    inputs = [(task - 1,) if task else () for task in range(count)]
    assert depth_first(work([*inputs, tuple(range(count))], [1] * (count + 1))) == list(range(count + 1))
