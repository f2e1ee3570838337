"""Hoisted objects on a cluster of processes: each task has a copy of its own, each worker one payload."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from helpers import assert_same, keys_of, stock, switched_on, tasks_of

pytestmark = [pytest.mark.usefixtures("on"), pytest.mark.timeout(120)]

BLOCKS = 40


class Model:
    """Heavy, with a buffer that it writes its answer to before it reads it back."""

    def __init__(self) -> None:
        self.weights = np.arange(30_000.0)
        self.scratch = np.zeros(1)
        self.calls = 0

    def predict(self, block: Any) -> Any:
        self.calls += 1
        self.scratch[:] = block[0] + self.weights[1]
        time.sleep(0.005)
        return self.scratch + 1000 * self.calls

    __call__ = predict


def with_model(block: Any, model: Any) -> Any:
    return model.predict(block)


class Noise:
    def __init__(self) -> None:
        self.table = np.arange(20_000.0)
        self.rng = np.random.default_rng(7)


def drawn(block: Any, noise: Any) -> Any:
    return block + noise.rng.normal() + noise.table[0]


def scaled(block: Any, table: Any) -> Any:
    table *= 2
    return block + table[0]


def blocks() -> da.Array:
    return da.from_array(np.arange(float(BLOCKS)), chunks=1)


def programs() -> dict[str, Any]:
    x, model = blocks(), Model()
    options = {"dtype": float, "meta": np.empty(0)}
    return {
        "argument": x.map_blocks(with_model, model, **options),
        "keyword": x.map_blocks(with_model, model=model, **options),
        "partial": x.map_blocks(partial(with_model, model=model), **options),
        "closure": x.map_blocks(lambda block: model.predict(block), **options),
        "bound method": x.map_blocks(model.predict, **options),
        "callable": x.map_blocks(model, **options) + 1,
        "in a dict": x.map_blocks(
            lambda block, all: all["model"].predict(block), all={"model": model}, **options
        ),
        "generator": x.map_blocks(drawn, Noise(), **options),
        "in place": x.map_blocks(scaled, np.full(20_000, 1.0), **options),
        "partials of its own": da.concatenate(
            [
                da.from_delayed(
                    dask.delayed(partial(with_model, model=model))(np.array([float(i)])), (1,), float
                )
                for i in range(BLOCKS)
            ]
        ),
    }


@pytest.mark.parametrize("name", list(programs()))
def test_objects_with_state_give_what_they_give_without_hoisting(client: Any, name: str) -> None:
    x = programs()[name]
    hoisted = [key for key in tasks_of(x) if str(key).startswith("hoist-")]
    assert len(hoisted) == 1
    with dask.config.set({"rewrite.disable": ["hoist"]}):
        expected = client.compute(programs()[name]).result(timeout=60)
    assert_same(client.compute(x).result(timeout=60), expected)
    assert_same(client.persist(programs()[name]).compute(), expected)


def test_constants_leave_the_workers_after_the_work(client: Any) -> None:
    x = client.persist(programs()["argument"])
    x.compute()
    for _ in range(50):
        held = {str(key) for keys in client.has_what().values() for key in keys}
        if not any(key.startswith("hoist-") for key in held):
            break
        time.sleep(0.1)
    else:
        raise AssertionError("a worker still holds the constant")
    del x


def test_root_tasks_are_still_queued_and_spread(client: Any) -> None:
    x = da.from_array(np.arange(200.0), chunks=1).map_blocks(with_model, Model(), dtype=float)
    tasks = tasks_of(x)
    assert all(tasks[key].data_producer for key in keys_of(x))
    made = client.persist(x)
    made.compute()
    held = client.has_what()
    shares = [len([key for key in keys if key in set(keys_of(x))]) for keys in held.values()]
    assert min(shares) >= 40


def test_local_classes_and_lambdas(client: Any) -> None:
    class Local:
        def __init__(self) -> None:
            self.table = np.arange(30_000.0)

        def __call__(self, block: Any) -> Any:
            return block + self.table[2]

    x = blocks().map_blocks(Local(), dtype=float)
    assert any(str(key).startswith("hoist-") for key in tasks_of(x))
    assert_same(client.compute(x).result(timeout=60), np.arange(float(BLOCKS)) + 2)


def test_what_cannot_be_pickled_fails_as_it_does_without(client: Any) -> None:
    import threading

    model = Model()
    model.lock = threading.Lock()
    x = blocks().map_blocks(with_model, model, dtype=float)
    with pytest.raises(TypeError, match="serialize"):
        client.compute(x)
    assert x.compute(scheduler="threads").size == BLOCKS


def test_the_same_graph_twice_at_once(client: Any) -> None:
    x = programs()["partial"]
    one, two = client.compute([x, x + 1])
    three = client.compute(x.sum())
    assert_same(two.result(timeout=60), one.result(timeout=60) + 1)
    assert three.result(timeout=60) == one.result().sum()


def test_programs_that_share_loads_carry_their_own_tables(client: Any) -> None:
    """Both are under way at once, and each has the other of two tables for one more array."""
    first, second = np.arange(40_000.0), np.arange(40_000.0)[::-1].copy()

    def spans(name: str, *tables: Any) -> da.Array:
        def load(block_id: Any = None) -> Any:
            time.sleep(0.1)
            return sum(((-2) ** at * table[:4] for at, table in enumerate(tables)), np.zeros(4))

        return da.map_blocks(load, chunks=((4,) * 6,), dtype="f8", name=name, meta=np.empty(0))

    common = [spans("one", first, second).sum(), spans("two", first, second).sum()]
    programs = [[*common, spans("three", second).sum()], [*common, spans("four", first).sum()]]
    with stock(scheduler="sync"):
        expected = [list(dask.compute(*program)) for program in programs]
    for futures, values in zip([client.compute(program) for program in programs], expected, strict=True):
        assert_same(client.gather(futures), values)


def test_stock_optimizers_afterwards(client: Any) -> None:
    """An optimized array that dask's own optimizer gets into its hands again."""
    x = dask_rewrite.optimize(programs()["keyword"])
    with stock():
        expected = client.compute(programs()["keyword"] + 1).result(timeout=60)
        assert_same(client.compute(x + 1).result(timeout=60), expected)
    with switched_on():
        assert_same(client.compute(x + 1).result(timeout=60), expected)
