"""hoist: heavy constants and functions that many tasks carry."""

from __future__ import annotations

import operator
import pickle
import threading
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.held import Held, Own
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.hoist import Hoist
from dask_rewrite.passes.hoist.size_bounds import suspects
from dask_rewrite.passes.hoist.sizes import Scales
from dask_rewrite.remarks import Remarks
from helpers import assert_same, assert_same_as_stock, checked, keys_of, switched_on, tasks_of, work_of

BLOCKS = 50
X = np.arange(float(BLOCKS))


class Model:
    """30,000 numbers, and what they do to a block."""

    def __init__(self) -> None:
        self.table = np.arange(30_000.0)

    def predict(self, block: Any) -> Any:
        return block + self.table[2]

    __call__ = predict


class Slotted:
    __slots__ = ("model",)

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, block: Any) -> Any:
        return self.model.predict(block)


def apply(block: Any, model: Any) -> Any:
    return model.predict(block)


def apply_in(block: Any, holding: Any) -> Any:
    return holding["models"][0][0].predict(block)


def blocks() -> da.Array:
    return da.from_array(X, chunks=1)


def mapped(function: Any, *args: Any, **kwargs: Any) -> da.Array:
    return blocks().map_blocks(function, *args, dtype=float, meta=np.empty(0), **kwargs)


def bytes_of(tasks: Any) -> int:
    return sum(len(cloudpickle.dumps(task)) for task in tasks.values())


def hoisted(tasks: Any) -> list[Any]:
    return [key for key in tasks if str(key).startswith("hoist-")]


def run(
    nodes: dict[Any, Any], outputs: tuple[Any, ...] | None = None, **options: Any
) -> tuple[Graph, Remarks]:
    graph = Graph(nodes, outputs or tuple(nodes))
    remarks = Remarks()
    result = Hoist(**options).run(graph, Context(remarks))
    verify(result, thorough=True)
    return result, remarks


def ways() -> dict[str, Any]:
    model = Model()

    def closure(block: Any) -> Any:
        return model.predict(block)

    def default(block: Any, model: Any = model) -> Any:
        return model.predict(block)

    return {
        "argument": lambda: mapped(apply, model),
        "keyword": lambda: mapped(apply, model=model),
        "partial argument": lambda: mapped(partial(operator.call, model.predict)),
        "partial keyword": lambda: mapped(partial(apply, model=model)),
        "partial function": lambda: mapped(partial(model)),
        "closure": lambda: mapped(closure),
        "default": lambda: mapped(default),
        "bound method": lambda: mapped(model.predict),
        "callable": lambda: mapped(model),
        "slots": lambda: mapped(Slotted(model)),
        "containers": lambda: mapped(partial(apply_in, holding={"models": [(model,)]})),
        "under a template": lambda: ((mapped(apply, model) + 1) * 2 - X[0]) / 3,
        "in a program": lambda: (lambda y: (y + 1) * (y - 1) + y * 2)(mapped(apply, model)),
        "several in one task": lambda: mapped(apply, model).map_blocks(apply, Model(), dtype=float),
        "delayed argument": lambda: da.concatenate(
            [da.from_delayed(dask.delayed(apply)(X[i : i + 1], model), (1,), float) for i in range(BLOCKS)]
        ),
        "delayed keyword": lambda: da.concatenate(
            [
                da.from_delayed(dask.delayed(apply)(X[i : i + 1], model=model), (1,), float)
                for i in range(BLOCKS)
            ]
        ),
        "a partial of each task": lambda: da.concatenate(
            [
                da.from_delayed(dask.delayed(partial(apply, model=model))(X[i : i + 1]), (1,), float)
                for i in range(BLOCKS)
            ]
        ),
        "a closure of each task": lambda: da.concatenate(
            [
                da.from_delayed(dask.delayed(lambda b, i=i: model.predict(b) + i)(X[i : i + 1]), (1,), float)
                for i in range(BLOCKS)
            ]
        ),
        "an object of each task": lambda: da.concatenate(
            [da.from_delayed(dask.delayed(Slotted(model))(X[i : i + 1]), (1,), float) for i in range(BLOCKS)]
        ),
        "several layers": lambda: da.concatenate([mapped(partial(apply, model=model)) + i for i in range(4)]),
    }


# -- fires ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(ways()))
def test_fires(way: str) -> None:
    x = ways()[way]()
    tasks = checked(x)
    assert 1 <= len(hoisted(tasks)) <= 2
    assert bytes_of(tasks) < 3500 * len(tasks) + 2 * 241_000
    assert_same_as_stock(x)
    assert_same_as_stock(x, scheduler="threads")


def test_before_and_after() -> None:
    model = Model()
    nodes = {i: Task(i, apply, X[i : i + 1], model) for i in range(3)}
    graph, remarks = run(nodes)
    (key,) = hoisted(graph.nodes)
    assert isinstance(graph.nodes[key], DataNode)
    for i in range(3):
        task = graph.nodes[i]
        assert task.func is operator.call
        assert task.dependencies == {key}
        assert task.args[0].func is operator.call
        assert task.args[0].args == (TaskRef(key),)
        assert_same(task({key: graph.nodes[key].value}), X[i : i + 1] + 2)
    assert remarks.counts["hoist", "applied"] == 1
    assert "240 kB" in str(remarks.kept[0])


def test_a_heavy_function_alone_is_called_through_the_key() -> None:
    function = Model().predict
    graph, _ = run({i: Task(i, function, TaskRef("x")) for i in range(3)} | {"x": DataNode("x", X)})
    (key,) = hoisted(graph.nodes)
    assert graph.nodes[0].dependencies == {key, "x"}
    assert graph.nodes[key].value() is function


def test_dependencies_of_a_task_grow_by_one() -> None:
    one, two, three = Model(), Model(), np.arange(9_000.0)
    nodes: dict[Any, Any] = {"x": DataNode("x", X)}
    for i in range(9):
        nodes[i] = Task(i, max, TaskRef("x"), one, two, three, [three])
    graph, _ = run(nodes)
    assert [len(graph.nodes[i].dependencies) for i in range(9)] == [2] * 9
    assert len(hoisted(graph.nodes)) == 1


def test_a_part_that_tasks_carry_in_different_objects() -> None:
    model = Model()
    functions = [partial(apply, model=model) for _ in range(9)]
    graph, _ = run({i: Task(i, functions[i], X[i : i + 1]) for i in range(9)})
    (key,) = hoisted(graph.nodes)
    value = graph.nodes[key].value
    task = graph.nodes[3]
    assert task.args[0]({key: value}) is functions[3]
    task, value = pickle.loads(cloudpickle.dumps((task, value)))  # as on a worker
    assert_same(task({key: value}), X[3:4] + 2)
    one, two = task.args[0]({key: value}), task.args[0]({key: value})
    assert one.keywords["model"].table is not two.keywords["model"].table


def test_templates_that_are_heavy_by_themselves() -> None:
    steps = Task(None, operator.add, TaskRef("x0"), 1)
    for i in range(300):
        steps = Task(None, operator.add, TaskRef("x0"), steps) if i % 30 == 0 else steps
    call = Task(None, sum, [len(str(steps))] * 3000).__call__
    nodes = {i: Task(i, call, Task(None, dict, x0=i)) for i in range(20)}
    graph, _ = run(nodes)
    assert len(hoisted(graph.nodes)) == 1


# -- declines ------------------------------------------------------------------------------------


def declined(nodes: dict[Any, Any], **options: Any) -> list[str]:
    graph = Graph(nodes, tuple(nodes))
    remarks = Remarks()
    assert Hoist(**options).run(graph, Context(remarks)) is graph
    return [str(remark) for remark in remarks]


def test_declines_without_constants() -> None:
    assert declined({i: Task(i, operator.add, i, 1) for i in range(100)}) == []
    assert declined({}) == []


def test_declines_what_is_light() -> None:
    table = np.arange(100)
    assert declined({i: Task(i, max, table, i) for i in range(100)}) == []


def test_declines_what_would_save_little() -> None:
    table = np.arange(2000)
    assert declined({i: Task(i, max, table, i) for i in range(3)}) == []
    graph, _ = run({i: Task(i, max, table, i) for i in range(10)})
    assert hoisted(graph.nodes)


def test_declines_what_one_task_carries() -> None:
    assert declined({0: Task(0, max, Model(), Model())}) == []
    assert declined({i: Task(i, max, np.arange(30_000) + i) for i in range(9)}) == []


def test_declines_what_is_sent_by_name() -> None:
    assert declined({i: Task(i, apply, i, Model) for i in range(9)}, min_bytes=100, min_saved=100) == []


def test_leaves_keys_and_futures_alone() -> None:
    assert (
        declined({"x": DataNode("x", Model()), **{i: Task(i, apply, i, TaskRef("x")) for i in range(9)}})
        == []
    )


@pytest.mark.parametrize("min_bytes", [50, 300, 1000, 5000, 20_000])
def test_what_is_said_to_be_light_is_light(min_bytes: int) -> None:
    table = np.arange(300.0)

    def local(x: Any = table) -> Any:
        return x

    class Odd:
        __module__ = None

        def __init__(self) -> None:
            self.table = table

    compose = pytest.importorskip("toolz").compose
    values = [
        *([1, 2], [1] * 100, [[1] * 10] * 10, [[[1, "a" * 400]]], ("a", "b" * 3000), {"a": table}, {1: 2}),
        *(partial(print, 1), partial(print, table), partial(local, 1), compose(abs, partial(np.add, table))),
        *(compose(abs, np.sum), Task(None, abs, [table]), Task(None, abs, 1), DataNode(None, table)),
        *(Task(None, abs, table).__call__, np.random.default_rng(0), np.random.SeedSequence(1), Odd()),
        *(table, np.array([table, 1], dtype=object), "a" * 2000, b"a", np.concatenate, Odd, local, range(3)),
        *(set(range(200)), frozenset((1, 2)), partial(partial(local, table), 2)),
    ]
    objects = {id(value): value for value in values}
    scales = Scales(min_bytes)
    left = suspects(objects, scales)
    alone = {at for at in objects if suspects({at: objects[at]}, scales)}
    for at, value in objects.items():
        if scales.weigh(value).cores:
            assert at in left
            assert at in alone


def test_leaves_coroutines_alone() -> None:
    async def slow(model: Any) -> Any:
        return model

    model = Model()
    assert declined({i: Task(i, slow, model) for i in range(9)}) == []
    assert declined({i: Task(i, partial(slow, model)) for i in range(9)}) == []


def test_leaves_other_kinds_of_tasks_alone() -> None:
    class Special(Task):
        pass

    model = Model()
    assert declined({i: Special(i, apply, i, model) for i in range(9)}) == []


def test_says_what_cannot_be_weighed() -> None:
    class Closed:
        def __reduce__(self) -> Any:
            raise ValueError("not today")

    closed = Closed()
    (remark,) = declined({i: Task(i, max, closed) for i in range(9)})
    assert "not today" in remark
    lock = threading.Lock()
    (remark,) = declined({i: Task(i, max, lock) for i in range(9)})
    assert "lock" in remark


def test_objects_that_do_not_want_to_be_looked_at() -> None:
    class Shy:
        @property
        def __dict__(self) -> Any:
            raise OSError("go away")

    shy = Shy()
    (remark,) = declined({i: Task(i, max, shy) for i in range(9)})
    assert "go away" in remark


def test_what_cannot_be_pickled_is_named() -> None:
    from dask_rewrite.tools.culprit import culprit

    model = Model()
    model.lock = threading.Lock()
    graph, _ = run({i: Task(i, apply, i, model) for i in range(9)})
    found = culprit(graph.nodes)
    assert found is not None
    assert "attribute 'lock' of Model" in found.path


def test_recursion_while_weighing() -> None:
    class Deep:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __reduce__(self) -> Any:
            return Deep, (self.inner,)

    deep: Any = None
    for _ in range(5000):
        deep = Deep(deep)
    remarks = declined({i: Task(i, max, deep) for i in range(9)})
    assert len(remarks) == 1


def test_nested_containers_of_any_depth() -> None:
    deep: Any = [np.arange(30_000)]
    for _ in range(3000):
        deep = [deep]
    loop: list[Any] = [np.arange(30_000)]
    loop.append(loop)
    for holding in (deep, loop):
        graph, _ = run({i: Task(i, len, holding) for i in range(9)})
        assert graph.nodes[3]({key: graph.nodes[key].value for key in hoisted(graph.nodes)}) == len(holding)


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


# -- equivalent ----------------------------------------------------------------------------------

_tables = [np.arange(20_000.0) + i for i in range(3)]
_leaves = st.one_of(st.integers(-3, 3), st.sampled_from(_tables), st.just("text"), st.none())
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        st.builds(lambda value: partial(_described, value), inner),
    ),
    max_leaves=6,
)


def _described(*args: Any, **kwargs: Any) -> Any:
    def describe(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return "array", float(value[0]), value.size
        if isinstance(value, partial):
            return "partial", describe(value.args)
        if isinstance(value, (list, tuple)):
            return type(value).__name__, [describe(item) for item in value]
        if isinstance(value, dict):
            return {name: describe(item) for name, item in value.items()}
        return value

    return describe(args), describe(kwargs)


@given(st.lists(st.tuples(_values, _values, st.booleans()), min_size=1, max_size=6))
def test_equivalent(arguments: list[Any]) -> None:
    nodes: dict[Any, Any] = {"x": DataNode("x", X)}
    for i, (one, two, nested) in enumerate(arguments * 3):
        inner = Task(None, _described, TaskRef("x"), two) if nested else two
        nodes[i] = Task(i, partial(_described, one) if i % 2 else _described, one, inner, key=two)
    graph, _ = run(nodes)
    values = {key: node.value for key, node in graph.nodes.items() if isinstance(node, DataNode)}
    sent = pickle.loads(cloudpickle.dumps(values))
    for i in range(len(arguments) * 3):
        expected = nodes[i]({"x": X})
        task = graph.nodes[i]
        assert task({key: values[key] for key in task.dependencies}) == expected
        task = pickle.loads(cloudpickle.dumps(task))
        assert task({key: sent[key] for key in task.dependencies}) == expected


def everyday() -> list[Any]:
    x = da.from_array(np.arange(144.0).reshape(12, 12), chunks=3)

    def with_info(block: Any, block_info: Any = None, shift: Any = None) -> Any:
        return block + len(block_info) + shift[0]

    return [
        (x - x.mean(0)) / x.std(0),
        x @ x.T,
        x.rechunk((4, 12)).cumsum(0)[::2],
        da.random.default_rng(3).normal(size=20, chunks=5) * 2,
        x.map_blocks(with_info, shift=[1, 2], dtype=float),
        x.map_overlap(lambda block: block * 2, depth=1, boundary="reflect"),
        x[x > 5],
        da.histogram(x, bins=5, range=(0, 10))[0],
        da.einsum("ij,kj->ik", x, x),
        da.ma.masked_greater(x, 50).sum(0),
        da.linalg.svd(x[:, :3].rechunk((3, 3)))[1],
        da.concatenate([x.map_blocks(partial(np.add, i), dtype=float) for i in range(3)]),
    ]


@pytest.mark.parametrize("index", range(12))
def test_everyday_programs_with_all_that_can_be_hoisted(index: int) -> None:
    x = everyday()[index]
    with dask.config.set({"rewrite.options": {"hoist": {"min-bytes": 1, "min-saved": 1}}}):
        assert_same_as_stock(x)
        tasks = tasks_of(x)
    sent = {key: pickle.loads(cloudpickle.dumps(task)) for key, task in tasks.items()}
    assert_same(dask.get(sent, keys_of(x)), dask.get(tasks, keys_of(x)))


# -- idempotent ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(ways()))
def test_idempotent(way: str) -> None:
    x = dask_rewrite.optimize(ways()[way]())
    again = Graph(dict(x.dask), tuple(keys_of(x)))
    assert Hoist().run(again, Context()) is again
    assert hoisted(tasks_of(x)) == hoisted(dict(x.dask))
    assert_same(x.compute(), ways()[way]().compute())


# -- pays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["argument", "keyword", "closure", "partial keyword", "bound method"])
def test_pays(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "X", np.arange(1000.0))
    tasks = tasks_of(ways()[way]())
    assert len(tasks) == 1001
    assert bytes_of(tasks) < 1_000_000


def test_graphs_without_constants_cost_little() -> None:
    def cost(n: int) -> int:
        nodes = {("x", i): Task(("x", i), operator.add, TaskRef("y"), i) for i in range(n)}
        graph = Graph({**nodes, "y": DataNode("y", 1)}, tuple(nodes))
        return work_of(lambda: Hoist().run(graph, Context()))

    few, many = cost(1000), cost(10_000)
    assert (many - few) / 9000 < 6  # lines of Python per task, all of them in comprehensions


def test_linear() -> None:
    def cost(n: int) -> int:
        model = Model()
        nodes = {i: Task(i, partial(apply, model=model), i) for i in range(n)}
        graph = Graph(nodes, tuple(nodes))
        return work_of(lambda: Hoist().run(graph, Context()))

    cost(10)
    assert cost(800) < 2.3 * cost(400)


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
