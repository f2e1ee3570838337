"""The optimizer where collections of another kind stand between ours."""

from __future__ import annotations

from typing import Any

from dask_rewrite.config import OPTIMIZER
from dask_rewrite.hook.optimizer import Optimizer


class Apart(Optimizer):
    """The optimizer of collections that stand among others, with some of another kind in between.

    Dask gives results group by group: in ``dask.compute(x, frame, y)`` those of arrays x and y would come
    before that of the frame.

    Parameters
    ----------
    place : int
        How many such groups of ours, or others, come before.
    """

    shares = True

    def __init__(self, place: int) -> None:
        self._place = place
        self._name = self._determ_token = f"{OPTIMIZER}-{place}"

    def _simplify_up(self, parent: Any, dependents: Any) -> None:
        return None

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return type(other) is Apart and other._place == self._place
