"""Wide sums and other folds, written by hand."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef, _identity_cast
from dask._task_spec import Tuple as TupleNode
from dask.local import get_sync

from dask_rewrite.graph.graph import Graph
from dask_rewrite.passes.base import Rules
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.tree_sum import TreeSum
from dask_rewrite.remarks import Remarks
from helpers import (
    assert_same,
    assert_sound,
    fan_in,
)

KEY = ("total", 0)


def blocks(n: int, dtype: Any = "i8", shape: tuple[int, ...] = (2, 3)) -> list[np.ndarray]:
    size = int(np.prod(shape))
    return [(np.arange(size) + i).astype(dtype).reshape(shape) for i in range(n)]


def graph_of(call: Callable[[Any], Task], terms: Sequence[Any], **options: Any) -> Graph:
    """A graph in which one task calls something on all of the terms; graph nodes stand as they are."""
    nodes = {}
    for i, term in enumerate(terms):
        key = ("x", i)
        nodes[key] = (
            DataNode(key, term)
            if not isinstance(term, Task)
            else Task(key, term.func, *term.args, **term.kwargs)
        )
    nodes[KEY] = call(List(*map(TaskRef, nodes)))
    return Graph(nodes, (KEY,), **options)


def folded(func: Any, *before: Any, **kwargs: Any) -> Callable[[Any], Task]:
    return lambda terms: Task(KEY, func, *before, terms, **kwargs)


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    return Rules("tree-sum", (TreeSum(**options),)).run(graph, Context(remarks)), remarks


def rewritten(graph: Graph, **options: Any) -> Graph:
    """The graph after the pass, which applied and kept the result's every bit."""
    after, remarks = run(graph, **options)
    assert remarks.counts["tree-sum", "applied"], list(remarks)
    assert_sound(after.nodes, after.outputs)
    assert max(map(fan_in, after.nodes.values())) <= max(options.get("fan_in", 8), 3)
    assert_same(get_sync(after.nodes, KEY), get_sync(graph.nodes, KEY))
    return after


def declined(graph: Graph, reason: str, **options: Any) -> None:
    after, remarks = run(graph, **options)
    assert after is graph
    assert [remark.reason for remark in remarks] == [reason]


def added(graph: Graph) -> list[Task]:
    return [node for key, node in graph.nodes.items() if str(key[0]).startswith("tree-sum-")]


def number(value: Any, dtype: Any = "i8") -> Task:
    """A task that makes a NumPy scalar."""
    return Task(None, np.sum, np.array([value], dtype), dtype=dtype)


def unknown(block: Any) -> Any:
    """A function of which nothing is known."""
    return block


FOLDS = {
    "sum": folded(sum),
    "np.sum": folded(np.sum),
    "np.sum of the list's axis": folded(np.sum, axis=0),
    "np.prod": folded(np.prod, axis=0),
    "np.max": folded(np.max, axis=0),
    "np.min": folded(np.min),
    "np.any": folded(np.any, axis=0),
    "np.all": folded(np.all),
    "add.reduce": folded(np.add.reduce),
    "add.reduce of everything": folded(np.add.reduce, axis=None),
    "add.reduce in int8": folded(np.add.reduce, dtype=np.int8),
    "multiply.reduce": folded(np.multiply.reduce),
    "maximum.reduce": folded(np.maximum.reduce),
    "logical_or.reduce": folded(np.logical_or.reduce),
    "bitwise_xor.reduce": folded(np.bitwise_xor.reduce),
    **{
        f"reduce({f.__name__})": folded(functools.reduce, f)
        for f in (
            *(operator.add, operator.mul, operator.and_, operator.or_, operator.xor, np.add, np.multiply),
            *(np.maximum, np.minimum, np.fmax, np.fmin, np.logical_and, np.logical_xor, np.bitwise_or),
        )
    },
    "partial": folded(functools.partial(np.sum, axis=0)),
    "partial of reduce": folded(functools.partial(functools.reduce, operator.add)),
    "in a tuple": lambda terms: Task(KEY, sum, TupleNode(*terms.args)),
    "in a list that is made by a task": lambda terms: Task(
        KEY, sum, Task(None, _identity_cast, *terms.args, typ=list)
    ),
}


# -- fires: linear algebra -----------------------------------------------------------------


def system(n: int = 12, chunk: int = 3) -> tuple[da.Array, da.Array]:
    size = n * chunk
    values = np.arange(float(size * size)).reshape(size, size) % 13 + 8 * size * np.eye(size)
    values = values + values.T
    return da.from_array(values, chunks=chunk), da.from_array(np.arange(float(size * 3)).reshape(size, 3))


def rechunked(b: da.Array) -> da.Array:
    return b.rechunk((3, 3))


LINALG = {
    "lu": lambda a, b: da.linalg.lu(a)[1],
    "cholesky": lambda a, b: da.linalg.cholesky(a, lower=True),
    "solve": da.linalg.solve,
    "solve with a positive definite matrix": lambda a, b: da.linalg.solve(a, b, assume_a="pos"),
    "lower triangle": lambda a, b: da.linalg.solve_triangular(a, b, lower=True),
    "upper triangle": da.linalg.solve_triangular,
    "inv": lambda a, b: da.linalg.inv(a),
}


many_blocks = pytest.mark.filterwarnings("ignore:Increasing number of chunks")


UNKNOWN = "the terms are not known to be NumPy arrays"


DIFFERENT = "the terms differ in dtype or shape"


def remarks_of(x: Any, **options: Any) -> set[str]:
    from dask_rewrite.pipeline.run import rewrite_tasks
    from dask_rewrite.pipeline.trace import Trace

    trace = Trace()
    with dask.config.set({"rewrite.options": {"tree-sum": options}} if options else {}):
        rewrite_tasks(x.dask, list(x.__dask_keys__()), trace=trace, fuse_text_keys=False)
    return {r.reason for r in trace.remarks if r.rule == "tree-sum"}
