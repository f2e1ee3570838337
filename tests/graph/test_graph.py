"""The graph that passes rewrite, and what it knows of its tasks."""

from __future__ import annotations

import dataclasses
import operator

import pytest
from dask._task_spec import Alias, DataNode, List, Task, TaskRef

from dask_rewrite.graph.graph import Graph, count_users, depths_of
from dask_rewrite.graph.nesting import survey
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Site


def small_graph() -> Graph:
    nodes = {
        "z": Task("z", operator.add, TaskRef("y"), TaskRef("w")),
        "y": Task("y", abs, TaskRef("x")),
        "w": Task("w", abs, TaskRef("y")),
        "x": DataNode("x", -3),
    }
    return Graph(nodes, ("z",))


def test_tasks_by_function():
    graph, context = small_graph(), Context()
    assert context.calling(graph, {id(abs), id(sum)}) == [graph.nodes["y"], graph.nodes["w"]]
    assert context.calling(graph, {id(sum)}) == []
    assert {func: len(tasks) for func, tasks in context.by_function(graph).items()} == {
        id(abs): 2,
        id(operator.add): 1,
    }
    after = graph.with_nodes({key: node for key, node in graph.nodes.items() if key != "z"})
    assert context.calling(after, {id(operator.add)}) == []


def test_what_one_pass_replaces_does_not_change_the_count_of_another():
    graph = small_graph()
    before = dict(count_users(graph.nodes))
    site = Site(graph, Context())
    assert not site.used_once("y")
    site.replace("w", {"w": Task("w", abs, TaskRef("x"))})
    assert site.used_once("y")
    assert not site.used_once("x")
    assert dict(count_users(graph.nodes)) == before == {"y": 2, "w": 1, "x": 1}
    assert count_users(graph.nodes)["nobody"] == 0
    assert count_users(site.graph.nodes)["x"] == 2


def test_users_are_told_from_consumers_and_from_what_was_swept(monkeypatch: pytest.MonkeyPatch):
    graph = small_graph()
    used = count_users(graph.nodes)
    left = {"y": graph.nodes["y"], "x": graph.nodes["x"], "v": Task("v", abs, TaskRef("y"))}

    def counted(nodes: object) -> None:
        raise AssertionError("counted again")

    monkeypatch.setattr("dask_rewrite.passes.context.count_users", counted)
    context = Context()
    context.consumers(graph)
    assert context.users(graph) == used
    assert context.users(graph)["nobody"] == 0
    context.without_unused(left, ["y"])
    assert list(left) == ["y", "x"]
    assert dict(context.users(graph.with_nodes(left))) == {"x": 1}
    with pytest.raises(AssertionError, match="counted again"):
        context.users(graph.with_nodes(dict(graph.nodes)))


def test_depths_follow_loops_once():
    loop = {"a": Task("a", abs, TaskRef("b")), "b": Task("b", abs, TaskRef("a"))}
    graph = {**small_graph().nodes, **loop}
    found = depths_of(dict(reversed(graph.items())))
    assert [found[key] for key in "xywz"] == [1, 2, 3, 4]
    assert set(found) == set(graph)


def test_values_are_put_in_at_every_depth():
    inner = Task(None, divmod, TaskRef("b"), 7)
    task = Task("t", max, List(TaskRef("a"), inner, Alias("a")), TaskRef("c"), key=TaskRef("c"))
    values = {"a": Task("a", abs, TaskRef("d")), "c": TaskRef("e"), "unused": DataNode("unused", 1)}
    new = with_values(task, values)
    assert new.dependencies == {"b", "d", "e"}
    items, other = new.args
    assert items.dependencies == {"b", "d"}
    assert [type(item) for item in items.args] == [Task, Task, Task]
    assert items.args[1] is inner
    assert items.args[0].key is None
    assert (other, new.kwargs) == (TaskRef("e"), {"key": TaskRef("e")})
    assert with_values(task, {"q": TaskRef("r")}) is task


def test_a_survey_tells_depth_and_every_reference():
    template = Task(None, abs, Task(None, operator.neg, TaskRef("x0")))
    call = Task("y", template.__call__, Task(None, dict, x0=TaskRef("x")))
    assert survey(call) == (2, ["x"], [1])
    assert survey(Task("z", max, TaskRef("a"), List(TaskRef("a"), Alias("b")))) == (
        1,
        ["a", "a", "b"],
        [0, 1, 1],
    )
    assert survey(DataNode("x", 1)) == (0, [], [])


def test_graph_holds_nothing_that_is_found_out():
    fields = [field.name for field in dataclasses.fields(Graph)]
    assert fields == ["nodes", "outputs", "annotations", "held", "external", "origin"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Graph({}, ()).origin.shared = True


def test_a_reference_may_stand_for_itself():
    ref = TaskRef("x")
    task = Task("y", operator.add, ref, TaskRef("z"))
    assert with_values(task, {"x": ref, "z": 1}).dependencies == {"x"}
    assert with_values(task, {"x": None, "z": ref}).args == (None, ref)
