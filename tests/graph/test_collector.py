"""The collector of garbage rests while graphs are made, and finds all garbage afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from dask_rewrite.graph.collector import _MANY, collector_paused


class Circle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """As a program has it, whoever ran before."""
    enabled = gc.isenabled()
    gc.enable()
    yield
    gc.unfreeze()
    if not enabled:
        gc.disable()


def test_many_new_objects_are_old_afterwards() -> None:
    gc.collect()
    with collector_paused():
        assert not gc.isenabled()
        made = [[i] for i in range(2 * _MANY)]
        assert gc.get_count()[0] > _MANY
    assert gc.isenabled()
    assert gc.get_count()[0] < _MANY
    assert len(made) == 2 * _MANY
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("many", [10, 2 * _MANY])
def test_garbage_is_still_found(many: int) -> None:
    with collector_paused():
        made = [[i] for i in range(many)]
        garbage = weakref.ref(Circle())
        assert garbage() is not None
    gc.collect()
    assert garbage() is None
    assert len(made) == many


def test_garbage_of_a_loop_over_large_graphs_does_not_pile_up() -> None:
    remembered = []
    for _ in range(40):
        with collector_paused():
            made = [[i] for i in range(2 * _MANY)]
            kept = Circle()
        remembered.append(weakref.ref(kept))
        del made
    assert sum(each() is not None for each in remembered) <= 12


def test_what_was_frozen_stays_frozen() -> None:
    gc.freeze()
    kept: list[Any] = []
    with collector_paused():
        kept.extend([i] for i in range(2 * _MANY))
    assert gc.get_freeze_count() > 0


def test_one_within_another_and_a_collector_that_was_off() -> None:
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()
