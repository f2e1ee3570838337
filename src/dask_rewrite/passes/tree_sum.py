"""Wide sums, and other wide folds, as trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dask._task_spec import GraphNode, NestedContainer, Task, TaskRef
from dask.typing import Key

from dask_rewrite.facts import Fact
from dask_rewrite.folds import Fold, fold_of, why_not
from dask_rewrite.names import fingerprint, layer_name
from dask_rewrite.nodes import NO_DEPS, Deps, children, make_container, make_task
from dask_rewrite.opened import opened, template_of
from dask_rewrite.program import operation
from dask_rewrite.rules import Missed, Replacement, Site


@dataclass(frozen=True, slots=True)
class TreeSum:
    """``sum([x0, ..., xn])`` → a tree of sums of at most ``fan_in`` inputs each.

    One wide task holds all of its inputs at once; a tree releases them as they arrive. Legal where the
    terms are known to be NumPy arrays of one dtype and shape and the operation associates on them:
    exactly for integers and booleans, up to rounding for floats (``reassociate``). Every level calls the
    same function. What delayed calls fold is of unknown type: they need the user's word (``delayed``).
    """

    name: ClassVar[str] = "tree-sum"
    anchors: ClassVar[tuple[Any, ...]] = ()  # the sum may stand anywhere in a wide task
    fan_in: int = 8
    delayed: bool = False
    reassociate: bool = True

    @property
    def inputs_above(self) -> int:
        """Tasks with more inputs are offered to this rule."""
        return max(self.fan_in, 2)

    def rewrite(self, task: Task, site: Site) -> Replacement | Missed | None:
        if len(task._dependencies) <= self.inputs_above:
            return None
        body = _body(task)
        folds = [fold for fold in _folds_in(body) if len(_inputs(fold)) > 2]
        if not folds:
            return None
        reasons = [fold.refused or self._why_not(fold, task.key, site) for fold in folds]
        legal = [fold for fold, reason in zip(folds, reasons) if not reason]
        if not legal:
            return Missed(reasons[0])
        others = task._dependencies.difference(*map(_inputs, legal))
        room = max(2, (self.inputs_above - len(others)) // len(legal))
        nodes: dict[Key, GraphNode] = {}
        changed: dict[int, Task] = {}
        for number, fold in enumerate(legal):
            top = self._tree(fold, room, _Names(self, task.key, number, fold), nodes)
            if top is not fold.terms:
                changed[id(fold.call)] = _folding(fold, top)
        if not changed:
            return None
        body = _with(body, changed)
        nodes[task.key] = make_task(
            task.key, body.func, body.args, body.kwargs, body._dependencies, task._data_producer
        )
        return nodes

    def _why_not(self, fold: Fold, key: Key, site: Site) -> str:
        facts = [_fact(term, site) for term in fold.terms]
        if None not in facts or type(key) is not str:
            return why_not(fold, facts, self.reassociate)
        if not all(isinstance(term, (TaskRef, Task)) for term in fold.terms):
            return "a term is a plain value"
        if not self.delayed:
            return "delayed values are of unknown type; see rewrite.options.tree-sum.delayed"
        return "" if self.reassociate else "rewrite.reassociate is off"

    def _tree(self, fold: Fold, room: int, names: _Names, nodes: dict[Key, GraphNode]) -> Sequence[Any]:
        """The terms of the topmost call; what lies below becomes nodes."""
        terms: Sequence[Any] = fold.terms
        level = 0
        while sum(map(_weight, terms)) > room:
            groups = _neighbours(terms, self.inputs_above)
            if len(groups) == len(terms):
                break
            level += 1
            for i, group in enumerate(groups):
                call = _folding(fold, group)
                key = names.key(level, i)
                nodes[key] = make_task(key, call.func, call.args, call.kwargs, call._dependencies)
            terms = [TaskRef(names.key(level, i)) for i in range(len(groups))]
        return terms


class _Names:
    """Keys of the partial results of one fold: never the same for other terms or another shape of tree."""

    __slots__ = ("_prefix", "_rest")

    def __init__(self, rule: TreeSum, key: Key, number: int, fold: Fold) -> None:
        self._prefix = f"{rule.name}-{fingerprint([rule.name, rule.fan_in, layer_name(key)])}"
        within = key[1:] if type(key) is tuple else ()
        inputs = [repr(sorted(map(repr, _dependencies(term)))) for term in fold.terms]
        self._rest = (*within, fingerprint([number, *inputs]))

    def key(self, level: int, i: int) -> Key:
        return (self._prefix, *self._rest, level, i)


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
            stack.extend(children(node))


def _dependencies(term: Any) -> Deps:
    if isinstance(term, TaskRef):
        return frozenset((term.key,))
    return term.dependencies if isinstance(term, GraphNode) else NO_DEPS


def _inputs(fold: Fold) -> Deps:
    return NO_DEPS.union(*map(_dependencies, fold.terms))


def _weight(term: Any) -> int:
    return 1 if type(term) is TaskRef else max(1, len(_dependencies(term)))


def _fact(term: Any, site: Site) -> Fact | None:
    if type(term) is TaskRef:
        return site.facts.of(term.key)
    return site.facts.of_node(term) if isinstance(term, GraphNode) else None


def _neighbours(terms: Sequence[Any], fan_in: int) -> list[Sequence[Any]]:
    """The terms in groups of about the same number of inputs, at most ``fan_in``, in their order.

    Examples
    --------
    >>> [len(group) for group in _neighbours([TaskRef(i) for i in range(19)], 8)]
    [7, 6, 6]
    """
    weights = [_weight(term) for term in terms]
    total = sum(weights)
    count = -(-total // fan_in)
    groups: list[list[Any]] = [[]]
    held = done = 0
    for term, weight in zip(terms, weights):
        full = done * count >= len(groups) * total  # this group has had its share
        if groups[-1] and (full or held + weight > fan_in):
            groups.append([])
            held = 0
        groups[-1].append(term)
        held += weight
        done += weight
    return list(groups)


def _folding(fold: Fold, terms: Sequence[Any]) -> Task:
    """The same call over other terms."""
    call = fold.call
    old = call.args[fold.place]
    deps = NO_DEPS.union(*map(_dependencies, terms))
    args = list(call.args)
    if isinstance(old, NestedContainer):
        args[fold.place] = make_container(old, tuple(terms), deps)
    else:
        args[fold.place] = make_task(None, old.func, tuple(terms), old.kwargs, deps)
    return operation(call.func, args, call.kwargs)


def _with(node: Any, changed: Mapping[int, Task]) -> Any:
    """The task with some of the calls inside replaced; tasks are shallow."""
    if id(node) in changed:
        return changed[id(node)]
    if not isinstance(node, Task) or not node._dependencies:
        return node
    args = [_with(arg, changed) for arg in node.args]
    if type(node) is Task:
        kwargs = {name: _with(value, changed) for name, value in node.kwargs.items()}
        return operation(node.func, args, kwargs)
    if isinstance(node, NestedContainer):
        return make_container(node, tuple(args), operation(list, args)._dependencies)
    return node
