"""Dask's expressions over graphs: what is wanted of one, and the same one over another graph.

Dask offers an optimizer the expression that it is an operand of. This module takes the raw graph and
the keys out of it, and puts it back together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import dask.config
from dask._expr import HLGExpr, HLGFinalizeCompute
from dask._task_spec import Task
from dask.array.optimization import optimize as array_optimize
from dask.core import flatten
from dask.delayed import Delayed
from dask.delayed import optimize as delayed_optimize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_rewrite.graph.names import layer_name
from dask_rewrite.hook.finalize import slim, slim_value
from dask_rewrite.lowering.layer_order import as_layers
from dask_rewrite.scheduler import machine

#: What follows the computation of a delayed object, as dask names it.
_DELAYED = Delayed("x", {}).__dask_postcompute__()[0]


def program_of(parent: HLGExpr) -> tuple[HighLevelGraph, Any]:
    """The raw graph that an expression stands for, and the (nested) keys that are wanted of it.

    Its finalize tasks hold on to no collection, and layers that nobody needs are left out.
    """
    if not isinstance(parent, HLGFinalizeCompute):
        keys = parent.__dask_keys__()
        return _slim_layers(_needed_layers(as_layers(parent.hlg), keys), keys), keys
    inner = parent.operand("dsk")
    wanted = inner.__dask_keys__()
    post = _slim_post(parent.postcompute)
    below = HLGExpr(dsk=_needed_layers(inner.hlg, wanted), output_keys=wanted, postcompute=post)
    whole = HLGFinalizeCompute(below, output_keys=wanted, postcompute=post)
    return whole.hlg, whole.__dask_keys__()


def over(parent: HLGExpr, hlg: HighLevelGraph, keys: Any) -> HLGExpr:
    """The same kind of expression over a rewritten graph, with nothing left to optimize."""
    kind = HLGExpr if isinstance(parent, HLGFinalizeCompute) else type(parent)
    return kind(dsk=hlg, output_keys=keys)  # type: ignore[no-untyped-call] # dask has no types here


def as_stock(parent: HLGExpr) -> HLGExpr:
    """The expression as it is without this package: over the raw graph, with dask's own optimizer."""
    operands = list(parent.operands)
    operands[parent._parameters.index("low_level_optimizer")] = _stock_optimizer(parent)
    if isinstance(parent, HLGFinalizeCompute):
        operands[0] = as_stock(operands[0])
    return type(parent)(*operands)


def asks_for_delayed(parent: HLGExpr) -> bool:
    """Whether somebody asked for delayed objects themselves."""
    return not isinstance(parent, HLGFinalizeCompute) and _DELAYED in _posts(parent)


def may_fuse_delayed() -> bool:
    """Dask's own option: people watch delayed tasks by name, so that they are not fused by default.

    Under a limit they are, where nobody else can hold them: what one task hands to the next is held by
    nobody then, however large it may be.
    """
    if dask.config.get("optimization.fuse.delayed", False):
        return True
    return dask.config.get("rewrite.memory-limit", None) is not None and machine().workers == 1


def _stock_optimizer(parent: HLGExpr) -> Any:
    """What dask would call: its array optimizer unless there are only delayed objects, or only bags."""
    posts = set(_posts(parent))
    if posts == {_DELAYED}:
        return delayed_optimize
    if posts and all(getattr(post, "__module__", "") == "dask.bag.core" for post in posts):
        from dask.bag.core import optimize as bag_optimize

        return bag_optimize
    return array_optimize


def _posts(parent: HLGExpr) -> Iterator[Any]:
    posts = parent.postcompute
    return (post[0] for post in (posts if isinstance(posts, list) else [posts]) if post)


def _slim_post(post: Any) -> Any:
    if isinstance(post, list):
        return [_slim_post(each) for each in post]
    func, args = post
    return slim_value(func), tuple([slim_value(arg) for arg in args])


def _names(keys: Any) -> set[Any]:
    return set(map(layer_name, flatten(keys)))


def _needed_layers(hlg: HighLevelGraph, keys: Any) -> HighLevelGraph:
    """The layers below these keys. Dask's own ``cull_layers`` is quadratic in their number."""
    layers, dependencies = hlg.layers, hlg.dependencies
    names = _names(keys)
    if not names <= layers.keys():
        return hlg
    needed = _below(dependencies, names)
    return HighLevelGraph(
        {name: layer for name, layer in layers.items() if name in needed},
        {name: needed & dependencies[name] for name in layers if name in needed},
    )


def _below(dependencies: Any, names: Iterable[str]) -> set[str]:
    found = set(names)
    stack = list(found)
    while stack:
        new = dependencies[stack.pop()] - found
        found |= new
        stack.extend(new)
    return found


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
