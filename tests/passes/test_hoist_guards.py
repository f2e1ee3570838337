"""What hoisting must not break."""

from __future__ import annotations

import operator
import pickle
import warnings
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.held import Held, Own
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.hoist import Hoist
from dask_rewrite.passes.hoist.sizes import Scales
from helpers import assert_same, keys_of, switched_on, tasks_of
from passes.hoist_cases import (
    BLOCKS,
    Model,
    X,
    apply,
    apply_in,
    declined,
    hoisted,
    mapped,
    run,
    ways,
)

# -- guards --------------------------------------------------------------------------------------


def test_users_objects_are_not_pickled_before_they_are_sent() -> None:
    calls = []

    class Counting(Model):
        def __getstate__(self) -> Any:
            calls.append(1)
            return self.__dict__

    plain = mapped(apply, Model())
    counting = mapped(apply, Counting())
    calls.clear()
    with switched_on():
        plain.compute(scheduler="threads")
        counting.compute(scheduler="threads")
    assert len(calls) <= 1  # once, to weigh it


def test_a_large_array_is_not_copied_to_weigh_it() -> None:
    import tracemalloc

    table = np.zeros(10_000_000)
    nodes = {i: Task(i, partial(max, table), {"a": table}) for i in range(9)}
    tracemalloc.start()
    run(nodes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_views_are_weighed_by_what_they_show() -> None:
    base = np.zeros(10_000_000)
    assert declined({i: Task(i, max, base[:10]) for i in range(9)}) == []
    view = base[:20_000]
    graph, _ = run({i: Task(i, max, view) for i in range(9)})
    (key,) = hoisted(graph.nodes)
    assert len(pickle.dumps(graph.nodes[key].value)) < 200_000


def test_root_tasks_stay_root_tasks() -> None:
    model = Model()
    graph, _ = run(
        {"x": DataNode("x", X), 0: Task(0, apply, 1, model), 1: Task(1, apply, TaskRef("x"), model)}
    )
    assert graph.nodes[0].data_producer
    assert not graph.nodes[1].data_producer


def test_outputs_annotations_and_other_nodes_stay() -> None:
    model = Model()
    nodes = {i: Task(i, apply, i, model) for i in range(9)}
    graph = Graph(nodes, (0, 1), annotations={1: {"priority": 3}})
    result = Hoist().run(graph, Context())
    assert result.outputs == (0, 1)
    assert result.annotations == {1: {"priority": 3}}
    assert graph.nodes is nodes
    assert all(type(node.args[-1]) is Model for node in nodes.values())


def test_names_are_made_from_keys() -> None:
    one, two = (tasks_of(mapped(apply, Model())) for _ in range(2))
    other = tasks_of(mapped(partial(apply, model=Model())))
    assert hoisted(one) == hoisted(two) or keys_of(mapped(apply, Model())) != keys_of(mapped(apply, Model()))
    x = mapped(apply, Model())
    assert hoisted(tasks_of(x)) == hoisted(tasks_of(x)) != hoisted(other)


def test_objects_with_state_are_shared_in_this_process() -> None:
    class Counter(Model):
        calls = 0

        def predict(self, block: Any) -> Any:
            self.calls += 1
            return block * 0 + self.calls

    counter = Counter()
    with switched_on():
        result = mapped(apply, counter).compute(scheduler="sync")
    assert counter.calls == BLOCKS
    assert sorted(result) == list(range(1, BLOCKS + 1))


def test_what_one_task_holds_twice_is_one_object_on_a_worker() -> None:
    model = Model()
    nodes = {i: Task(i, operator.is_, model, model) for i in range(9)}
    nodes |= {10 + i: Task(10 + i, partial(operator.is_, model.table), model.table) for i in range(9)}
    graph, _ = run(nodes)
    constants = {key: graph.nodes[key].value for key in hoisted(graph.nodes)}
    nodes, constants = pickle.loads(cloudpickle.dumps((graph.nodes, constants)))
    for i in (0, 3, 10, 13):
        assert nodes[i]({key: constants[key] for key in nodes[i].dependencies})


@pytest.mark.parametrize(
    "constant",
    [
        np.ma.masked_array(np.arange(20_000), np.arange(20_000) % 3 == 0),
        np.array([object()] * 20_000),
        np.zeros(20_000, dtype=[("a", "i4"), ("b", "f8")]),
        "text" * 10_000,
        b"bytes" * 10_000,
        list(range(20_000)),
        {i: str(i) for i in range(5_000)},
        {"nested": {"deeper": [np.arange(20_000)]}},
        tuple(range(20_000)),
        set(range(20_000)),
    ],
    ids=lambda constant: type(constant).__name__,
)
def test_kinds_of_constants(constant: Any) -> None:
    graph, _ = run({i: Task(i, operator.is_not, constant, None) for i in range(20)})
    (key,) = hoisted(graph.nodes)
    value = graph.nodes[key].value
    assert graph.nodes[0]({key: value})
    copy = pickle.loads(cloudpickle.dumps(graph.nodes[key])).value
    assert pickle.loads(cloudpickle.dumps(graph.nodes[0]))({key: copy})
    inside = copy()
    assert inside is not value()


def test_chunks_of_other_types() -> None:
    sparse = pytest.importorskip("sparse")
    matrix = sparse.random((300, 300), density=0.5)
    graph, _ = run({i: Task(i, operator.is_not, matrix, None) for i in range(20)})
    assert hoisted(graph.nodes)


class Settings(NamedTuple):
    model: Any
    factor: int


def test_named_tuples() -> None:
    settings = Settings(Model(), 3)
    graph, _ = run({i: Task(i, operator.is_not, settings, None) for i in range(20)})
    (key,) = hoisted(graph.nodes)
    graph, _ = run(
        {i: Task(i, partial(apply_in, holding={"models": [(settings.model,)]}), X[:1]) for i in range(9)}
    )
    (key,) = hoisted(graph.nodes)
    assert_same(graph.nodes[4]({key: graph.nodes[key].value}), X[:1] + 2)


def test_data_nodes_in_arguments() -> None:
    table = DataNode("table", np.arange(20_000))
    graph, _ = run({i: Task(i, operator.getitem, table, i) for i in range(20)})
    (key,) = hoisted(graph.nodes)
    assert graph.nodes[4]({key: graph.nodes[key].value}) == 4


def test_bisecting() -> None:
    x = ways()["argument"]()
    with dask.config.set({"rewrite.bisect-limit": 0}):
        assert not hoisted(tasks_of(x))


# -- the holder ----------------------------------------------------------------------------------


def test_held() -> None:
    value = [1, 2]
    held = Held(value)
    assert held() is value
    copy = pickle.loads(pickle.dumps(held))
    assert type(copy) is partial
    assert copy.func is pickle.loads
    assert copy() == value
    assert copy() is not copy()
    assert dask.base.tokenize(held) == dask.base.tokenize(Held([1, 2]))
    own = Own([3])
    assert held(buffers=own) == [3]
    assert pickle.loads(pickle.dumps(own)) == ()


def test_held_with_holes_of_all_kinds() -> None:
    from itertools import repeat

    array, model, function = np.arange(9.0), Model(), partial(max, 1)
    value = {"a": array, "b": [array, model], "c": function, "d": np.arange(5)}
    held = Held(value, [(array,), (model, function)])
    sent = pickle.dumps(held)
    assert len(sent) < 1000
    copy = pickle.loads(sent)(buffers=repeat([("array",), ("model", "function")]))
    assert copy["a"] == "array"
    assert copy["b"] == ["array", "model"]
    assert copy["c"] == "function"
    assert_same(copy["d"], np.arange(5))


class Small:
    """Has a way of its own to be pickled, and counts how often it is used."""

    asked = 0

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        Small.asked += 1
        return Small, self.parts


class Node:
    def __init__(self, *parts: Any) -> None:
        self.parts = parts


@pytest.mark.parametrize("shape", ["list", "dict", "lists", "long lists", "pairs", "tree"])
def test_many_objects_alike_are_weighed_by_a_few(shape: str) -> None:
    objects: Any = [Small(i) for i in range(40_000)]
    if shape == "dict":
        objects = dict(enumerate(objects))
    elif shape.endswith("lists"):
        step = 400 if shape == "lists" else 4_000
        objects = [objects[i : i + step] for i in range(0, 40_000, step)]
    elif shape == "pairs":
        objects = list(enumerate(objects))
    elif shape == "tree":
        while len(objects) > 1:
            objects = [Node(*objects[i : i + 8]) for i in range(0, len(objects), 8)]
    Small.asked = 0
    scales = Scales(100_000)
    weight = scales.weigh(objects)
    assert weight.cores
    assert Small.asked < (10_000 if shape == "tree" else 300)
    if shape != "tree":
        assert 40_000 * 5 < scales.nbytes(weight) < 40_000 * 500


def test_a_sample_of_unlike_objects_is_no_sample() -> None:
    tables = [np.arange(5000) if i % 7 else i for i in range(200)]
    nodes = [Node(table) for table in tables]
    scales = Scales(10_000)
    assert scales.nbytes(scales.weigh(nodes)) > 8 * 5000 * 171


@pytest.mark.parametrize(("blocks", "shared"), [(15, 1), (16, 0)])
def test_many_blocks_of_a_name_are_judged_by_the_first_and_the_last(blocks: int, shared: int) -> None:
    table = np.arange(50_000.0)
    keys = tuple([("y", i) for i in range(blocks)])
    graph: dict[Any, Any] = {key: Task(key, np.add, table if key[1] else 0.5, key[1]) for key in keys}
    after, _ = run(graph, keys)
    assert len(hoisted(after.nodes)) == shared
    assert_same(dask.get(after.nodes, list(keys)), dask.get(graph, list(keys)))


def test_objects_that_hold_what_holds_them_are_weighed() -> None:
    nodes: list[Any] = []
    nodes += [Node(nodes, i) for i in range(1000)]
    scales = Scales(1 << 40)
    assert 10_000 < scales.weigh(nodes).light < 1_000_000
    assert scales.weigh({"nodes": nodes}).light < 2_000_000


def test_tasks_that_carried_something_else_when_they_were_optimized_before() -> None:
    """The same names make the same key, unless that stands in the graph already."""
    table, other = np.arange(50_000.0), np.arange(50_000.0) * 2
    first, last = partial(np.dot, table), partial(np.add, other)
    keys = tuple([("y", i) for i in range(4)])
    once, _ = run({key: Task(key, first, i * table) for i, key in enumerate(keys)}, keys)
    (name,) = hoisted(once.nodes)
    again: dict[Any, Any] = {name: once.nodes[name]}
    for key in keys:
        task: Any = once.nodes[key]
        inner = Task(None, task.func, *task.args)
        again[key] = Task(key, last, inner)
    twice, _ = run(again, keys)
    assert twice.nodes[name] is once.nodes[name]
    assert len(hoisted(twice.nodes)) == 2
    assert_same(dask.get(twice.nodes, list(keys)), dask.get(again, list(keys)))


def test_what_is_hoisted_in_graphs_that_dask_puts_together_has_names_of_its_own() -> None:
    """Beside a dataframe arrays are rewritten in groups, in which a task may call more or less."""
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")

    def adding(value: float) -> Any:
        large = np.full(20_000, value)
        return lambda block: block + large[0]

    first, second, third = map(adding, (1.0, 10.0, 100.0))
    frame = dd.from_pandas(pd.DataFrame({"a": [1, 2]}), npartitions=1)
    for source in (da.from_array(np.zeros(20), chunks=1), da.zeros(20, chunks=1)):
        x = source.map_blocks(first, dtype="f8")
        y = x.map_blocks(second, dtype="f8").map_blocks(third, dtype="f8")
        with switched_on(scheduler="sync"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Computing mixed collections")
            ones, others, _, block = dask.compute(x, y, frame, y.to_delayed()[3])
        assert_same(ones, np.full(20, 1.0))
        assert_same(others, np.full(20, 111.0))
        assert_same(block, np.full(1, 111.0))


def _spans(name: str, table: Any, other: Any = None) -> da.Array:
    """Blocks whose loader carries one or two tables."""

    def load(block_id: Any = None) -> Any:
        return table[:4] if other is None else table[:4] - 2 * other[:4]

    return da.map_blocks(load, chunks=((4,) * 6,), dtype="f8", name=name, meta=np.empty(0))


def test_one_name_for_one_part_in_programs_that_share_tasks() -> None:
    """A scheduler that has a key from one program gives its value to the other."""
    first, second = np.arange(40_000.0), np.arange(40_000.0)[::-1].copy()
    common = [_spans("one", first, second).sum(), _spans("two", first, second).sum()]
    graphs = []
    for table, name in ((first, "with-first"), (second, "with-second")):
        with switched_on():
            graphs.append(tasks_of(*common, _spans(name, table).sum()))
    one, two = graphs
    assert hoisted(one)
    assert hoisted(two)
    for key in {*hoisted(one)} & {*hoisted(two)}:
        assert_same(one[key].value(), two[key].value())


def test_blocks_that_two_programs_load_have_one_name() -> None:
    """In whichever order their tasks stand: the scheduler loads them once."""
    table = np.arange(40_000.0)
    x, y = _spans("x", table), _spans("x", table)
    loads = []
    for columns in ([x - x.mean(), x.sum()], [(y - y.mean()).std(), y[::-1], y.max()]):
        with switched_on():
            nodes = tasks_of(*columns)
        names = {*hoisted(nodes)}
        loads.append({key for key, node in nodes.items() if not names.isdisjoint(node.dependencies)})
    assert loads[0]
    assert loads[0] == loads[1]
