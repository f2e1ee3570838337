"""Wide sums, and other wide folds, as trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.facts import Fact
from dask_rewrite.analysis.folds import Fold, fold_of, keeps_order, why_not
from dask_rewrite.graph.names import fingerprint, layer_name
from dask_rewrite.graph.nodes import needs_of, under
from dask_rewrite.graph.substitute import replaced
from dask_rewrite.graph.templates import opened, template_of
from dask_rewrite.passes.base import Missed
from dask_rewrite.passes.site import Replacement, Site
from dask_rewrite.passes.tree_sum.split import Cutter, folding


class _Plan(NamedTuple):
    fold: Fold
    in_a_row: bool = False


@dataclass(frozen=True, slots=True)
class TreeSum:
    """``sum([x0, ..., xn])`` → a tree of sums of at most ``fan_in`` inputs each.

    One wide task holds all of its inputs at once; a tree releases them as they arrive. Legal where the
    terms are known to be NumPy arrays of one dtype and shape and the operation associates on them:
    exactly for integers and booleans, up to rounding for floats (``reassociate``). Every level calls the
    same function.

    Where the operation may not be regrouped, but Python does it step by step, the tree is a row: each
    sum goes on where the one before stopped. So it is for products that come into being one after the
    other, as in a factorization, which are then computed by the sums themselves.

    What delayed calls fold is of unknown type: they need the user's word (``delayed``).
    """

    name: ClassVar[str] = "tree-sum"
    anchors: ClassVar[tuple[Any, ...]] = ()  # the sum may stand anywhere in a wide task
    fan_in: int = 8
    delayed: bool = False
    reassociate: bool = True

    @property
    def inputs_above(self) -> int:
        """Tasks with more inputs are offered to this rule."""
        return max(self.fan_in, 3)

    def rewrite(self, task: Task, site: Site) -> Replacement | Missed | None:
        if len(task._dependencies) <= self.inputs_above:
            return None
        body = _body(task)
        folds = [fold for fold in _folds_in(body) if len(needs_of(fold.terms)) > 2]
        if not folds:
            return None
        found = [self._plan(fold, task.key, site) for fold in folds]
        plans = [plan for plan in found if isinstance(plan, _Plan)]
        if not plans:
            return next(plan for plan in found if isinstance(plan, Missed))
        others = task._dependencies.difference(*[needs_of(plan.fold.terms) for plan in plans])
        room = max(2, (self.inputs_above - len(others)) // len(plans))
        nodes: dict[Key, GraphNode] = {}
        changed: dict[int, Task] = {}
        for number, (fold, in_a_row) in enumerate(plans):
            summed = fold._replace(terms=self._summed(fold, task.key, site)) if in_a_row else fold
            name = self._namer(task.key, (site.graph.origin.token, number, room, in_a_row), summed)
            cutter = Cutter(summed, self.inputs_above, room, name)
            top = cutter.in_a_row() if in_a_row else cutter.balanced()
            if cutter.nodes:
                changed[id(fold.call)] = folding(fold, top)
                nodes.update(cutter.nodes)
        if not changed:
            return None
        body = replaced(body, changed)
        nodes[task.key] = under(task.key, body, task._data_producer)
        return nodes

    def _plan(self, fold: Fold, key: Key, site: Site) -> _Plan | Missed:
        if fold.refused:
            return Missed(fold.refused)
        facts = [_fact(term, site) for term in fold.terms]
        if None in facts and type(key) is str:
            return self._on_the_users_word(fold, facts, site)
        reason = why_not(fold, facts, self.reassociate)
        ordered = keeps_order(fold, facts)
        if all(_is_product(term, site) for term in fold.terms):
            depths = [site.depth(term.key) for term in fold.terms]
            if ordered and all(one < other for one, other in pairwise(depths)):
                return _Plan(fold, in_a_row=True)
            if not reason and all(one > other for one, other in pairwise(depths)):
                return _Plan(fold._replace(terms=fold.terms[::-1]), in_a_row=True)
        if not reason:
            return _Plan(fold)
        return _Plan(fold, in_a_row=True) if ordered else Missed(reason)

    def _on_the_users_word(self, fold: Fold, facts: Sequence[Fact | None], site: Site) -> _Plan | Missed:
        if any(_is_plain(term, site) for term, fact in zip(fold.terms, facts) if fact is None):
            return Missed("a term is a plain value")
        known = [fact for fact in facts if fact is not None]
        if known and (reason := why_not(fold, known, self.reassociate)):
            return Missed(reason)
        if not self.delayed:
            return Missed("delayed values are of unknown type; see rewrite.options.tree-sum.delayed")
        return _Plan(fold) if self.reassociate else Missed("rewrite.reassociate is off")

    def _summed(self, fold: Fold, key: Key, site: Site) -> tuple[Any, ...]:
        """The terms, with products that need not be tasks of their own; the newest stays one."""
        *terms, newest = fold.terms
        return (*[_product(term, key, site) or term for term in terms], newest)

    def _namer(self, key: Key, shape: tuple[object, ...], fold: Fold) -> Callable[[int], Key]:
        """Keys that are never the same for other terms, or for the same terms cut otherwise."""
        prefix = f"{self.name}-{fingerprint([self.name, layer_name(key)])}"
        within = key[1:] if type(key) is tuple else ()
        terms = [repr(sorted(map(repr, needs_of((term,))))) for term in fold.terms]
        token = fingerprint([repr((self, shape)), *terms])
        return lambda i: (prefix, *within, token, i)


def _body(task: Task) -> Task:
    """The task with its template opened, unless that would compute an input twice."""
    found = template_of(task)
    if found is None or any(type(value) is Task for value in found[1].values()):
        return task
    return opened(task) or task


def _folds_in(body: Task) -> Iterator[Fold]:
    """Folds that stand in a task, outermost ones only."""
    stack: list[Any] = [body]
    while stack:
        node = stack.pop()
        if not isinstance(node, Task) or not node._dependencies:
            continue
        fold = fold_of(node)
        if fold is not None:
            yield fold
        else:
            stack.extend([arg for arg in (*node.args, *node.kwargs.values()) if isinstance(arg, Task)])


def _fact(term: Any, site: Site) -> Fact | None:
    if type(term) is TaskRef:
        return site.facts.of(term.key)
    return site.facts.of_node(term) if isinstance(term, GraphNode) else None


def _is_plain(term: Any, site: Site) -> bool:
    """A value that stands in the graph as it is: what it does to its neighbours is not known."""
    node = site.node(term.key) if type(term) is TaskRef else term
    return not isinstance(node, (GraphNode, TaskRef)) or type(node) is DataNode


def _is_product(term: Any, site: Site) -> bool:
    node = site.node(term.key) if type(term) is TaskRef else None
    return type(node) is Task and node.func is np.dot


def _product(term: Any, key: Key, site: Site) -> Task | None:
    """The product as a part of the task that adds it up.

    Only where that holds nothing longer: the factors have other users too, and are no larger.
    """
    node = site.node(term.key) if type(term) is TaskRef else None
    if type(node) is not Task or node.func is not np.dot or type(term.key) is not tuple:
        return None
    if not site.used_once(term.key) or not site.same_annotations(term.key, key) or node._data_producer:
        return None
    made = site.facts.of(term.key)
    if made is None or len(node._dependencies) > 2 or any(map(site.used_once, node._dependencies)):
        return None
    factors = [site.facts.of(factor) for factor in node._dependencies]
    if any(factor is None or factor.nbytes > made.nbytes for factor in factors):
        return None
    return under(None, node)
