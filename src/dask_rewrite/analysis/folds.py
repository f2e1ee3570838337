"""Functions that fold a list of blocks into one, and when a fold may be regrouped.

A fold over a list may be split into folds over parts of the list where its operation associates. Of
which type partial results are is found out by folding ones: the function knows best what it widens,
where it starts and what it refuses.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Mapping, Sequence
from types import BuiltinMethodType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from dask._task_spec import GraphNode, List, Task, TaskRef, _identity_cast
from dask._task_spec import Tuple as TupleNode
from dask.array import chunk, reductions
from dask.array.core import _concatenate2
from toolz import functoolz

from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.graph.nodes import literal

#: ``logic`` always associates; ``arithmetic`` up to rounding; ``extreme`` up to the sign of zeros and the
#: bits of a nan. ``truth`` and ``order`` are Python's: they ask a whole term for its truth, or compare
#: whole terms and keep the first of those that do not compare.
Kind: TypeAlias = Literal["logic", "truth", "arithmetic", "extreme", "order"]

_UFUNCS: dict[Any, Kind] = {
    np.add: "arithmetic",
    np.multiply: "arithmetic",
    np.maximum: "extreme",
    np.minimum: "extreme",
    np.fmax: "extreme",
    np.fmin: "extreme",
    np.logical_and: "logic",
    np.logical_or: "logic",
    np.logical_xor: "logic",
    np.bitwise_and: "logic",
    np.bitwise_or: "logic",
    np.bitwise_xor: "logic",
}

#: What ``functools.reduce`` may fold with: never a function that writes into its first argument.
_BINARY: dict[Any, Kind] = {
    **_UFUNCS,
    operator.add: "arithmetic",
    operator.mul: "arithmetic",
    operator.and_: "logic",
    operator.or_: "logic",
    operator.xor: "logic",
    builtins.max: "order",
    builtins.min: "order",
}

_PYTHON: dict[Any, Kind] = {
    builtins.sum: "arithmetic",
    builtins.max: "order",
    builtins.min: "order",
    builtins.any: "truth",
    builtins.all: "truth",
}

#: NumPy's reductions with the options that are understood. Those that skip nans are not here: a partial
#: result of inf - inf is a nan too, and would be skipped.
_NUMPY: dict[Any, tuple[Kind, tuple[str, ...]]] = {
    np.sum: ("arithmetic", ("axis", "dtype")),
    np.prod: ("arithmetic", ("axis", "dtype")),
    np.max: ("extreme", ("axis",)),
    np.min: ("extreme", ("axis",)),
    np.any: ("logic", ("axis",)),
    np.all: ("logic", ("axis",)),
}

#: Operations on two blocks that associate, at most up to rounding.
ASSOCIATIVE = frozenset([func for func, kind in _BINARY.items() if kind != "order"])

#: Reductions that give the same, up to rounding, however their partial results are grouped.
COMBINING: dict[Any, Kind] = {
    **{func: kind for func, (kind, _) in _NUMPY.items()},
    **dict.fromkeys((chunk.sum, chunk.prod), "arithmetic"),
    **dict.fromkeys((chunk.max, chunk.min), "extreme"),
    **dict.fromkeys((chunk.any, chunk.all), "logic"),
    **dict.fromkeys(
        (of_dask(reductions, "mean_combine"), of_dask(reductions, "moment_combine")), "arithmetic"
    ),
    **dict.fromkeys((of_dask(reductions, "chunk_max"), of_dask(reductions, "chunk_min")), "extreme"),
}


def reducing(func: Any) -> Any:
    """What a combining function of dask's calls: on its blocks, or on these put together first, if composed.

    None where a composed function does something else.
    """
    if type(func) is not functoolz.Compose:
        return func
    first: Any = func.first
    joins = type(first) is functools.partial and first.func is _concatenate2 and len(func.funcs) == 1
    return func.funcs[0] if joins else None


class Fold(NamedTuple):
    """A call that folds a list of terms.

    Parameters
    ----------
    call : Task
        The call; may stand inside another task.
    place : int
        Where in its arguments the list stands.
    terms : tuple
        The elements of the list: nodes, references or plain values.
    kind : str
        The kind of its operation.
    stepwise : bool
        Whether Python combines the terms two by two, instead of NumPy all at once.
    binary : bool
        Whether the operation itself is an argument, as for ``functools.reduce``.
    refused : str
        Why this way of calling it is not understood; empty if it is.
    """

    call: Task
    place: int
    terms: tuple[Any, ...]
    kind: Kind
    stepwise: bool
    binary: bool
    refused: str

    def __call__(self, terms: Sequence[Any]) -> Any:
        """Fold these terms instead."""
        args = [literal(arg) for arg in self.call.args]
        args[self.place] = terms
        return self.call.func(*args, **{k: literal(v) for k, v in self.call.kwargs.items()})


def fold_of(node: Any) -> Fold | None:
    """The fold that a task is, None if it is something else.

    Examples
    --------
    >>> from dask._task_spec import TaskRef
    >>> fold = fold_of(Task("s", sum, List(TaskRef("x"), TaskRef("y"))))
    >>> fold.terms, fold.kind
    ((TaskRef('x'), TaskRef('y')), 'arithmetic')
    >>> fold([1, 2])
    3
    >>> fold_of(Task("s", abs, TaskRef("x"))) is None
    True
    """
    if type(node) is not Task or not node._dependencies:
        return None
    func: Any = node.func
    args, kwargs = node.args, node.kwargs
    bound = 0
    if type(func) is functools.partial:
        bound = len(func.args)
        func, args, kwargs = func.func, (*func.args, *args), {**func.keywords, **kwargs}
    try:
        found = _operation(func, args)
    except TypeError:  # something that cannot be hashed
        return None
    if found is None:
        return None
    kind, options, place = found
    terms = _listed(args[place]) if bound <= place < len(args) else None
    if terms is None:
        return None
    binary = func is functools.reduce
    refused = _refused(args[place + 1 :], kwargs, options)
    return Fold(node, place - bound, terms, kind, binary or func in _PYTHON, binary, refused)


def _operation(func: Any, args: tuple[Any, ...]) -> tuple[Kind, tuple[str, ...], int] | None:
    """The kind of a fold, the options that are understood, and where its list stands."""
    if func is functools.reduce:
        binary = _BINARY.get(literal(args[0])) if args else None
        return binary and (binary, (), 1)
    if func in _PYTHON:
        return _PYTHON[func], (), 0
    if func in _NUMPY:
        return (*_NUMPY[func], 0)
    if type(func) is BuiltinMethodType and func.__name__ == "reduce":
        ufunc = _UFUNCS.get(func.__self__)
        return ufunc and (ufunc, ("axis", "dtype"), 0)
    return None


def _listed(node: Any) -> tuple[Any, ...] | None:
    """The elements of a list or tuple that stands in a task."""
    if type(node) is List or type(node) is TupleNode:
        return node.args
    if type(node) is Task and node.func is _identity_cast and node.kwargs.get("typ") in (list, tuple):
        return node.args
    return None


def _refused(more: Sequence[Any], kwargs: Mapping[str, Any], options: tuple[str, ...]) -> str:
    if len(more) > len(options):
        return "it starts from a value of its own"
    given = {**dict(zip(options, more)), **kwargs}
    for name, value in given.items():
        if name not in options:
            return f"it is called with {name}="
        if isinstance(literal(value), (GraphNode, TaskRef)):
            return f"its {name} is computed"
    axis = literal(given.get("axis"))
    if axis is not None and (type(axis) is not int or axis != 0):
        return "it folds along another axis than that of the list"
    return ""


class Value(NamedTuple):
    """What the type of a fold's result depends on, and what it is."""

    dtype: np.dtype[Any]
    ndim: int
    scalar: bool


def why_not(fold: Fold, facts: Sequence[Fact | None], reassociate: bool) -> str:
    """Why the fold may not be regrouped; empty if it may.

    Parameters
    ----------
    fold : Fold
        What folds.
    facts : sequence of Fact or None
        What is known of its terms.
    reassociate : bool
        Whether floating-point results may be rounded in another order.

    Examples
    --------
    >>> from dask._task_spec import TaskRef
    >>> fold = fold_of(Task("s", sum, List(TaskRef("x"), TaskRef("y"))))
    >>> why_not(fold, [Fact((2,), np.dtype("i4")), Fact((2,), np.dtype("i8"))], True)
    'the terms differ in dtype or shape'
    """
    first = facts[0]
    if first is None or None in facts:
        return "the terms are not known to be NumPy arrays"
    if any((f.shape, f.dtype, f.scalar) != (first.shape, first.dtype, first.scalar) for f in facts if f):
        return "the terms differ in dtype or shape"
    kind = first.dtype.kind
    if kind not in "biufc":
        return "the terms are not numbers"
    if fold.kind in ("truth", "order") and first.size != 1:
        return "whole arrays have neither truth nor order"
    partial = _folded(fold, Value(first.dtype, first.ndim, first.scalar))
    if partial is None or _folded(fold, partial) != partial:
        return f"partial results of {first.dtype} would be of another kind"
    if fold.kind in ("logic", "truth"):
        return ""
    if kind not in "biu" or partial.dtype.kind not in "biu":
        if fold.kind == "order":
            return "with a nan the result depends on the order of the comparisons"
        if fold.kind == "extreme" and kind == "c":
            return "complex numbers have no order"
        return "" if reassociate else "rewrite.reassociate is off"
    if fold.kind == "arithmetic" and fold.stepwise and not first.ndim and kind != "b":
        return "NumPy's integers warn when they overflow"
    return ""


def keeps_order(fold: Fold, facts: Sequence[Fact | None]) -> bool:
    """Whether ``f([f([x, y]), z])`` does to the bit, and in the same order, what ``f([x, y, z])`` does.

    So it is where Python folds step by step. A sum starts at 0 each time: nothing, to a number that a
    sum came to, since that is never -0.0 and never a boolean.
    """
    if not fold.stepwise:
        return False
    if fold.binary:
        return True
    whole = fold.kind in ("truth", "order")
    return all(f is not None and f.dtype.kind in "biufc" and (f.size == 1 or not whole) for f in facts)


def _folded(fold: Fold, terms: Value) -> Value | None:
    """What folding terms of this kind gives, found out with ones; None if it fails."""
    one: Any = np.ones((1,) * terms.ndim, terms.dtype)
    if terms.scalar:
        one = one[()]
    try:
        result = fold([one, one])
    except Exception:
        return None
    return Value(np.asarray(result).dtype, np.ndim(result), not isinstance(result, np.ndarray))
