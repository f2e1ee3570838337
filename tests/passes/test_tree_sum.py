"""Wide sums and other folds become trees, and mean what they meant."""

from __future__ import annotations

import functools
import itertools
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import sparse
from dask import delayed
from dask._task_spec import DataNode, List, Task, TaskRef, _identity_cast
from dask._task_spec import Tuple as TupleNode
from dask.local import get_sync
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.graph.graph import Graph, depths_of
from dask_rewrite.passes.base import Rules
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.tree_sum import TreeSum
from dask_rewrite.remarks import Remarks
from helpers import (
    assert_same,
    assert_same_as_stock,
    assert_sound,
    checked,
    fan_in,
    functions_in,
    keys_of,
    stock,
    stock_tasks_of,
    switched_on,
    tasks_of,
    work_of,
)

KEY = ("total", 0)


def blocks(n: int, dtype: Any = "i8", shape: tuple[int, ...] = (2, 3)) -> list[np.ndarray]:
    size = int(np.prod(shape))
    return [(np.arange(size) + i).astype(dtype).reshape(shape) for i in range(n)]


def graph_of(call: Callable[[Any], Task], terms: Sequence[Any], **options: Any) -> Graph:
    """A graph in which one task calls something on all of the terms; graph nodes stand as they are."""
    nodes = {}
    for i, term in enumerate(terms):
        key = ("x", i)
        nodes[key] = (
            DataNode(key, term)
            if not isinstance(term, Task)
            else Task(key, term.func, *term.args, **term.kwargs)
        )
    nodes[KEY] = call(List(*map(TaskRef, nodes)))
    return Graph(nodes, (KEY,), **options)


def folded(func: Any, *before: Any, **kwargs: Any) -> Callable[[Any], Task]:
    return lambda terms: Task(KEY, func, *before, terms, **kwargs)


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    return Rules("tree-sum", (TreeSum(**options),)).run(graph, Context(remarks)), remarks


def rewritten(graph: Graph, **options: Any) -> Graph:
    """The graph after the pass, which applied and kept the result's every bit."""
    after, remarks = run(graph, **options)
    assert remarks.counts["tree-sum", "applied"], list(remarks)
    assert_sound(after.nodes, after.outputs)
    assert max(map(fan_in, after.nodes.values())) <= max(options.get("fan_in", 8), 3)
    assert_same(get_sync(after.nodes, KEY), get_sync(graph.nodes, KEY))
    return after


def declined(graph: Graph, reason: str, **options: Any) -> None:
    after, remarks = run(graph, **options)
    assert after is graph
    assert [remark.reason for remark in remarks] == [reason]


def added(graph: Graph) -> list[Task]:
    return [node for key, node in graph.nodes.items() if str(key[0]).startswith("tree-sum-")]


def number(value: Any, dtype: Any = "i8") -> Task:
    """A task that makes a NumPy scalar."""
    return Task(None, np.sum, np.array([value], dtype), dtype=dtype)


def unknown(block: Any) -> Any:
    """A function of which nothing is known."""
    return block


# -- fires ---------------------------------------------------------------------------------


def test_a_wide_sum_becomes_a_tree() -> None:
    after = rewritten(graph_of(folded(sum), blocks(19)))
    low = added(after)
    assert [len(task.dependencies) for task in low] == [7, 6, 6]
    assert after.nodes[KEY].dependencies == {task.key for task in low}
    assert {f for task in (*low, after.nodes[KEY]) for f in functions_in(task)} - {sum} == {
        List(1).func  # what makes the lists
    }


def test_neighbours_are_added_up_first() -> None:
    after = rewritten(graph_of(folded(sum), blocks(96)))
    for task in added(after):
        places = sorted(key[1] for key in task.dependencies if key[0] == "x")
        assert places == list(range(places[0], places[0] + len(places))) if places else True


def test_a_tree_has_as_many_levels_as_it_needs() -> None:
    after = rewritten(graph_of(folded(sum), blocks(1000)))
    assert after.metrics().depth == 1 + 4  # 1000 → 125 → 16 → 2 → 1


FOLDS = {
    "sum": folded(sum),
    "np.sum": folded(np.sum),
    "np.sum of the list's axis": folded(np.sum, axis=0),
    "np.prod": folded(np.prod, axis=0),
    "np.max": folded(np.max, axis=0),
    "np.min": folded(np.min),
    "np.any": folded(np.any, axis=0),
    "np.all": folded(np.all),
    "add.reduce": folded(np.add.reduce),
    "add.reduce of everything": folded(np.add.reduce, axis=None),
    "add.reduce in int8": folded(np.add.reduce, dtype=np.int8),
    "multiply.reduce": folded(np.multiply.reduce),
    "maximum.reduce": folded(np.maximum.reduce),
    "logical_or.reduce": folded(np.logical_or.reduce),
    "bitwise_xor.reduce": folded(np.bitwise_xor.reduce),
    **{
        f"reduce({f.__name__})": folded(functools.reduce, f)
        for f in (
            *(operator.add, operator.mul, operator.and_, operator.or_, operator.xor, np.add, np.multiply),
            *(np.maximum, np.minimum, np.fmax, np.fmin, np.logical_and, np.logical_xor, np.bitwise_or),
        )
    },
    "partial": folded(functools.partial(np.sum, axis=0)),
    "partial of reduce": folded(functools.partial(functools.reduce, operator.add)),
    "in a tuple": lambda terms: Task(KEY, sum, TupleNode(*terms.args)),
    "in a list that is made by a task": lambda terms: Task(
        KEY, sum, Task(None, _identity_cast, *terms.args, typ=list)
    ),
}


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "u8"])
@pytest.mark.parametrize("name", FOLDS)
def test_folds_of_integers_are_exact(name: str, dtype: str) -> None:
    rewritten(graph_of(FOLDS[name], blocks(20, dtype)))


@pytest.mark.parametrize("func", [max, min, any, all])
def test_folds_of_single_numbers(func: Any) -> None:
    rewritten(graph_of(folded(func), blocks(20, shape=(1, 1))))
    rewritten(graph_of(folded(func), [number(7 * i % 20) for i in range(20)]))


def test_sums_nested_in_a_task_leave_room_for_its_other_inputs() -> None:
    nodes = {("x", i): DataNode(("x", i), block) for i, block in enumerate(blocks(21, "f8", (3, 3)))}
    refs = list(map(TaskRef, nodes))
    difference = Task(None, operator.sub, refs[0], Task(None, sum, List(*refs[2:])))
    nodes[KEY] = Task(KEY, np.dot, refs[1], difference)
    graph = Graph(nodes, (KEY,))
    after, _ = run(graph)
    assert max(map(fan_in, after.nodes.values())) == 7
    assert [*functions_in(after.nodes[KEY])][:3] == [np.dot, operator.sub, sum]
    assert_same(get_sync(after.nodes, KEY), get_sync(graph.nodes, KEY))


def test_two_sums_in_one_task_share_its_room() -> None:
    nodes = {("x", i): DataNode(("x", i), block) for i, block in enumerate(blocks(40))}
    refs = list(map(TaskRef, nodes))
    nodes[KEY] = Task(
        KEY, operator.mul, Task(None, sum, List(*refs[:20])), Task(None, np.max, List(*refs[20:]), axis=0)
    )
    rewritten(Graph(nodes, (KEY,)))


def test_sums_in_templates() -> None:
    template = Task(None, operator.neg, Task(None, sum, TaskRef("x0")))
    terms = {("x", i): DataNode(("x", i), block) for i, block in enumerate(blocks(20))}
    call = Task(KEY, template.__call__, Task(None, dict, x0=List(*map(TaskRef, terms))))
    rewritten(Graph({**terms, KEY: call}, (KEY,)))


def test_other_fan_in() -> None:
    for fan_in_ in (1, 2, 3, 4, 16):
        rewritten(graph_of(folded(sum), blocks(50)), fan_in=fan_in_)


def test_options_by_configuration() -> None:
    x = delayed(np.add.reduce)([delayed(np.full)((2, 2), i) for i in range(30)])
    with dask.config.set({"rewrite.options": {"tree-sum": {"fan-in": 4}}}):
        assert max(map(fan_in, tasks_of(x).values())) == 4
    with (
        dask.config.set({"rewrite.options": {"tree-sum": {"width": 4}}}),
        pytest.raises(ValueError, match=r"no option 'width'; it has: fan_in, delayed"),
    ):
        tasks_of(x)
    with (
        dask.config.set({"rewrite.options": {"tree-sum": {"reassociate": True}}}),
        pytest.raises(ValueError, match="no option 'reassociate'"),
    ):
        tasks_of(x)


# -- fires: linear algebra -----------------------------------------------------------------


def system(n: int = 12, chunk: int = 3) -> tuple[da.Array, da.Array]:
    size = n * chunk
    values = np.arange(float(size * size)).reshape(size, size) % 13 + 8 * size * np.eye(size)
    values = values + values.T
    return da.from_array(values, chunks=chunk), da.from_array(np.arange(float(size * 3)).reshape(size, 3))


def rechunked(b: da.Array) -> da.Array:
    return b.rechunk((3, 3))


LINALG = {
    "lu": lambda a, b: da.linalg.lu(a)[1],
    "cholesky": lambda a, b: da.linalg.cholesky(a, lower=True),
    "solve": da.linalg.solve,
    "solve with a positive definite matrix": lambda a, b: da.linalg.solve(a, b, assume_a="pos"),
    "lower triangle": lambda a, b: da.linalg.solve_triangular(a, b, lower=True),
    "upper triangle": da.linalg.solve_triangular,
    "inv": lambda a, b: da.linalg.inv(a),
}


many_blocks = pytest.mark.filterwarnings("ignore:Increasing number of chunks")


@many_blocks
@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra_waits_for_few_blocks(name: str) -> None:
    dask.config.set({"rewrite.disable": ["contract"]})  # it gathers blocks in its own way
    a, b = system()
    x = LINALG[name](a, rechunked(b))
    tasks = checked(x)
    assert max(map(fan_in, tasks.values())) <= 8
    assert max(map(fan_in, stock_tasks_of(x).values())) >= 12
    assert len(tasks) <= len(stock_tasks_of(x))
    with stock():
        expected = x.compute()
    with switched_on():
        np.testing.assert_allclose(x.compute(), expected, rtol=1e-12, atol=1e-15)
    with dask.config.set({"rewrite.reassociate": False}):
        assert max(map(fan_in, checked(x).values())) <= 8
        assert_same_as_stock(x)


def test_products_that_come_one_after_the_other_are_added_up_as_they_come() -> None:
    """Cholesky's sums are regrouped nowhere, and hold fewer products."""
    a, _ = system()
    x = da.linalg.cholesky(a, lower=True)
    assert_same_as_stock(x)
    tasks = checked(x)
    sums = [task for key, task in tasks.items() if str(key[0]).startswith("tree-sum-")]
    assert sums
    assert any(np.dot in set(functions_in(task)) for task in sums)
    products = [key for key in tasks if "dot" in str(key[0])]
    assert len(products) < len([key for key in stock_tasks_of(x) if "dot" in str(key[0])]) / 2


def test_a_product_whose_factors_are_needed_by_nobody_else_stays_a_task() -> None:
    """Nested, it would hold blocks of a triangular matrix that could have gone."""
    a, b = system()
    x = da.linalg.solve_triangular(a, rechunked(b), lower=True)
    with dask.config.set({"rewrite.disable": ["fuse-small"]}):
        tasks = tasks_of(x)
    sums = [task for key, task in tasks.items() if str(key[0]).startswith("tree-sum-")]
    assert sums
    assert all(np.dot not in set(functions_in(task)) for task in sums)


@many_blocks
def test_small_products_of_large_factors_stay_tasks() -> None:
    a, b = system()
    x = da.linalg.solve(a, b[:, :1].rechunk((3, 1)))
    with dask.config.set({"rewrite.disable": ["fuse-small"]}):
        tasks = tasks_of(x)
    for key, task in tasks.items():
        if str(key[0]).startswith("tree-sum-") and np.dot in set(functions_in(task)):
            assert {dep[0].split("-")[0] for dep in task.dependencies} <= {"lu", "tree"}


# -- fires: in a row -----------------------------------------------------------------------


def test_without_reassociation_sums_go_on_where_the_one_before_stopped() -> None:
    terms = [np.array([10.0**i, -(0.1**i)]) for i in range(20)]
    graph = graph_of(folded(sum), terms)
    after = rewritten(graph, reassociate=False)
    low = added(after)
    assert len(low) == 3
    assert [key for key in after.nodes[KEY].dependencies if key[0] == "x"] == [("x", 19)]
    for one, other in itertools.pairwise(low):
        assert one.key in other.dependencies


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", ">f8"])
@pytest.mark.parametrize("name", ["sum", "reduce(add)", "reduce(mul)", "reduce(multiply)"])
def test_without_reassociation_every_bit_is_kept(name: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    terms = [(10 ** rng.uniform(-0.3, 0.3, (3, 2))).astype(dtype) for _ in range(40)]
    rewritten(graph_of(FOLDS[name], terms), reassociate=False)


def test_different_dtypes_in_a_row() -> None:
    """One int64 and fifteen int8: groups of int8 would wrap at 128."""
    terms = [np.full(2, 100, "i8"), *[np.full(2, 100, "i1") for _ in range(15)]]
    for order in (terms, terms[::-1]):
        for call in (folded(sum), folded(functools.reduce, operator.add)):
            rewritten(graph_of(call, order))
    assert (get_sync(rewritten(graph_of(folded(sum), terms)).nodes, KEY) == 1600).all()


def test_different_shapes_in_a_row() -> None:
    terms = [np.arange(3.0).reshape(3, 1), *[np.arange(4.0) + i for i in range(15)]]
    rewritten(graph_of(folded(sum), terms))


def test_unknown_blocks_are_reduced_in_a_row() -> None:
    """What the operator does is done in the same order, whatever the blocks are."""
    masked = [np.ma.array(np.arange(4.0) + i, mask=[i == 3, 0, i == 17, 0]) for i in range(20)]
    after = rewritten(graph_of(folded(functools.reduce, operator.add), masked))
    assert type(get_sync(after.nodes, KEY)) is np.ma.MaskedArray
    text = [np.array([str(i)], dtype=object) for i in range(20)]
    rewritten(graph_of(folded(functools.reduce, operator.add), text))


# -- declines ------------------------------------------------------------------------------


def test_narrow_sums_stay() -> None:
    graph = graph_of(folded(sum), blocks(8))
    after, remarks = run(graph)
    assert after is graph
    assert not remarks


def test_other_functions_are_not_asked_about() -> None:
    for func in (np.stack, np.mean, np.concatenate, unknown, np.subtract.reduce, len, np.nansum):
        graph = graph_of(folded(func), blocks(20))
        after, remarks = run(graph)
        assert after is graph
        assert not remarks


def test_a_function_that_writes_into_its_first_argument_is_not_asked_about() -> None:
    graph = graph_of(folded(functools.reduce, operator.iadd), blocks(20))
    after, remarks = run(graph)
    assert after is graph
    assert not remarks


UNKNOWN = "the terms are not known to be NumPy arrays"
DIFFERENT = "the terms differ in dtype or shape"
NUMBERS = "the terms are not numbers"


def test_unknown_blocks() -> None:
    known = blocks(20)
    known[7] = Task(None, unknown, TaskRef(("x", 6)))
    declined(graph_of(folded(sum), known), UNKNOWN)
    declined(graph_of(folded(np.add.reduce), known), UNKNOWN)


def test_a_value_of_its_own_to_start_from() -> None:
    reason = "it starts from a value of its own"
    graph = graph_of(lambda terms: Task(KEY, sum, terms, 5), blocks(20))
    declined(graph, reason)
    declined(graph_of(lambda terms: Task(KEY, functools.reduce, operator.add, terms, 5), blocks(20)), reason)
    declined(graph_of(lambda terms: Task(KEY, sum, terms, TaskRef(("x", 0))), blocks(20)), reason)


def test_options_that_are_not_understood() -> None:
    declined(graph_of(folded(sum, start=5), blocks(20)), "it is called with start=")
    declined(graph_of(folded(max, key=abs), blocks(20, shape=())), "it is called with key=")
    declined(graph_of(folded(np.sum, axis=0, keepdims=True), blocks(20)), "it is called with keepdims=")
    declined(graph_of(folded(np.add.reduce, initial=3), blocks(20)), "it is called with initial=")
    out = np.empty((2, 3), int)
    declined(graph_of(folded(np.max, axis=0, out=out), blocks(20)), "it is called with out=")
    axis = "it folds along another axis than that of the list"
    for wrong in (1, -1, (0,), False):
        declined(graph_of(folded(np.sum, axis=wrong), blocks(20)), axis)
    declined(graph_of(folded(np.sum, axis=TaskRef(("x", 0))), blocks(20)), "its axis is computed")
    second = graph_of(lambda terms: Task(KEY, np.max, terms, 0, out), blocks(20))
    declined(second, "it starts from a value of its own")


def test_python_compares_only_single_numbers() -> None:
    for func in (max, any):
        declined(graph_of(folded(func), blocks(20)), "whole arrays have neither truth nor order")
        with pytest.raises(ValueError, match="ambiguous"):
            get_sync(graph_of(folded(func), blocks(20)).nodes, KEY)


def test_annotations_are_those_of_the_sum() -> None:
    graph = graph_of(folded(sum), blocks(20), annotations={KEY: {"priority": 7}, ("x", 3): {"priority": 1}})
    after = rewritten(graph)
    assert [after.annotations.get(task.key) for task in added(after)] == [{"priority": 7}] * 3
    assert after.annotations[KEY] == {"priority": 7}
    assert after.annotations["x", 3] == {"priority": 1}
    assert graph.annotations.keys() == {KEY, ("x", 3)}


def test_products_with_other_annotations_stay_tasks() -> None:
    a, _ = system()
    x = da.linalg.cholesky(a, lower=True)
    with dask.annotate(priority=3):
        y = da.linalg.cholesky(a, lower=True) + 1
    assert_same_as_stock(x, y)


# -- declines: delayed ---------------------------------------------------------------------

ASK = "delayed values are of unknown type; see rewrite.options.tree-sum.delayed"


def remarks_of(x: Any, **options: Any) -> set[str]:
    from dask_rewrite.pipeline.run import rewrite_tasks
    from dask_rewrite.pipeline.trace import Trace

    trace = Trace()
    with dask.config.set({"rewrite.options": {"tree-sum": options}} if options else {}):
        rewrite_tasks(x.dask, list(x.__dask_keys__()), trace=trace, fuse_text_keys=False)
    return {r.reason for r in trace.remarks if r.rule == "tree-sum"}


def widest(x: Any, **options: Any) -> int:
    with dask.config.set({"rewrite.options": {"tree-sum": options}} if options else {}):
        return max(map(fan_in, tasks_of(x).values()))


@pytest.mark.parametrize("func", [sum, np.sum, np.add.reduce, max, any, np.maximum.reduce])
def test_delayed_folds_need_the_users_word(func: Any) -> None:
    x = delayed(func)([delayed(unknown)(i % 7) for i in range(40)])
    assert widest(x) == 40
    assert remarks_of(x) == {ASK}
    assert widest(x, delayed=True) <= 8
    with dask.config.set({"rewrite.options": {"tree-sum": {"delayed": True}}}):
        assert_same_as_stock(x)


def test_delayed_folds_of_known_arrays_need_no_word() -> None:
    x = delayed(sum)([delayed(np.full)((2, 3), i) for i in range(40)])
    assert widest(x) <= 8
    assert_same_as_stock(x)


def test_delayed_reduce() -> None:
    x = delayed(functools.reduce)(operator.add, [delayed(unknown)(i) for i in range(40)])
    assert remarks_of(x) == {ASK}
    assert widest(x, delayed=True) <= 8


def test_the_users_word_is_about_regrouping() -> None:
    x = delayed(sum)([delayed(unknown)(0.1 * i) for i in range(40)])
    with dask.config.set({"rewrite.reassociate": False}):
        assert widest(x, delayed=True) == 40
        assert remarks_of(x, delayed=True) == {"rewrite.reassociate is off"}
    assert widest(x, delayed=True) <= 8


def test_the_users_word_does_not_make_different_dtypes_equal() -> None:
    parts = [delayed(np.full)(2, 100, dtype="i8" if i == 0 else "i1") for i in range(16)]
    x = delayed(np.add)(0, delayed(sum)([*parts, delayed(unknown)(1)]))
    assert DIFFERENT in remarks_of(x, delayed=True)


def test_tasks_that_users_watch_keep_their_names() -> None:
    parts = [delayed(unknown)(i, dask_key_name=f"part-{i}") for i in range(20)]
    x = delayed(sum)(parts, dask_key_name="whole")
    with dask.config.set({"rewrite.options": {"tree-sum": {"delayed": True}}}):
        tasks = tasks_of(x)
    assert {f"part-{i}" for i in range(20)} | {"whole"} <= tasks.keys()


# -- guards --------------------------------------------------------------------------------


def test_a_sum_with_several_users_and_one_that_is_wanted() -> None:
    graph = graph_of(folded(sum), blocks(20))
    nodes = {**graph.nodes, "y": Task("y", operator.neg, TaskRef(KEY)), "z": Task("z", abs, TaskRef(KEY))}
    graph = Graph(nodes, ("y", "z", KEY, ("x", 5)))
    after = rewritten(graph)
    for key in graph.outputs:
        assert_same(get_sync(after.nodes, key), get_sync(graph.nodes, key))


def test_terms_that_recur() -> None:
    graph = graph_of(folded(sum), blocks(12))
    refs = [TaskRef(("x", i % 12)) for i in range(40)]
    graph.nodes[KEY] = Task(KEY, sum, List(*refs))
    rewritten(graph)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["?", "i8", "f8", "c16"])
@pytest.mark.parametrize("name", ["sum", "np.sum", "add.reduce", "np.max", "reduce(add)", "np.any"])
def test_odd_shapes(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    graph = graph_of(FOLDS[name], blocks(20, dtype, shape))
    after, _ = run(graph)
    try:
        expected = get_sync(graph.nodes, KEY)
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error).split("(")[0][:20]):
            get_sync(after.nodes, KEY)
    else:
        assert_same(get_sync(after.nodes, KEY), expected)


def test_nan_and_infinities() -> None:
    terms = [np.array([1.0, np.nan, np.inf, np.inf, 0.0]) + i for i in range(20)]
    terms[13][:] = [np.nan, 1, -np.inf, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in (folded(sum), folded(np.max, axis=0), folded(functools.reduce, np.fmax)):
            graph = graph_of(call, terms)
            after, remarks = run(graph)
            assert remarks.counts["tree-sum", "applied"]
            np.testing.assert_array_equal(get_sync(after.nodes, KEY), get_sync(graph.nodes, KEY))


def test_python_extremes_of_floats_stay_in_order() -> None:
    """With a nan the result depends on the order of comparisons."""
    for values in ([np.nan, *range(19)], [*range(19), np.nan], [1, 2, np.nan, *range(17)]):
        for func in (max, min):
            rewritten(graph_of(folded(func), [number(v, "f8") for v in values]))


NEVER = {
    "objects": ([np.array([i, None], dtype=object) for i in range(20)], NUMBERS),
    "text": ([np.array([f"{i:02}"]) for i in range(20)], NUMBERS),
    "dates": ([np.array([i], "M8[D]") for i in range(20)], NUMBERS),
    "spans of time": ([np.array([i], "m8[s]") for i in range(20)], NUMBERS),
    "structures": ([np.zeros(2, [("a", "i4")]) for _ in range(20)], NUMBERS),
    "masked": ([np.ma.array([i, 1], mask=[0, 1]) for i in range(20)], UNKNOWN),
    "sparse": ([sparse.COO.from_numpy(np.eye(3) * i) for i in range(20)], UNKNOWN),
    "a subclass": ([np.zeros(2).view(np.recarray) for _ in range(20)], UNKNOWN),
    "Python numbers": (list(range(20)), UNKNOWN),
    "shapes": ([np.zeros(1 + i % 2) for i in range(20)], DIFFERENT),
    "dtypes": ([np.zeros(2, "if"[i % 2]) for i in range(20)], DIFFERENT),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_is_never_regrouped(case: str) -> None:
    terms, reason = NEVER[case]
    declined(graph_of(folded(np.add.reduce), terms), reason)
    if reason != DIFFERENT:
        declined(graph_of(folded(sum), terms), reason)


class Strange:
    """Looks like an array, and adds up in a way of its own."""

    dtype, shape, ndim = np.dtype("f8"), (2,), 1

    def __init__(self, value: str) -> None:
        self.value = value

    def __add__(self, other: Any) -> Strange:
        return Strange(f"({self.value}+{other.value})")

    def __radd__(self, other: Any) -> Strange:
        return Strange(f"({other}+{self.value})")


def test_arrays_of_another_library() -> None:
    terms = [Strange(str(i)) for i in range(20)]
    declined(graph_of(folded(sum), terms), UNKNOWN)
    graph = graph_of(folded(functools.reduce, operator.add), terms)
    after, _ = run(graph)
    assert get_sync(after.nodes, KEY).value == get_sync(graph.nodes, KEY).value


def test_a_template_that_would_compute_an_input_twice_stays() -> None:
    template = Task(
        None,
        operator.add,
        Task(None, sum, TaskRef("x0")),
        Task(None, operator.add, TaskRef("x1"), TaskRef("x1")),
    )
    terms = {("x", i): DataNode(("x", i), block) for i, block in enumerate(blocks(20))}
    inner = Task(None, unknown, TaskRef(("x", 0)))
    call = Task(KEY, template.__call__, Task(None, dict, x0=List(*map(TaskRef, terms)), x1=inner))
    graph = Graph({**terms, KEY: call}, (KEY,))
    assert run(graph)[0] is graph


# -- ways in which trees of sums go wrong --------------------------------------------------


def test_add_reduce_widens() -> None:
    """Twenty int8 blocks of 100 are 2000, not -48."""
    terms = [np.full(3, 100, "i1") for _ in range(20)]
    for call in (folded(np.add.reduce), folded(np.sum, axis=0)):
        after = rewritten(graph_of(call, terms))
        assert_same(get_sync(after.nodes, KEY), np.full(3, 2000))


def test_small_integers_wrap_as_they_did() -> None:
    terms = [np.full(3, 100, "i1") for _ in range(20)]
    after = rewritten(graph_of(folded(sum), terms))
    assert_same(get_sync(after.nodes, KEY), np.full(3, -48, "i1"))


def test_sum_counts_booleans_and_plus_is_or() -> None:
    terms = [np.array([True, i % 2 == 0, False]) for i in range(20)]
    after = rewritten(graph_of(folded(sum), terms))
    assert_same(get_sync(after.nodes, KEY), np.array([20, 10, 0]))
    after = rewritten(graph_of(folded(functools.reduce, operator.add), terms))
    assert_same(get_sync(after.nodes, KEY), np.array([True, True, False]))


def test_signed_zeros() -> None:
    """``sum`` begins with 0 and never gives -0.0; a chain of ``+`` does."""
    terms = [np.array([-0.0]) for _ in range(20)]
    after = rewritten(graph_of(folded(sum), terms))
    assert not np.signbit(get_sync(after.nodes, KEY))[0]
    for call in (folded(functools.reduce, operator.add), folded(functools.reduce, np.add)):
        after = rewritten(graph_of(call, terms))
        assert np.signbit(get_sync(after.nodes, KEY))[0]


def test_overflow_that_only_a_regrouping_sees() -> None:
    terms = [np.array([1e308 if i < 8 else -1e308]) for i in range(16)]
    graph = graph_of(folded(sum), terms)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isinf(get_sync(graph.nodes, KEY))[0]
        after, _ = run(graph)
        assert np.isnan(get_sync(after.nodes, KEY))[0]
        rewritten(graph, reassociate=False)


def test_python_numbers_among_the_terms() -> None:
    """Eight int8 arrays and eight Python 100s: added in order they wrap, among themselves they overflow."""
    parts = [delayed(np.full)(2, 1, dtype="i1") for _ in range(10)]
    mixed = delayed(sum)([*parts, *[delayed(100) for _ in range(8)]])
    plain = delayed(sum)([*parts, *[100] * 8])
    for x in (mixed, plain):
        for options in ({}, {"delayed": True}):
            assert remarks_of(x, **options) == {"a term is a plain value"}
        assert_same_as_stock(x)


def test_numpys_own_integers_warn_when_they_overflow() -> None:
    terms = [number(100, "i1") for _ in range(20)]
    graph = graph_of(folded(sum), terms)
    after, _ = run(graph)
    for each in (graph, after):
        with pytest.warns(RuntimeWarning, match="overflow"):
            assert get_sync(each.nodes, KEY) == -48


def test_what_raised_raises_the_same() -> None:
    """Bitwise operations on floats, and a sum of what cannot be added."""
    for call in (folded(functools.reduce, operator.and_), folded(np.bitwise_or.reduce)):
        graph = graph_of(call, blocks(20, "f8"))
        after, _ = run(graph)
        for each in (graph, after):
            with pytest.raises(TypeError):
                get_sync(each.nodes, KEY)


def test_names_do_not_stand_for_two_trees() -> None:
    """Other terms, another width, in a row or not: other names, under the same key."""
    seen: dict[Any, str] = {}
    terms = blocks(40, "f8")
    for graph, options in [
        (graph_of(folded(sum), terms), {}),
        (graph_of(folded(sum), terms[:39]), {}),
        (graph_of(folded(sum), terms), {"fan_in": 5}),
        (graph_of(folded(sum), terms), {"reassociate": False}),
        (Graph({**graph_of(folded(sum), terms).nodes, "z": Task("z", abs, TaskRef(KEY))}, ("z", KEY)), {}),
    ]:
        for task in added(run(graph, **options)[0]):
            described = repr(sorted(map(str, task.dependencies)))
            assert seen.setdefault(task.key, described) == described


@many_blocks
def test_names_tell_what_made_them_and_are_all_different() -> None:
    from dask.utils import key_split

    a, b = system()
    tasks = tasks_of(da.linalg.solve(a, rechunked(b)))
    new = [key for key in tasks if str(key[0]).startswith("tree-sum")]
    assert len(new) > 30
    assert {key_split(key) for key in new} == {"tree-sum"}
    assert len({key[0] for key in new}) <= 4  # one group of tasks for each layer


# -- equivalent ----------------------------------------------------------------------------


@given(st.data())
def test_any_fold_of_anything(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FOLDS)))
    dtype = data.draw(st.sampled_from(["?", "i1", "u2", "i8", "f4", "f8", "c16"]))
    shape = data.draw(st.sampled_from([(), (1,), (3,), (2, 2), (0, 2)]))
    n = data.draw(st.integers(2, 80))
    fan_in_ = data.draw(st.integers(2, 10))
    reassociate = data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    exact = data.draw(st.booleans())  # floats without any rounding
    scale = 1 if exact else 0.37
    terms = [(rng.integers(-3, 4, shape) * scale).astype(dtype) for _ in range(n)]
    if "prod" in name or "mul" in name:
        terms = [np.clip(term.real, 0, 2).astype(dtype) for term in terms]
    graph = graph_of(FOLDS[name], terms)
    after, _ = run(graph, fan_in=fan_in_, reassociate=reassociate)
    assert_sound(after.nodes, after.outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = get_sync(graph.nodes, KEY)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                get_sync(after.nodes, KEY)
            return
        actual = get_sync(after.nodes, KEY)
    if not reassociate or dtype[0] in "?iu":
        assert_same(actual, expected)
    else:
        assert type(actual) is type(expected)
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


# -- idempotent ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"fan_in": 2}, {"reassociate": False}])
@pytest.mark.parametrize("name", ["sum", "np.sum", "reduce(add)"])
def test_a_second_run_finds_nothing(name: str, options: Any) -> None:
    graph = graph_of(FOLDS[name], blocks(100, "f8"))
    after, _ = run(graph, **options)
    again, remarks = run(after, **options)
    assert again is after
    assert not remarks.counts["tree-sum", "applied"]


@many_blocks
def test_linear_algebra_twice() -> None:
    a, b = system(12)
    x = da.linalg.solve(a, rechunked(b))
    once = checked(x)
    after, _ = run(Graph(dict(once), tuple(keys_of(x))))
    assert after.nodes.keys() == once.keys()


def test_bisection_stops_between_single_rewrites() -> None:
    a, _ = system()
    x = da.linalg.cholesky(a, lower=True)
    for limit in (1, 50):
        with dask.config.set({"rewrite.bisect-limit": limit}):
            assert_same_as_stock(x)


# -- pays ----------------------------------------------------------------------------------


def held(tasks: Any, keys: Sequence[Any]) -> int:
    """The most results held at a time when tasks run one by one in dask's order.

    Keys become numbers first: the order among equals hangs on how keys are hashed, which differs from
    process to process.
    """
    from dask.order import order

    number = {key: i for i, key in enumerate(sorted(tasks, key=str))}
    tasks = {
        number[key]: DataNode(number[key], 0)
        if isinstance(task, DataNode)
        else Task(number[key], max, *[TaskRef(i) for i in sorted(map(number.__getitem__, task.dependencies))])
        for key, task in tasks.items()
    }
    keys = [number[key] for key in keys]
    waiting: dict[Any, int] = {}
    for task in tasks.values():
        for dep in task.dependencies:
            waiting[dep] = waiting.get(dep, 0) + 1
    here: set[Any] = set()
    most = 0
    ranks = order(dict(tasks))
    for key in sorted(tasks, key=ranks.__getitem__):
        here.add(key)
        most = max(most, len(here))
        for dep in tasks[key].dependencies:
            waiting[dep] -= 1
            if not waiting[dep] and dep not in keys:
                here.discard(dep)
    return most


def test_few_members_are_held() -> None:
    x = delayed(sum)([delayed(np.full)((2, 3), i) for i in range(96)])
    assert held(stock_tasks_of(x), keys_of(x)) >= 96
    assert held(tasks_of(x), keys_of(x)) <= 24


@many_blocks
@pytest.mark.parametrize("name", ["lu", "cholesky", "solve", "inv"])
def test_linear_algebra_holds_no_more(name: str) -> None:
    a, b = system()
    x = LINALG[name](a, rechunked(b))
    with dask.config.set({"rewrite.disable": ["share"]}):  # equal blocks may be held longer, once
        assert held(tasks_of(x), keys_of(x)) <= held(stock_tasks_of(x), keys_of(x))


def longest(tasks: Any) -> int:
    """Products on the longest path."""
    below: dict[Any, int] = {}
    depths = depths_of(tasks)
    for key in sorted(tasks, key=depths.__getitem__):
        products = sum(function is np.dot for function in functions_in(tasks[key]))
        below[key] = products + max((below[dep] for dep in tasks[key].dependencies), default=0)
    return max(below.values())


@pytest.mark.parametrize("name", ["lu", "cholesky", "lower triangle", "upper triangle"])
def test_the_longest_path_stays_as_long(name: str) -> None:
    """Products in a row could make many threads wait."""
    a, b = system(16)
    x = LINALG[name](a, rechunked(b))
    without = {"rewrite.disable": ["tree-sum", "fuse-small", "contract"]}
    alone = {"rewrite.disable": ["fuse-small", "contract"]}
    with dask.config.set(without):
        before = longest(tasks_of(x))
    with dask.config.set(alone):
        assert longest(tasks_of(x)) <= before + 4


def test_a_graph_without_wide_tasks_costs_next_to_nothing() -> None:
    nodes = {("x", i): Task(("x", i), operator.neg, TaskRef(("x", i - 1))) for i in range(1, 10_000)}
    nodes["x", 0] = DataNode(("x", 0), np.arange(3))
    graph = Graph(nodes, (("x", 9_999),))
    assert work_of(lambda: run(graph)) < 10_000 * 1.2 + 100
