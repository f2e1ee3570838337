"""Moves of one pattern are composed once, and come out as if each had been composed for itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import List, Task, TaskRef
from dask.array.lib.stride_tricks import sliding_window_view
from dask.highlevelgraph import HighLevelGraph

from dask_rewrite.passes.movement.likeness import Likeness
from dask_rewrite.passes.movement.read import Reader
from dask_rewrite.passes.movement.written_alike import WrittenAlike
from helpers import assert_same_as_stock, distinct, switched_on, tasks_of


def rolling(columns: int) -> Any:
    return sliding_window_view(distinct((60, 4 * columns), (5, 4)), 7, axis=0).mean(axis=-1)


def there_and_back() -> Any:
    x = distinct((24, 30), (5, 4))
    return (x + 1).rechunk((24, 3)).rechunk((7, 11)).T[::-1, 2:] * 2


def many_times() -> Any:
    x = distinct((24, 30), (5, 4)) + 1
    for _ in range(6):
        x = x.rechunk((24, 3)).rechunk((5, 4))
    return x * 2


def overlapping_parts() -> Any:
    x = distinct((40, 12), (4, 3)) + 1
    return da.concatenate([x[1:9], x[0:8], x[:, ::-1][3:20], x[0:8]], axis=0).rechunk((6, 4)) - 1


def padded() -> Any:
    x = distinct((9, 8), (3, 2)) + 1
    for _ in range(4):
        x = da.pad(x, 1)[1:, :-1]
    return x + 1


def mixed_types() -> Any:
    parts = [distinct((6, 6), 2, kind) for kind in ("f8", "f4", "i8", "f8", "f4")]
    return [(part + part.dtype.type(1)).rechunk(3)[1:, 1:] * part.dtype.type(2) for part in parts]


def used_apart() -> Any:
    """Of blocks that are cut alike some are also used as a whole, or are asked for."""
    x = (distinct((12, 12), (12, 2)) + 1).rechunk((2, 12))
    return [x[:, 3:], x.blocks[1] * 2, x.blocks[2], da.roll(x, 3, axis=0)]


def rolling_of_unknown() -> Any:
    """Blocks of which only sizes are declared, split and joined with parts of their neighbours."""
    x = da.map_blocks(lambda block: block, distinct((40, 12, 8), (10, 6, 4)))
    return sliding_window_view(x, 7, axis=0).mean(axis=-1)


PROGRAMS = [
    rolling,
    rolling_of_unknown,
    there_and_back,
    many_times,
    overlapping_parts,
    padded,
    mixed_types,
    used_apart,
]


def made(program: Any) -> Any:
    return program(3) if program is rolling else program()


@pytest.mark.parametrize("program", PROGRAMS)
def test_written_as_one_by_one(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(program)
    outputs = found if isinstance(found, list) else [found]
    alike = [tasks_of(output) for output in outputs]
    monkeypatch.setattr(WrittenAlike, "task", lambda *_: None)
    for output, tasks in zip(outputs, alike, strict=True):
        assert list(map(repr, tasks_of(output).values())) == list(map(repr, tasks.values()))


def test_most_joins_are_written_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered: list[Any] = []
    monkeypatch.setattr(WrittenAlike, "remember", lambda self, name, *_: remembered.append(name))
    tasks_of(rolling_of_unknown())
    assert len(set(remembered)) < len(remembered) / 2


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("workers", [1, 4])
def test_the_same_graph_as_one_by_one(program: Any, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(program)
    outputs = found if isinstance(found, list) else [found]
    with dask.config.set(num_workers=workers):
        alike = [tasks_of(output) for output in outputs]
        monkeypatch.setattr(Likeness, "of", lambda self, task: (None, None))
        apart = [tasks_of(output) for output in outputs]
    assert [list(tasks) for tasks in alike] == [list(tasks) for tasks in apart]
    for one, other in zip(alike, apart, strict=True):
        assert all(repr(one[key]) == repr(other[key]) for key in one)
    monkeypatch.undo()
    for output in outputs:
        assert_same_as_stock(output)


def turned_round(a: Any, b: Any) -> list[Any]:
    return [b, a]


def part_of(x: da.Array, name: str, func: Callable[..., Any], make: Any, ndim: int) -> da.Array:
    """An array of one block, which a task makes of the blocks of another array."""
    key = (name, *[0] * ndim)
    refs = [TaskRef(ref) for ref in dask.core.flatten(x.__dask_keys__())]
    graph = HighLevelGraph.from_collections(name, {key: Task(key, func, *make(refs))}, dependencies=[x])
    return da.Array(graph, name, tuple([(n,) for n in x.shape[:ndim]]), dtype=x.dtype)


def assert_told_apart(one: da.Array, other: da.Array) -> None:
    for first, second in ((one, other), (other, one)):
        arrays = [first, first[:1], second[:1], second]
        expected = dask.compute(*arrays, scheduler="sync")
        with switched_on():
            found = dask.compute(*arrays, scheduler="sync")
        for right, value in zip(expected, found, strict=True):
            np.testing.assert_array_equal(value, right, strict=True)


def test_a_join_of_what_some_function_gives_is_not_taken_for_a_join_of_its_arguments() -> None:
    x = distinct((8,), 4) + 1
    straight = part_of(x, "a", np.concatenate, lambda refs: [List(*refs)], 1)
    turned = part_of(x, "b", np.concatenate, lambda refs: [Task(None, turned_round, *refs)], 1)
    assert_told_apart(straight, turned)


def test_ranges_in_an_index_are_not_taken_for_slices() -> None:
    x = distinct((3, 3), 3) + 1
    sliced = part_of(x, "a", operator.getitem, lambda refs: [*refs, (slice(0, 3, 1), slice(0, 3, 1))], 2)
    diagonal = part_of(x, "b", operator.getitem, lambda refs: [*refs, (range(0, 3, 1), range(0, 3, 1))], 1)
    assert_told_apart(sliced, diagonal)


def test_more_columns_are_no_more_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    read = Reader.read

    def counting(self: Reader, *args: Any) -> Any:
        nonlocal count
        count += 1
        return read(self, *args)

    monkeypatch.setattr(Reader, "read", counting)
    counts = []
    for columns in (4, 16):
        before = count
        with switched_on():
            tasks_of(rolling(columns))
        counts.append(count - before)
    assert 0 < counts[1] <= counts[0]


def test_moves_of_the_same_blocks_need_no_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, compared = 0, 0
    of, operation = Likeness.of, Likeness._operation

    def counting_of(self: Likeness, *args: Any) -> Any:
        nonlocal asked
        asked += 1
        return of(self, *args)

    def counting_operation(self: Likeness, *args: Any) -> Any:
        nonlocal compared
        compared += 1
        return operation(self, *args)

    monkeypatch.setattr(Likeness, "of", counting_of)
    monkeypatch.setattr(Likeness, "_operation", counting_operation)
    with switched_on():
        tasks_of(many_times())
    assert 0 < 3 * compared <= asked
