"""The verifier accepts what a scheduler can run, and names what is wrong with anything else."""

from __future__ import annotations

import functools
import operator
import random

import dask
import pytest
from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, Task, TaskRef
from dask.highlevelgraph import HighLevelGraph
from toolz import pipe

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nesting import NESTING_LIMIT, check_depth, nesting
from dask_rewrite.graph.nodes import make_task
from dask_rewrite.graph.verify import VerificationError, is_acyclic, verify
from dask_rewrite.pipeline.run import rewrite_tasks


def graph_of(*nodes, outputs=None):
    return Graph({node.key: node for node in nodes}, outputs or (nodes[-1].key,), {})


def chain_of(count):
    return [DataNode(0, 1)] + [Task(i, operator.neg, TaskRef(i - 1)) for i in range(1, count)]


def nested_task(depth, key="deep"):
    task = Task(None, operator.neg, TaskRef("x"))
    for _ in range(depth - 2):
        task = Task(None, operator.neg, task)
    return Task(key, operator.neg, task)


# -- what is sound ---------------------------------------------------------------------------------


def test_accepts_every_kind_of_node():
    shown = Task("c", operator.add, TaskRef("a"), TaskRef("b"))
    listed = Task("d", sum, List(TaskRef("a"), Task(None, operator.neg, TaskRef("c"))))
    verify(graph_of(DataNode("a", 1), Alias("b", "a"), shown, listed), thorough=True)


def test_accepts_an_empty_graph():
    verify(Graph({}, (), {}))


def test_accepts_keys_of_all_types():
    keys = ["text", ("x", 0, 1), 7, 2.5, b"raw", ("nested", ("key", 1))]
    verify(graph_of(*(DataNode(key, None) for key in keys), outputs=tuple(keys)))


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_accepts_a_long_chain_in_any_order(order):
    nodes = chain_of(100_000)
    if order == "backward":
        nodes.reverse()
    elif order == "shuffled":
        random.Random(0).shuffle(nodes)
    graph = graph_of(*nodes, outputs=(99_999,))
    verify(graph)
    assert is_acyclic(graph.nodes)


def test_accepts_a_wide_diamond():
    middle = [Task(("m", i), operator.neg, TaskRef("a")) for i in range(10_000)]
    top = Task("top", sum, List(*(TaskRef(task.key) for task in middle)))
    verify(graph_of(top, *middle, DataNode("a", 1), outputs=("top",)))


def test_accepts_random_graphs_in_random_order():
    rng = random.Random(1)
    for _ in range(50):
        size = rng.randrange(2, 60)
        nodes = []
        for i in range(size):
            refs = [TaskRef(rng.randrange(i)) for _ in range(rng.randrange(4))] if i else []
            nodes.append(Task(i, max, *refs))
        rng.shuffle(nodes)
        verify(graph_of(*nodes), thorough=True)


def test_accepts_external_keys():
    graph = graph_of(Task("a", operator.add, TaskRef("future-1"), TaskRef("future-2")))
    with pytest.raises(VerificationError, match="'future-1'"):
        verify(graph, external=["future-2"])
    verify(graph, external={"future-1", "future-2"})


def test_accepts_an_output_that_lives_outside():
    verify(graph_of(DataNode("a", 1), outputs=("a", "future")), external=["future"])


def test_accepts_an_alias_of_a_future_of_the_same_name():
    verify(graph_of(Alias("future", "future")), external=["future"])


def test_accepts_dask_graphs():
    da = pytest.importorskip("dask.array")
    x = da.ones((6, 6), chunks=2)
    nodes = dict(dask.optimize((x + x.T).sum())[0].__dask_graph__())
    assert all(isinstance(node, GraphNode) for node in nodes.values())
    verify(Graph(nodes, tuple(nodes), {}), thorough=True)


def test_leaves_the_graph_alone():
    graph = graph_of(*chain_of(10))
    before = dict(graph.nodes)
    verify(graph, thorough=True)
    assert list(graph.nodes.items()) == list(before.items())


# -- what is not -----------------------------------------------------------------------------------


def test_missing_output():
    with pytest.raises(VerificationError, match=r"output \('x', 1\) is not in the graph") as info:
        verify(graph_of(DataNode(("x", 0), 1), outputs=(("x", 0), ("x", 1))))
    assert info.value.key == ("x", 1)


def test_output_listed_twice():
    with pytest.raises(VerificationError, match="output 'a' is listed twice"):
        verify(graph_of(DataNode("a", 1), outputs=("a", "a")))


def test_dangling_key():
    with pytest.raises(VerificationError, match="task 'b' depends on 'gone', which is not") as info:
        verify(graph_of(DataNode("a", 1), Task("b", operator.add, TaskRef("a"), TaskRef("gone"))))
    assert info.value.key == "b"


def test_dangling_key_deep_in_a_nested_task():
    inner = Task(None, operator.neg, List(Dict({"k": TaskRef("gone")})))
    with pytest.raises(VerificationError, match="'gone'"):
        verify(graph_of(Task("b", operator.neg, inner)))


def test_dangling_alias():
    with pytest.raises(VerificationError, match="'a' depends on 'b'"):
        verify(graph_of(Alias("a", "b")))


def test_dangling_key_in_a_long_graph_is_named():
    nodes = [*chain_of(50_000), Task("odd", operator.neg, TaskRef("gone"))]
    with pytest.raises(VerificationError, match="'odd' depends on 'gone'"):
        verify(graph_of(*reversed(nodes), outputs=("odd",)))


def test_wrong_node_key():
    with pytest.raises(VerificationError, match="task 'b' believes that its key is 'a'") as info:
        verify(Graph({"b": DataNode("a", 1)}, ("b",), {}))
    assert info.value.key == "b"


def test_key_none():
    with pytest.raises(VerificationError, match="believes that its key is None"):
        verify(Graph({"b": Task(None, int)}, ("b",), {}))


@pytest.mark.parametrize("value", [1, None, (operator.neg, "a"), TaskRef("a"), Task, HighLevelGraph({}, {})])
def test_foreign_node(value):
    with pytest.raises(VerificationError, match=f"'b' holds a {type(value).__name__}, not a dask graph node"):
        verify(Graph({"a": DataNode("a", 1), "b": value}, ("a",), {}))


def test_self_reference():
    with pytest.raises(VerificationError, match="'a' depends on itself: 'a' -> 'a'"):
        verify(graph_of(Task("a", operator.neg, TaskRef("a"))))
    assert not is_acyclic({"a": Alias("a")})


def test_short_cycle_is_spelled_out():
    nodes = [
        Task("a", operator.neg, TaskRef("b")),
        Task("b", operator.neg, TaskRef("c")),
        Task("c", operator.neg, TaskRef("a")),
        Task("user", operator.neg, TaskRef("a")),
    ]
    with pytest.raises(VerificationError) as info:
        verify(graph_of(*nodes))
    path = str(info.value).split(": ")[1].split(" -> ")
    assert sorted(path[:-1]) == ["'a'", "'b'", "'c'"]
    assert path[0] == path[-1]
    assert info.value.key in {"a", "b", "c"}


@pytest.mark.once
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_long_cycle(order):
    nodes = chain_of(100_000)
    nodes[0] = Task(0, operator.neg, TaskRef(99_999))
    if order == "backward":
        nodes.reverse()
    elif order == "shuffled":
        random.Random(0).shuffle(nodes)
    with pytest.raises(VerificationError, match="depends on itself") as info:
        verify(graph_of(*nodes, outputs=(0,)))
    assert len(str(info.value)) < 500
    assert not is_acyclic({node.key: node for node in nodes})


def test_cycle_that_no_output_needs():
    with pytest.raises(VerificationError, match="depends on itself"):
        verify(graph_of(Alias("a", "b"), Alias("b", "a"), DataNode("c", 1)))


def test_cycle_hidden_behind_many_users():
    users = [Task(("u", i), operator.add, TaskRef("a"), TaskRef("b")) for i in range(1000)]
    with pytest.raises(VerificationError, match="depends on itself"):
        verify(graph_of(*users, Alias("a", "b"), Alias("b", "a")))


def test_random_back_edges_are_always_found():
    rng = random.Random(2)
    for _ in range(100):
        size = rng.randrange(3, 40)
        needs = {i: {i - 1, rng.randrange(i)} if i else set() for i in range(size)}
        low = rng.randrange(size - 1)
        needs[low].add(rng.randrange(low, size))  # every later key reaches every earlier one
        order = list(needs)
        rng.shuffle(order)
        nodes = {i: Task(i, max, *map(TaskRef, needs[i])) for i in order}
        assert not is_acyclic(nodes)


def test_is_acyclic_ignores_keys_outside():
    assert is_acyclic({"a": Alias("a", "outside"), "b": Alias("b", "a")})
    assert is_acyclic({})


# -- nesting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [2, 3, NESTING_LIMIT])
def test_nesting_within_the_limit(depth):
    task = nested_task(depth)
    assert nesting(task) == depth
    assert check_depth(task, depth)
    assert not check_depth(task, depth - 1)
    verify(graph_of(DataNode("x", 1), task))


@pytest.mark.parametrize("depth", [NESTING_LIMIT + 1, 3000])
def test_nesting_beyond_the_limit(depth):
    with pytest.raises(VerificationError, match=f"'deep' is nested more than {NESTING_LIMIT} deep") as info:
        verify(graph_of(DataNode("x", 1), nested_task(depth)))
    assert info.value.key == "deep"


def test_nesting_limit_can_be_given():
    with pytest.raises(VerificationError, match="nested more than 4 deep"):
        verify(graph_of(DataNode("x", 1), nested_task(5)), limit=4)


def test_nesting_stops_at_the_limit():
    assert nesting(nested_task(3000), limit=10) == 11
    assert nesting(nested_task(3000)) == 3000


def test_nesting_of_things_that_are_not_tasks():
    assert nesting(1) == 0
    assert nesting(DataNode("a", [[[1]]])) == 0
    assert nesting(Alias("a", "b")) == 0
    assert nesting(Task("a", int)) == 1


def test_nesting_in_containers_and_keywords():
    assert nesting(Task("a", sum, List(List(TaskRef("x"))))) == 3
    assert nesting(Task("a", dict, k=Task(None, dict, k=Task(None, int)))) == 3


def test_nesting_in_called_templates_and_programs():
    template = Task(None, operator.add, TaskRef("x0"), Task(None, operator.neg, TaskRef("x0")))
    given = Task(None, dict, x0=TaskRef("x"))
    assert nesting(Task("a", template.__call__, given)) == 3
    assert nesting(Task("a", functools.reduce, given, template.__call__)) == 3


def test_nesting_in_subgraphs_of_dask():
    deep = nested_task(3000, key="inner")
    fused = Task.fuse(deep, Task("outer", operator.neg, TaskRef("inner")))
    assert nesting(fused) == 3001
    with pytest.raises(VerificationError, match="'outer' is nested"):
        verify(graph_of(DataNode("x", 1), fused))


def test_subgraphs_that_a_template_is_given():
    def call(depth):
        inner = Task.fuse(nested_task(depth, key="inner"), Task("outer", operator.neg, TaskRef("inner")))
        graph, *others = inner.args
        names = {f"x{i}": value for i, value in enumerate(others)}
        body = Task(None, inner.func, TaskRef("graph"), *map(TaskRef, names))
        return Task("outer", body.__call__, Task(None, dict, graph=graph, **names))

    verify(graph_of(DataNode("x", 1), call(3)), thorough=True)
    assert nesting(call(30)) > 30
    with pytest.raises(VerificationError, match="'outer' is nested"):
        verify(graph_of(DataNode("x", 1), call(3000)))


def test_shared_parts_do_not_multiply():
    task = Task(None, operator.neg, TaskRef("x"))
    for _ in range(500):
        task = Task(None, operator.add, task, task)
    assert nesting(task) == 501
    with pytest.raises(VerificationError, match="nested"):
        verify(graph_of(DataNode("x", 1), Task("a", operator.neg, task)))


def test_unhashable_functions_and_arguments():
    class Odd:
        __hash__ = None

        def __eq__(self, other):
            raise AssertionError("compared")

        def __call__(self, *args):
            return args

    verify(graph_of(DataNode("x", 1), Task("a", Odd(), Odd(), [Odd()], k=Odd())), thorough=True)


# -- references ------------------------------------------------------------------------------------


def test_stated_dependencies_are_compared_with_held_references():
    task = Task("b", operator.add, TaskRef("a"), Task(None, operator.neg, TaskRef("c")))
    graph = graph_of(DataNode("a", 1), DataNode("c", 1), task)
    verify(graph, thorough=True)
    task._dependencies = frozenset({"a"})
    verify(graph)
    with pytest.raises(VerificationError, match="'b' states other dependencies than it holds: 'c'"):
        verify(graph, thorough=True)
    task._dependencies = frozenset({"a", "c", "z"})
    with pytest.raises(VerificationError, match="'z'"):
        verify(graph_of(DataNode("z", 1), *graph.nodes.values()), thorough=True)


def test_stated_dependencies_of_inner_tasks():
    inner = Task(None, operator.neg, TaskRef("a"))
    task = Task("b", operator.neg, inner)
    inner._dependencies = frozenset()
    with pytest.raises(VerificationError, match="'b' states other dependencies"):
        verify(graph_of(DataNode("a", 1), task), thorough=True)


def test_template_gets_all_names_that_it_reads():
    template = Task(None, operator.add, TaskRef("x0"), TaskRef("x1"))
    whole = Task("b", template.__call__, Task(None, dict, x0=TaskRef("a"), x1=2))
    verify(graph_of(DataNode("a", 1), whole), thorough=True)
    torn = Task("b", template.__call__, Task(None, dict, x0=TaskRef("a")))
    with pytest.raises(VerificationError, match="task 'b' reads 'x1' inside, which is not given"):
        verify(graph_of(DataNode("a", 1), torn), thorough=True)


def test_program_reads_what_is_alive():
    first = Task(None, dict, v0=Task(None, operator.neg, TaskRef("x0")))
    second = Task(None, operator.add, TaskRef("v0"), TaskRef("v0"))
    given = Task(None, dict, x0=TaskRef("a"))
    whole = Task("b", pipe, given, first.__call__, second.__call__)
    assert whole({"a": 2}) == -4
    verify(graph_of(DataNode("a", 1), whole), thorough=True)
    late = Task("b", pipe, given, first.__call__, Task(None, operator.neg, TaskRef("x0")).__call__)
    with pytest.raises(VerificationError, match="task 'b' reads 'x0' inside, which is not given"):
        verify(graph_of(DataNode("a", 1), late), thorough=True)


def test_built_at_full_speed_or_by_dask_makes_no_difference():
    graph = graph_of(*chain_of(200))
    verify(graph, thorough=True)
    for key in (50, 150):
        graph.nodes[key] = make_task(key, operator.neg, (TaskRef(key - 1),), {}, frozenset({key - 1}))
    verify(graph, thorough=True)


def test_what_the_optimizer_makes_is_sound():
    da = pytest.importorskip("dask.array")
    x = da.ones((40, 40), chunks=10)
    a, b = x, x + 1
    for _ in range(100):
        a, b = b, (a + b) * 0.5
    looped = x
    for _ in range(20):
        looped = da.from_delayed(dask.delayed(abs)(looped), shape=x.shape, dtype=x.dtype)
    x[3, 4] = 2
    for made in (a, looped, x, x @ x.T, (x - x.mean(0)).std(1), x.map_overlap(abs, depth=1), x.cumsum(0)):
        keys = list(dask.core.flatten(made.__dask_keys__()))
        graph = rewrite_tasks(made.__dask_graph__(), keys)
        assert graph.outputs == tuple(keys)
        verify(graph, thorough=True)
