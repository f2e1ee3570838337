"""Columns of numbers on the wire: what they cost, random graphs, and where they arrive."""

from __future__ import annotations

import gc
import pickle
import random
from collections.abc import Callable
from operator import add, getitem, mul
from typing import Any

import pytest
from dask._task_spec import GraphNode, List, Set, Task, Tuple
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.hook.wire import Packed, _filled
from dask_rewrite.hook.wire_numbers import Call, integers
from helpers import examples
from hook.wire_cases import (
    FORMS,
    ROWS,
    assert_arrives,
    ref,
    table,
    user,
)


def test_regular_blocks_cost_almost_nothing() -> None:
    def bytes_of(n: int) -> int:
        cells = [(i, j) for i in range(n) for j in range(n)]
        tasks = {
            ("y", i, j): Task(("y", i, j), add, Task(None, mul, ref("x", i, j), ref("m", j)), ref("x", j, i))
            for i, j in cells
        }
        tasks |= {("x", i, j): Task(("x", i, j), user, (i, j)) for i, j in cells}
        return len(pickle.dumps(Packed(tasks)))

    assert bytes_of(60) < 8_000
    assert bytes_of(120) < 2.2 * bytes_of(60)


def test_programs_of_their_own_cost_little_more_than_shared_ones() -> None:
    names = ("program", "programs of their own")
    size = {name: len(pickle.dumps(Packed(table(*map(FORMS[name], range(5000)))))) for name in names}
    assert size["programs of their own"] < size["program"] + 5 * 5000


@pytest.mark.parametrize("container", [List, Tuple, Set])
@pytest.mark.parametrize("others", [0, 1, 100])
def test_what_one_task_gathers_goes_in_columns(container: Any, others: int) -> None:
    def gathered(count: int) -> dict[Any, Any]:
        rows = [
            List(*[Task(None, getitem, ref("x", i, j // 16), j % 16) for j in range(count)])
            for i in range(10)
        ]
        nodes = [Task(("y", i), user, ref("x", i, 0)) for i in range(others)]
        return table(Task("all", len, container(*rows)), *nodes)

    def bytes_of(count: int) -> int:
        return len(pickle.dumps(Packed(gathered(count))))

    assert_arrives(gathered(7))
    assert_arrives(gathered(8))
    assert_arrives(gathered(160))
    assert bytes_of(320) < 1.5 * bytes_of(160)
    assert bytes_of(320) < 3 * 3200


@pytest.mark.once
def test_irregular_blocks_take_few_bytes() -> None:
    count = 5000
    places = random.Random(1).sample(range(100_000), count)
    tasks = {("y", i // 300, i % 300): FORMS["nested"](i) for i in places}
    for key, task in tasks.items():
        task.key = key
    tasks |= {("x", i): Task(("x", i), user, i) for i in random.Random(2).sample(places, count)}
    assert len(pickle.dumps(Packed(tasks))) < 12 * len(tasks)
    assert_arrives(tasks)


PATTERNS = [
    [5] * 9,
    list(range(3, 90, 4)),
    list(range(9, -9, -1)),
    [i for i in range(6) for _ in range(4)],
    [i for _ in range(6) for i in range(4)],
    [i for i in range(5) for _ in range(3)] * 4,
    [i * 150 + j for j in range(10) for i in range(10)],
    [i * 150 + j for j in range(10) for i in range(10)][:-3],
    [0, 1, 0, 0, 1],
    [2**62, -(2**62), 5],
    [2**63, 2**80],
    [300, 301, 305, 299] * 3,
    [1, 2],
    [1],
]


@pytest.mark.parametrize("cells", PATTERNS)
def test_integers_of_a_pattern(cells: list[int]) -> None:
    assert_column(cells)


@given(
    st.lists(st.integers(-3, 3) | st.integers(), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_integers(base: list[int], each: int, times: int) -> None:
    assert_column([cell for cell in base for _ in range(each)] * times)


def assert_column(cells: list[int]) -> None:
    found = pickle.loads(pickle.dumps(integers(cells)))
    assert [cell for cell, _ in zip(found, cells)] == cells


LITERALS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 3),
    st.floats(),
    st.text(max_size=3),
    st.tuples(st.integers(0, 9), st.integers(0, 2)),
    st.builds(slice, st.integers(0, 9), st.none() | st.integers(0, 9)),
    st.lists(st.integers(0, 3), max_size=3),
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[Any, Any]:
    """Rows of few structures, in any order, with whatever literals."""
    rng = draw(st.randoms(use_true_random=False))
    names = ["a", "b", "c"]
    shared = [Task(None, mul, ref("a", i), 2) for i in range(3)]
    literals = draw(st.lists(LITERALS, min_size=1, max_size=4))

    def argument(depth: int) -> Callable[[int], Any]:
        kind = rng.randrange(7 if depth else 4)
        if kind == 0:
            name, step = rng.choice(names), rng.choice([1, 1, -1, 7])
            return lambda i: ref(name, i * step)
        if kind == 1:
            return lambda i: rng.choice(literals)
        if kind == 2:
            return lambda i: i
        if kind == 3:
            return lambda i: rng.choice(shared)
        inner = [argument(depth - 1) for _ in range(rng.randrange(3))]
        if kind == 4:
            return lambda i: List(0, *[make(i) for make in inner])
        if kind == 5:
            return lambda i: Task(None, dict, **{f"x{j}": make(i) for j, make in enumerate(inner)})
        return lambda i: Task(None, user, *[make(i) for make in inner])

    tasks: list[GraphNode] = []
    for name in names:
        arguments = [argument(2) for _ in range(rng.randrange(3))]
        options = {"axis": argument(1)} if rng.randrange(2) else {}
        producer = rng.randrange(4) == 0
        for i in range(rng.choice([1, 5, 20])):
            args = [make(i) for make in arguments]
            named = {key: make(i) for key, make in options.items()}
            tasks.append(Task((name, i), user, *args, _data_producer=producer, **named))
    if rng.randrange(2):
        rng.shuffle(tasks)
    return table(*tasks)


@examples(60)
@given(graphs())
def test_random_graphs(tasks: dict[Any, Any]) -> None:
    assert_arrives(tasks)


SCRIPT = """
import hashlib, pickle, sys
sys.path.insert(0, "tests")
from dask_rewrite.hook.wire import Packed, _filled
from hook.wire_cases import FORMS, ROWS
for name, make in FORMS.items():
    if name != "inner graphs":
        nodes = [make(i) for i in ROWS] + [make(i) for i in range(41, 43)]
        tasks = Packed({node.key: node for node in nodes})
        print(name, hashlib.sha1(pickle.dumps(tasks)).hexdigest())
"""


def test_the_same_bytes_whatever_the_hash_seed(python: Callable[..., str]) -> None:
    runs = [python(SCRIPT, PYTHONHASHSEED=seed).splitlines() for seed in ("1", "2")]
    assert runs[0] == runs[1]
    assert len(runs[0]) == len(FORMS) - 1


LOAD = """
import pickle, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "dask_rewrite":
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import dask
with open(sys.argv[1], "rb") as file:
    tasks = pickle.load(file)
assert not [name for name in sys.modules if name.startswith("dask_rewrite")]
print(type(tasks).__name__, sum(dask.get(tasks, [("y", i) for i in range(40)])))
"""


def test_loads_and_computes_without_this_package(tmp_path: Any, python: Callable[..., str]) -> None:
    tasks = {("x", i): Task(("x", i), add, i, 1) for i in ROWS}
    tasks |= table(*map(FORMS["called template"], ROWS))
    tasks |= {("m", i): Task(("m", i), sum, List(ref("x", i), i)) for i in range(4)}
    path = tmp_path / "tasks.pickle"
    path.write_bytes(pickle.dumps(Packed(tasks)))
    found = python(LOAD, str(path))
    wanted = sum((i + 1) * 2 + 2 * (i % 4) + 1 for i in ROWS)
    assert found.split() == ["dict", str(wanted)]


def test_futures_arrive(client: Any) -> None:
    futures = client.scatter(list(range(40)))
    tasks: dict[Any, Any] = {("y", i): Task(("y", i), add, future, 1) for i, future in enumerate(futures)}
    tasks |= {("z", i): Task(("z", i), sum, List(ref("y", i), future)) for i, future in enumerate(futures)}
    tasks |= {future.key: future for future in futures[:9]}
    found = assert_arrives(tasks)
    assert {type(found["y", i].args[0]) for i in ROWS} == {type(futures[0])}
    assert client.get(found, [("z", i) for i in ROWS]) == [2 * i + 1 for i in ROWS]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_garbage_is_left_as_it_was(enabled: bool) -> None:
    tasks = table(*map(FORMS["nested"], ROWS))
    data = pickle.dumps(Packed(tasks))
    (gc.enable if enabled else gc.disable)()
    try:
        assert list(pickle.loads(data)) == list(tasks)
        assert gc.isenabled() is enabled
        with pytest.raises(ZeroDivisionError):
            pickle.loads(pickle.dumps(_filled([], "extend", Call(map, (divmod, [1], [0])))))
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
