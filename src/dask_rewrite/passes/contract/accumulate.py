"""Accumulation: a sum of many terms as chains of tasks, each adding its terms to what came before."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import ceil
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.typing import Key
from toolz import identity

from dask_rewrite.graph.gates import waiting
from dask_rewrite.graph.nodes import list_of, under
from dask_rewrite.graph.program import operation
from dask_rewrite.passes.contract.groups import Group
from dask_rewrite.passes.contract.terms import Term
from dask_rewrite.passes.contract.trees import Tree, combiner, keeps_dimensions


def adder(dtype: np.dtype[Any], in_place: bool) -> Callable[..., Any]:
    """What adds a term to an accumulator, called with the term first.

    A product that nobody else sees takes the accumulator in, which saves a block; it must have the dtype of
    the sum already.

    Examples
    --------
    >>> adder(np.dtype("f8"), True).__name__
    'iadd'
    >>> adder(np.dtype("i8"), False)(np.int8(100), np.int8(100))
    np.int64(200)
    """
    return operator.iadd if in_place else partial(np.add, dtype=dtype)


#: From two expressions to one that adds them up.
_Add: TypeAlias = Callable[[Any, Any], Task]
#: Chains that are added up in one task; more are added up in a tree.
FAN_IN = 8


class Partial:
    """The partial sums of one chain: each step adds to the lowest, and full runs are added one level up.

    The error of a sum grows with the number of values that are added to it one by one. With ``levels``
    partial sums none of them takes in more than about the ``levels``-th root of all.

    Parameters
    ----------
    add : callable
        From two expressions to one that adds the second to the first.
    steps : int
        How many there will be.
    levels : int
        Partial sums that are held at a time, at most.
    """

    def __init__(self, add: _Add, steps: int, levels: int) -> None:
        self.add = add
        self.run = max(2, ceil(steps ** (1 / levels)))
        self.held: list[Any] = [None] * levels
        self.latest: Any = None
        self._last = steps - 1

    def step(
        self, step: int, bodies: Sequence[Any], waits: Sequence[TaskRef], keep: Callable[[Any], Any]
    ) -> Any:
        """Add the terms of a step, one by one; returns the sum so far."""
        return self.end(step, reduce(self.add, bodies[1:], self.begin(bodies[0], waits)), keep)

    def begin(self, body: Any, waits: Sequence[TaskRef]) -> Any:
        """The first term of a step; it waits for the step before, whether or not it adds to that."""
        if self.latest is not None and self.held[0] is None:
            return waiting(body, [self.latest, *waits])
        if self.latest is not None and waits:
            self.held[0] = waiting(self.held[0], waits)
        return body

    def end(self, step: int, value: Any, keep: Callable[[Any], Any]) -> Any:
        """Add what a step has made to the partial sums that it completes; returns the sum so far."""
        full = 1
        for level, other in enumerate(self.held):
            if level and (step + 1) % full and step < self._last:
                break
            if other is not None:
                value = self.add(value, other)
                self.held[level] = None
            full *= self.run
            top = level
        self.latest = self.held[top] = keep(value)
        return self.latest


class Adding(NamedTuple):
    """What adds up in a sum.

    Parameters
    ----------
    step : callable
        From two expressions to one that adds the second to the first.
    gather : callable
        The same for what chains end with.
    combine : callable or None
        What dask calls between the levels of a tree, where that adds up.
    by_root : bool
        The last task calls the function of the sum's own last task.
    """

    step: _Add
    gather: _Add
    combine: Any
    by_root: bool


def adding(group: Group, func: Any) -> Adding:
    """What adds up in the sums of a group whose last tasks call one function: the same for all of them.

    That is a product itself, if nobody else sees it; the tree's own function, which knows all types, if that
    of a term is not known; and the function of the last task where the result has no axes.
    """
    combine = combiner(func) if group.loose else None
    dtype = group.trees[0].reducer.dtype
    step, gather = (_adding(combine, adder(dtype, in_place)) for in_place in (group.in_place, False))
    return Adding(step, gather, combine, group.scalar or group.loose)


def accumulate(
    tree: Tree,
    root: Task,
    terms: Sequence[Term],
    steps: Sequence[Sequence[Sequence[int]]],
    name: Callable[[int, int], Key],
    adds: Adding,
    levels: int,
    wait: Callable[[int], TaskRef] | None,
) -> dict[Key, Task]:
    """The tasks of one sum: all steps of all chains, and the root.

    Parameters
    ----------
    tree : Tree
        The sum.
    root : Task
        Its last task, under whose key the result must come.
    terms : sequence of Term
        One for each leaf.
    steps : nested sequences of int
        For each chain its steps, for each step the numbers of the terms that it adds.
    name : callable
        From chain and step to a key.
    adds : Adding
        What adds up.
    levels : int
        Partial sums of each chain that are held at a time, see `Partial`.
    wait : callable or None
        From a step to the gate that the step after it waits for.
    """
    nodes, ends = dict[Key, Task](), list[Any]()

    def keep(chain: int, step: int, expression: Task) -> TaskRef:
        key = name(chain, step)
        nodes[key] = under(key, expression)
        return TaskRef(key)

    for c, chain in enumerate(steps):
        partial_sums = Partial(adds.step, len(chain), levels)
        for s, numbers in enumerate(chain):
            waits = [] if wait is None or not s else [wait(s - 1)]
            bodies = [terms[number].body for number in numbers]
            last_one = s == len(chain) - 1 and len(steps) == 1
            sofar = partial_sums.step(s, bodies, waits, identity if last_one else partial(keep, c, s))
        ends.append(sofar)
    ends = _few(ends, len(steps), adds.gather, keep)
    if adds.by_root:
        last = _by_root(root, ends, adds.combine)
    else:
        last = _with_axes(_sum(adds.gather, ends), root, tree)
    nodes[tree.root] = under(tree.root, last, root._data_producer)
    return nodes


def _by_root(root: Task, ends: list[Any], combine: Any) -> Task:
    """The sum of what is left, by the root's own function."""
    if len(ends) == 1 and isinstance(ends[0], Task) and combine is not None and ends[0].func is combine:
        return operation(root.func, ends[0].args)
    return operation(root.func, (list_of(ends),))


def _with_axes(total: Any, root: Task, tree: Tree) -> Task:
    """The sum with the axes that the root's own function leaves."""
    if not keeps_dimensions(root.func):
        return operation(np.squeeze, (total,), {"axis": tree.reducer.axis})
    return operation(identity, (total,)) if isinstance(total, TaskRef) else total


def _few(ends: list[Any], level: int, gather: _Add, keep: Callable[[int, int, Task], TaskRef]) -> list[Any]:
    """The sums of the chains, added up in a tree until one task can take in what is left."""
    while len(ends) > FAN_IN:
        groups = [ends[i : i + FAN_IN] for i in range(0, len(ends), FAN_IN)]
        ends = [
            keep(level, i, _sum(gather, group)) if len(group) > 1 else group[0]
            for i, group in enumerate(groups)
        ]
        level += 1
    return ends


def _sum(add: _Add, parts: Sequence[Any]) -> Any:
    return reduce(lambda one, other: add(other, one), parts)


def _adding(combine: Any, add: Callable[..., Any]) -> _Add:
    """Adds with the function that dask calls between the levels of a tree, if that is given."""
    if combine is None:
        return lambda one, other: operation(add, (one, other))

    def combined(one: Any, other: Any) -> Task:
        within = type(one) is Task and one.func is combine  # adds what that adds as well
        parts = one.args[0].args if within else (one,)
        return operation(combine, (list_of((other, *parts)),))

    return combined
