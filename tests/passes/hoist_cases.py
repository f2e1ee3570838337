"""Programs whose tasks carry heavy objects."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.hoist import Hoist
from dask_rewrite.remarks import Remarks

BLOCKS = 50


X = np.arange(float(BLOCKS))


class Model:
    """30,000 numbers, and what they do to a block."""

    def __init__(self) -> None:
        self.table = np.arange(30_000.0)

    def predict(self, block: Any) -> Any:
        return block + self.table[2]

    __call__ = predict


class Slotted:
    __slots__ = ("model",)

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, block: Any) -> Any:
        return self.model.predict(block)


def apply(block: Any, model: Any) -> Any:
    return model.predict(block)


def apply_in(block: Any, holding: Any) -> Any:
    return holding["models"][0][0].predict(block)


def blocks() -> da.Array:
    return da.from_array(X, chunks=1)


def mapped(function: Any, *args: Any, **kwargs: Any) -> da.Array:
    return blocks().map_blocks(function, *args, dtype=float, meta=np.empty(0), **kwargs)


def hoisted(tasks: Any) -> list[Any]:
    return [key for key in tasks if str(key).startswith("hoist-")]


def run(
    nodes: dict[Any, Any], outputs: tuple[Any, ...] | None = None, **options: Any
) -> tuple[Graph, Remarks]:
    graph = Graph(nodes, outputs or tuple(nodes))
    remarks = Remarks()
    result = Hoist(**options).run(graph, Context(remarks))
    verify(result, thorough=True)
    return result, remarks


def ways() -> dict[str, Any]:
    model = Model()

    def closure(block: Any) -> Any:
        return model.predict(block)

    def default(block: Any, model: Any = model) -> Any:
        return model.predict(block)

    return {
        "argument": lambda: mapped(apply, model),
        "keyword": lambda: mapped(apply, model=model),
        "partial argument": lambda: mapped(partial(operator.call, model.predict)),
        "partial keyword": lambda: mapped(partial(apply, model=model)),
        "partial function": lambda: mapped(partial(model)),
        "closure": lambda: mapped(closure),
        "default": lambda: mapped(default),
        "bound method": lambda: mapped(model.predict),
        "callable": lambda: mapped(model),
        "slots": lambda: mapped(Slotted(model)),
        "containers": lambda: mapped(partial(apply_in, holding={"models": [(model,)]})),
        "under a template": lambda: ((mapped(apply, model) + 1) * 2 - X[0]) / 3,
        "in a program": lambda: (lambda y: (y + 1) * (y - 1) + y * 2)(mapped(apply, model)),
        "several in one task": lambda: mapped(apply, model).map_blocks(apply, Model(), dtype=float),
        "delayed argument": lambda: da.concatenate(
            [da.from_delayed(dask.delayed(apply)(X[i : i + 1], model), (1,), float) for i in range(BLOCKS)]
        ),
        "delayed keyword": lambda: da.concatenate(
            [
                da.from_delayed(dask.delayed(apply)(X[i : i + 1], model=model), (1,), float)
                for i in range(BLOCKS)
            ]
        ),
        "a partial of each task": lambda: da.concatenate(
            [
                da.from_delayed(dask.delayed(partial(apply, model=model))(X[i : i + 1]), (1,), float)
                for i in range(BLOCKS)
            ]
        ),
        "a closure of each task": lambda: da.concatenate(
            [
                da.from_delayed(dask.delayed(lambda b, i=i: model.predict(b) + i)(X[i : i + 1]), (1,), float)
                for i in range(BLOCKS)
            ]
        ),
        "an object of each task": lambda: da.concatenate(
            [da.from_delayed(dask.delayed(Slotted(model))(X[i : i + 1]), (1,), float) for i in range(BLOCKS)]
        ),
        "several layers": lambda: da.concatenate([mapped(partial(apply, model=model)) + i for i in range(4)]),
    }


# -- declines ------------------------------------------------------------------------------------


def declined(nodes: dict[Any, Any], **options: Any) -> list[str]:
    graph = Graph(nodes, tuple(nodes))
    remarks = Remarks()
    assert Hoist(**options).run(graph, Context(remarks)) is graph
    return [str(remark) for remark in remarks]
