"""Random raw graphs and random towers of blocks: right values, and nothing computed twice."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from operator import getitem
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.local import get_sync
from hypothesis import given
from hypothesis import strategies as st

from helpers import assert_same, assert_sound, examples, keys_of, rewrite_graph, stock, switched_on, tasks_of


class Recorder:
    """A function that returns what it was called with, and counts its calls by name."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def named(self, name: str) -> Any:
        def record(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return (name, *args, *sorted(kwargs.items()))

        record.__name__ = name
        return record


LITERALS = [1, 2.5, None, "text", (), ("a", "tuple"), slice(1, 3), [1, 2], {"a": 1}, True]


@st.composite
def graphs(draw: Any) -> tuple[dict[Any, Any], list[Any], Recorder]:
    """A graph of tuples, tasks, aliases, data and containers, with keys of all kinds."""
    recorder = Recorder()
    names = itertools.count()
    dsk: dict[Any, Any] = {}
    made: list[Any] = []

    def key() -> Any:
        i = len(made)
        return draw(st.sampled_from([f"key-{i}", ("name", i), ("name", i, 0), f"name-{i}", ("other", i)]))

    def reference(legacy: bool) -> Any:
        if made and draw(st.integers(0, 3)):
            chosen = made[-1 - draw(st.integers(0, min(len(made), 6) - 1))]
            return chosen if legacy else draw(st.sampled_from([TaskRef(chosen), Alias(chosen)]))
        literal = draw(st.sampled_from(LITERALS))
        return literal if not legacy or not isinstance(literal, tuple) else 7

    def value(depth: int, legacy: bool, me: Any = None) -> Any:
        kind = draw(st.sampled_from(["call", "call", "call", "list", "dict", "leaf"]))
        if depth == 0 or kind == "leaf":
            return reference(legacy)
        parts = [value(depth - 1, legacy) for _ in range(draw(st.integers(0, 3)))]
        if kind == "list":
            return parts if legacy else List(*parts)
        if kind == "dict" and not legacy:
            return Dict({f"k{i}": part for i, part in enumerate(parts)})
        function = recorder.named(f"f{next(names)}")
        if legacy:
            return (function, *parts)
        keywords = {"kw": value(depth - 1, legacy)} if draw(st.booleans()) else {}
        return Task(me, function, *parts, **keywords)

    for _ in range(draw(st.integers(1, 14))):
        new = key()
        kind = draw(st.sampled_from(["tuple", "task", "alias", "data", "tuple alias", "chain"]))
        if kind == "tuple":
            dsk[new] = (recorder.named(f"f{next(names)}"), value(draw(st.integers(0, 4)), True))
        elif kind == "task":
            inner = value(draw(st.integers(0, 4)), False)
            dsk[new] = Task(new, recorder.named(f"f{next(names)}"), inner)
        elif kind == "alias" and made:
            dsk[new] = Alias(new, made[-1])
        elif kind == "tuple alias" and made:
            dsk[new] = made[-1]
        elif kind == "chain" and made:
            dsk[new] = Task(new, recorder.named(f"f{next(names)}"), TaskRef(made[-1]))
        else:
            dsk[new] = DataNode(new, draw(st.sampled_from(LITERALS)))
        made.append(new)
    outputs = [made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))]
    return dsk, list(dict.fromkeys(outputs)), recorder


@given(graphs())
def test_a_random_graph_gives_the_same_values(drawn: Any) -> None:
    dsk, outputs, recorder = drawn
    expected = get_sync(dict(dsk), outputs)
    recorder.calls.clear()
    tasks = rewrite_graph(dict(dsk), outputs)
    assert not recorder.calls, "rewriting runs nothing of the user's"
    actual = get_sync(tasks, outputs)
    assert_same(actual, expected)
    assert all(count == 1 for count in recorder.calls.values()), recorder.calls


@given(graphs(), graphs())
@examples(60)
def test_a_random_graph_in_layers(one: Any, other: Any) -> None:
    dsk, outputs, recorder = one
    above: dict[Any, Any] = {("above", i): (list, [key]) for i, key in enumerate(outputs)}
    expected = get_sync({**dsk, **above}, list(above))
    graph = HighLevelGraph(
        {
            "below": MaterializedLayer(dict(dsk)),
            "above": MaterializedLayer(above),
            "unused": MaterializedLayer({("unused", k): v for k, v in other[0].items()}),
        },
        {"below": set(), "above": {"below"}, "unused": {"below"}},
    )
    recorder.calls.clear()
    assert_same(get_sync(rewrite_graph(graph, list(above)), list(above)), expected)
    assert all(count == 1 for count in recorder.calls.values())


@given(st.integers(1, 120), st.booleans(), st.booleans(), st.integers(0, 3))
@examples(60)
def test_a_deeply_nested_value(depth: int, legacy: bool, twice: bool, shared: int) -> None:
    recorder = Recorder()
    nested: Any = "seed" if legacy else TaskRef("seed")
    for i in range(depth):
        function = recorder.named(f"f{i}")
        others = ["other"] * (shared if i % 5 == 0 else 0)
        if legacy:
            nested = (function, nested, *others)
        else:
            nested = Task(None, function, nested, *map(TaskRef, others))
    top = (list, [nested]) if legacy else Task("top", list, List(nested))
    dsk: dict[Any, Any] = {"seed": 5, "other": (sum, [1, 2]), "top": top}
    if twice:
        dsk["again"] = (len, "top")
    outputs = ["top", "again"] if twice else ["top"]
    expected = get_sync(dict(dsk), outputs)
    recorder.calls.clear()
    assert_same(get_sync(rewrite_graph(dsk, outputs), outputs), expected)
    assert set(recorder.calls.values()) == {1}


class Counting:
    """A block function that counts how often it sees each block."""

    def __init__(self) -> None:
        self.seen: Counter[Any] = Counter()
        self.lock = threading.Lock()

    def __call__(self, block: np.ndarray, label: int, block_id: Any = None) -> np.ndarray:
        if block_id is not None:
            with self.lock:
                self.seen[label, block_id] += 1
        return np.sin(block) + label

    def __dask_tokenize__(self) -> object:
        return id(self)


@st.composite
def towers(draw: Any) -> tuple[list[da.Array], Counting]:
    """Blockwise towers over counted blocks: broadcast, transposed, shared, contracted, sliced."""
    counting = Counting()
    labels = itertools.count()

    def counted(x: da.Array) -> da.Array:
        return x.map_blocks(counting, label=next(labels), dtype="f8", meta=np.empty((0,) * x.ndim))

    side, chunk = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    values = np.arange(float(side * side)).reshape(side, side)
    arrays = [counted(da.from_array(values, chunks=chunk, name=f"tower-{side}-{chunk}"))]
    for _ in range(draw(st.integers(1, 10))):
        x, y = (arrays[-1 - draw(st.integers(0, min(3, len(arrays)) - 1))] for _ in range(2))
        step = draw(
            st.sampled_from(
                [
                    "add",
                    "add",
                    "count",
                    "count",
                    "transpose",
                    "row",
                    "diamond",
                    "dot",
                    "flip",
                    "mean",
                    "scalar",
                ]
            )
        )
        if step == "add":
            new = x + y * 0.5
        elif step == "count":
            new = counted(x)
        elif step == "transpose":
            new = x + counted(y).T
        elif step == "row":
            new = x + counted(y[:1])
        elif step == "diamond":
            new = (x + 1) * (x - 1) * 0.1
        elif step == "dot":
            new = np.tanh(x @ y)
        elif step == "flip":
            new = x[::-1] + y
        elif step == "mean":
            new = x - counted(x).mean(axis=0)
        else:
            new = x * counted(y[:1, :1])
        arrays.append(new)
    outputs = [arrays[-1], *draw(st.lists(st.sampled_from(arrays), max_size=1))]
    if draw(st.booleans()):
        outputs[0] = outputs[0][: max(1, side // 2)]
    return outputs, counting


@given(towers())
def test_no_block_is_computed_twice(tower: tuple[list[da.Array], Counting]) -> None:
    outputs, counting = tower
    with stock():
        expected = dask.compute(*outputs, scheduler="sync")
    counting.seen.clear()
    with switched_on():
        actual = dask.compute(*outputs, scheduler="threads")
    assert_same(actual, expected)
    assert set(counting.seen.values()) <= {1}, counting.seen
    assert_sound(tasks_of(*outputs), keys_of(*outputs))


def test_getitem_of_a_tuple_of_results() -> None:
    dsk = {
        "pair": Task("pair", divmod, 17, 5),
        "a": Task("a", getitem, TaskRef("pair"), 0),
        "b": Task("b", getitem, TaskRef("pair"), 1),
        "c": Task("c", lambda a, b: a * 10 + b, TaskRef("a"), TaskRef("b")),
    }
    assert get_sync(rewrite_graph(dsk, ["c"]), "c") == 32
