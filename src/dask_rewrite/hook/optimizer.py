"""The optimizer: called with collections, with a graph and keys, or offered its parent by dask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import toolz
from dask._expr import Expr, HLGExpr
from dask.array.optimization import optimize as array_optimize
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key

from dask_rewrite.config import Options
from dask_rewrite.hook.apart import among_others
from dask_rewrite.hook.memory_limit import checkpoint, within_limit
from dask_rewrite.hook.operand import Operand
from dask_rewrite.hook.parents import (
    as_stock,
    asks_for_delayed,
    is_graph,
    layer_of,
    may_fuse_delayed,
    over,
    program_of,
)
from dask_rewrite.lowering.layer_order import as_layers
from dask_rewrite.remarks import warn
from dask_rewrite.scheduler import on_event_loop

if TYPE_CHECKING:
    from dask_rewrite.pipeline.trace import Trace


#: Tasks that are rewritten while an event loop waits, which takes a quarter of a second at most.
MOST_ON_EVENT_LOOP = 10_000
_STANDS_STILL = (
    f"a graph of more than {MOST_ON_EVENT_LOOP:,} tasks is left as it is, since the event loop "
    "of an asynchronous client waits meanwhile; `await asyncio.to_thread(client.compute, x)` rewrites it "
    "without keeping the loop waiting"
)


class Optimizer(Operand):
    """The object that stands under ``array_optimize``, ``delayed_optimize`` and ``bag_optimize``.

    Called with collections it optimizes them; called with a graph and keys it is a classic dask
    optimization function; offered its parent expression it rewrites that on the client.

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_rewrite
    >>> x = da.arange(10, chunks=5).sum()
    >>> y = dask_rewrite.optimize(x)
    >>> int(y.compute())
    45
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """``optimize(*collections)``, or ``optimize(dsk, keys)`` as dask calls it.

        Parameters
        ----------
        *args
            One or several dask collections (array, delayed, bag, dataframe, xarray objects), or a graph
            and the keys that are wanted of it.

        Returns
        -------
        collection, tuple of collections, or HighLevelGraph
            As many collections as were given, of the same types and with the same keys.

        Raises
        ------
        TypeError
            If an argument is neither.
        """
        if "keys" in kwargs or (len(args) == 2 and is_graph(args[0])):
            dsk = args[0] if args else kwargs.pop("dsk")
            wanted = args[1] if len(args) > 1 else kwargs.pop("keys")
            return self._optimize_graph(dsk, wanted, **kwargs)
        from dask_rewrite.hook.collections import optimize_collections

        if kwargs:
            raise TypeError(f"optimize() got an unexpected keyword argument {next(iter(kwargs))!r}")
        return optimize_collections(args)

    def _optimize_graph(self, dsk: Any, keys: Any, fuse_keys: Any = (), **kwargs: Any) -> Any:
        if not Options.current().enabled:
            return array_optimize(dsk, keys)
        flat = list(flatten(keys if isinstance(keys, (list, set)) else [keys]))
        outputs = [*flat, *fuse_keys]  # what dask calls the keys that must not be fused away
        from dask_rewrite.hook.assemble import assemble
        from dask_rewrite.pipeline.run import rewrite_tasks

        hlg = as_layers(dsk)
        fuse = may_fuse_delayed() or not any(type(key) is str for key in flat)
        graph = rewrite_tasks(hlg, outputs, fuse_text_keys=fuse, shared=True)
        within_limit(hlg, graph, outputs)
        if graph is None:  # too large, or something failed and was reported
            return array_optimize(dsk, keys)
        return assemble(graph, toolz.groupby(partial(layer_of, hlg), flat))

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        """Called by dask before it puts collections of one optimizer together, whatever is in between."""
        return among_others(parent, dependents, self) if isinstance(parent, HLGExpr) else None

    def _rewritten(self, parent: HLGExpr) -> HLGExpr:
        graph, keys = self.graph_of(parent)
        return as_stock(parent) if graph is None else over(parent, graph, keys)

    def graph_of(
        self, parent: HLGExpr, shared: bool = False, trace: Trace | None = None
    ) -> tuple[HighLevelGraph | None, Any]:
        """The rewritten graph, or None if it is too large; and the keys that are wanted of it.

        ``shared`` says that others, which are optimized apart, may hold the same blocks.
        """
        # All that rewrites is imported with the first graph, so that importing the package costs little.
        from dask_rewrite.hook.assemble import assemble
        from dask_rewrite.pipeline.run import rewrite_tasks

        hlg, keys = program_of(parent)
        fuse = may_fuse_delayed() or not asks_for_delayed(parent)
        outputs = list(dict.fromkeys(flatten(keys)))
        start = checkpoint()
        first = rewrite_tasks(
            hlg,
            outputs,
            fuse_text_keys=fuse,
            shared=shared,
            max_tasks=most_tasks(),
            trace=trace,
            checkpoint=start,
        )
        if trace is None and first is None and on_event_loop():
            warn(_STANDS_STILL)
        graph = within_limit(hlg, first, outputs, start, trace)
        return None if graph is None else assemble(graph), keys


def most_tasks() -> int:
    """A graph of more tasks is left to dask's own optimizer."""
    limit = Options.current().lower_limit
    return min(limit, MOST_ON_EVENT_LOOP) if on_event_loop() else limit


def asks_on_the_client() -> bool:
    """Whether this dask offers an optimizer its parent."""
    return hasattr(Expr, "rewrite") and hasattr(Expr, "_tune_up")


def check_hook() -> bool:
    """The same; warns once if it does not."""
    if asks_on_the_client():
        return True
    warn("this version of dask does not ask optimizers on the client; rewriting happens later")
    return False


optimize = Optimizer()


def rewrite(
    dsk: HighLevelGraph | Mapping[Key, Any], keys: Any, *, trace: Trace | None = None
) -> HighLevelGraph:
    """Rewrite a raw graph; one that is too large to lower comes back as it was.

    Examples
    --------
    >>> import dask.array as da
    >>> x = (da.ones(10, chunks=5) + 1) * 2
    >>> len(rewrite(x.dask, x.__dask_keys__()).to_dict())
    2
    """
    from dask_rewrite.hook.assemble import assemble
    from dask_rewrite.pipeline.run import rewrite_tasks

    graph = rewrite_tasks(dsk, keys, trace=trace)
    return as_layers(dsk) if graph is None else assemble(graph)
