"""The terms of a sum, opened: what is computed for one slab of the contracted axis."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import GraphNode, Task, TaskRef
from dask.array.routines import _chunk_sum, _matmul, _tensordot
from dask.typing import Key

from dask_rewrite.analysis.knowledge.linear_algebra import PRODUCTS, SUMS
from dask_rewrite.graph.nodes import nameless
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.graph.templates import called_by_keyword, opened
from dask_rewrite.passes.contract.trees import Reducer, makes_product
from dask_rewrite.passes.site import Site


class Term(NamedTuple):
    """One term: the expression to add, and what it takes from the graph.

    Parameters
    ----------
    body : Task
        A task without a key.
    product : bool
        The body is a product of dask's, bare of the sum over its axes of length one.
    views : tuple of Key
        Tasks that became part of the body, since they only look at a block in another way.
    multiplies : bool
        It is a sum of products of blocks, by whichever function.
    """

    body: Task
    product: bool
    views: tuple[Key, ...]
    multiplies: bool


def open_term(key: Key, reducer: Reducer, site: Site) -> Term | None:
    """The term under a key, or None if its task must stay as it is."""
    task = site.node(key)
    if type(task) is not Task or not site.context.may_move(task.func):
        return None
    body = opened(task) or task
    inner = body.args[0] if body.args else None
    product = False
    known = site.facts.of(key) is not None  # else its type has a sum of its own
    if known and type(inner) is Task and _is_bare_product(body, inner, reducer):
        product, body = True, inner
    views: dict[Key, Task | TaskRef] = {}
    for dep in body._dependencies:
        below = site.node(dep)
        if type(below) is Task and _only_looks(below) and site.same_annotations(key, dep):
            views[dep] = below
    if views:
        body = with_values(body, views)
    if body.key is not None:
        body = nameless(body)
    return Term(body, product, tuple(views), product or makes_product(task))


def _is_bare_product(body: Task, inner: Task, reducer: Reducer) -> bool:
    """A term sums one of dask's products, over axes along which this has length one."""
    func = body.func
    if type(func) is not functools.partial or func.args or len(body.args) != 1:
        return False
    options = {**func.keywords, **body.kwargs}
    if options.get("axis") != reducer.axis or options.get("keepdims") is not True:
        return False
    if options.get("dtype") != reducer.dtype or options.keys() - {"axis", "dtype", "keepdims"}:
        return False
    if func.func is not _chunk_sum if reducer.kind == "chunk-sum" else func.func not in SUMS:
        return False
    if id(inner.func) not in PRODUCTS:
        return False
    return inner.func is _matmul or _contracts(inner, reducer.axis)


def _contracts(product: Task, axis: tuple[int, ...]) -> bool:
    """The product has length one along the axes that are summed."""
    kwargs = product.kwargs
    if product.func is _tensordot:
        axes = kwargs.get("axes")
        return type(axes) is tuple and kwargs.get("is_sparse") is False and tuple(sorted(axes[0])) == axis
    operands = sum(isinstance(arg, (GraphNode, TaskRef)) for arg in product.args)
    result = kwargs.get("subscripts", "").partition("->")[2]
    count = kwargs.get("ncontract_inds")
    if type(count) is not int or count < 1:
        return False
    # with one operand, einsum may return a view of it
    return operands > 1 and axis == tuple(range(len(result), len(result) + count))


def _only_looks(task: Task) -> bool:
    """A transposed view costs nothing to make, and a worker would keep it as if it were a copy."""
    return task.func is np.transpose and len(task.args) == 1 and type(task.args[0]) is TaskRef


def with_loads(term: Term, loads: Mapping[Key, Task]) -> Term:
    """The term with its loads inside, each run once however often the term refers to it."""
    inputs: dict[str, Any] = {}
    names: dict[Key, Task | TaskRef] = {}
    for key in sorted(term.body._dependencies, key=str):
        name = f"x{len(inputs)}"
        load = loads.get(key)
        inputs[name] = TaskRef(key) if load is None else operation(load.func, load.args, load.kwargs)
        names[key] = TaskRef(name)
    body = called_by_keyword(with_values(term.body, names).__call__, inputs)
    return term._replace(body=body, views=(*term.views, *loads.keys() & term.body._dependencies))
