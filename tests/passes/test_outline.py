"""Programs out of tasks: what they hold, what they are given, and which calls stand apart."""

from __future__ import annotations

import operator
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import DataNode, Task, TaskRef
from toolz import pipe

from dask_rewrite.analysis.facts import Facts
from dask_rewrite.graph.nodes import call_with_dict
from dask_rewrite.graph.templates import frame_of
from dask_rewrite.passes.outline import Outliner


def unknown(value: Any) -> Any:
    return value + 1


class Words(list[int]):
    def place(self, word: int) -> int:
        return self.index(word)


def _program(name: str, x: str) -> Task:
    """A program of two steps: ``(x + 1) + (x + 1)``."""
    first = Task(None, dict, v=Task(None, operator.add, TaskRef("a"), 1))
    second = Task(None, operator.add, TaskRef("v"), TaskRef("v"))
    funcs = (pipe, first.__call__, second.__call__)
    return call_with_dict(name, funcs, {"a": TaskRef(x)}, frozenset([x]), False)


def test_steps_of_programs_that_are_members_stay_in_the_program() -> None:
    """Were they given to it, nothing would be known of what it gives."""
    members = {"y": Task("y", operator.add, TaskRef("x"), 0), "z": _program("z", "y")}
    made = Outliner().program("z", members, TaskRef("z"), False)
    frame = frame_of(made)
    assert frame is not None
    assert [value for value in frame.inputs.values() if callable(value) and not isinstance(value, Task)] == []
    nodes = {"x": DataNode("x", np.arange(3)), "z": made}
    fact = Facts(nodes.get).of("z")
    assert fact is not None
    assert fact.shape == (3,)
    assert fact.dtype == np.arange(3).dtype
    assert made({"x": np.arange(3)}).tolist() == [2, 4, 6]


def test_bound_methods_of_users_are_given() -> None:
    """They differ from block to block; the program is the same."""
    outliner = Outliner()
    made = [
        outliner.program(
            "y",
            {"m": Task("m", abs, TaskRef("x")), "y": Task("y", map, words.place, TaskRef("m"))},
            TaskRef("y"),
            False,
        )
        for words in (Words([1, 2, 3]), Words([3, 2, 1]))
    ]
    first, second = map(frame_of, made)
    assert first is not None
    assert second is not None
    assert all(a is b for a, b in zip(first.bodies, second.bodies, strict=True))


def test_calls_that_nobody_knows_are_steps_of_their_own() -> None:
    outliner = Outliner()
    nested = Task("y", operator.add, Task(None, unknown, TaskRef("x")), 1)
    apart = outliner.apart(nested)
    assert frame_of(apart) is not None
    assert apart({"x": 3}) == nested({"x": 3}) == 5
    known = Task("y", operator.add, Task(None, abs, TaskRef("x")), 1)
    assert outliner.apart(known) is known


def test_loads_are_done_in_the_steps_that_use_them() -> None:
    """What a program is given is there until it ends: a slice, and not the block. Programs stay shared."""

    def read(i: int) -> Task:
        return Task(f"u{i}", da.core.getter, TaskRef("u"), (slice(i, i + 2),))

    outliner = Outliner()
    made = []
    for i in range(2):
        members = {
            "a": read(i),
            "b": Task("b", np.negative, TaskRef("a")),
            "y": Task("y", np.add, TaskRef("b"), read(i + 2)),  # nested in what uses it
        }
        made.append(outliner.program("y", members, TaskRef("y"), False))
    first, second = map(frame_of, made)
    assert first is not None
    assert second is not None
    assert first.bodies == second.bodies
    assert [value for value in first.inputs.values() if isinstance(value, Task)] == []
    assert sum(type(value) is TaskRef for value in first.inputs.values()) == 1  # the file
    fact = Facts({"u": DataNode("u", np.arange(6.0)), "y": made[0]}.get).of("y")
    assert fact is not None
    assert fact.shape == (2,)
    assert made[1]({"u": np.arange(6.0)}).tolist() == [2, 2]
