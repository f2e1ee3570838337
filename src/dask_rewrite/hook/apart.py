"""The optimizer where collections of another kind stand between ours.

Dask gives results group by group: in ``dask.compute(x, frame, y)`` those of arrays x and y would come before
that of the frame. So they are groups of their own, but of one graph: what x and y share is made once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, Protocol

from dask._expr import Expr, HLGExpr, _ExprSequence, _HLGExprSequence
from dask.highlevelgraph import HighLevelGraph

from dask_rewrite.config import OPTIMIZER
from dask_rewrite.hook.operand import Operand
from dask_rewrite.hook.parents import as_stock, over, with_optimizer

_FOUND = "_dask_rewrite_apart"


class Rewriting(Protocol):
    """An optimizer that gives the rewritten graph of an expression, or None, and the keys wanted of it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def graph_of(self, parent: HLGExpr, shared: bool = ...) -> tuple[HighLevelGraph | None, Any]: ...


def among_others(parent: Expr, dependents: Mapping[str, Any], ours: Rewriting) -> HLGExpr | None:
    """The expression of a collection, with an optimizer of its own if others come between ours.

    Parameters
    ----------
    parent : Expr
        The expression of the collection.
    dependents : mapping
        From names of expressions to weak references to those that they are part of.
    ours : Rewriting
        The optimizer of collections that dask would put together.

    Returns
    -------
    HLGExpr or None
        None if ours are in one group anyway.
    """
    wholes = [ref() for ref in dependents.get(parent._name, ())]
    whole = next((each for each in wholes if isinstance(each, (_ExprSequence, _HLGExprSequence))), None)
    return None if whole is None else _apart(whole, ours).get(parent._name)


def _apart(whole: Expr, ours: Rewriting) -> dict[str, HLGExpr]:
    """Ours of all collections that are computed together, by their names; none if they are in one group.

    Kept with the expression: each of its collections asks.
    """
    found: dict[str, HLGExpr] | None = vars(whole).get(_FOUND)
    if found is None:
        parts = whole.operands
        is_ours = [isinstance(part, HLGExpr) and part.low_level_optimizer == ours for part in parts]
        groups = list(accumulate([one != other for one, other in pairwise(is_ours)], initial=1))
        mine = [(part, group) for part, group, own in zip(parts, groups, is_ours) if own]
        found = {}
        if len({group for _, group in mine}) > 1:
            together = Together(ours)
            for part, group in mine:
                found[part._name] = with_optimizer(part, Apart(group, together))
            together.parts = list(found.values())
        object.__setattr__(whole, _FOUND, found)  # an expression's own looks for operands
    return found


class Together:
    """Collections that stand apart: they are rewritten as one graph all the same.

    Attributes
    ----------
    optimizer : Rewriting
        What rewrites them.
    parts : list of HLGExpr
        Their expressions.
    """

    def __init__(self, optimizer: Rewriting) -> None:
        self.optimizer = optimizer
        self.parts: list[HLGExpr] = []

    @cached_property
    def graph(self) -> HighLevelGraph | None:
        """The rewritten graph; None if it was left to dask's own optimizer."""
        whole = HLGExpr(
            dsk=HighLevelGraph.merge(*[part.hlg for part in self.parts]),
            low_level_optimizer=self.optimizer,
            output_keys=[part.__dask_keys__() for part in self.parts],
            postcompute=[part.postcompute for part in self.parts],
        )
        graph, _ = self.optimizer.graph_of(whole, shared=True)
        self.parts = []  # which hold this
        return graph


class Apart(Operand):
    """The optimizer of collections that stand among others, with some of another kind in between.

    Parameters
    ----------
    group : int
        How many such groups of ours, or others, there are up to this one.
    together : Together
        What ours have together.
    """

    def __init__(self, group: int, together: Together) -> None:
        self._group, self._together = group, together
        self._name = self._determ_token = f"{OPTIMIZER}-{group}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._together.optimizer(*args, **kwargs)

    def _rewritten(self, parent: HLGExpr) -> HLGExpr:
        if (graph := self._together.graph) is not None:
            return over(parent, graph, parent.__dask_keys__())
        stock = as_stock(parent)  # whose optimizer would be that of one group again, if it were equal
        return with_optimizer(stock, partial(stock.low_level_optimizer))

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return type(other) is Apart and other._group == self._group
