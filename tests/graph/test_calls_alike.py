"""Tasks of which the templates are the same: as if each was looked at on its own."""

from __future__ import annotations

import operator
import random
from collections.abc import Set
from functools import partial
from typing import Any

import pytest
from dask._task_spec import DataNode, List, Task, TaskRef

from dask_rewrite.graph.kinds import ITEMS, KINDS
from dask_rewrite.graph.templates import calls_alike

TABLES = [[0, 1], [2, 3], "a text"]
FUNCTIONS = [operator.add, operator.sub, partial(operator.add), partial(operator.mul)]


def drawn(rng: random.Random, depth: int) -> Any:
    how = rng.random()
    if depth and how < 0.35:
        kwargs = {name: drawn(rng, depth - 1) for name in rng.choice(["", "", "a", "ab", "b"])}
        args = [drawn(rng, depth - 1) for _ in range(rng.randint(0, 2))]
        return Task(None, rng.choice(FUNCTIONS), *args, **kwargs)
    if depth and how < 0.45:
        return List(*[drawn(rng, depth - 1) for _ in range(rng.randint(1, 2))])
    if how < 0.7:
        return TaskRef(("x", rng.randrange(9)))
    if how < 0.8:
        return DataNode(None, rng.choice(TABLES))
    return rng.choice([*TABLES, rng.randrange(3), 1.5])


def walked(node: Any, common: Set[int], own: Set[int], shape: list[Any], inputs: list[Any]) -> None:
    """The shape of one task, and its inputs."""
    nested = KINDS[type(node)] == ITEMS
    if nested or type(node) is Task:
        at: int | None = id(node.func)
        if at in own and not nested:
            inputs.append(node.func)
            at = None
        shape += [type(node), at, len(node.args)]
        for arg in node.args:
            walked(arg, common, own, shape, inputs)
        for name, arg in () if nested else node.kwargs.items():
            shape.append(name)
            walked(arg, common, own, shape, inputs)
        return
    at = id(node.value) if type(node) is DataNode else id(node)
    shape.append(at if at in common else None)
    inputs += [] if at in common else [node]


@pytest.mark.parametrize("seed", range(40))
def test_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    common = set(map(id, rng.sample([*TABLES, *FUNCTIONS], 4)))
    own = set(map(id, rng.sample(FUNCTIONS[2:], rng.randint(0, 2)))) - common
    made = [[drawn(rng, 2) for _ in range(rng.randint(1, 2))] for _ in range(8)]
    tasks = [Task(i, rng.choice(FUNCTIONS), *rng.choice(made)) for i in range(60)]
    groups = list(calls_alike(tasks, common, own))
    assert sorted([task.key for group in groups for task in group.tasks]) == list(range(60))
    for group in groups:
        assert all(len(column) == len(group.tasks) for column in group.inputs)
        for number, task in enumerate(group.tasks):
            shape, inputs = list[Any](), list[Any]()
            walked(task, common, own, shape, inputs)
            assert group.shape == shape
            assert [id(column[number]) for column in group.inputs] == list(map(id, inputs))
    assert len(groups) > 1
    assert list(calls_alike([], common, own)) == []
