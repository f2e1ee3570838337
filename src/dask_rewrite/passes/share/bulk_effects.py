"""What tasks do to their arguments, asked once for all of one form, and which blocks are only read."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from types import FunctionType, MethodType
from typing import Any

from dask._task_spec import GraphNode, Task, _identity_cast
from dask.typing import Key
from toolz import last

from dask_rewrite.analysis.effects import Effect, Effects
from dask_rewrite.analysis.knowledge import known
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Consumers, Nodes
from dask_rewrite.graph.templates import calls_frame
from dask_rewrite.passes.share.tokens import FEW, Identity

#: They say nothing of what is done in them.
_FRAMES = (last, dict, _identity_cast)


class Behaviour:
    """Effects of many tasks: those that differ only in what they refer to do the same.

    Parameters
    ----------
    nodes : mapping of Key to GraphNode
        The graph, which must be kept alive.

    Attributes
    ----------
    tokens : dict
        Equal for tasks that are known to do the same; others are looked at.

    Examples
    --------
    >>> import operator
    >>> from dask._task_spec import Task, TaskRef
    >>> behaviour = Behaviour({key: Task(key, operator.getitem, TaskRef("x"), slice(2)) for key in "ab"})
    >>> behaviour.of(["a", "b"])
    [('view', True), ('view', True)]
    """

    def __init__(self, nodes: Mapping[Key, GraphNode]) -> None:
        self.tokens: dict[Key, int] = {}
        self._nodes = nodes
        self._effects = Effects()
        self._forms = Identity(_Anything(), budget=0)
        self._strange = ByIdentity[bool]()
        self._by_form: dict[Hashable, tuple[Effect, bool]] = {}
        self._by_token: dict[int, tuple[Effect, bool]] = {}

    def of(self, keys: Sequence[Key]) -> list[tuple[Effect, bool]]:
        """The effect of each task, and whether only pure functions are called in it."""
        tokens, by_token = self.tokens, self._by_token
        first: dict[int, Key] = {}
        others = []
        for key in keys:
            token = tokens.get(key)
            if token is None:
                others.append(key)
            elif token not in by_token:
                first.setdefault(token, key)
        if first:
            by_token.update(zip(first, self._look(list(first.values()))))
        if not others:
            return [by_token[tokens[key]] for key in keys]
        looked = dict(zip(others, self._look(others)))
        return [looked[key] if key in looked else by_token[tokens[key]] for key in keys]

    def may_be_pure(self, func: Any) -> bool:
        """Whether tasks that call this can be pure: one look for all of them."""
        if type(func) is MethodType:
            effect, pure = self._effects.of_body(func.__self__)
            return pure and effect != "unknown"
        found = known(func)
        return found is not None and found.pure

    def takes_unknown(self, task: Task) -> bool:
        """Whether a call that we do not know stands in the first argument: one look for each function."""
        args, strange = task.args, self._strange.of
        while args and type(inner := args[0]) is Task and inner.func not in _FRAMES:
            if strange(inner.func, _is_unknown):
                return True
            args = inner.args
        # dask hands some functions to one of its own, which calls them
        return bool(args) and type(args[0]) is FunctionType and self._is_strange(args[0])

    def _look(self, keys: Sequence[Key]) -> list[tuple[Effect, bool]]:
        nodes = [self._nodes[key] for key in keys]
        ask = self._effects.both
        alike = [node for node in nodes if not self._is_odd(node)] if len(nodes) >= FEW else []
        if not alike:
            return list(map(ask, nodes))
        forms = self._by_form
        found = {}
        for form, node in zip(self._forms.many(alike), alike):
            if form not in forms:
                forms[form] = ask(node)
            found[id(node)] = forms[form]
        return [found.get(id(node)) or ask(node) for node in nodes]

    def _is_odd(self, node: GraphNode) -> bool:
        return type(node) is Task and self._is_strange(node.func)

    def _is_strange(self, func: Any) -> bool:
        """It is not known, so that the arguments, which may be large, are not looked at."""
        return self._strange.of(func, _is_unknown)


def _is_unknown(func: Any) -> bool:
    return not calls_frame(func) and known(func) is None


class _Anything(dict[Any, None]):
    """It does not matter what a task refers to."""

    def get(self, key: Any, default: Any = None) -> None:
        return None


def users_of(keys: Iterable[Key], consumers: Consumers) -> Iterable[Key]:
    """The tasks that use any of these keys, once for each key that they use."""
    return chain.from_iterable(map(consumers.get, keys, repeat(())))


def maybe_written(
    keys: Iterable[Key], nodes: Nodes, consumers: Consumers, outputs: Collection[Key], behaviour: Behaviour
) -> set[Key]:
    """Blocks of which it is not known that nobody writes into them, or into a view of them.

    Outputs belong to the user, who may write into them; these are not among the answers unless they are
    used as well.

    Parameters
    ----------
    keys : iterable of Key
        The blocks to find out about; the answer may hold others.
    nodes, consumers
        The graph.
    outputs : collection of Key
        What is asked for.
    behaviour : Behaviour
        What the tasks do to their arguments.

    Examples
    --------
    >>> import operator
    >>> from dask._task_spec import Task, TaskRef
    >>> from dask_rewrite.graph.graph import consumers_of
    >>> nodes = {"y": Task("y", operator.getitem, TaskRef("x"), 0), "z": Task("z", sorted, TaskRef("y"))}
    >>> sorted(maybe_written(["x"], nodes, consumers_of(nodes), ["z"], Behaviour(nodes)))
    ['x', 'y']
    """
    views: set[Key] = set()
    writers: list[Key] = []
    seen: set[Key] = set()
    wave: Iterable[Key] = keys
    while new := [user for user in dict.fromkeys(users_of(wave, consumers)) if user not in seen]:
        seen.update(new)
        reading: list[Key] = []
        for user, (effect, _) in zip(new, behaviour.of(new)):
            if effect == "unknown":
                writers.append(user)
            elif effect == "view":
                views.add(user)
                (writers if user in outputs else reading).append(user)
        wave = reading
    found: set[Key] = set()
    while writers:
        for dep in nodes[writers.pop()]._dependencies:
            if dep not in found:
                found.add(dep)
                if dep in views:
                    writers.append(dep)
    return found
