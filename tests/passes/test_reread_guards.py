"""What is not made again: what could give something else when it is asked a second time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
from dask import delayed

import dask_rewrite
from helpers import stock, switched_on

signal = pytest.importorskip("scipy.signal")
#: Whatever may be made again is, for however few blocks a reduction waits.
FINE = {"reread": {"min-blocks": 1, "min-bytes": 17_000, "costly": True}}
LIMITS = (None, 1000, 10**6, 3 * 10**6)


class Sensor:
    """Gives the next frame each time that it is asked."""

    def __init__(self, first: int) -> None:
        self.first, self.asked = first, 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.asked += 1
        return np.full((100, 400), float(self.first * self.asked))


class Frames:
    """Can be gone through once."""

    def __init__(self, first: int) -> None:
        self.left = [np.full((100, 200), float(first)), np.full((100, 200), 2.0 * first)]

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> np.ndarray:
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


class Counting(np.random.RandomState):
    """A class of the user's, which knows how often it was drawn from."""

    drawn = 0

    def normal(self, *args: Any, **kwargs: Any) -> Any:
        Counting.drawn += 1
        return super().normal(*args, **kwargs) + (Counting.drawn > 16)


class Held:
    """Reads like an array; what it reads stands in memory."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.shape, self.dtype, self.ndim = data, data.shape, data.dtype, data.ndim

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]


def anomaly(x: da.Array) -> da.Array:
    return abs(x - x.mean(axis=0)).mean()


def asked(func: Callable[..., Any]) -> da.Array:
    made = [delayed(func)(delayed(Sensor(i), traverse=False)) for i in range(1, 17)]
    return anomaly(da.concatenate([da.from_delayed(each, (100, 400), float) for each in made]))


def weighed() -> da.Array:
    """Each block has a frame of a sensor added to it."""
    x = da.random.default_rng(1).normal(size=(1600, 400), chunks=(100, 400))
    sensors = [delayed(Sensor(i), traverse=False) for i in range(16)]
    made = [delayed(np.add)(b, s) for b, s in zip(x.to_delayed().ravel(), sensors, strict=True)]
    return anomaly(da.concatenate([da.from_delayed(each, (100, 400), float) for each in made]))


def windowed() -> da.Array:
    """The window is a function of the user's, which another function calls."""

    def resampled(block: Any) -> Any:
        calls = [0]

        def window(frequencies: Any) -> Any:
            calls[0] += 1
            return np.full(len(frequencies), float(calls[0]))

        return delayed(signal.resample)(block, 2000, axis=1, window=window)

    x = da.random.default_rng(1).normal(size=(64, 4000), chunks=(4, 4000))
    made = [da.from_delayed(resampled(b), (4, 2000), float) for b in x.to_delayed().ravel()]
    return anomaly(da.concatenate(made))


def used_up() -> da.Array:
    made = [
        delayed(np.concatenate)(delayed(tuple)(delayed(Frames(i), traverse=False)), axis=1)
        for i in range(1, 17)
    ]
    return anomaly(da.concatenate([da.from_delayed(each, (100, 400), float) for each in made]))


def drawn() -> da.Array:
    x = da.random.RandomState(3, RandomState=Counting).normal(size=(1600, 400), chunks=(100, 400))
    Counting.drawn = 0  # some are drawn to find out the type
    return anomaly(x)


PROGRAMS: dict[str, Callable[[], da.Array]] = {
    "asked for values": lambda: asked(np.asarray),
    "sorted": lambda: asked(np.sort),
    "an argument": weighed,
    "called by what is known": windowed,
    "used up": used_up,
    "drawn from": drawn,
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::dask_rewrite.RewriteWarning")
def test_objects_of_users_are_asked_once(name: str, limit: int | None) -> None:
    with stock():
        expected = PROGRAMS[name]().compute(scheduler="sync")
    with switched_on(), dask.config.set({"rewrite.memory-limit": limit}):
        assert PROGRAMS[name]().compute(scheduler="sync") == expected


@pytest.mark.parametrize("func", [np.sort, np.square])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.filterwarnings("ignore::dask_rewrite.RewriteWarning")
def test_what_is_stored_into_may_be_behind_an_object(func: Any, limit: int | None) -> None:
    def stored(context: Any) -> np.ndarray:
        data = np.random.default_rng(0).normal(size=(1600, 400))
        s = da.map_blocks(func, da.from_array(Held(data), chunks=(100, 400)), dtype=float)
        with context, dask.config.set({"rewrite.memory-limit": limit}):
            da.store(s[::-1] - s.mean(axis=0), data, lock=False, scheduler="sync")
        return data

    assert np.array_equal(stored(stock()), stored(switched_on()))


@pytest.mark.parametrize("func", [np.square, np.sort])
@pytest.mark.parametrize("part", [2, 3])
@pytest.mark.filterwarnings("ignore::dask_rewrite.RewriteWarning")
def test_blocks_whose_small_parts_are_needed_first_are_made_then(func: Any, part: int) -> None:
    """Edges of blocks are needed in the first phase, and the blocks themselves in the second."""
    x = da.from_array(np.random.default_rng(1).normal(size=(608, 340)), chunks=(71, 340))
    once = x.map_overlap(np.square, depth=(2, 0), boundary="nearest", dtype=x.dtype)
    twice = once.map_overlap(func, depth=4, boundary="nearest", dtype=x.dtype)
    program = twice[np.random.default_rng(3).permutation(608)].sum()
    with stock():
        expected = program.compute(scheduler="sync")
    for how in ({"memory-limit": 2_300_000 // part}, {"reread": True, "options": FINE}):
        with switched_on(), dask.config.set({f"rewrite.{name}": value for name, value in how.items()}):
            assert program.compute(scheduler="sync") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("lock", [True, False, threading.Lock()])
@pytest.mark.parametrize("asarray", [True, False])
def test_locks_do_not_keep_files_from_being_read_again(lock: Any, asarray: bool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.random.default_rng(0).random((640, 1000))
        x = da.from_array(file["x"], chunks=(20, 1000), lock=lock, asarray=asarray)
        program = abs(x - x.mean(axis=0)).max()
        with switched_on(), dask.config.set({"rewrite.reread": True, "num_workers": 2}):
            remarks = dask_rewrite.explain(program).remarks
            assert "blocks that are read again: 32" in [each.reason for each in remarks]
            found = program.compute(scheduler="threads")
        with stock():
            assert found == program.compute(scheduler="sync")


class Scale:
    """An element that counts how often something was multiplied by it."""

    calls = 0

    def __rmul__(self, other: Any) -> Any:
        Scale.calls += 1
        return other * 2.0


@pytest.mark.parametrize("limit", [None, 300_000, 150_000])
@pytest.mark.filterwarnings("ignore::dask_rewrite.RewriteWarning")
def test_methods_of_elements_are_called_once(limit: int | None, tmp_path: Path) -> None:
    da.random.default_rng(1).random((160, 400), chunks=(10, 400)).to_zarr(str(tmp_path / "x.zarr"))
    x = da.from_zarr(str(tmp_path / "x.zarr"))
    objects = np.array([Scale() for _ in range(400)], object)
    scales = x.mean(axis=0).map_blocks(lambda block: objects, dtype=object, meta=np.empty(0, object))
    y = (x * scales).astype(float)
    Scale.calls = 0
    config = {"rewrite.reread": True, "rewrite.memory-limit": limit, "rewrite.options": FINE}
    with switched_on(**config):
        abs(y - y.max(axis=0)).max(axis=0).compute(scheduler="sync")
    assert Scale.calls == 160 * 400


def test_draws_are_made_again_where_results_are_put_into_place() -> None:
    x = da.random.default_rng(3).random((480, 64, 128), chunks=(10, 64, 128))
    y = abs(x - x.mean(axis=0)).max(axis=0)
    with dask.config.set({"rewrite.memory-limit": "4 MB", "rewrite.on-memory": "raise"}):
        assert dask_rewrite.forecast(y, threads=2).after.peak < 4e6
