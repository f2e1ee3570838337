"""The hook: an optimizer that is an expression, so that it runs on the client before pickling.

Dask wraps a collection in ``HLGExpr(dsk, low_level_optimizer, ...)``, optimizes that expression on the
client, pickles it, and calls ``low_level_optimizer`` on the scheduler. An optimizer that is itself an
`Expr` is an operand of that expression, and dask's own rewriting offers it its parent, on the client.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

from dask._expr import Expr, HLGExpr
from dask.array.optimization import optimize as array_optimize
from dask.delayed import optimize as delayed_optimize
from toolz import identity

from dask_rewrite.config import OPTIMIZER, Options
from dask_rewrite.graph.collector import collector_paused
from dask_rewrite.hook.notes import watch
from dask_rewrite.hook.parents import only_builds, with_optimizer


class Operand(int, Expr):
    """An optimizer as an operand of the expression that it rewrites.

    It is a true ``int`` of value 0, since cluster launchers send the whole configuration as JSON: there
    it arrives as ``0``, which dask reads as "do not optimize". Pickled, it becomes dask's own array
    optimizer; nothing of this package is needed to load it.
    """

    _name = OPTIMIZER
    operands: ClassVar[list[Any]] = []  # type: ignore[misc] # dask sets it on each instance
    _determ_token = OPTIMIZER

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        return int.__new__(cls, 0)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # an expression's own looks for operands

    def _tune_up(self, parent: Expr) -> Expr | None:
        """Called by dask on the client with the expression that this is an operand of."""
        if not isinstance(parent, HLGExpr) or not Options.current().enabled:
            return None
        if only_builds(parent):  # all names stay, and are rewritten with the whole
            return with_optimizer(parent, delayed_optimize)
        watch()
        with collector_paused():
            return self._rewritten(parent)

    @abstractmethod
    def _rewritten(self, parent: HLGExpr) -> HLGExpr:
        """The expression over the rewritten graph; as it is without this package if that is too large."""

    def __bool__(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(array_optimize)

    def __eq__(self, other: object) -> bool:
        # Dask groups collections by optimizer and returns results in the order of the groups:
        # a collection that names dask's own function must come into the same group as ours.
        return other is self or other is array_optimize

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> Any:
        return identity, (array_optimize,)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __dask_tokenize__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return "<dask_rewrite optimizer>"

    __str__ = __repr__

    def dependencies(self) -> list[Expr]:
        return []

    def _layer(self) -> dict[Any, Any]:
        return {}

    __dask_graph__ = _layer
