"""The optimizer that writes down what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask._expr import Expr, HLGExpr
from dask.highlevelgraph import HighLevelGraph

from dask_rewrite.config import Options
from dask_rewrite.hook.optimizer import Optimizer
from dask_rewrite.hook.parents import program_of

if TYPE_CHECKING:
    from dask_rewrite.pipeline.trace import Trace


class Recorder(Optimizer):
    """The optimizer, writing down what it does with the graphs that it is offered.

    Attributes
    ----------
    trace : Trace or None
        What became of the first graph; None if it was not asked, as for dataframes.
    raw : HighLevelGraph or None
        That graph as it came.
    """

    def __init__(self, nbytes: bool = False) -> None:
        self.nbytes = nbytes
        self.trace: Trace | None = None
        self.raw: HighLevelGraph | None = None

    def _tune_up(self, parent: Expr) -> Expr | None:
        return self._rewritten(parent) if isinstance(parent, HLGExpr) else None

    def graph_of(
        self, parent: HLGExpr, shared: bool = False, trace: Trace | None = None
    ) -> tuple[HighLevelGraph | None, Any]:
        from dask_rewrite.pipeline.trace import Trace

        self.trace = trace = Trace(nbytes=self.nbytes)
        self.raw, keys = program_of(parent)
        if Options.current().enabled:
            return super().graph_of(parent, shared, trace)
        trace.form = "stock"
        trace.remarks.missed("lower", None, "left to dask's own optimizer: rewrite.enabled is false")
        return None, keys
