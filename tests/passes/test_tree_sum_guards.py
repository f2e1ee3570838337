"""What trees of sums must not break."""

from __future__ import annotations

import functools
import operator
import warnings
from typing import Any

import dask.array as da
import numpy as np
import pytest
import sparse
from dask import delayed
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.local import get_sync

from dask_rewrite.graph.graph import Graph
from helpers import (
    assert_same,
    assert_same_as_stock,
    tasks_of,
)
from passes.tree_sum_cases import (
    DIFFERENT,
    FOLDS,
    KEY,
    UNKNOWN,
    added,
    blocks,
    declined,
    folded,
    graph_of,
    many_blocks,
    number,
    rechunked,
    remarks_of,
    rewritten,
    run,
    system,
    unknown,
)

NUMBERS = "the terms are not numbers"


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
