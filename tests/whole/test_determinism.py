"""Same graph in, same graph out: whatever the hash seed, the thread, or the process."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from dask_rewrite.scheduler import as_if
from helpers import assert_same, distinct, leapfrog, leapfrog_by_hand, switched_on, tasks_of

SCRIPT = """
import sys
import numpy as np, dask, dask.array as da
import dask_rewrite
from helpers import tasks_of, functions_in

dask.config.set({"rewrite.on-error": "raise", "rewrite.verify": "each", "scheduler": "sync"})


def x(shape, chunks):
    values = np.arange(float(np.prod(shape))).reshape(shape)
    return da.from_array(values, chunks=chunks, name=f"x{shape}-{chunks}")


def add(a, b):
    return a + b


def programs():
    y = x((6, 8), 2)
    yield "standardized", (y - y.mean(0)) / y.std(0)
    yield "tensordot", da.tensordot(y, y, axes=((1,), (1,)))
    yield "rechunk", y.rechunk(3).rechunk((1, 8))
    yield "roll", da.roll(y, 3, axis=1) + y[::-1]
    yield "overlap", y.map_overlap(np.negative, depth=1, boundary="reflect", dtype="f8", meta=y._meta)
    a, b = y, y + 1
    for _ in range(40):
        a, b = b, (a + b) * 0.5
    yield "leapfrog", b
    yield "lu", da.linalg.lu(x((4, 4), 2) + da.eye(4, chunks=2) * 20)[1]
    now = before = x((20, 20), 10)
    for _ in range(4):
        around = da.roll(now, 1, 0) + da.roll(now, -1, 0) + da.roll(now, 1, 1) + da.roll(now, -1, 1)
        now, before = 2 * now - before + 0.1 * (around - 4 * now), now
    yield "wave", now
    total = y
    for i in range(40):
        total = total + x((6, 8), 2) * i
    yield "sum", total
    yield "several", [y + 1, (y + 1).sum(), y.T]
    d = [dask.delayed(add, pure=True)(i, i) for i in range(5)]
    yield "delayed", dask.delayed(add, pure=True)(d[0], d[1])


for name, program in programs():
    found = tasks_of(*program) if isinstance(program, list) else tasks_of(program)
    for key, task in found.items():
        functions = [getattr(f, "__qualname__", type(f).__name__) for f in functions_in(task)]
        print(name, repr(key), sorted(map(repr, task.dependencies)), functions)
"""


@pytest.mark.once
def test_under_three_hash_seeds(python: Any) -> None:
    outputs = [python(SCRIPT, PYTHONHASHSEED=seed) for seed in ("0", "1", "12345")]
    reference = outputs[0].splitlines()
    assert len(reference) > 100
    for other in outputs[1:]:
        assert other.splitlines() == reference


LIMITED = """
import sys
import numpy as np, dask, dask.array as da
import dask_rewrite
from dask.base import collections_to_expr

block = 1000 * 40 * 8
x = da.random.default_rng(3).random((24_000, 40), chunks=(1000, 40))
sorted_columns = x.rechunk((-1, 10)).map_blocks(np.sort, axis=0, dtype="f8")[::7].sum()
dask_rewrite.enable()
for limit in (18 * block, 38 * block):
    with dask.config.set({"rewrite.memory-limit": limit, "num_workers": 2, "scheduler": "threads"}):
        tasks = collections_to_expr((sorted_columns,)).optimize().__dask_graph__()
    for key, task in dict(tasks).items():
        print(repr(key), sorted(map(repr, task.dependencies)))
"""


@pytest.mark.once
def test_plans_under_a_limit_under_three_hash_seeds(python: Any) -> None:
    reference, *others = [python(LIMITED, PYTHONHASHSEED=seed) for seed in ("0", "1", "2")]
    assert "memory-limit" in reference
    for other in others:
        assert sorted(other.splitlines()) == sorted(reference.splitlines())


def digest(tasks: Any) -> str:
    lines = [f"{key!r} {sorted(map(repr, task.dependencies))} {task!r}" for key, task in tasks.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def programs() -> list[da.Array]:
    x = distinct((6, 8), 2)
    return [
        (x - x.mean(0)) / x.std(0),
        da.tensordot(x, x, axes=((1,), (1,))),
        da.roll(x, 3, axis=1) + x[::-1],
        leapfrog(60),
        x[::-1].rechunk(3).cumsum(axis=0),
    ]


def test_twice_in_one_process() -> None:
    for x in programs():
        assert list(tasks_of(x)) == list(tasks_of(x))
        assert cloudpickle.dumps(list(tasks_of(x))) == cloudpickle.dumps(list(tasks_of(x)))


def test_in_threads() -> None:
    found = programs()
    expected = [list(tasks_of(x)) for x in found]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert [list(keys) for keys in pool.map(tasks_of, found)] == expected


def test_computing_in_threads_of_the_user() -> None:
    expected = leapfrog_by_hand(200)
    with switched_on(), ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: leapfrog(200).compute(scheduler="sync"), range(12)):
            assert_same(result, expected)


def test_two_impure_tasks_stay_two() -> None:
    def draw() -> float:
        return float(np.random.default_rng().random())

    one, other = dask.delayed(draw)(), dask.delayed(draw)()
    a, b = dask.compute(*dask_rewrite.optimize(one, other))
    assert a != b


def test_the_order_of_outputs_does_not_change_the_tasks() -> None:
    x = distinct((6, 8), 2)
    a, b = x + 1, (x + 1).sum()
    assert set(tasks_of(a, b)) == set(tasks_of(b, a))


@pytest.mark.once
def test_what_larger_clusters_get_has_other_names() -> None:
    """A cluster grows while some results of a program are still on it: the same name is the same value."""
    x = distinct((64, 64), 2)
    y = distinct((64, 64), 8)
    programs = ((x + x.T).rechunk(-1), x.cumsum(axis=0).max(), y @ y.T, x.rechunk((64, 1)).std(axis=0))
    eager = {"rewrite.options": {"coalesce": {"min-tasks": 1}}}
    several = 0
    for program in programs:
        graphs = []
        for threads, workers in ((1, 0), (16, 0), (1, 2), (4, 8)):
            with switched_on(**eager, **as_if(threads, workers)):
                graphs.append(tasks_of(program))
        several += len({frozenset(graph) for graph in graphs}) > 1
        for one, other in combinations(graphs, 2):
            common = sorted(one.keys() & other.keys(), key=str)
            for here, there in zip(dask.get(one, common), dask.get(other, common), strict=True):
                assert dask.base.tokenize(here) == dask.base.tokenize(there)
    assert several
