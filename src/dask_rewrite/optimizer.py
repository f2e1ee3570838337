"""The hook: an optimizer that is an expression, so that it runs on the client before pickling.

Dask wraps a collection in ``HLGExpr(dsk, low_level_optimizer, ...)``, optimizes that expression on the
client, pickles it, and calls ``low_level_optimizer`` on the scheduler. An optimizer that is itself an
`Expr` is an operand of that expression, and dask's own rewriting offers it its parent, on the client.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import dask.config
import toolz
from dask._expr import Expr, HLGExpr, HLGFinalizeCompute
from dask._task_spec import Task
from dask.array.optimization import optimize as array_optimize
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from toolz import identity

from dask_rewrite.config import Options
from dask_rewrite.finalize import slim, slim_value
from dask_rewrite.graph import Graph
from dask_rewrite.layer_order import as_layers
from dask_rewrite.names import layer_name
from dask_rewrite.remarks import RewriteWarning
from dask_rewrite.sending import better_as_layers, layer_bytes, most_tasks

#: With more layers than this, dask's own fusion on the scheduler could nest too deep.
SHALLOW = 60


class Optimizer(int, Expr):
    """The object that stands under ``array_optimize``, ``delayed_optimize`` and ``bag_optimize``.

    Called with collections it optimizes them; called with a graph and keys it is a classic dask
    optimization function; offered its parent expression it rewrites that on the client.

    It is a true ``int`` of value 0, since cluster launchers send the whole configuration as JSON: there
    it arrives as ``0``, which dask reads as "do not optimize". Pickled, it becomes dask's own array
    optimizer; nothing of this package is needed to load it.

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_rewrite
    >>> x = da.arange(10, chunks=5).sum()
    >>> y = dask_rewrite.optimize(x)
    >>> int(y.compute())
    45
    """

    _name = "dask-rewrite-optimizer"
    operands: ClassVar[list[Any]] = []  # type: ignore[misc] # dask sets it on each instance
    _determ_token = "dask-rewrite-optimizer"

    def __new__(cls) -> Optimizer:
        return int.__new__(cls, 0)

    # -- faces ---------------------------------------------------------------------------------

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
        if "keys" in kwargs or (len(args) == 2 and _is_graph(args[0])):
            dsk = args[0] if args else kwargs.pop("dsk")
            wanted = args[1] if len(args) > 1 else kwargs.pop("keys")
            return self._optimize_graph(dsk, wanted, **kwargs)
        from dask_rewrite.collections import optimize_collections

        if kwargs:
            raise TypeError(f"optimize() got an unexpected keyword argument {next(iter(kwargs))!r}")
        return optimize_collections(args)

    def _optimize_graph(self, dsk: Any, keys: Any, fuse_keys: Any = (), **kwargs: Any) -> Any:
        if not Options.current().enabled:
            return array_optimize(dsk, keys)
        flat = list(flatten(keys if isinstance(keys, (list, set)) else [keys]))
        outputs = [*flat, *fuse_keys]  # what dask calls the keys that must not be fused away
        from dask_rewrite.assemble import assemble
        from dask_rewrite.pipeline import rewrite_tasks

        hlg = as_layers(dsk)
        fuse = _may_fuse_delayed() or not any(type(key) is str for key in flat)
        graph = rewrite_tasks(hlg, outputs, fuse_text_keys=fuse, max_tasks=-1)
        if graph is None:  # something failed and was reported
            return array_optimize(dsk, keys)
        return assemble(graph, toolz.groupby(partial(_layer_of, hlg), flat))

    def _tune_up(self, parent: Expr) -> Expr | None:
        """Called by dask on the client with the expression that this is an operand of."""
        if not isinstance(parent, HLGExpr) or not Options.current().enabled:
            return None
        # All that rewrites is imported with the first graph, so that importing the package costs little.
        from dask_rewrite.assemble import assemble
        from dask_rewrite.pipeline import rewrite_tasks

        symbolic = _slim_parent(parent)
        keys = symbolic.__dask_keys__()
        flat = list(dict.fromkeys(flatten(keys)))
        hlg = as_layers(symbolic.hlg)
        layers = layer_bytes(hlg)
        limit = most_tasks(hlg, layers)
        graph = rewrite_tasks(hlg, flat, fuse_text_keys=not _has_delayed(parent), max_tasks=limit)
        if graph is None or better_as_layers(graph, layers):
            from dask_rewrite.symbolic import as_wanted

            symbolic = _slim_parent(parent, as_wanted)
            finish = symbolic.low_level_optimizer
            finish.graph = graph
            finish.layers = len(hlg.layers)
            return symbolic
        kind = HLGExpr if isinstance(parent, HLGFinalizeCompute) else type(parent)
        return kind(dsk=assemble(graph), output_keys=keys)  # type: ignore[no-untyped-call] # dask has no types here

    # -- behaviour as a value ------------------------------------------------------------------

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

    def __copy__(self) -> Optimizer:
        return self

    def __deepcopy__(self, memo: Any) -> Optimizer:
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

    def _operands_for_repr(self) -> list[str]:
        return []

    def dependencies(self) -> list[Expr]:
        return []

    def _layer(self) -> dict[Any, Any]:
        return {}

    __dask_graph__ = _layer


class Finish:
    """Low-level optimizer of a graph that is sent symbolically.

    Called in this process it gives the lowered graph. Pickled it becomes dask's own optimizer, or
    nothing for a graph of so many layers that dask's fusion could nest too deep.
    """

    def __init__(self) -> None:
        self.graph: Graph | None = None
        self.layers = 0

    def __call__(self, dsk: Any, keys: Any, **kwargs: Any) -> Any:
        from dask_rewrite.assemble import assemble
        from dask_rewrite.pipeline import rewrite_tasks

        if self.graph is None:
            self.graph = rewrite_tasks(dsk, keys, max_tasks=-1)
        return array_optimize(dsk, keys) if self.graph is None else assemble(self.graph)

    def __reduce__(self) -> Any:
        return identity, (array_optimize if self.layers <= SHALLOW else None,)


def _slim_parent(parent: HLGExpr, change: Callable[[HighLevelGraph], HighLevelGraph] = identity) -> HLGExpr:
    """The same kind of expression over the layers that are needed, holding on to no collection."""
    finish = Finish()
    inner = parent.operand("dsk")
    if isinstance(parent, HLGFinalizeCompute):
        keys = inner.__dask_keys__()
        post = _slim_post(parent.postcompute)
        below = HLGExpr(
            dsk=change(_needed_layers(inner.hlg, keys)),
            low_level_optimizer=finish,
            output_keys=keys,
            postcompute=post,
        )
        return HLGFinalizeCompute(below, low_level_optimizer=finish, output_keys=keys, postcompute=post)
    keys = parent.__dask_keys__()
    hlg = _slim_layers(_needed_layers(as_layers(parent.hlg), keys), keys)
    return type(parent)(dsk=change(hlg), low_level_optimizer=finish, output_keys=keys)


def _slim_post(post: Any) -> Any:
    if isinstance(post, list):
        return [_slim_post(each) for each in post]
    func, args = post
    return slim_value(func), tuple([slim_value(arg) for arg in args])


def _names(keys: Any) -> set[Any]:
    return set(map(layer_name, flatten(keys)))


def _needed_layers(hlg: HighLevelGraph, keys: Any) -> HighLevelGraph:
    names = _names(keys)
    return hlg.cull_layers(names) if names <= hlg.layers.keys() else hlg


def _slim_layers(hlg: HighLevelGraph, keys: Any) -> HighLevelGraph:
    """Slim finalize tasks, where they are tasks already: several collections computed together."""
    layers = dict(hlg.layers)
    for name in _names(keys) & layers.keys():
        layer = layers[name]
        if isinstance(layer, MaterializedLayer) and list(layer.mapping) == [name]:
            task = layer.mapping[name]
            if type(task) is Task:
                layers[name] = MaterializedLayer({name: slim(task)}, annotations=layer.annotations)
    return HighLevelGraph(layers, hlg.dependencies)


def _has_delayed(parent: HLGExpr) -> bool:
    """Whether somebody asked for delayed objects themselves: their tasks are watched by name."""
    if isinstance(parent, HLGFinalizeCompute) or _may_fuse_delayed():
        return False
    delayed = Delayed("x", {}).__dask_postcompute__()[0]
    posts = parent.postcompute if isinstance(parent.postcompute, list) else [parent.postcompute]
    return any(post and post[0] is delayed for post in posts)


def _may_fuse_delayed() -> bool:
    """Dask's own option: people watch delayed tasks by name, so that they are not fused by default."""
    return bool(dask.config.get("optimization.fuse.delayed", False))


def _layer_of(hlg: HighLevelGraph, key: Any) -> Any:
    name = layer_name(key)
    if name in hlg.layers:
        return name
    return next((n for n, layer in hlg.layers.items() if layer.is_materialized() and key in layer), name)


def _is_graph(value: Any) -> bool:
    return isinstance(value, (HighLevelGraph, Mapping)) and not hasattr(value, "__dask_graph__")


def check_hook() -> bool:
    """Whether this dask offers an optimizer its parent; warns once if it does not."""
    if hasattr(Expr, "rewrite") and hasattr(Expr, "_tune_up"):
        return True
    warnings.warn(
        "dask_rewrite: this version of dask does not ask optimizers on the client; rewriting happens later",
        RewriteWarning,
        stacklevel=3,
    )
    return False


optimize = Optimizer()
