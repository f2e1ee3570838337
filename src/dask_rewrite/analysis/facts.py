"""What is known of a block without computing it.

Facts come from the functions that make a block, never from what a collection says of itself: users can
state dtypes and chunks wrongly. Unknown stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from dask._task_spec import DataNode, GraphNode, Task
from dask.typing import Key

from dask_rewrite.analysis.declared import Assumed, Declared
from dask_rewrite.analysis.evaluate import Evaluator
from dask_rewrite.analysis.fact_cache import UNKNOWN, fact_of_array, tidy
from dask_rewrite.analysis.functions import function_of, gives_nothing
from dask_rewrite.analysis.knowledge.fact import Fact


class Facts:
    """Facts of the blocks of a graph, found out when asked for.

    Parameters
    ----------
    lookup : callable
        From a key to its node, or None for what lies outside the graph.
    estimate : callable, optional
        From the key of a block of which nothing is known to what is taken for granted of it, or None. For
        estimates only: what follows is not proven.
    said : callable, optional
        The same, asked of each block before it is looked at what makes it.
    declared : Declared, optional
        What collections say of blocks.
    evaluator : Evaluator, optional
        That of other facts of the same graph, which knows its functions and keywords.

    Examples
    --------
    >>> import operator
    >>> from dask._task_spec import TaskRef
    >>> nodes = {
    ...     "x": DataNode("x", np.arange(6).reshape(2, 3)),
    ...     "y": Task("y", operator.getitem, TaskRef("x"), (slice(1), slice(2))),
    ...     "z": Task("z", lambda block: block, TaskRef("y")),
    ... }
    >>> facts = Facts(nodes.get)
    >>> facts.of("y")
    Fact(shape=(1, 2), dtype=dtype('int64'), fill=None, scalar=False)
    >>> facts.of("z") is None
    True
    """

    def __init__(
        self,
        lookup: Callable[[Key], GraphNode | None],
        estimate: Callable[[Key], Any] | None = None,
        declared: Declared | None = None,
        evaluator: Evaluator | None = None,
        said: Callable[[Key], Any] | None = None,
    ) -> None:
        tidy()
        self.lookup = lookup
        self.declared = declared
        self.beliefs: Facts | None = None  #: see `dask_rewrite.analysis.estimates`
        self._estimate, self._said = estimate, said
        self._owners: list[object] = []
        self._values: dict[Key, Any] = {}
        self.evaluator = Evaluator() if evaluator is None else evaluator

    def looking_in(self, lookup: Callable[[Key], GraphNode | None], owner: object = None) -> Facts:
        """These facts, for a later form of the same graph; ``owner`` is emptied with them."""
        tidy()
        self.lookup = lookup
        self._owners.append(owner)
        return self

    def close(self) -> None:
        """Let go of the graph and of all that looked at it, which refer to each other."""
        self.lookup = nowhere
        self.declared = self.beliefs = None
        for owner in self._owners:
            getattr(owner, "__dict__", {}).clear()

    def found(self, key: Key) -> Any:
        """What is known of a key, if that was found already; else None."""
        value = self._values.get(key)
        return None if value is UNKNOWN else value

    def of(self, key: Key) -> Fact | None:
        """The fact of a block, None if nothing is known."""
        value = self._values.get(key)
        if value is None:
            value = self.value(key)
        return value if type(value) is Fact else None

    def within(self, node: Any, values: Any) -> Any:
        """What is known of an expression; ``values.get(name, UNKNOWN)`` tells of what it refers to."""
        return self.evaluator.of(node, values)

    def assumed(self, key: Key) -> Assumed | None:
        """What is declared of a block of which nothing is proven, as far as dask relies on it too."""
        declared = self.declared
        return None if declared is None else declared.of(key, self.lookup(key))

    def of_or_assumed(self, key: Key) -> Fact | Assumed | None:
        """What is proven of a block, else what is taken for granted of it."""
        return self.of(key) or self.assumed(key)

    @property
    def assumes(self) -> bool:
        """Declarations may be relied on."""
        return self.declared is not None and self.declared.assume

    def of_node(self, node: GraphNode) -> Fact | None:
        """The fact of what a node computes, which need not stand in the graph itself."""
        value = self.value_of_node(node)
        return value if type(value) is Fact else None

    def value_of_node(self, node: GraphNode) -> Any:
        """The same as `value`, of what a node computes."""
        for dep in node.dependencies:
            self.value(dep)
        return self._top(node)

    def knows(self, func: Any) -> bool:
        """Whether there may be facts of what a function gives."""
        return self.evaluator.functions.of(func, function_of).is_known

    def same(self, key: Key, others: Iterable[Key]) -> None:
        """Other keys stand for the same value, so that it need not be found out again."""
        if key in self._values:
            self._values.update(dict.fromkeys(others, self._values[key]))

    def tell(self, key: Key, value: Any) -> None:
        """What is known of a block that a rewrite makes."""
        self._values[key] = value

    def tell_list(self, key: Key, parts: Sequence[Key]) -> None:
        """A rewrite makes a list of blocks: what is known of all of them already is known of it."""
        values = self._values
        if all(map(values.__contains__, parts)):
            found = [values[part] for part in parts]
            values[key] = UNKNOWN if any(value is UNKNOWN for value in found) else found
        if self.declared is not None:
            self.declared.tell_list(key, parts)

    def value(self, key: Key) -> Any:
        """What is known of a key: a fact, a list or dict of facts, data, or `UNKNOWN`."""
        values = self._values
        if key in values:
            return values[key]
        lookup, known, evaluator = self.lookup, values.keys(), self.evaluator
        functions, said = evaluator.functions, self._said
        stack = [key]
        opened: set[Key] = set()
        while stack:
            here = stack.pop()
            if here in known:
                continue
            if said is not None and here not in opened and (told := said(here)) is not None:
                values[here] = told
                continue
            node: Any = lookup(here)
            is_task = type(node) is Task
            if is_task and here not in opened and gives_nothing(node, functions):
                node = None  # not worth looking below
            if node is None:
                values[here] = self._guess(here)
                continue
            deps = node._dependencies
            if deps and not known >= deps:
                if here in opened:  # a cycle, which is the verifier's business
                    values[here] = UNKNOWN
                    continue
                opened.add(here)
                stack.append(here)
                stack.extend([dep for dep in deps if dep not in known])
                continue
            found = evaluator.call(node, values) if is_task else self._top(node)
            values[here] = self._guess(here) if found is UNKNOWN else found
        return values[key]

    def _guess(self, key: Key) -> Any:
        """What is taken for granted of a block of which nothing is known."""
        found = None if self._estimate is None else self._estimate(key)
        return UNKNOWN if found is None else found

    def _top(self, node: GraphNode) -> Any:
        if type(node) is DataNode:
            value = node.value
            return fact_of_array(value) if type(value) is np.ndarray else self.evaluator.literal(value)
        return self.evaluator.of(node, self._values)


def nowhere(key: Key) -> None:
    """Nothing is in the graph any more."""


__all__ = ["UNKNOWN", "Fact", "Facts"]
