"""A ``StopIteration`` of the user's comes through, which ends the evaluation of arguments in dask."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest

from dask_rewrite import RewriteWarning
from dask_rewrite.graph.batches import tasks_of
from helpers import rewrite_graph, switched_on
from random_unknown import EAGER

#: Everything is rewritten that can be; constants stay where they are.
REWRITTEN: dict[str, Any] = {
    **EAGER,
    "rewrite.reassociate": True,
    "rewrite.options": {**EAGER["rewrite.options"], "hoist": {}},
}


def load(block_id: Any = None) -> Any:
    if sum(block_id) == 5:
        return next(iter(()))
    return np.arange(4.0 ** len(block_id)).reshape((4,) * len(block_id)) + block_id[0]


def sound(block_id: Any = None) -> Any:
    return np.arange(4.0 ** len(block_id)).reshape((4,) * len(block_id)) + block_id[0]


def twice(block: Any) -> Any:
    return block * 2


def fragile(block: Any) -> Any:
    return next(iter(())) if block.flat[0] > 4 else block


def first(block: Any, other: Any = None) -> Any:
    return block if other is None else block + other


def blocks(*numbers: int, function: Callable[..., Any] = load) -> da.Array:
    chunks = [(4,) * n for n in numbers]
    return da.map_blocks(function, chunks=chunks, dtype=float, meta=np.empty((0,) * len(numbers)))


def reduced(block: Any, axis: Any, keepdims: bool) -> Any:
    return block.sum(axis=axis, keepdims=keepdims)


@dask.delayed(pure=True)
def part(i: int) -> Any:
    return next(iter(())) if i == 3 else [i, i + 1]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "sum": lambda: blocks(8).sum(),
    "elementwise": lambda: blocks(8) + 1,
    "default argument": lambda: da.map_blocks(first, blocks(8, function=sound), blocks(8), dtype=float),
    "chain": lambda: (blocks(8) + 1)[2:29] * 2,
    "functions in a row": lambda: blocks(8, function=sound).map_blocks(fragile).map_blocks(twice)[1:] - 1,
    "slices": lambda: da.stack([blocks(8)[:3] * 2, blocks(8)[20:23]]),
    "rechunk": lambda: (blocks(8) + 1).rechunk(6).max(),
    "overlap": lambda: blocks(8).map_overlap(twice, 1, boundary=0, dtype=float, meta=np.empty(0)),
    "demand": lambda: (blocks(6, 6).map_blocks(twice) + da.ones((24, 24), chunks=4))[:, 2:7],
    "two sums": lambda: (blocks(40, 3).map_blocks(twice).sum(0), blocks(40, 3).map_blocks(twice).max(0)),
    "mean and std": lambda: (blocks(40, 3).mean(0), blocks(40, 3).std(0)),
    "product": lambda: blocks(4, 40) @ blocks(40, 4),
    "long product": lambda: blocks(1, 40) @ blocks(40, 1),
    "product of results": lambda: blocks(4, 40).map_blocks(twice) @ blocks(40, 4).map_blocks(twice),
    "einsum": lambda: da.einsum("ij,jk->ik", blocks(4, 40), blocks(40, 4)),
    "reduction": lambda: da.reduction(blocks(40, 2), reduced, reduced, axis=0, dtype=float, concatenate=True),
    "bag": lambda: db.from_delayed([part(i) for i in range(6)]).map(lambda value: value + 1).sum(),
    "delayed": lambda: dask.delayed(first)(dask.delayed(first)(part(3))),
    "list": lambda: dask.delayed(len)([part(i) for i in range(6)]),
}


@pytest.mark.parametrize("config", [{}, REWRITTEN], ids=["by default", "all rewritten"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_comes_through(name: str, config: dict[str, Any]) -> None:
    found = PROGRAMS[name]()
    with switched_on(**config), pytest.raises(StopIteration):
        dask.compute(found, scheduler="sync")


@pytest.mark.parametrize("made", [lambda x: x.sum(), lambda x: x.map_blocks(twice).rechunk(16).max()])
def test_out_of_a_batch(made: Callable[[da.Array], da.Array]) -> None:
    found = made(blocks(12_000))
    sent = rewrite_graph(found.dask, found.__dask_keys__(), check=False)
    assert any(map(tasks_of, sent.values()))
    with switched_on(), pytest.raises(StopIteration):
        found.compute(scheduler="sync")


def test_when_blocks_wait_for_others() -> None:
    x = blocks(6, 40)
    config = {**REWRITTEN, "rewrite.memory-limit": "6 kB", "rewrite.on-memory": "warn"}
    with switched_on(**config), pytest.raises(StopIteration):
        (x - x.mean(axis=0)).std(axis=0).compute(scheduler="sync")


#: Loads become part of the tasks that use them: always, or where the limit is not kept otherwise.
MADE_WHERE_USED: dict[str, dict[str, Any]] = {
    "always": {
        "rewrite.reread": True,
        "rewrite.options": {"reread": {"loads": 16, "min-bytes": 1, "min-blocks": 1}},
    },
    "under a limit": {"rewrite.memory-limit": "300 kB", "rewrite.on-memory": "warn"},
}


def large(block_id: Any = None) -> Any:
    return next(iter(())) if block_id == (1, 1) else np.full((64, 512), float(block_id[0]))


def of_large(block_id: Any = None) -> Any:
    return np.full((64, 512), float(block_id[0]))


LOADED: dict[str, Callable[[da.Array], Any]] = {
    "median": lambda x: da.median(x, axis=0),
    "all": lambda x: x + 1,
    "sum": lambda x: x.sum(axis=1),
    "stacked": lambda x: da.stack([x[i : i + 64] for i in range(0, 192, 64)]).sum(axis=0),
    "rechunked": lambda x: x.rechunk((-1, 512)).map_blocks(twice),
    "default argument": lambda x: da.map_blocks(first, x.blocks[0, 0], x.blocks[1, 1], dtype=float),
}


@pytest.mark.parametrize("config", MADE_WHERE_USED.values(), ids=MADE_WHERE_USED)
@pytest.mark.parametrize("name", LOADED)
def test_out_of_what_is_made_where_it_is_used(name: str, config: dict[str, Any]) -> None:
    def program(load: Callable[..., Any]) -> Any:
        x = da.map_blocks(load, chunks=((64,) * 3, (512,) * 3), dtype=float, meta=np.empty((0, 0)))
        return LOADED[name](x)

    with switched_on(**config), warnings.catch_warnings():
        warnings.simplefilter("ignore", RewriteWarning)
        with pytest.raises(StopIteration):
            dask.compute(program(large), scheduler="sync")
        sound = program(of_large).compute(scheduler="sync")
    np.testing.assert_array_equal(sound, program(of_large).compute(scheduler="sync"))
