"""Objects that cannot be pickled, and tasks that hold them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

da = pytest.importorskip("dask.array")


LOCK = threading.Lock()


class Model:
    def __init__(self, size=10_000, **attributes):
        self.weights = np.arange(size, dtype=float)
        self.__dict__.update(attributes)

    def score(self, block, extra=None):
        return block


def generator():
    yield 1


def collection(tasks, key, layer="layer"):
    return Delayed(key, HighLevelGraph({layer: MaterializedLayer(tasks)}, {layer: set()}), layer=layer)


# -- what cannot be pickled ------------------------------------------------------------------------


def closure_over(value):
    return lambda block: (value, block)[1]


def default_of(value):
    def function(block, kept=value):
        return block

    return function


def uses_global():
    # executed apart, so that it has globals of its own, as in a notebook
    space = {"LOCK": threading.Lock(), "__name__": "__main__"}
    exec("def function(block):\n    return [LOCK for _ in range(2)] and block", space)
    return space["function"]
