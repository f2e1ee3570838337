"""Workloads whose tasks all carry one heavy object, and what workers keep of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.workloads.registry import workload


class Model:
    """An object of the user's own, of 240 kB; ``sizeof`` sees 56 bytes."""

    def __init__(self, size: int = 30_000) -> None:
        self.weights = np.sqrt(np.arange(float(size)))

    def predict(self, block: Any) -> Any:
        return block + self.weights[block.astype(int) % len(self.weights)]


def _apply(block: Any, model: Model) -> Any:
    return model.predict(block)


def _closure(model: Model) -> Callable[[Any], Any]:
    def apply(block: Any) -> Any:
        return model.predict(block)

    return apply


WAYS: dict[str, Callable[[Any, Model], Any]] = {
    "argument": lambda x, model: x.map_blocks(_apply, model, dtype=float),
    "keyword": lambda x, model: x.map_blocks(_apply, model=model, dtype=float),
    "closure": lambda x, model: x.map_blocks(_closure(model), dtype=float),
    "partial": lambda x, model: x.map_blocks(partial(_apply, model=model), dtype=float),
    "bound-method": lambda x, model: x.map_blocks(model.predict, dtype=float),
}


def _payload(way: str) -> Callable[[ModuleType, int], Any]:
    def build(da: ModuleType, n: int) -> Any:
        x = da.arange(4 * n, chunks=4).astype(float)
        return WAYS[way](x, Model())

    return build


for _way in WAYS:
    workload(
        8,
        1000,
        1000,
        f"payload-{_way}",
        f"An object of 240 kB as {_way} of map_blocks on n blocks.",
        heavy=True,
    )(_payload(_way))


def _persisted(way: str) -> Callable[..., Any]:
    def build(da: ModuleType, n: int, share: Any = None) -> Any:
        x = da.arange(4 * n, chunks=4).astype(float)
        if share is None:
            return WAYS[way](x, Model())
        # A key of its own: workers may lose data scattered again under a key they are just releasing.
        model = share.scatter(Model(), broadcast=True, hash=False)
        return x.map_blocks(_apply, model=model, dtype=float, meta=np.empty(0))

    return build


for _way in WAYS:
    workload(
        8,
        1000,
        1000,
        f"persisted-{_way}",
        f"The same object as {_way}, persisted on a cluster, beside Client.scatter.",
        heavy=True,
        persisted=True,
        on=("2x1",),
    )(_persisted(_way))
