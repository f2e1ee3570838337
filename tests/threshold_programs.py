"""Programs that all passes have work in, so small that hundreds run in seconds, compared with dask."""

from __future__ import annotations

import pickle
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import add
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

import dask_rewrite
from array_programs import COUNTING, MOVING, matrix
from helpers import distinct, stock, switched_on
from random_programs import programs

LARGE = np.arange(40_000.0)


def looked_up(block: Any, table: Any) -> Any:
    return block + table[3]


def scale(block: Any) -> Any:
    return block * 2


def loop(n: int) -> da.Array:
    x = distinct((8, 8), 4)
    for i in range(n):
        x[i % 8, i % 5] = i
        x = x.rechunk(8) if i % 3 else x.rechunk(2)
    return x


def heat() -> da.Array:
    x = distinct((9, 9), 3)
    for _ in range(4):
        x = x.map_overlap(scale, depth=1, boundary="nearest", dtype="f8", meta=np.empty((0, 0)))
    return x


def appended() -> da.Array:
    x = distinct((4,), 2)
    for i in range(20):
        x = da.append(x, da.full(2, i, chunks=2))
    return x


def nested(n: int) -> Any:
    value = dask.delayed(abs)(-1)
    for i in range(n):
        value = dask.delayed(add)(value, i)
    return value


#: What random programs seldom reach: long sums, products, files, tables that many tasks carry, deep chains.
MORE: dict[str, Callable[[], tuple[Any, ...]]] = {
    "members": lambda: (sum(distinct((4,), 2) * i for i in range(1, 41)),),
    "members of delayed": lambda: (dask.delayed(sum)([dask.delayed(float)(i) for i in range(60)]),),
    "products": lambda: ((x := distinct((12, 24), 3)).dot(x.T), (x @ x.T).sum(), da.tensordot(x, x, 2)),
    "unequal products": lambda: (distinct((6, 40), (3, 2)) @ distinct((40, 4), (2, 2)),),
    "einsum": lambda: (da.einsum("bij,bkj->bik", (x := distinct((3, 4, 12), (1, 2, 3))), x),),
    "moments": lambda: ((x := distinct((60, 6), (4, 3))).mean(axis=0), x.std(axis=0), x.max(axis=0)),
    "moments of a user": lambda: ((x := distinct((60, 6), (4, 3)).map_blocks(scale)).mean(0), x.var(), x[0]),
    "centred": lambda: ((x := distinct((30, 6), 3)) - x.mean(axis=0), (x / x.std(axis=0)).max()),
    "gathered": lambda: (
        distinct((64,), 1).sum(),
        distinct((64,), 1).rechunk(16).max(),
        distinct((64,), 1)[::-1],
    ),
    "table": lambda: (
        distinct((12,), 1).map_blocks(looked_up, table=LARGE, dtype="f8"),
        distinct((9,), 1).map_blocks(scale),
    ),
    "assignments": lambda: (loop(20),),
    "heat": lambda: (heat(),),
    "appended": lambda: (appended(), appended()[5:17]),
    "rolled": lambda: (da.roll(da.pad(distinct((9, 9), 3), 2), (1, 2), (0, 1)).rechunk(5),),
    "coordinates": lambda: (
        sum(da.meshgrid(da.arange(12, chunks=2), da.arange(12, chunks=3))) + distinct((12, 12), 4),
    ),
    "constants": lambda: ((da.ones((40, 40), chunks=2) + 1).sum(), da.zeros((8, 8), chunks=2).mean(axis=0)),
    "deep": lambda: (nested(120),),
    "objects": lambda: (distinct((8, 8), 2).to_delayed().ravel()[3], distinct((8,), 2).astype(object).sum()),
    "solved": lambda: (
        da.linalg.solve(distinct((12, 12), 3) + 1000 * da.eye(12, chunks=3), distinct((12,), 3)),
    ),
}
#: Programs whose values nobody defines: elements that `where=` leaves out are what stood in memory.
UNDEFINED = {"only some"}


@contextmanager
def files() -> Iterator[dict[str, Callable[[], tuple[Any, ...]]]]:
    """Programs that read what lies on disk in small chunks."""
    try:
        import h5py
    except ImportError:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder, h5py.File(Path(folder, "x.h5"), "w") as file:
        file.create_dataset("x", data=np.arange(576.0).reshape(24, 24), chunks=(4, 4))
        read = file["x"]
        yield {
            "small reads": lambda: (
                da.from_array(read, chunks=2).sum(),
                da.from_array(read, chunks=2).mean(0),
            ),
            "crooked reads": lambda: (
                da.from_array(read, chunks=5) + 1,
                da.from_array(read, chunks=7)[3:9, 2:20],
            ),
            "rechunked reads": lambda: (da.from_array(read, chunks=3).rechunk(8).max(axis=0),),
            "shared reads": lambda: ((x := da.from_array(read, chunks=6)) - x.mean(axis=0), x @ x.T),
        }


def answers(collections: Any) -> Any:
    """What they compute to, or the kind of error."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dask.compute(*collections)
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError) as error:
        return type(error)


def compare(collections: Any, name: str, **options: Any) -> None:
    """The same kinds, dtypes and shapes as with dask, and the same values but for rounding."""
    with stock(scheduler="sync"):
        expected = answers(collections)
    on = {"rewrite.on-error": "raise", "rewrite.verify": "each", **options}
    with switched_on(**on, scheduler="threads", num_workers=2):
        actual = answers(collections)
    assert type(expected) is type(actual), f"{name}: {actual} instead of {expected}"
    if not isinstance(expected, tuple):
        assert actual is expected, name
        return
    for one, other in zip(actual, expected, strict=True):
        assert type(one) is type(other), f"{name}: {type(one)} instead of {type(other)}"
        if isinstance(other, (np.ndarray, np.generic)):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), name
            if other.dtype.kind in "fc":
                size = np.finfo(other.dtype).eps * 100
                np.testing.assert_allclose(one, other, rtol=size, atol=size, err_msg=name)
                continue
            np.testing.assert_array_equal(one, other, err_msg=name)
        else:
            assert one == other, f"{name}: {one} instead of {other}"


def look_at(collections: Any) -> None:
    """What people ask beside the answer: none of it may fail."""
    dask_rewrite.explain(*collections, nbytes=True).to_html()
    dask_rewrite.forecast(*collections, threads=2)
    dask_rewrite.preflight(*collections)


def compare_sent(collections: Any, name: str) -> None:
    """The answers of graphs that went to another process and came back."""
    found = dask_rewrite.optimize(*collections)
    for x in found if isinstance(found, tuple) else (found,):
        with stock(scheduler="sync"):
            there = pickle.loads(cloudpickle.dumps(x)).compute(optimize_graph=False)
            np.testing.assert_array_equal(there, x.compute(optimize_graph=False), err_msg=name)


def unsendable() -> Any:
    lock = threading.Lock()

    def guarded(block: Any) -> Any:
        with lock:
            return block

    return distinct((8,), 2).map_blocks(guarded, dtype="f8", meta=np.empty(0))


def compare_all(examples: int) -> None:
    """All programs: those above, those of the tests of facts, and random ones."""
    with files() as reading:
        for i, (name, make) in enumerate({**MORE, **reading}.items()):
            compare(make(), name)
            if i % 6 == 0:
                look_at(make())
            if i % 4 == 1:
                compare(make(), f"{name} under a limit", **{"rewrite.memory-limit": 2_000})
            if name not in reading:
                compare_sent(make(), name)
        look_at((unsendable(),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, program in {**MOVING, **COUNTING}.items():
            try:
                found = program(matrix())
            except TypeError:  # for integers only
                found = program(matrix("i8"))
            if type(found) is da.Array and name not in UNDEFINED:
                compare((found,), name)

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def random_programs_are_right(program: Any) -> None:
        compare(program[0], "a random program")

    random_programs_are_right()
