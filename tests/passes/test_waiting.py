"""What is put together does not make blocks wait that could be let go of."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef

import dask_rewrite
from dask_rewrite.graph.postorder import greedy_order
from dask_rewrite.passes import waiting
from helpers import assert_same, switched_on


def numbered(block_info: Any = None) -> Any:
    """Numbers that are all different."""
    (rows, columns) = block_info[None]["array-location"]
    return np.add.outer(np.arange(*rows) * 1e4, np.arange(*columns))


def array(rows: int, columns: int, size: int) -> Any:
    chunks = ((size,) * rows, (size,) * columns)
    return da.map_blocks(numbered, chunks=chunks, dtype="f8", meta=np.empty((0, 0)))


PROGRAMS: dict[str, Any] = {
    "anomalies": lambda x: abs(x - x.mean(axis=0)).max(),
    "anomalies of rows": lambda x: abs(x - x.mean(axis=1)[:, None]).max(),
    "standardized": lambda x: ((x - x.mean(axis=0)) / x.std(axis=0)).sum(axis=1),
}


@pytest.mark.once
@pytest.mark.parametrize("name", PROGRAMS)
def test_little_more_is_held_than_in_stock(name: str) -> None:
    made = PROGRAMS[name](array(72, 72, 60))
    found = dask_rewrite.forecast(made, threads=2)
    assert found.after.tasks < found.before.tasks / 3
    assert found.after.peak < found.before.peak + 3 * waiting.HELD


@pytest.mark.once
def test_columns_are_let_go_of_one_by_one() -> None:
    made = PROGRAMS["anomalies"](array(240, 12, 80))
    found = dask_rewrite.forecast(made, threads=2)
    assert found.before.peak > 2 * waiting.HELD
    assert found.after.peak < 1.2 * found.before.peak
    with dask.config.set({"rewrite.disable": ["coalesce"]}):
        apart = dask_rewrite.forecast(made, threads=2)
    assert apart.after.peak < 1.2 * found.before.peak
    assert found.after.tasks < apart.after.tasks / 2


@pytest.mark.once
@pytest.mark.parametrize(
    ("size", "part", "matters"),
    [
        (4, waiting.PART, False),  # columns of 12 kB
        (80, waiting.PART, True),  # of 5 MB, which is more than may be made in between
        (80, 1, False),  # and less than all
    ],
)
def test_answers_are_the_same_on_both_sides(
    size: int, part: int, matters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    look = waiting.Waiting.__init__

    def looked(self: waiting.Waiting, site: Any, much: int | None = None) -> None:
        look(self, site, much)
        if much is None:  # the pass that asks has no bound of its own
            seen.append(self.matters)

    monkeypatch.setattr(waiting, "PART", part)
    monkeypatch.setattr(waiting.Waiting, "__init__", looked)
    for make in PROGRAMS.values():
        made = make(array(100, 24, size))
        expected = made.compute(scheduler="threads", num_workers=2)
        with switched_on(num_workers=2):
            assert_same(made.compute(scheduler="threads"), expected)
    assert seen
    assert any(seen) is matters


def test_what_lies_outside_and_circles_have_an_end() -> None:
    nodes = {
        key: Task(key, max, *map(TaskRef, needs)) for key, needs in (("a", "xb"), ("b", "ya"), ("c", "x"))
    }
    users = {"b": ["a"], "a": ["b"], "x": ["a", "c"], "y": ["b"]}
    assert list(greedy_order(["c", "a"], nodes, users)) == ["c"]


@pytest.mark.once
def test_neighbours_of_halos_do_not_wait_for_long() -> None:
    """Rows of blocks are large, but nothing waits for much: what is put together is as before."""
    made = array(80, 80, 60).map_overlap(np.negative, depth=1, boundary="none", dtype="f8").sum()
    assert dask_rewrite.forecast(made, threads=2).after.tasks < 3_000


def test_the_graph_is_looked_at_a_few_times_whatever_its_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps of an iteration on small blocks, each of which needs the two before it, beside large blocks."""
    looks, tasks = [0], []
    look, layer_name = waiting.Waiting.__init__, waiting.layer_name

    def looked(self: waiting.Waiting, site: Any) -> None:
        tasks.append(len(site.graph.nodes))
        look(self, site)

    def named(key: Any) -> Any:
        looks[0] += 1
        return layer_name(key)

    monkeypatch.setattr(waiting.Waiting, "__init__", looked)
    monkeypatch.setattr(waiting, "layer_name", named)
    small, large = da.from_array(np.arange(9.0), chunks=3), array(6, 6, 300).sum(axis=0)
    made = steps(small, 400)
    with switched_on():
        assert_same(dask.compute(large, made)[1], steps(np.arange(9.0), 400))
    assert max(tasks) > 400
    assert looks[0] <= 12 * sum(tasks)


def steps(x: Any, count: int) -> Any:
    before = x
    for _ in range(count):
        x, before = x[::-1] + before.sum() % 7 - x.mean(), x
    return x
