"""Cutting a wide fold into narrow ones: balanced, or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask._task_spec import NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.folds import Fold
from dask_rewrite.graph.nodes import make_container, make_task, needs_of, under
from dask_rewrite.graph.program import operation


def weight(term: Any) -> int:
    """How many inputs a term brings."""
    return 1 if type(term) is TaskRef else len(needs_of((term,)))


class Cutter:
    """Makes the nodes below a fold that may have ``room`` inputs itself.

    Parameters
    ----------
    fold : Fold
        The fold to cut.
    fan_in : int
        Most inputs of a node.
    room : int
        Most inputs of the fold that remains.
    key : callable
        From the number of a node to its key.
    """

    def __init__(self, fold: Fold, fan_in: int, room: int, key: Callable[[int], Key]) -> None:
        self.fold = fold
        self.fan_in = fan_in
        self.room = room
        self.nodes: dict[Key, Task] = {}
        self._key = key

    def balanced(self) -> Sequence[Any]:
        """A tree whose leaves are neighbours in the list; returns the terms of its root."""
        terms: Sequence[Any] = self.fold.terms
        while sum(map(weight, terms)) > self.room:
            groups = neighbours(terms, self.fan_in)
            if len(groups) == len(terms):
                break  # terms with so many inputs of their own that no two go together
            terms = [self._node(group) for group in groups]
        return terms

    def in_a_row(self) -> Sequence[Any]:
        """Each node goes on where the one before stopped, all terms in their order.

        The last term stays for the fold that remains: where terms come into being one after the other,
        the newest then waits for nothing that could have been done before.
        """
        *terms, newest = self.fold.terms
        if sum(map(weight, self.fold.terms)) <= self.room:
            return self.fold.terms
        group: list[Any] = []
        held = 0
        for term in terms:
            if len(group) > 1 and held + weight(term) > self.fan_in:
                group = [self._node(group)]
                held = 1
            group.append(term)
            held += weight(term)
        return [*group, newest] if len(group) == 1 else [self._node(group), newest]

    def _node(self, terms: Sequence[Any]) -> TaskRef:
        key = self._key(len(self.nodes))
        call = folding(self.fold, terms)
        self.nodes[key] = under(key, call)
        return TaskRef(key)


def neighbours(terms: Sequence[Any], fan_in: int) -> list[Sequence[Any]]:
    """The terms in groups of about the same number of inputs, at most ``fan_in``, in their order.

    Examples
    --------
    >>> [len(group) for group in neighbours([TaskRef(i) for i in range(19)], 8)]
    [7, 6, 6]
    """
    weights = [weight(term) for term in terms]
    total = sum(weights)
    count = -(-total // fan_in)
    groups: list[list[Any]] = [[]]
    held = done = 0
    for term, inputs in zip(terms, weights):
        if groups[-1] and (done * count >= len(groups) * total or held + inputs > fan_in):
            groups.append([])
            held = 0
        groups[-1].append(term)
        held += inputs
        done += inputs
    return list(groups)


def folding(fold: Fold, terms: Sequence[Any]) -> Task:
    """The same call over other terms."""
    call = fold.call
    old = call.args[fold.place]
    deps = needs_of(terms)
    args = list(call.args)
    if isinstance(old, NestedContainer):
        args[fold.place] = make_container(old, tuple(terms), deps)
    else:
        args[fold.place] = make_task(None, old.func, tuple(terms), old.kwargs, deps)
    return operation(call.func, args, call.kwargs)
