"""Weighing what tasks carry: each container is looked into once, whoever holds it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, ValuesView
from functools import partial
from types import ModuleType
from typing import Any

import dask
import numpy as np
import pytest

from dask_rewrite.passes.hoist.size_bounds import suspects
from dask_rewrite.passes.hoist.sizes import Scales
from helpers import switched_on


class Counted(dict[int, Any]):
    """Counts how often somebody goes through it."""

    looks = 0

    def values(self) -> Any:
        return Values(self)


class Values(ValuesView[Any]):
    def __iter__(self) -> Iterator[Any]:
        Counted.looks += 1
        return super().__iter__()


class Holder:
    def __init__(self, table: Any, k: int) -> None:
        self.table, self.k = table, k

    def size(self, _: int) -> int:
        return len(self.table) + self.k


def taken(table: Any, k: int) -> int:
    return len(table) + k


HELD = {
    "partial": lambda table, k: partial(taken, table),
    "keyword": lambda table, k: partial(taken, table=table),
    "in a tuple": lambda table, k: partial(lambda both, _: len(both[0]), (table, k)),
    "in a list": lambda table, k: partial(lambda both, _: len(both[0]), [table]),
    "method": lambda table, k: Holder(table, k).size,
}


@pytest.mark.parametrize("how", HELD)
def test_a_table_that_many_functions_share_is_looked_at_once(how: str) -> None:
    """It was looked at once for each: 400 partials over 200,000 records took 7.7 s, dask 0.16."""
    looks = []
    for n in (20, 40):
        table = Counted((i, {"id": i}) for i in range(1000))
        Counted.looks = 0
        parts = [
            dask.delayed(HELD[how](table, k), pure=False)(k=0)
            if how == "keyword"
            else dask.delayed(HELD[how](table, k), pure=False)(k)
            for k in range(n)
        ]
        with switched_on():
            assert dask.delayed(sum)(parts).compute(scheduler="sync") >= n * 1000
        looks.append(Counted.looks)
    assert looks[0] == looks[1] <= 6


def test_what_many_hold_is_a_part_of_its_own() -> None:
    table = [{"id": i} for i in range(5000)]
    scales = Scales(min_bytes=10_000)
    weights = [scales.weigh(partial(taken, table, k=k)) for k in range(3)]
    assert [[core is table for core in weight.cores] for weight in weights] == [[True]] * 3


def test_long_lists_are_suspected_without_a_look_at_their_items() -> None:
    """1.5 million records in four partitions took 4.1 s, dask 0.7."""
    records = [Counted({0: i}) for i in range(2000)]
    Counted.looks = 0
    assert list(suspects({1: records}, Scales(min_bytes=10_000))) == [1]
    assert not Counted.looks
    assert suspects({1: records[:10]}, Scales(min_bytes=10_000)) == {}


class Lazy(ModuleType):
    """A module that imports what it is asked for, as many do."""

    asked = 0

    def __getattr__(self, name: str) -> Any:
        Lazy.asked += not name.startswith("__")
        raise AttributeError(name)


class Model:
    """Says itself how it is pickled; its functions are made by `exec`, as those of sympy's `lambdify`."""

    def __init__(self, count: int, held: Any = None) -> None:
        self.functions, self.held = [], held
        for _ in range(count):
            names: dict[str, Any] = {}
            exec("def where(block): return block + 1", names)
            self.functions.append(names["where"])

    def __getstate__(self) -> Any:
        return {"functions": self.functions, "held": self.held}


def test_modules_are_not_searched_for_the_functions_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lazy_for_this_test", Lazy("lazy_for_this_test"))
    scales = Scales(1000)
    assert scales.nbytes(scales.weigh(Model(100))) > 1000
    assert Lazy.asked == 0


def test_an_object_weighs_what_it_is_pickled_as() -> None:
    for held in (np.arange(1000), [bytes(8000)], pytest.importorskip("pyarrow").py_buffer(bytes(8000))):
        scales = Scales(1000)
        assert 8000 <= scales.nbytes(scales.weigh(Model(1, held))) < 10_000
    loop = Model(1)
    loop.held = [loop]
    assert not Scales(10_000).weigh(loop).cores


def test_an_object_that_holds_what_cannot_be_pickled_stays() -> None:
    scales = Scales(1000)
    assert not scales.weigh(Model(1, [bytes(8000), (i for i in range(3))])).cores
    ((name, said),) = scales.failed.items()
    assert name.endswith("Model")
    assert "generator" in said


def test_a_labelled_array_inside_of_an_object_that_is_pickled_in_its_own_way_is_heavy() -> None:
    xr = pytest.importorskip("xarray")
    scales = Scales(1000)
    model = Model(1, xr.Dataset({"a": ("x", np.arange(1000.0))}))
    assert scales.weigh(model).cores == (model,)
