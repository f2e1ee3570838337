"""What stands in lists of delayed calls is optimized when they are written; others hold the same blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from helpers import assert_same, stock, switched_on

Calls = Counter[str]


def largest_of_list(values: list[Any]) -> Any:
    return dask.delayed(max)(values)


def largest_of_arguments(values: list[Any]) -> Any:
    return dask.delayed(lambda *them: max(them))(*values)


def largest_of_dict(values: list[Any]) -> Any:
    return dask.delayed(lambda named: max(named.values()))(dict(enumerate(values)))


def parts(calls: Calls) -> list[Any]:
    """Blocks of an array, on which a delayed function works that nobody knows."""

    def load(block_id: Any = None) -> np.ndarray:
        calls["load"] += 1
        return np.arange(12.0).reshape(3, 4) * (block_id[0] + 1)

    def prepare(block: np.ndarray) -> np.ndarray:
        calls["prepare"] += 1
        return block + 1

    x = da.map_blocks(load, chunks=((3, 3), (4,)), dtype="f8", meta=np.empty((0, 0)))
    return [dask.delayed(prepare)(block) for block in x.to_delayed().ravel()]


def array(blocks: list[Any]) -> da.Array:
    return da.concatenate([da.from_delayed(block, (3, 4), "f8") for block in blocks])


def beside_another(calls: Calls, largest: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    blocks = parts(calls)
    return largest([dask.delayed(np.max)(block) for block in blocks]), dask.delayed(len)(blocks[0])


def scaled(calls: Calls, largest: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    blocks = parts(calls)
    scale = da.from_delayed(largest([dask.delayed(np.max)(block) for block in blocks]), (), "f8")
    return (array(blocks) - scale,)


def scaled_beside_a_call(calls: Calls, largest: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    """The call of an array holds that array's whole graph, in which loads are fused."""
    blocks = parts(calls)
    scale = da.from_delayed(largest([dask.delayed(np.max)(block) for block in blocks]), (), "f8")
    x = array(blocks)
    return x - scale, dask.delayed(np.sum)(x)


def blocks_that_wait(calls: Calls, largest: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    x = array(parts(calls))
    y = x - x.mean()
    peaks = [dask.delayed(np.max)(block) for block in y.to_delayed(optimize_graph=False).ravel()]
    return largest(peaks), y * 2


def one_alone(calls: Calls, largest: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    block = parts(calls)[0]
    return largest([dask.delayed(np.max)(block)]), block


def beside_an_array(calls: Calls, largest: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    blocks = parts(calls)
    return largest([dask.delayed(np.max)(blocks[0]), array(blocks).max()]), dask.delayed(len)(blocks[0])


def arrays_beside_themselves(calls: Calls, largest: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    x = array(parts(calls)) * 2
    return largest([x.sum(), x.max()]), x.std()


def results(found: tuple[Any, ...], calls: Calls) -> tuple[list[Any], Calls]:
    calls.clear()
    return [part.compute(scheduler="sync") for part in found], Counter(calls)


def in_one_call(found: tuple[Any, ...], calls: Calls) -> Calls:
    calls.clear()
    dask.compute(*found, scheduler="sync")
    return Counter(calls)


@pytest.mark.parametrize("largest", [largest_of_list, largest_of_arguments, largest_of_dict])
@pytest.mark.parametrize(
    "program",
    [
        beside_another,
        scaled,
        scaled_beside_a_call,
        blocks_that_wait,
        one_alone,
        beside_an_array,
        arrays_beside_themselves,
    ],
)
@pytest.mark.parametrize("built", [stock, switched_on])
def test_no_function_is_called_more_often_than_with_dask(
    program: Callable[..., Any], largest: Callable[..., Any], built: Callable[[], Any]
) -> None:
    calls: Calls = Counter()
    with stock():
        as_dask = program(calls, largest)
        expected, _ = results(as_dask, calls)
        most = in_one_call(as_dask, calls)
    with built():
        made = program(calls, largest)
    with switched_on():
        found, _ = results(made, calls)
        counts = in_one_call(made, calls)
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs)
    assert not counts - most, (counts, most)
