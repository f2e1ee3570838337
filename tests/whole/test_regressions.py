"""Programs that once came out wrong, each named for what went wrong."""

from __future__ import annotations

import weakref
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
import yaml
from dask import delayed
from dask._task_spec import convert_legacy_graph
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

import dask_rewrite
from dask_rewrite.graph.annotations import merged
from dask_rewrite.pipeline.run import rewrite_tasks
from helpers import assert_same, stock, switched_on


def test_names_that_look_marked_stay_apart() -> None:
    first = da.from_array(np.arange(8), chunks=4, name="sim-r20240101")
    second = da.from_array(np.arange(8) * 10, chunks=4, name="sim-r20240102")
    with dask_rewrite.enable():
        result = da.concatenate([first, second]).rechunk(3)[::-1].compute(scheduler="sync")
    assert_same(result, np.concatenate([np.arange(8), np.arange(8) * 10])[::-1])


def test_what_delayed_work_makes_of_an_array_is_marked_with_its_blocks() -> None:
    x = da.arange(4, chunks=2) + 1
    y = da.from_delayed(delayed(np.negative)(x), (4,), x.dtype)
    keys = list(flatten(y.__dask_keys__()))
    raw = convert_legacy_graph(dict(y.dask))
    with dask.config.set({"rewrite.disable": ["fuse-small", "fuse-chains"]}):
        graph = rewrite_tasks(y.dask, keys)
    assert graph is not None
    assert any(isinstance(key, str) and key.startswith("finalize") for key in graph.nodes)
    for key in graph.nodes.keys() & raw.keys() - set(keys):
        assert graph.nodes[key].dependencies == raw[key].dependencies, key


def test_cyclic_garbage_of_the_program_is_still_collected() -> None:
    class Node:
        def __init__(self) -> None:
            self.me = self

    x = da.ones(4, chunks=2).sum()
    alive = []
    with dask_rewrite.enable():
        for _ in range(600):
            node = Node()
            alive.append(weakref.ref(node))
            del node
            x.compute(scheduler="sync")
    assert sum(ref() is not None for ref in alive) < 300


def test_a_bag_partition_is_a_list_for_others() -> None:
    part = db.from_sequence(range(6), npartitions=2).map(lambda v: v + 1).to_delayed()[0]
    x = da.from_delayed(delayed(np.array)(part), shape=(3,), dtype=int)
    with dask_rewrite.enable():
        assert_same(x.compute(scheduler="sync"), np.array([1, 2, 3]))


def test_every_map_of_a_bag_streams(monkeypatch: Any) -> None:
    bag = db.from_sequence(range(6), npartitions=1).map(abs).map(abs).map(abs).map(abs).map(abs)
    (task,) = dask_rewrite.optimize(bag).dask.values()
    assert str(task.args).count("reify") == 1


def test_numpy_integers_name_blocks() -> None:
    x = da.ones(4, chunks=2) + 1
    tasks = {("negative", int(i)): (np.negative, (x.name, i)) for i in np.arange(2)}
    graph = HighLevelGraph.from_collections("negative", tasks, dependencies=[x])
    y = da.Array(graph, "negative", chunks=x.chunks, dtype=x.dtype)
    with dask_rewrite.enable():
        assert_same(y.compute(scheduler="sync"), np.full(4, -2.0))


def test_other_blocks_asked_for_are_other_names() -> None:
    y = da.concatenate([da.ones(8, chunks=4).rechunk(2) + 1, da.ones(4, chunks=2)]).rechunk(3)
    blocks = [Delayed(key, y.dask, layer=y.name) for key in y.__dask_keys__()]
    one = delayed(list)([blocks[0]], dask_key_name="one")
    both = delayed(list)(blocks, dask_key_name="both")
    names = []
    for collection in (one, both):
        graph = rewrite_tasks(collection.dask, [collection.key])
        assert graph is not None
        names.append({key[0] for key in graph.nodes if isinstance(key, tuple)})
    assert names[0].isdisjoint(names[1])


def test_plain_dictionaries_give_the_same_names_each_time() -> None:
    graph = {
        ("x", 0): (np.ones, 3),
        ("y", 0): (np.negative, ("x", 0)),
        ("z", 0): (np.add, ("y", 0), ("y", 0)),
    }
    first, second = (rewrite_tasks(dict(graph), [("z", 0)]) for _ in range(2))
    assert first is not None
    assert second is not None
    assert list(first.nodes) == list(second.nodes)


@pytest.mark.parametrize(
    "options", [{}, {"lock": True}, {"inline_array": True}, {"inline_array": True, "lock": True}]
)
def test_optimized_sources_go_through_dasks_own_optimizer(options: dict[str, Any]) -> None:
    values = np.arange(40.0).reshape(5, 8)
    x = da.from_array(values, chunks=(5, 4), **options)
    y = dask_rewrite.optimize(x)
    assert_same((y + 1).compute(scheduler="sync"), values + 1)
    assert_same(dask_rewrite.optimize(x[1:4])[:, 2:6].compute(scheduler="sync"), values[1:4, 2:6])


def test_collections_whose_blocks_need_each_other() -> None:
    values = np.arange(36.0).reshape(6, 6) % 7 + 6 * np.eye(6)
    x = da.from_array(values, chunks=2)
    expected = dask.compute(*da.linalg.lu(x), scheduler="sync")
    optimized = dask_rewrite.optimize(*da.linalg.lu(x))
    for got, wanted in zip(optimized, expected, strict=True):
        assert_same(got.compute(scheduler="sync"), wanted)
        assert_same((got + 1).compute(scheduler="sync"), wanted + 1)


def test_callable_workers_never_fuse() -> None:
    with dask.annotate(workers=lambda key: [f"w{key[1]}"]):
        x = da.ones((4, 4), chunks=2)
        y = x.T + 1
    graph = rewrite_tasks(y.dask, y.__dask_keys__())
    assert graph is not None
    across = [key for key in graph.nodes if key in graph.outputs and key[1] != key[2]]
    assert all(graph.nodes[key].dependencies for key in across)


def test_annotations_of_what_stands_in_a_list_of_a_delayed_call() -> None:
    """Dask says for each key of such a graph, also where there is none, what was annotated."""
    x = da.from_array(np.arange(8.0), chunks=4)
    with dask.annotate(retries=2):
        y = (x + 3).map_blocks(abs)
    chain = y.map_blocks(np.negative).sum(axis=0, split_every=2)
    with stock():
        expected = dask.delayed(list)([chain]).compute(scheduler="sync")
    for fuse in (False, True):
        with switched_on(**{"optimization.fuse.delayed": fuse}):
            assert dask.delayed(list)([chain]).compute(scheduler="sync") == expected


def test_functions_without_a_module() -> None:
    """Methods of ufuncs have None for one."""
    x = da.arange(4, chunks=2)
    y = da.blockwise(np.subtract.outer, "ij", x[::-1], "i", x, "j", dtype=int)
    expected = y.compute()
    with switched_on():
        assert_same(dask.optimize(y)[0].compute(), expected)


def test_a_missing_priority_is_zero() -> None:
    assert merged({"priority": -10}, None) == {"priority": 0}
    assert merged({"priority": -10}, {"priority": -5}) == {"priority": -5}


def test_a_chain_of_no_length_is_refused_by_name() -> None:
    options = {"rewrite.options": {"fuse-chains": {"max-length": 0}}}
    expected = pytest.raises(ValueError, match=r"fuse-chains\.max.length.*at least 1")
    with dask.config.set(options), expected:
        dask_rewrite.optimize(da.ones(4, chunks=2) + 1)


def test_one_switch_used_for_two_blocks() -> None:
    switch = dask_rewrite.enable()
    for _ in range(2):
        with switch:
            assert dask.config.get("array_optimize") is dask_rewrite.optimize
        assert dask.config.get("array_optimize", None) is None


def test_switching_on_again_leaves_nothing_behind() -> None:
    dask_rewrite.enable()
    before = len(dask.config.defaults)
    dask_rewrite.enable()
    assert len(dask.config.defaults) == before
    assert "identity" in yaml.dump(dask.config.config["array_optimize"])
    dask_rewrite.disable()


def test_a_step_that_an_output_only_names_runs_once_for_all_outputs() -> None:
    """`dask.optimize` goes from one to the next: each has to find the step under its own name."""
    calls: list[int] = []

    def step(block: np.ndarray) -> np.ndarray:
        calls.append(1)
        return block + 1

    x = da.from_array(np.arange(8.0), chunks=4)
    one, other = x.map_blocks(np.negative, dtype="f8"), x.map_blocks(step, dtype="f8", meta=np.empty(0))
    both = da.concatenate([one, other])
    outer = da.blockwise(lambda a, b: a[:, None] - b, "ij", both, "i", one, "j", dtype="f8")
    for context in (stock, switched_on):
        with context(scheduler="sync"):
            optimized = dask.optimize(both, outer)
            calls.clear()
            results = dask.compute(*optimized)
        assert len(calls) == 2
        assert_same(results[0], np.concatenate([-np.arange(8.0), np.arange(8.0) + 1]))
        assert_same(results[1], results[0][:, None] + np.arange(8.0))


def test_of_blocks_that_were_optimized_twice_the_same_are_taken_as_with_dask() -> None:
    """Whatever names dask draws for what it optimized while a delayed call was built."""
    loads: list[str] = []

    def load(dtype: str) -> np.ndarray:
        loads.append(dtype)
        return np.ones((2, 3), dtype)

    for _ in range(8):
        x = da.stack([da.from_delayed(delayed(load)(dtype), (2, 3), dtype) for dtype in ("f8", "i4")])
        product = x.prod()
        call = delayed(lambda *args: len(args))([product], [x, product])
        counts = []
        for context in (stock, switched_on):
            loads.clear()
            with context():
                assert call.compute(scheduler="sync") == 2
            counts.append(len(loads))
        assert counts == [2, 2]
