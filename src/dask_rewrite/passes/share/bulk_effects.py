"""What tasks do to their arguments, asked once for all tasks of one form."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MethodType
from typing import Any

from dask._task_spec import GraphNode, Task
from dask.typing import Key
from toolz import pipe

from dask_rewrite.analysis.effects import Effect, Effects
from dask_rewrite.analysis.knowledge import known
from dask_rewrite.passes.share.tokens import FEW, Identity


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

    __slots__ = ("_by_form", "_by_token", "_effects", "_forms", "_nodes", "_strange", "tokens")

    def __init__(self, nodes: Mapping[Key, GraphNode]) -> None:
        self.tokens: dict[Key, int] = {}
        self._nodes = nodes
        self._effects = Effects()
        self._forms = Identity(_Anything(), budget=0)
        self._strange: dict[int, bool] = {}  # functions by identity
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
            effect, pure = self._effects.of_step(func)
            return pure and effect != "unknown"
        found = known(func)
        return found is not None and found.pure

    def _look(self, keys: Sequence[Key]) -> list[tuple[Effect, bool]]:
        nodes = [self._nodes[key] for key in keys]
        ask = self._effects.both
        alike = [node for node in nodes if not self._is_strange(node)] if len(nodes) >= FEW else []
        if not alike:
            return list(map(ask, nodes))
        forms = self._by_form
        found = {}
        for form, node in zip(self._forms.many(alike), alike):
            if form not in forms:
                forms[form] = ask(node)
            found[id(node)] = forms[form]
        return [found.get(id(node)) or ask(node) for node in nodes]

    def _is_strange(self, node: GraphNode) -> bool:
        """Its function is not known, so that the arguments, which may be large, are not looked at."""
        if type(node) is not Task:
            return False
        func = node.func
        found = self._strange.get(id(func))
        if found is None:
            template = type(func) is MethodType or func is pipe
            found = self._strange[id(func)] = not template and known(func) is None
        return found


class _Anything(dict[Any, None]):
    """It does not matter what a task refers to."""

    def get(self, key: Any, default: Any = None) -> None:
        return None
