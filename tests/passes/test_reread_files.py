"""Whole files that tasks read by their path are read again, like blocks of stored arrays."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
import dask.array as da
import dask.array.image
import numpy as np
import pytest
from benchmarks.forecasts import Added

import dask_rewrite
from helpers import switched_on

FILES, SIDE = 40, 100
BLOCK = 8 * SIDE * SIDE
#: Two ways to have blocks read again.
HOW: list[dict[str, Any]] = [{"rewrite.reread": True}, {"rewrite.memory-limit": 12 * BLOCK}]


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    for i in range(FILES):
        np.save(tmp_path / f"{i:02}.npy", (np.arange(float(SIDE * SIDE)) * 7 % 1013 + i).reshape(SIDE, SIDE))
    return sorted(map(str, tmp_path.glob("*.npy")))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a library of images has read each file."""
    counts: Counter[str] = Counter()

    def imread(path: Any) -> Any:
        counts[str(path)] += 1
        return np.load(path)

    module = ModuleType("tifffile")
    module.imread = imread  # type: ignore[attr-defined]  # stands in for the library
    monkeypatch.setitem(sys.modules, "tifffile", module)
    return counts


def stacked(load: Callable[..., Any], given: list[Any], *more: Any, **options: Any) -> da.Array:
    parts = [dask.delayed(load)(each, *more, **options) for each in given]
    return da.stack([da.from_delayed(part, (SIDE, SIDE), "f8") for part in parts])


def spread(x: da.Array) -> da.Array:
    flat = x - x.mean(axis=0)
    return flat.max(axis=0) - flat.min(axis=0)


def held(x: da.Array) -> tuple[Any, int]:
    """The answer on two threads, and the bytes held at most meanwhile."""
    with Added() as added:
        answer = x.compute(scheduler="threads", num_workers=2)
    return answer, added.peak


def again(x: da.Array) -> bool:
    return any(each.rule == "reread" and each.kind == "applied" for each in dask_rewrite.explain(x).remarks)


@pytest.mark.parametrize("how", HOW, ids=["reread", "limit"])
@pytest.mark.parametrize("stack", ["delayed", "images"])
def test_each_file_is_read_twice(stack: str, how: dict[str, Any], paths: Any, reads: Counter[str]) -> None:
    imread = sys.modules["tifffile"].imread

    def program() -> da.Array:
        if stack == "delayed":
            return spread(stacked(imread, paths))
        return spread(da.image.imread(str(Path(paths[0]).parent / "*.npy"), imread=imread))

    expected = program().compute(scheduler="sync")
    reads.clear()
    with switched_on(**how), dask.config.set(scheduler="threads", num_workers=2):
        x = program()
        reads.clear()
        answer, most = held(x)
    np.testing.assert_allclose(answer, expected, rtol=1e-12)
    assert max(reads.values()) == 2
    assert most <= 12 * BLOCK < FILES * BLOCK


@pytest.mark.parametrize("load", [np.load, partial(np.load, allow_pickle=False)], ids=["plain", "partial"])
def test_files_of_numpy(load: Any, paths: list[str]) -> None:
    expected = spread(stacked(load, paths)).compute(scheduler="sync")
    with switched_on(**HOW[0]):
        assert again(spread(stacked(load, paths)))
        assert again(spread(stacked(load, list(map(Path, paths)))))
        answer, most = held(spread(stacked(load, paths)))
    np.testing.assert_allclose(answer, expected, rtol=1e-12)
    assert most <= 12 * BLOCK


def test_text_and_raw_numbers(tmp_path: Path) -> None:
    rows = np.arange(float(SIDE * SIDE)).reshape(SIDE, SIDE)
    rows.tofile(tmp_path / "raw")

    def raw(path: str) -> da.Array:
        part = dask.delayed(np.fromfile)(path, dtype="f8", count=SIDE * SIDE)
        return da.from_delayed(part, (SIDE * SIDE,), "f8")

    x = da.stack([raw(str(tmp_path / "raw")) for _ in range(FILES)])
    with switched_on(**HOW[0]):
        assert again(spread(x))
        np.testing.assert_array_equal(spread(x).compute(scheduler="sync"), np.zeros(SIDE * SIDE))


def unknown(path: str) -> Any:
    return np.load(path)


class Opened:
    """An open file: who reads it twice finds its end."""

    def __init__(self, path: str) -> None:
        self.file = Path(path).open("rb")  # noqa: SIM115  # closed by the test

    def read(self, *args: Any) -> Any:
        return self.file.read(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __dask_tokenize__(self) -> Any:
        return id(self)


@pytest.mark.parametrize(
    "make",
    [
        lambda paths: stacked(unknown, paths),
        lambda paths: stacked(np.load, paths, mmap_mode="r+"),
        lambda paths: stacked(np.load, paths, "r+"),
        lambda paths: stacked(np.load, [dask.delayed(str)(path) for path in paths]),
    ],
    ids=["unknown function", "written into", "the same", "a path that is made"],
)
@pytest.mark.parametrize("how", HOW, ids=["reread", "limit"])
@pytest.mark.filterwarnings("ignore:dask_rewrite. this computation:dask_rewrite.RewriteWarning")
def test_declined(make: Any, how: dict[str, Any], paths: list[str]) -> None:
    with switched_on(**how), dask.config.set(scheduler="threads", num_workers=2):
        assert not again(spread(make(paths)))


@pytest.mark.parametrize("how", HOW, ids=["reread", "limit"])
@pytest.mark.parametrize("indirect", [False, True])
@pytest.mark.filterwarnings("ignore:dask_rewrite. this computation:dask_rewrite.RewriteWarning")
def test_open_files_are_read_once(indirect: bool, how: dict[str, Any], paths: list[str]) -> None:
    opened = list(map(Opened, paths))
    given = [dask.delayed(each, pure=True) if indirect else each for each in opened]
    expected = spread(stacked(np.load, paths)).compute(scheduler="sync")
    with switched_on(**how), dask.config.set(scheduler="threads", num_workers=2):
        answer = spread(stacked(np.load, given)).compute()
    np.testing.assert_allclose(answer, expected, rtol=1e-12)
    for each in opened:
        each.file.close()


class Target:
    """Something that is stored into, nobody knows where."""

    shape, dtype, ndim = (FILES, SIDE, SIDE), np.dtype("f8"), 3

    def __init__(self) -> None:
        self.stored = 0

    def __setitem__(self, index: Any, value: Any) -> None:
        self.stored += 1


@pytest.mark.parametrize("known", [False, True])
def test_a_graph_that_may_store_into_its_files(known: bool, paths: list[str]) -> None:
    x = stacked(np.load, paths)
    target = np.empty(Target.shape) if known else Target()
    with switched_on(**HOW[0]), dask.config.set(scheduler="threads", num_workers=2):
        stored = da.store(x - x.mean(axis=0), target, lock=False, compute=False)
        assert again(stored) is known
        stored.compute()
    if known:
        loaded = np.stack(list(map(np.load, paths)))
        np.testing.assert_allclose(target, loaded - loaded.mean(axis=0), atol=1e-9)
