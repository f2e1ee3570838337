"""Graphs of more than 10,000 tasks on a real cluster of processes: answers, and what arrives there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import pytest

import dask_rewrite
from helpers import switched_on
from whole.test_large_graphs import PROGRAMS, same, user

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("as_users_have_it"),
    pytest.mark.filterwarnings("ignore:Increasing number of chunks"),
]


@pytest.fixture
def as_users_have_it() -> Iterator[None]:
    with switched_on(**{"rewrite.verify": "end"}):
        yield


@pytest.mark.parametrize("name", ["mean along an axis", "overlap"])
def test_computed(client: Any, name: str) -> None:
    build, expected = PROGRAMS[name]
    same(build().compute(), expected)


def test_persisted_and_optimized_first(client: Any) -> None:
    build, expected = PROGRAMS["overlap"]
    same((client.persist(build()) + 1).sum(axis=1).compute(), (expected + 1).sum(axis=1))
    (optimized,) = dask.optimize(build().max(axis=0))
    same(client.compute(optimized).result(), expected.max(axis=0))


@pytest.mark.parametrize("name", ["mean of a user function", "x + x.T", "64 steps", "overlap"])
def test_as_many_tasks_arrive_as_explain_says(client: Any, name: str) -> None:
    def tasks(dask_scheduler: Any) -> int:
        return sum(task.resource_restrictions == {"nowhere": 1} for task in dask_scheduler.tasks.values())

    x = PROGRAMS[name][0]()
    report = dask_rewrite.explain(x)
    assert report.after is not None
    waiting = client.compute(x, resources={"nowhere": 1})  # nothing runs, so that all are there
    arrived = 0
    while not arrived:
        arrived = client.run_on_scheduler(tasks)
    waiting.cancel()
    assert arrived == report.after.tasks


def test_retries_are_kept(client: Any) -> None:
    def retries(dask_scheduler: Any) -> set[int]:
        tasks = dask_scheduler.tasks.values()
        return {task.retries for task in tasks if task.resource_restrictions == {"nowhere": 1}}

    with dask.annotate(retries=3):
        x = user() + 1
    waiting = client.compute(x.sum(), resources={"nowhere": 1})
    found: set[int] = set()
    while not found:
        found = client.run_on_scheduler(retries)
    waiting.cancel()
    assert 3 in found
