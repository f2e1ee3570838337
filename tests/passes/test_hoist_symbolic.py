"""hoist on layers that stay symbolic."""

from __future__ import annotations

from functools import partial
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.optimization import optimize as stock_array
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph

from dask_rewrite.passes.hoist import Hoist
from dask_rewrite.symbolic import hoisted_layers
from helpers import assert_same, assert_same_as_stock, distinct, fresh, keys_of, switched_on

TABLE = np.arange(20_000.0)


class Model:
    def __init__(self) -> None:
        self.table = np.arange(30_000.0)

    def predict(self, block: Any, shift: Any = None) -> Any:
        return block + self.table[2] + (0 if shift is None else shift)


def apply(block: Any, model: Any, factor: int = 1, table: Any = None) -> Any:
    return model.predict(block) * factor


def widened(block: Any, table: Any) -> Any:
    return np.zeros((len(block), 1, 2)) + block[:, None, None] + table[1]


def product(one: Any, other: Any, table: Any) -> Any:
    return one @ other + table[1]


def programs() -> dict[str, da.Array]:
    x, model = distinct((10, 10), 2), Model()
    return {
        "argument": x.map_blocks(apply, model, dtype=float),
        "keyword": x.map_blocks(apply, model=model, factor=3, dtype=float) + 1,
        "partial": (x.map_blocks(partial(apply, model=model), dtype=float) * 2).sum(axis=0),
        "bound method": (x.map_blocks(model.predict, dtype=float) + x).T @ x,
        "two layers": x.map_blocks(apply, model, table=TABLE, dtype=float).map_blocks(
            apply, model, dtype=float
        ),
        "block_info": x.map_blocks(lambda b, block_info=None: b + TABLE[len(block_info)], dtype=float),
        "contracted": da.blockwise(
            product, "ij", x, "ik", x.T, "kj", TABLE, None, dtype=float, concatenate=True
        ),
        "new axes": da.blockwise(
            widened, "ijk", x[:, 0], "i", TABLE, None, dtype=float, new_axes={"j": 1, "k": 2}
        ),
        "a delayed argument": x.map_blocks(model.predict, dask.delayed(3.0), dtype=float),
    }


def bytes_of(graph: Any) -> int:
    return sum(len(cloudpickle.dumps(task)) for task in dict(graph).values())


@pytest.mark.parametrize("name", list(programs()))
def test_fires(name: str) -> None:
    x = programs()[name]
    hlg = hoisted_layers(x.dask, Hoist())
    assert set(x.dask.layers) < set(hlg.layers)
    assert not any(layer.is_materialized() for layer in hlg.layers.values() if type(layer) is Blockwise)
    hlg.validate()
    keys = keys_of(x)
    tasks, before = (dict(stock_array(fresh(each), keys)) for each in (hlg, x.dask))  # on the scheduler
    assert bytes_of(tasks) < 2_000_000
    assert bytes_of(tasks) < bytes_of(before) / 3
    expected = dask.get(before, keys)
    assert_same(dask.get(tasks, keys), expected)
    assert_same(dask.get(cloudpickle.loads(cloudpickle.dumps(tasks)), keys), expected)


@pytest.mark.parametrize("name", list(programs()))
def test_through_compute(name: str) -> None:
    with dask.config.set({"rewrite.lower-limit": 1}):
        assert_same_as_stock(programs()[name])


def test_declines() -> None:
    x = distinct((10, 10), 2)
    for y in (x + 1, x.map_blocks(apply, 3, dtype=float, meta=np.empty((0, 0)))):
        assert hoisted_layers(y.dask, Hoist()) is y.dask
    one_block = distinct((2, 2), 2).map_blocks(apply, Model(), dtype=float)
    assert hoisted_layers(one_block.dask, Hoist()) is one_block.dask


def test_root_layers_stay_root_layers() -> None:
    def load(block_id: Any = None) -> Any:
        return np.full(1, TABLE[block_id[0]])

    x = da.map_blocks(load, chunks=((1,) * 30,), dtype=float, meta=np.empty(0))
    hlg = hoisted_layers(x.dask, Hoist())
    assert isinstance(hlg, HighLevelGraph)
    tasks = dict(hlg)
    assert all(tasks[key].data_producer for key in keys_of(x))


def test_on_a_cluster(client: Any) -> None:
    for name in ("keyword", "bound method", "two layers"):
        with switched_on():
            expected = programs()[name].compute(scheduler="sync")
            with dask.config.set({"rewrite.lower-limit": 1}):
                assert_same(client.compute(programs()[name]).result(timeout=60), expected)
