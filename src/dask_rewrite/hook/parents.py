"""Dask's expressions over graphs: what is wanted of one, and the same one over another graph.

Dask offers an optimizer the expression that it is an operand of. This module takes the raw graph and
the keys out of it, and puts it back together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import dask.config
from dask._expr import HLGExpr, HLGFinalizeCompute
from dask._task_spec import Task
from dask.array.optimization import optimize as array_optimize
from dask.base import dont_optimize
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
#: Where dask optimizes what stands in a list, dict or other container that a delayed call is given.
_IN_CONTAINERS = getattr(
    getattr(import_module("dask.delayed"), "_finalize_args_collections", None), "__code__", None
)


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
    """The same kind of expression over a rewritten graph, with nothing left to optimize.

    Its optimizer does nothing, and is equal to no other: dask puts all expressions together that have the
    same one, or none.
    """
    kind: Any = HLGExpr if isinstance(parent, HLGFinalizeCompute) else type(parent)
    found: HLGExpr = kind(dsk=hlg, low_level_optimizer=partial(dont_optimize), output_keys=keys)
    return found


def as_stock(parent: HLGExpr) -> HLGExpr:
    """The expression as it is without this package: over the raw graph, with dask's own optimizer."""
    return with_optimizer(parent, _stock_optimizer(parent))


def with_optimizer(parent: HLGExpr, optimizer: Any) -> HLGExpr:
    """The same expression with another optimizer."""
    operands = list(parent.operands)
    operands[parent._parameters.index("low_level_optimizer")] = optimizer
    if isinstance(parent, HLGFinalizeCompute):
        operands[0] = with_optimizer(operands[0], optimizer)
    return type(parent)(*operands)


def asks_for_delayed(parent: HLGExpr) -> bool:
    """Whether somebody asked for delayed objects themselves."""
    return not isinstance(parent, HLGFinalizeCompute) and _DELAYED in _posts(parent)


def only_builds(parent: HLGExpr) -> bool:
    """Whether delayed work that dask optimizes becomes part of a larger graph instead of being computed.

    Dask optimizes what stands in the list of ``delayed(f)([a, b])`` when that is written, and others that are
    computed with it later may hold the same tasks. Its expressions do not tell this from a computation, its
    calls do.
    """
    frame = sys._getframe(1) if _IN_CONTAINERS is not None and _DELAYED in _posts(parent) else None
    while frame is not None:
        if frame.f_code is _IN_CONTAINERS:
            return True
        frame = frame.f_back
    return False


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


def layer_of(hlg: HighLevelGraph, key: Any) -> Any:
    """The layer that a key is in."""
    name = layer_name(key)
    if name in hlg.layers:
        return name
    return next((n for n, layer in hlg.layers.items() if layer.is_materialized() and key in layer), name)


def is_graph(value: Any) -> bool:
    """Whether it is a graph, and no collection."""
    return isinstance(value, (HighLevelGraph, Mapping)) and not hasattr(value, "__dask_graph__")
