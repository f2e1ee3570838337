"""Blocks that are joined before they are sent to other workers are joined in the task that sends them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dask._task_spec import List, Task, TaskRef

from dask_rewrite.graph.graph import Graph, Origin
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.fuse_chains import FuseChains

rechunk = pytest.importorskip("distributed.shuffle._rechunk")


def load(i: int) -> Any:
    return np.arange(4.0) + i


def graph_of(made: Task, *more: Task, outputs: tuple[Any, ...] = ("barrier",), **origin: Any) -> Graph:
    """Two loads, what is made of them, its transfer, and who waits for that."""
    loads = [Task(("x", i), load, i) for i in range(2)]
    sent = Task("sent", rechunk.rechunk_transfer, TaskRef("y"), "shuffle", (0,))
    last = Task("barrier", sum, List(TaskRef("sent")))
    nodes = {task.key: task for task in (*loads, made, sent, last, *more)}
    return Graph(nodes, outputs, origin=Origin(**origin))


def joined(func: Any = np.concatenate) -> Task:
    return Task("y", func, List(TaskRef(("x", 0)), TaskRef(("x", 1))))


def sent_by(graph: Graph) -> Task:
    found = FuseChains().run(graph, Context()).nodes["sent"]
    assert type(found) is Task
    return found


def test_what_is_joined_is_sent_by_the_task_that_joins_it() -> None:
    graph = graph_of(joined())
    after = FuseChains().run(graph, Context())
    assert "y" not in after.nodes
    sent = sent_by(graph)
    assert sent.func is rechunk.rechunk_transfer
    assert sent.dependencies == {("x", 0), ("x", 1)}
    block = sent.args[0]({("x", i): load(i) for i in range(2)})
    assert block.tolist() == [0, 1, 2, 3, 1, 2, 3, 4]
    assert FuseChains().run(after, Context()) is after


UNSENT: dict[str, Graph] = {
    "unknown": graph_of(joined(lambda blocks: blocks[0])),
    "asked for": graph_of(joined(), outputs=("barrier", "y")),
    "used elsewhere": graph_of(joined(), Task("other", abs, TaskRef("y")), outputs=("barrier", "other")),
    "held by others": graph_of(joined(), shared=True),
}


@pytest.mark.parametrize("name", UNSENT)
def test_others_are_sent_as_they_are(name: str) -> None:
    assert sent_by(UNSENT[name]).dependencies == {"y"}


def test_annotations_go_along_or_keep_tasks_apart() -> None:
    for given, mine, together in (
        ({"retries": 2}, {"retries": 2}, True),
        ({"resources": {"GPU": 1}}, None, False),
    ):
        graph = replace(graph_of(joined()), annotations={"y": given})
        after = FuseChains().run(graph, Context())
        assert ("y" not in after.nodes) is together
        assert after.annotations.get("sent") == mine
